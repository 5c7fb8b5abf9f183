//! Inline commands: a line of words, as typed over telnet.
//!
//! Words are split at spaces. `"…"` understands `\n \r \t \b \a \xHH` and `\` before any other
//! byte; `'…'` only `\'`. A closing quote must be followed by a space or the end. As in Redis, a
//! NUL byte ends the line.

use crate::{ProtocolError, args::Span};

/// Splits `line` into words and appends their places; `base` is the place of the line itself.
///
/// Unquoting never lengthens a word, so it is done in place and nothing is allocated.
pub(crate) fn split(line: &mut [u8], base: usize, spans: &mut Vec<Span>) -> Result<(), ProtocolError> {
    let end = line.iter().position(|&byte| byte == 0).unwrap_or(line.len());
    let mut at = 0;
    loop {
        while at < end && is_space(line[at]) {
            at += 1;
        }
        if at == end {
            return Ok(());
        }
        let start = at;
        let (next, len) = unquote_word(&mut line[..end], start)?;
        spans.push(Span { start: base + start, len });
        at = next;
    }
}

/// Unquotes the word that begins at `start`. Returns its end in the line and its new length.
fn unquote_word(line: &mut [u8], start: usize) -> Result<(usize, usize), ProtocolError> {
    let (mut read, mut write) = (start, start);
    while read < line.len() {
        match line[read] {
            b' ' | b'\n' | b'\r' | b'\t' => break,
            quote @ (b'"' | b'\'') => {
                (read, write) = unquote(line, quote, read + 1, write)?;
                if read < line.len() && !is_space(line[read]) {
                    return Err(ProtocolError::UnbalancedQuotes);
                }
                break;
            }
            byte => {
                line[write] = byte;
                (read, write) = (read + 1, write + 1);
            }
        }
    }
    Ok((read, write - start))
}

/// Copies quoted bytes from `read` to `write`. Returns both positions past the closing quote.
fn unquote(
    line: &mut [u8],
    quote: u8,
    mut read: usize,
    mut write: usize,
) -> Result<(usize, usize), ProtocolError> {
    loop {
        let (byte, taken) = match (quote, line.get(read..).unwrap_or_default()) {
            (_, []) => return Err(ProtocolError::UnbalancedQuotes),
            (_, [byte, ..]) if *byte == quote => return Ok((read + 1, write)),
            (b'"', [b'\\', b'x', high, low, ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), 4)
            }
            (b'"', [b'\\', escaped, ..]) => (unescape(*escaped), 2),
            (b'\'', [b'\\', b'\'', ..]) => (b'\'', 2),
            (_, [byte, ..]) => (*byte, 1),
        };
        line[write] = byte;
        (read, write) = (read + taken, write + 1);
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        other => (other | 0x20) - b'a' + 10,
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut line = line.to_vec();
        let mut spans = Vec::new();
        split(&mut line, 0, &mut spans).ok()?;
        Some(spans.iter().map(|span| line[span.start..span.start + span.len].to_vec()).collect())
    }

    #[test]
    fn quotes_and_escapes_are_those_of_redis() {
        let cases: &[(&[u8], &[&[u8]])] = &[
            (b"", &[]),
            (b"  \t ", &[]),
            (b"set a b", &[b"set", b"a", b"b"]),
            (b" set  a\tb ", &[b"set", b"a", b"b"]),
            (b"set \"a b\" 'c d'", &[b"set", b"a b", b"c d"]),
            (b"a\"b c\" d", &[b"ab c", b"d"]),
            (b"\"\\x41\\n\\r\\t\\b\\a\\q\\\"\"", &[b"A\n\r\t\x08\x07q\""]),
            (b"\"\\xzz\"", &[b"xzz"]),
            (b"'\\'\\n'", &[b"'\\n"]),
            (b"\"\" ''", &[b"", b""]),
            (b"a\0b", &[b"a"]),
        ];
        for (line, expected) in cases {
            let expected: Vec<Vec<u8>> = expected.iter().map(|word| word.to_vec()).collect();
            assert_eq!(words(line), Some(expected), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn quote_must_close_and_precede_a_space() {
        for line in [&b"\"a"[..], b"'a", b"\"a\"b", b"'a'b", b"\"a\\", b"\"a\\\"", b"\"a\0\""] {
            assert_eq!(words(line), None, "{}", line.escape_ascii());
        }
    }
}
