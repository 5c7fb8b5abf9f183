//! The source of a load, and its format.

use std::{
    io::{self, BufRead, BufReader, Cursor, Read, stdin},
    path::Path,
};

use clap::ValueEnum;
use terrace_medium::files::Files;

use super::progress::Progress;
use crate::failure::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A header, then one record per line
    Csv,
    /// One JSON object per line
    #[value(alias = "json", alias = "ndjson")]
    Jsonl,
    /// The Redis protocol, as redis-cli --pipe accepts it
    #[value(alias = "redis")]
    Resp,
}

/// A file or standard input.
pub(super) struct Source {
    /// For messages.
    pub(super) name: String,
    pub(super) reader: Box<dyn BufRead>,
    extension: Option<Format>,
}

const BUFFER: usize = 1 << 20;

impl Source {
    /// Opens the source; `progress` counts what is read.
    pub(super) fn open(files: &dyn Files, path: &Path, progress: &Progress) -> Result<Source, Failure> {
        if path == Path::new("-") {
            let stream = Named { name: "standard input".into(), below: stdin() };
            return Ok(Source { extension: None, ..Source::reading(stream, None, progress) });
        }
        let cannot = |error: io::Error| match error.kind() {
            io::ErrorKind::IsADirectory => {
                Failure::new(format!("cannot read {}: it is a directory", path.display()))
            }
            _ => Failure::new(format!("cannot read {}: {error}", path.display())),
        };
        let (below, length) = files.stream(path).map_err(cannot)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let source = Source::reading(Named { name, below }, length, progress);
        Ok(Source { extension: by_name(path), ..source })
    }

    fn reading<R: Read + 'static>(stream: Named<R>, length: Option<u64>, progress: &Progress) -> Source {
        let name = stream.name.clone();
        let reader = BufReader::with_capacity(BUFFER, progress.watch(stream, length));
        Source { name, reader: Box::new(reader), extension: None }
    }

    /// Skips the byte order mark with which some programs begin UTF-8 text.
    pub(super) fn skip_mark(&mut self) -> Result<(), Failure> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        let mut begin = Vec::new();
        self.reader.by_ref().take(MARK.len() as u64).read_to_end(&mut begin)?;
        if begin == MARK {
            begin.clear();
        }
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(Cursor::new(begin).chain(rest));
        Ok(())
    }

    /// The format: as chosen, or by the file's name, or by its first bytes.
    pub(super) fn format(&mut self, chosen: Option<Format>) -> Result<Format, Failure> {
        if let Some(format) = chosen.or(self.extension) {
            return Ok(format);
        }
        let begin = self.reader.fill_buf()?;
        if begin.starts_with(b"\x1f\x8b") {
            let how = format!("gzip -dc {} | terrace load - --format csv, jsonl or resp", self.name);
            return Err(Failure::usage(format!("{} is compressed with gzip", self.name)).hint(how));
        }
        by_content(begin).ok_or_else(|| {
            Failure::usage(format!("cannot detect the format of {}", self.name))
                .hint("CSV begins with a header that names key and value, JSON lines with {, a Redis protocol stream with *")
                .hint("to choose it: --format csv, --format jsonl or --format resp")
        })
    }
}

/// Adds the source's name to the text of read errors.
struct Named<R> {
    name: String,
    below: R,
}

impl<R: Read> Read for Named<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.below.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            kind => io::Error::new(kind, format!("cannot read all of {}: {error}", self.name)),
        })
    }
}

fn by_name(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "csv" => Some(Format::Csv),
        "jsonl" | "ndjson" | "json" => Some(Format::Jsonl),
        "resp" | "redis" => Some(Format::Resp),
        _ => None,
    }
}

fn by_content(begin: &[u8]) -> Option<Format> {
    let begin = begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(begin);
    match begin.first()? {
        b'*' => Some(Format::Resp),
        b'{' => Some(Format::Jsonl),
        _ => {
            let line = begin.split(|&byte| byte == b'\n').next()?;
            let line = String::from_utf8_lossy(line).to_ascii_lowercase();
            let names: Vec<&str> = line.split(',').map(|name| name.trim().trim_matches('"')).collect();
            (names.contains(&"key") && names.contains(&"value")).then_some(Format::Csv)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_detected_by_name_and_by_content() {
        assert_eq!(by_name(Path::new("/a/users.CSV")), Some(Format::Csv));
        assert_eq!(by_name(Path::new("dump.ndjson")), Some(Format::Jsonl));
        assert_eq!(by_name(Path::new("csv")), None);
        assert_eq!(by_content(b"*3\r\n$3\r\nSET"), Some(Format::Resp));
        assert_eq!(by_content(b"{\"key\":1}"), Some(Format::Jsonl));
        assert_eq!(by_content(b"\xef\xbb\xbf\"key\", Value ,ttl\r\na,b"), Some(Format::Csv));
        assert_eq!(by_content(b"id,name\n"), None);
        assert_eq!(by_content(b""), None);
    }
}
