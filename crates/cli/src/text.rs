//! Numbers, times and bytes as people read and write them.

use std::{fmt::Write, time::Duration};

/// `1234567` as `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count, followed by `one` or `many`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", thousands(number), if number == 1 { one } else { many })
}

/// A duration in the unit that fits: `850 ns`, `12 µs`, `3.4 ms`, `2.1 s`.
pub(crate) fn duration(time: Duration) -> String {
    let ns = time.as_nanos() as f64;
    let (scaled, unit) = match ns {
        ns if ns < 1e3 => return format!("{ns:.0} ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let decimals = usize::from(scaled < 9.95);
    format!("{scaled:.decimals$} {unit}")
}

/// Bytes as one line for a terminal: text unchanged, anything else escaped as in `\n` or `\x1b`.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                c if c.is_control() || is_invisible(c) => {
                    let mut buffer = [0; 4];
                    c.encode_utf8(&mut buffer).bytes().for_each(|byte| hex(&mut text, byte));
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|&byte| hex(&mut text, byte));
    }
    text
}

/// Whether a character is invisible, and may reorder or hide the text around it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn hex(text: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\\x{byte:02x}");
}

/// A time to live in milliseconds: `30` (seconds), `500ms`, `10m`, `2h`, `7d`.
pub(crate) fn parse_ttl(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("give seconds, or 500ms, 10m, 2h, 7d".into()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| "give seconds, or 500ms, 10m, 2h, 7d")?;
    match number.checked_mul(unit) {
        Some(ms) if ms > 0 && ms < 1 << 62 => Ok(ms),
        _ => Err("a time to live must be above 0 and below 2^62 ms".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (88_213, "88,213"), (1_310_720, "1,310,720")]
        {
            assert_eq!(thousands(number), text);
        }
        assert_eq!(counted(1, "record", "records"), "1 record");
        assert_eq!(counted(2, "record", "records"), "2 records");
    }

    #[test]
    fn durations_have_the_unit_that_fits() {
        for (ns, text) in [
            (850, "850 ns"),
            (1000, "1.0 µs"),
            (9950, "10 µs"),
            (12_000, "12 µs"),
            (1_000_000, "1.0 ms"),
            (3_400_000, "3.4 ms"),
            (1_000_000_000, "1.0 s"),
            (2_100_000_000, "2.1 s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(ns)), text);
        }
    }

    #[test]
    fn escaped_bytes_contain_no_control_characters() {
        assert_eq!(escaped("Ada Λ".as_bytes()), "Ada Λ");
        assert_eq!(escaped(b"a\nb\x1b[31m\\\xff"), "a\\nb\\x1b[31m\\\\\\xff");
        assert_eq!(escaped("\u{202e}x".as_bytes()), "\\xe2\\x80\\xaex");
    }

    #[test]
    fn times_to_live_have_units() {
        for (text, ms) in [
            ("30", 30_000),
            ("500ms", 500),
            ("1s", 1000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("4611686018427387903ms", (1 << 62) - 1),
        ] {
            assert_eq!(parse_ttl(text), Ok(ms));
        }
        for text in [
            "",
            "0",
            "-1",
            "1.5",
            "1w",
            "s",
            "99999999999999999999",
            "9999999999999999d",
            "4611686018427387904ms",
        ] {
            assert!(parse_ttl(text).is_err(), "{text}");
        }
    }
}
