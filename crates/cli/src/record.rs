//! One record as a line of JSON: `dump` and `scan --json` write it, `load` reads it.
//!
//! `{"key":"user:7","value":"Ada","expires_at_ms":1799999999999}`; a key or value that is not text
//! is in `key_base64` or `value_base64`, so every record is restored byte for byte. `load` also
//! accepts `ttl` (seconds from now). `"db":3` names another database than 0.

use std::borrow::Cow;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use terrace::Put;
use terrace_server::databases::DATABASES;

use crate::entry::Found;

/// A key, its value, when it expires (Unix ms), and its database if that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) expires_at: Option<u64>,
    pub(crate) database: Option<u8>,
}

impl Record {
    pub(crate) fn as_put(&self) -> Put<'_> {
        Put { key: &self.key, value: &self.value, expires_at: self.expires_at }
    }
}

/// A line to write.
#[derive(Default, Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    db: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
}

/// A line that was read. Numbers keep their literal text, which parsing and printing could change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    db: Option<&'a RawValue>,
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    key_base64: Option<String>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    value_base64: Option<String>,
    #[serde(borrow)]
    ttl: Option<&'a RawValue>,
    #[serde(borrow)]
    expires_at_ms: Option<&'a RawValue>,
}

/// A record of a database as one line, without its end.
pub(crate) fn to_json(database: u8, key: &[u8], Found { value, expires_at }: Found<'_>) -> String {
    let db = (database != 0).then_some(database);
    let mut line = Written { db, expires_at_ms: expires_at, ..Written::default() };
    match text(key) {
        Some(text) => line.key = Some(text),
        None => line.key_base64 = Some(BASE64_STANDARD.encode(key)),
    }
    match text(value) {
        Some(text) => line.value = Some(text),
        None => line.value_base64 = Some(BASE64_STANDARD.encode(value)),
    }
    // Strings and numbers have no way to fail.
    serde_json::to_string(&line).unwrap_or_default()
}

/// Bytes as text, if they are UTF-8 and JSON's escapes do not make them longer than base64. JSON
/// uses six bytes for a control character, so the longest value might exceed `load`'s line limit.
fn text(bytes: &[u8]) -> Option<&str> {
    let longer: usize = bytes
        .iter()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
            0..=0x1f => 5,
            _ => 0,
        })
        .sum();
    if longer > bytes.len() / 3 + 16 {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

/// Parses a line; the error describes what is wrong.
pub(crate) fn from_json(line: &[u8], now_ms: u64) -> Result<Record, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| json_error(&error))?;
    let literal = |raw: Option<&RawValue>, what| raw.map(|raw| literal(raw, what)).transpose();
    let value = literal(line.value, "the value")?.map(String::into_bytes);
    let (ttl, at) = (literal(line.ttl, "the ttl")?, literal(line.expires_at_ms, "expires_at_ms")?);
    Ok(Record {
        key: one_of("key", line.key.map(|text| text.into_owned().into_bytes()), line.key_base64)?,
        value: one_of("value", value, line.value_base64)?,
        expires_at: expiry(ttl.as_deref(), at.as_deref(), now_ms)?,
        database: line.db.map(|raw| database(raw.get())).transpose()?,
    })
}

fn database(text: &str) -> Result<u8, String> {
    let number = text.parse().ok().filter(|number| *number < DATABASES);
    number.ok_or_else(|| format!("db `{text}` is not the number of a database, from 0 to 15"))
}

/// A string's content, or a number's literal text.
fn literal(raw: &RawValue, what: &str) -> Result<String, String> {
    match raw.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw.get()).map_err(|error| json_error(&error)),
        Some(b'-' | b'0'..=b'9') => Ok(raw.get().into()),
        _ => Err(format!("{what} must be a string or a number")),
    }
}

/// The expiry of a record with this `ttl` (seconds) or `expires_at_ms` (since 1970). All formats
/// follow the rule of SET's EX and PXAT: times are above 0.
pub(crate) fn expiry(ttl: Option<&str>, at_ms: Option<&str>, now_ms: u64) -> Result<Option<u64>, String> {
    match (ttl, at_ms) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err("it has both ttl and expires_at_ms".into()),
        (Some(ttl), None) => {
            let ms = ttl.parse::<f64>().map_or(0.0, |seconds| (seconds * 1000.0).round());
            // No range contains NaN.
            let at = if (1.0..TIME_MAX as f64).contains(&ms) { now_ms.saturating_add(ms as u64) } else { 0 };
            let at = (1..=TIME_MAX).contains(&at).then_some(Some(at));
            at.ok_or_else(|| format!("the ttl `{ttl}` is not a number of seconds above 0"))
        }
        (None, Some(at_ms)) => {
            let at = at_ms.parse().ok().filter(|at| (1..=TIME_MAX).contains(at)).map(Some);
            at.ok_or_else(|| {
                format!("expires_at_ms `{at_ms}` is not a number of milliseconds since 1970, above 0")
            })
        }
    }
}

