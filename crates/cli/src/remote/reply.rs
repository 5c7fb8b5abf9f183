//! A parser of a server's replies, RESP2 or RESP3, as far as the commands need it.

use std::io;

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    Error(&'a [u8]),
    Integer(i64),
    /// A bulk or simple string, or a number, big number or boolean as its text.
    Bytes(&'a [u8]),
    Null,
    /// An array, a set, a push, or a map as keys and values in turn.
    Array(Vec<Answer<'a>>),
}

/// Maximum nesting of replies; EXEC's reply with SCAN's in it has three levels.
const DEPTH_MAX: usize = 8;
/// Maximum length of a string: the longest value, with room to spare.
const BULK_MAX: usize = 1 << 30;

/// Parses the reply at the front of `bytes`; returns it with its length, or `None` if it is
/// incomplete.
pub(crate) fn parse(bytes: &[u8]) -> io::Result<Option<(Answer<'_>, usize)>> {
    let mut at = 0;
    Ok(read(bytes, &mut at, DEPTH_MAX)?.map(|answer| (answer, at)))
}

fn read<'a>(bytes: &'a [u8], at: &mut usize, deeper: usize) -> io::Result<Option<Answer<'a>>> {
    let Some(line) = line(bytes, at)? else { return Ok(None) };
    let (kind, text) = line.split_first().ok_or_else(broken)?;
    Ok(Some(match kind {
        b'-' => Answer::Error(text),
        b':' => Answer::Integer(number(text)?),
        b'+' | b',' | b'(' | b'#' => Answer::Bytes(text),
        b'_' => Answer::Null,
        b'$' | b'=' | b'!' => match usize::try_from(number(text)?) {
            Err(_) => Answer::Null,
            Ok(len) if len > BULK_MAX => return Err(broken()),
            Ok(len) => {
                let Some(string) = bytes.get(*at..*at + len + 2) else { return Ok(None) };
                *at += len + 2;
                if *kind == b'!' { Answer::Error(&string[..len]) } else { Answer::Bytes(&string[..len]) }
            }
        },
        b'*' | b'~' | b'>' | b'%' => match usize::try_from(number(text)?) {
            Err(_) => Answer::Null,
            Ok(count) => {
                let deeper = deeper.checked_sub(1).ok_or_else(broken)?;
                let count = if *kind == b'%' { count.saturating_mul(2) } else { count };
                return array(bytes, at, count, deeper);
            }
        },
        _ => return Err(broken()),
    }))
}

fn array<'a>(bytes: &'a [u8], at: &mut usize, count: usize, deeper: usize) -> io::Result<Option<Answer<'a>>> {
    let mut answers = Vec::new();
    for _ in 0..count {
        let Some(answer) = read(bytes, at, deeper)? else { return Ok(None) };
        answers.push(answer);
    }
    Ok(Some(Answer::Array(answers)))
}

/// The line at `at`, without its line end; advances `at` past it.
fn line<'a>(bytes: &'a [u8], at: &mut usize) -> io::Result<Option<&'a [u8]>> {
    let rest = &bytes[*at..];
    let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
        // No line of a reply is that long.
        return if rest.len() > BULK_MAX { Err(broken()) } else { Ok(None) };
    };
    *at += end + 1;
    rest[..end].strip_suffix(b"\r").map(Some).ok_or_else(broken)
}

fn number(text: &[u8]) -> io::Result<i64> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(broken)
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its reply is not the Redis protocol")
}

impl Answer<'_> {
    /// The first error in it.
    pub(crate) fn error(&self) -> Option<&[u8]> {
        match self {
            Answer::Error(text) => Some(text),
            Answer::Array(answers) => answers.iter().find_map(Answer::error),
            _ => None,
        }
    }

    /// The error text of an unexpected answer.
    pub(crate) fn error_text(&self) -> String {
        self.error().map_or_else(|| "unexpected reply".into(), crate::text::escaped)
    }

    /// The last string in it, or nothing.
    pub(crate) fn last_bytes(&self) -> &[u8] {
        match self {
            Answer::Bytes(bytes) => bytes,
            Answer::Array(answers) => answers.last().map_or(b"", Answer::last_bytes),
            _ => b"",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"+OK\r\n-ERR no\r\n$3\r\na\nb\r\n$-1\r\n*2\r\n:1\r\n*2\r\n+a\r\n-x\r\n%1\r\n+a\r\n_\r\n*-1\r\n!3\r\nERR\r\n";

    #[test]
    fn replies_are_parsed_in_order() {
        let (mut rest, mut seen) = (STREAM, Vec::new());
        while let Some((answer, len)) = parse(rest).unwrap() {
            rest = &rest[len..];
            seen.push(answer);
        }
        use Answer::{Array, Bytes, Error, Integer, Null};
        let nested = Array(vec![Integer(1), Array(vec![Bytes(b"a"), Error(b"x")])]);
        assert_eq!(nested.error(), Some(&b"x"[..]));
        let wanted = [
            Bytes(b"OK"),
            Error(b"ERR no"),
            Bytes(b"a\nb"),
            Null,
            nested,
            Array(vec![Bytes(b"a"), Null]),
            Null,
            Error(b"ERR"),
        ];
        assert_eq!((seen.as_slice(), rest), (&wanted[..], &b""[..]));
    }

    #[test]
    fn incomplete_reply_is_none() {
        let whole = b"*2\r\n$3\r\na\nb\r\n:12\r\n";
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]).unwrap(), None, "{cut}");
        }
        assert!(parse(whole).unwrap().is_some());
    }

    #[test]
    fn malformed_replies_are_errors() {
        let deep = b"*1\r\n".repeat(100);
        for wrong in [&b"HTTP/1.1 200 OK\r\n"[..], b"\r\n", b"+OK\n", b":x\r\n", b"$99999999999\r\n", &deep] {
            assert!(parse(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }
}
