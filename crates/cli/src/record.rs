//! One record as a line of JSON: what `dump` and `scan --json` write and `load` reads.
//!
//! `{"key":"user:7","value":"Ada","expires_at_ms":1799999999999}`; a key or value that is no text stands in `key_base64` or
//! `value_base64`, so that every record comes back byte for byte. `load` takes `ttl` (seconds from now) too.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use terrace::Put;

/// A key, its value, and when it expires (Unix ms).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) expires_at: Option<u64>,
}

impl Record {
    pub(crate) fn as_put(&self) -> Put<'_> {
        Put { key: &self.key, value: &self.value, expires_at: self.expires_at }
    }
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    key: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
}

/// A record as one line, without its end.
pub(crate) fn to_json(key: &[u8], value: &[u8], expires_at: Option<u64>) -> String {
    let mut line = Line { expires_at_ms: expires_at, ..Line::default() };
    match std::str::from_utf8(key) {
        Ok(text) => line.key = Some(text.into()),
        Err(_) => line.key_base64 = Some(BASE64_STANDARD.encode(key)),
    }
    match std::str::from_utf8(value) {
        Ok(text) => line.value = Some(text.into()),
        Err(_) => line.value_base64 = Some(BASE64_STANDARD.encode(value)),
    }
    // Strings and numbers have no way to fail.
    serde_json::to_string(&line).unwrap_or_default()
}

/// Reads a line; the error says what is wrong with it.
pub(crate) fn from_json(line: &[u8], now_ms: u64) -> Result<Record, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| json_error(&error))?;
    let value = match line.value {
        None => None,
        Some(Value::String(text)) => Some(text.into_bytes()),
        Some(Value::Number(number)) => Some(number.to_string().into_bytes()),
        Some(_) => return Err("the value must be a string or a number".into()),
    };
    Ok(Record {
        key: one_of("key", line.key.map(|text| text.into_owned().into_bytes()), line.key_base64)?,
        value: one_of("value", value, line.value_base64)?,
        expires_at: match (line.ttl, line.expires_at_ms) {
            (Some(_), Some(_)) => return Err("it has both ttl and expires_at_ms".into()),
            (Some(ttl), None) => Some(expiry_after(ttl, now_ms)?),
            (None, at) => at,
        },
    })
}

/// When something that lives `ttl` seconds expires.
pub(crate) fn expiry_after(ttl: f64, now_ms: u64) -> Result<u64, String> {
    // Redis's own bound: Unix ms that fit a signed word.
    let most = (i64::MAX / 2) as f64;
    let ms = ttl * 1000.0;
    if !(ms >= 1.0 && ms < most) {
        return Err(format!("the ttl {ttl} is not a number of seconds above 0"));
    }
    Ok(now_ms + ms as u64)
}

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

/// The library's words without its place, which counts lines within the one line.
fn json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    format!("not a record in JSON: {text} (at its byte {})", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_comes_back() {
        for (key, value, expires_at) in [
            (&b"user:7"[..], &b"Ada"[..], None),
            (b"\xff\x00", b"\x80", Some(4_102_444_800_000)),
            ("λ\"\n".as_bytes(), b"", Some(0)),
            (b"k", &[0; 300], None),
        ] {
            let line = to_json(key, value, expires_at);
            assert!(!line.contains('\n'));
            let record = Record { key: key.into(), value: value.into(), expires_at };
            assert_eq!(from_json(line.as_bytes(), 5), Ok(record), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
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
            ("{\"key\":\"a\",\"value\":\"b\"} x", "trailing"),
        ] {
            let error = from_json(line.as_bytes(), 0).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn numbers_and_times_to_live_are_taken() {
        let record = from_json(b"{\"key\":\"a\",\"value\":12.50,\"ttl\":1.5}", 1000).unwrap();
        assert_eq!(record, Record { key: b"a".into(), value: b"12.5".into(), expires_at: Some(2500) });
    }
}
