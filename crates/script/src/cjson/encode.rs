//! Values of Lua as JSON.

use mlua::{Lua, Table, Value};

use super::options::{Invalid, Options};
use crate::{control::Control, fault, number::general, resp::number_of};

/// Writes one text.
pub(super) struct Encoder<'a> {
    pub(super) lua: &'a Lua,
    pub(super) options: Options,
    pub(super) control: &'a Control,
    pub(super) out: Vec<u8>,
}

impl Encoder<'_> {
    pub(super) fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.control.work(1).map_err(fault::stopped)?;
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Table(table) => self.table(table, depth + 1)?,
            Value::LightUserData(pointer) if pointer.0.is_null() => self.out.extend_from_slice(b"null"),
            value => match number_of(value) {
                Some(number) => self.number(number)?,
                None => return Err(self.refusal(value, "type not supported")),
            },
        }
        // No limit of the state's memory counts the text while it grows.
        self.control.has_room(self.out.len()).map_err(|()| fault::no_memory())
    }

    fn refusal(&self, value: &Value, why: &str) -> mlua::Error {
        let kind = match value {
            Value::Integer(_) => "number",
            Value::LightUserData(_) | Value::UserData(_) | Value::Error(_) => "userdata",
            value => value.type_name(),
        };
        fault::at_call(self.lua, &format!("Cannot serialise {kind}: {why}"))
    }

    fn number(&mut self, number: f64) -> mlua::Result<()> {
        let text = match self.options.encode_invalid {
            _ if number.is_finite() => general(number, self.options.precision),
            Invalid::Refuse => return Err(self.refusal(&Value::Number(number), "must not be NaN or Inf")),
            Invalid::Null => "null".into(),
            Invalid::Keep if number.is_nan() => "nan".into(),
            Invalid::Keep => general(number, self.options.precision),
        };
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for &byte in text {
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'/' => self.out.extend_from_slice(b"\\/"),
                8 => self.out.extend_from_slice(b"\\b"),
                9 => self.out.extend_from_slice(b"\\t"),
                10 => self.out.extend_from_slice(b"\\n"),
                12 => self.out.extend_from_slice(b"\\f"),
                13 => self.out.extend_from_slice(b"\\r"),
                0..=31 | 127 => self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                byte => self.out.push(byte),
            }
        }
        self.out.push(b'"');
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        if depth > self.options.encode_depth {
            return Err(fault::at_call(self.lua, &format!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.array_length(table)? {
            Some(length) => self.array(table, length, depth),
            None => self.object(table, depth),
        }
    }

    /// The largest key of a table that is to be an array.
    fn array_length(&self, table: &Table) -> mlua::Result<Option<usize>> {
        let (mut most, mut count) = (0, 0_usize);
        for pair in table.pairs::<Value, Value>() {
            match number_of(&pair?.0) {
                Some(key) if key >= 1.0 && key.fract() == 0.0 && key < 9e15 => most = most.max(key as usize),
                _ => return Ok(None),
            }
            count += 1;
        }
        let Options { sparse_ratio, sparse_safe, sparse_converts, .. } = self.options;
        let is_sparse = sparse_ratio > 0 && most > count.saturating_mul(sparse_ratio) && most > sparse_safe;
        match is_sparse {
            false => Ok((count > 0).then_some(most)),
            true if sparse_converts => Ok(None),
            true => Err(fault::at_call(self.lua, "Cannot serialise table: excessively sparse array")),
        }
    }

    fn array(&mut self, table: &Table, length: usize, depth: usize) -> mlua::Result<()> {
        self.out.push(b'[');
        for nth in 1..=length {
            if nth > 1 {
                self.out.push(b',');
            }
            self.value(&table.raw_get::<Value>(nth)?, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        self.out.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            match (&key, number_of(&key)) {
                (Value::String(key), _) => self.text(&key.as_bytes()),
                (_, Some(number)) => {
                    self.out.push(b'"');
                    self.number(number)?;
                    self.out.push(b'"');
                }
                (key, None) => return Err(self.refusal(key, "table key must be a number or string")),
            }
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}
