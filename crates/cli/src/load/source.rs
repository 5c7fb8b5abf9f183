//! Where a load comes from, and in what format.

use std::{
    io::{self, BufRead, BufReader, Cursor, Read, stdin},
    path::Path,
};

use terrace_medium::files::Files;

use super::progress::Progress;
use crate::{args::Format, failure::Failure};

/// A file or standard input.
pub(super) struct Source {
    /// For messages.
    pub(super) name: String,
    pub(super) reader: Box<dyn BufRead>,
    extension: Option<Format>,
}

const BUFFER: usize = 1 << 20;

impl Source {
    /// Opens it; `progress` sees what is read.
    pub(super) fn open<F: Files>(files: &F, path: &Path, progress: &Progress) -> Result<Source, Failure> {
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

    /// Skips the mark of UTF-8 that some programs begin a text with.
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

    /// Its format: as said, by its name, or by its first bytes.
    pub(super) fn format(&mut self, said: Option<Format>) -> Result<Format, Failure> {
        if let Some(format) = said.or(self.extension) {
            return Ok(format);
        }
        let begin = self.reader.fill_buf()?;
        if begin.starts_with(b"\x1f\x8b") {
            let how = format!("gzip -dc {} | terrace load - --format csv, jsonl or resp", self.name);
            return Err(Failure::usage(format!("{} is compressed with gzip", self.name)).hint(how));
        }
        by_content(begin).ok_or_else(|| {
            Failure::usage(format!("cannot tell the format of {}", self.name))
                .hint("CSV begins with a header that names key and value, JSON lines with {, a Redis protocol stream with *")
                .hint("to say it: --format csv, --format jsonl or --format resp")
        })
    }
}

/// Says of an error where it happened.
struct Named<R> {
    name: String,
    below: R,
}

impl<R: Read> Read for Named<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.below.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            kind => io::Error::new(kind, format!("cannot read {} to its end: {error}", self.name)),
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
    fn formats_are_told_by_name_and_by_content() {
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