/// Redis's limit: Unix milliseconds that fit a signed 64-bit integer.
const TIME_MAX: u64 = i64::MAX as u64;

fn one_of(name: &str, plain: Option<Vec<u8>>, base64: Option<String>) -> Result<Vec<u8>, String> {
    match (plain, base64) {
        (Some(bytes), None) => Ok(bytes),
        (None, Some(text)) => {
            BASE64_STANDARD.decode(text).map_err(|error| format!("{name}_base64 is not base64: {error}"))
        }
        (None, None) => Err(format!("it has no {name}")),
        (Some(_), Some(_)) => Err(format!("it has both {name} and {name}_base64")),
    }
}

/// The library's message without its position, whose line number is always 1.
fn json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    format!("not a record in JSON: {text} (at its byte {})", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_restored_exactly() {
        for (key, value, expires_at) in [
            (&b"user:7"[..], &b"Ada"[..], None),
            (b"\xff\x00", b"\x80", Some(4_102_444_800_000)),
            ("λ\"\n".as_bytes(), b"", Some(1)),
            (b"k", &[0; 300], Some(i64::MAX as u64)),
            (b"", b"\x00\x1f\x7f\\/\"", None),
            (b"k", "a\u{2028}\u{feff}\u{10ffff}".as_bytes(), None),
        ] {
            for database in [0, 15] {
                let line = to_json(database, key, Found { value, expires_at });
                assert!(!line.contains('\n'));
                let database = (database != 0).then_some(database);
                let record = Record { key: key.into(), value: value.into(), expires_at, database };
                assert_eq!(from_json(line.as_bytes(), 5), Ok(record), "{line}");
            }
        }
    }

    #[test]
    fn errors_describe_the_fault() {
        for (line, why) in [
            ("", "EOF"),
            ("[]", "not a record"),
            ("{\"key\":\"a\"}", "no value"),
            ("{\"value\":\"a\"}", "no key"),
            ("{\"key\":\"a\",\"value\":null}", "no value"),
            ("{\"key\":\"a\",\"value\":[1]}", "a string or a number"),
            ("{\"key\":\"a\",\"value\":\"b\",\"colour\":1}", "colour"),
            ("{\"key\":\"a\",\"key_base64\":\"YQ==\",\"value\":\"b\"}", "both key"),
            ("{\"key\":\"a\",\"value_base64\":\"%\"}", "not base64"),
            ("{\"key\":\"a\",\"value\":\"b\",\"ttl\":0}", "ttl"),
            ("{\"key\":\"a\",\"value\":\"b\",\"ttl\":1e300}", "ttl"),
            ("{\"key\":\"a\",\"value\":\"b\",\"ttl\":1,\"expires_at_ms\":1}", "both ttl"),
            ("{\"key\":\"a\",\"value\":\"b\",\"db\":16}", "from 0 to 15"),
            ("{\"key\":\"a\",\"value\":\"b\",\"db\":\"1\"}", "from 0 to 15"),
            ("{\"key\":\"a\",\"value\":\"b\"} x", "trailing"),
        ] {
            let error = from_json(line.as_bytes(), 0).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn numbers_are_kept_digit_by_digit() {
        for number in ["12345678901234567890123", "1e5", "1.10", "-0", "0.30000000000000004", "1E+400"] {
            let record = from_json(format!("{{\"key\":\"a\",\"value\": {number} }}").as_bytes(), 0).unwrap();
            assert_eq!(record.value, number.as_bytes());
        }
    }

    #[test]
    fn control_characters_are_written_in_base64() {
        for value in [&[1; 3000][..], &[b'\n'; 3000]] {
            assert!(to_json(0, b"k", Found { value, expires_at: None }).len() < 4100);
        }
        assert!(to_json(0, b"k", Found { value: b"two\nlines", expires_at: None }).contains("two\\nlines"));
    }

    #[test]
    fn times_follow_one_rule() {
        let ttl = |text| expiry(Some(text), None, 1000);
        let at = |text| expiry(None, Some(text), 1000);
        for (text, ms) in [("1.5", 2500), ("1.001", 2001), ("0.001", 1001), ("1e3", 1_001_000)] {
            assert_eq!(ttl(text), Ok(Some(ms)));
        }
        for text in
            ["0", "-1", "0.0001", "inf", "nan", "NaN", "1e300", "9223372036854775807", "soon", "", "1s"]
        {
            assert!(ttl(text).is_err(), "{text}");
        }
        assert_eq!((at("1"), at("9223372036854775807")), (Ok(Some(1)), Ok(Some(i64::MAX as u64))));
        for text in ["0", "-1", "9223372036854775808", "1.5", "1e3", "inf", ""] {
            assert!(at(text).is_err(), "{text}");
        }
        assert_eq!(expiry(None, None, 1000), Ok(None));
        assert!(expiry(Some("1"), Some("1"), 1000).is_err());
    }
}
