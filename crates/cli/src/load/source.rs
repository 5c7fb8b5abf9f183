//! Where a load comes from, and in what format.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, stdin},
    path::Path,
};

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
    pub(super) fn open(path: &Path, progress: &Progress) -> Result<Source, Failure> {
        if path == Path::new("-") {
            let reader = Box::new(BufReader::with_capacity(BUFFER, progress.watch(stdin(), None)));
            return Ok(Source { name: "standard input".into(), reader, extension: None });
        }
        let cannot = |error| Failure::new(format!("cannot read {}: {error}", path.display()));
        let file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if metadata.is_dir() {
            return Err(Failure::new(format!("cannot read {}: it is a directory", path.display())));
        }
        let length = metadata.is_file().then_some(metadata.len());
        let reader: Box<dyn Read> = Box::new(progress.watch(file, length));
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Source {
            name,
            reader: Box::new(BufReader::with_capacity(BUFFER, reader)),
            extension: by_name(path),
        })
    }

    /// Its format: as said, by its name, or by its first bytes.
    pub(super) fn format(&mut self, said: Option<Format>) -> Result<Format, Failure> {
        if let Some(format) = said.or(self.extension) {
            return Ok(format);
        }
        let begin = self.reader.fill_buf()?;
        by_content(begin).ok_or_else(|| {
            Failure::usage(format!("cannot tell the format of {}", self.name))
                .hint("CSV begins with a header that names key and value, JSON lines with {, a Redis protocol stream with *")
                .hint("to say it: --format csv, --format jsonl or --format resp")
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
