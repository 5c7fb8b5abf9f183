//! Replies of commands as values of Lua, and values of Lua as replies, as Redis converts them.

use mlua::{Lua, Table, Value};
use terrace_protocol::Reply;

use crate::{
    fault,
    host::Host,
    number::{self, truncated},
};

/// Maximum depth of a reply that a script makes.
const DEPTH_MOST: usize = 200;

/// An encoded reply that is read.
pub(crate) struct Encoded<'a> {
    rest: &'a [u8],
}

impl<'a> Encoded<'a> {
    pub(crate) fn new(reply: &'a [u8]) -> Encoded<'a> {
        Encoded { rest: reply }
    }

    /// The next reply.
    pub(crate) fn value(&mut self, lua: &Lua) -> mlua::Result<Value> {
        let (kind, line) = self.line()?;
        let text = || lua.create_string(line).map(Value::String);
        Ok(match kind {
            b':' => Value::Number(count(line)? as f64),
            b'+' => Value::Table(field(lua, "ok", text()?)?),
            b'-' => Value::Table(fault::error_table(lua, line)?),
            b'$' => match length(line)? {
                Some(length) => Value::String(lua.create_string(self.bytes(length)?)?),
                None => Value::Boolean(false),
            },
            b'*' | b'>' => match length(line)? {
                Some(length) => Value::Table(self.array(lua, length)?),
                None => Value::Boolean(false),
            },
            b'_' => Value::Nil,
            b'#' => Value::Boolean(line == b"t"),
            b',' => Value::Table(field(lua, "double", Value::Number(double(line)))?),
            b'(' => Value::Table(field(lua, "big_number", text()?)?),
            b'%' => Value::Table(self.map(lua, length(line)?.unwrap_or(0))?),
            b'~' => Value::Table(self.set(lua, length(line)?.unwrap_or(0))?),
            b'=' => Value::Table(self.verbatim(lua, length(line)?.unwrap_or(0))?),
            _ => return Err(unreadable()),
        })
    }

    fn array(&mut self, lua: &Lua, length: usize) -> mlua::Result<Table> {
        let table = lua.create_table_with_capacity(length.min(1 << 16), 0)?;
        for nth in 1..=length {
            table.raw_set(nth, self.value(lua)?)?;
        }
        Ok(table)
    }

    fn map(&mut self, lua: &Lua, length: usize) -> mlua::Result<Table> {
        let pairs = lua.create_table()?;
        for _ in 0..length {
            let key = self.value(lua)?;
            pairs.raw_set(key, self.value(lua)?)?;
        }
        field(lua, "map", Value::Table(pairs))
    }

    fn set(&mut self, lua: &Lua, length: usize) -> mlua::Result<Table> {
        let members = lua.create_table()?;
        for _ in 0..length {
            members.raw_set(self.value(lua)?, true)?;
        }
        field(lua, "set", Value::Table(members))
    }

    fn verbatim(&mut self, lua: &Lua, length: usize) -> mlua::Result<Table> {
        let bytes = self.bytes(length)?;
        let (format, text) = bytes.split_at_checked(4).ok_or_else(unreadable)?;
        let inner = lua.create_table()?;
        inner.raw_set("format", lua.create_string(&format[..3])?)?;
        inner.raw_set("string", lua.create_string(text)?)?;
        field(lua, "verbatim_string", Value::Table(inner))
    }

    /// The kind of the next reply, and the rest of its first line.
    fn line(&mut self) -> mlua::Result<(u8, &'a [u8])> {
        let end = self.rest.windows(2).position(|pair| pair == b"\r\n").ok_or_else(unreadable)?;
        let (kind, line) = self.rest[..end].split_first().ok_or_else(unreadable)?;
        self.rest = &self.rest[end + 2..];
        Ok((*kind, line))
    }

    /// So many bytes and a line end.
    fn bytes(&mut self, length: usize) -> mlua::Result<&'a [u8]> {
        let bytes = self.rest.get(..length).ok_or_else(unreadable)?;
        self.rest = self.rest.get(length + 2..).ok_or_else(unreadable)?;
        Ok(bytes)
    }
}

fn unreadable() -> mlua::Error {
    fault::plain("ERR internal error: a command's reply cannot be read")
}

fn field(lua: &Lua, name: &str, value: Value) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set(name, value)?;
    Ok(table)
}

fn count(line: &[u8]) -> mlua::Result<i64> {
    terrace_protocol::parse_i64(line).ok_or_else(unreadable)
}

/// A length; `None` for -1.
fn length(line: &[u8]) -> mlua::Result<Option<usize>> {
    Ok(usize::try_from(count(line)?).ok())
}

fn double(line: &[u8]) -> f64 {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

/// The error of a reply that is longer than [`Returned::most`].
pub(crate) const TOO_LONG: &str = "ERR the reply of the script is larger than script-memory: return less";

/// Writes what a script has returned.
pub(crate) struct Returned<'r, 'o> {
    pub(crate) reply: &'r mut Reply<'o>,
    /// Whether the script asked for RESP3.
    pub(crate) resp3: bool,
    /// How long the reply may become, bytes.
    pub(crate) most: usize,
    /// It is told of the errors.
    pub(crate) host: &'r mut dyn Host,
}

impl Returned<'_, '_> {
    /// Encodes a value. The error is a text for the client.
    pub(crate) fn value(&mut self, value: &Value, depth: usize) -> Result<(), &'static str> {
        if depth > DEPTH_MOST {
            return Err("ERR reached lua stack limit");
        }
        if self.reply.mark() > self.most {
            return Err(TOO_LONG);
        }
        match value {
            Value::Integer(integer) => self.reply.integer(*integer),
            Value::Number(number) => self.reply.integer(truncated(*number)),
            Value::String(text) => self.reply.bulk(&text.as_bytes()),
            Value::Boolean(value) if self.resp3 => self.reply.boolean(*value),
            Value::Boolean(true) => self.reply.integer(1),
            Value::Table(table) => self.table(table, depth)?,
            _ => self.reply.null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<(), &'static str> {
        let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        if let Value::String(error) = field("err") {
            let (error, of_command) = (error.as_bytes(), fault::is_of_command(table));
            self.host.returned(printed(&error), of_command);
            self.reply.error(printed(&error));
        } else if let Value::String(status) = field("ok") {
            self.reply.status(printed(&status.as_bytes()));
        } else if let Some(double) = number_of(&field("double")) {
            self.reply.double(double);
        } else if let Value::Table(pairs) = field("map") {
            self.pairs(&pairs, depth, true)?;
        } else if let Value::Table(members) = field("set") {
            self.pairs(&members, depth, false)?;
        } else if let Value::String(digits) = field("big_number") {
            self.reply.big_number(&digits.to_string_lossy());
        } else if let Value::Table(verbatim) = field("verbatim_string") {
            self.verbatim(&verbatim);
        } else {
            self.array(table, depth)?;
        }
        Ok(())
    }

    /// A map, or a set of its keys.
    fn pairs(&mut self, table: &Table, depth: usize, is_map: bool) -> Result<(), &'static str> {
        let (mark, mut count) = (self.reply.mark(), 0);
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair.map_err(|_| "ERR the script's table cannot be read")?;
            self.value(&key, depth + 1)?;
            if is_map {
                self.value(&value, depth + 1)?;
            }
            count += 1;
        }
        self.reply.in_front(mark, |reply| if is_map { reply.map(count) } else { reply.set(count) });
        Ok(())
    }

    fn verbatim(&mut self, table: &Table) {
        let part = |name: &str| table.raw_get::<mlua::LuaString>(name).ok();
        let (Some(text), Some(format)) = (part("string"), part("format")) else { return self.reply.null() };
        let kind = format.as_bytes();
        let kind = [0, 1, 2].map(|nth| kind.get(nth).copied().unwrap_or(b' '));
        self.reply.verbatim(&kind, &text.as_bytes());
    }

    /// The values at 1, 2 and so on, up to the first nil.
    fn array(&mut self, table: &Table, depth: usize) -> Result<(), &'static str> {
        let (mark, mut count) = (self.reply.mark(), 0);
        loop {
            let value = table.raw_get::<Value>(count + 1).unwrap_or(Value::Nil);
            if value.is_nil() {
                break;
            }
            self.value(&value, depth + 1)?;
            count += 1;
        }
        self.reply.in_front(mark, |reply| reply.array(count));
        Ok(())
    }
}

/// The part of a text that C prints: up to a NUL.
pub(crate) fn printed(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number, not a text that looks like one.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(integer) => Some(*integer as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// A string's bytes, or a number as a command gets it.
pub(crate) fn argument(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        value => number_of(value).map(|number| number::argument(number).into_bytes()),
    }
}
