//! The library `cmsgpack`: values of Lua as MessagePack.

use std::rc::Rc;

use mlua::{Lua, LuaString, MultiValue, Table, Value};
use rmp::{Marker, encode};

use crate::{
    bits::got,
    control::{Control, RESULTS_MOST},
    fault,
    resp::number_of,
};

/// Depth of tables from which on `nil` is packed in their place.
const PACKED_DEPTH: usize = 16;
/// Maximum depth of packed values that are unpacked.
const UNPACKED_DEPTH: usize = 200;

/// The table.
pub(crate) fn table(lua: &Lua, control: &Rc<Control>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let of = Rc::clone(control);
    table.raw_set("pack", lua.create_function(move |lua, args| pack(lua, &args, &of))?)?;
    let of = Rc::clone(control);
    let all = move |lua: &Lua, text: Value| unpack(lua, &of, &text, 0, 0);
    table.raw_set("unpack", lua.create_function(all)?)?;
    let of = Rc::clone(control);
    let one = move |lua: &Lua, (text, offset): (Value, Option<f64>)| {
        unpack(lua, &of, &text, 1, offset_of(lua, offset)?)
    };
    table.raw_set("unpack_one", lua.create_function(one)?)?;
    let of = Rc::clone(control);
    let limited = move |lua: &Lua, (text, limit, offset)| unpack_limit(lua, &of, &text, limit, offset);
    table.raw_set("unpack_limit", lua.create_function(limited)?)?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(table)
}

fn pack(lua: &Lua, args: &MultiValue, control: &Control) -> mlua::Result<LuaString> {
    if args.is_empty() {
        return Err(fault::bad_argument(lua, 0, "pack", "MessagePack pack needs input."));
    }
    let mut packed = Vec::new();
    args.iter().try_for_each(|value| put(control, &mut packed, value, 0))?;
    lua.create_string(packed)
}

fn put(control: &Control, packed: &mut Vec<u8>, value: &Value, depth: usize) -> mlua::Result<()> {
    control.work(1).map_err(fault::stopped)?;
    control.has_room(packed.len()).map_err(|()| fault::no_memory())?;
    // Writing to memory does not fail.
    let written = match value {
        Value::String(text) => {
            let text = text.as_bytes();
            let done = encode::write_str_len(packed, u32::try_from(text.len()).unwrap_or(u32::MAX)).is_ok();
            packed.extend_from_slice(&text);
            done
        }
        Value::Boolean(value) => encode::write_bool(packed, *value).is_ok(),
        Value::Integer(integer) => encode::write_sint(packed, *integer).is_ok(),
        Value::Number(number) => put_float(packed, *number),
        Value::Table(table) if depth < PACKED_DEPTH => return put_table(control, packed, table, depth),
        _ => encode::write_nil(packed).is_ok(),
    };
    if written { Ok(()) } else { Err(fault::plain("ERR MessagePack cannot hold the value")) }
}

/// In 4 bytes if they hold it exactly.
fn put_float(packed: &mut Vec<u8>, number: f64) -> bool {
    let short = number as f32;
    match f64::from(short) == number {
        true => encode::write_f32(packed, short).is_ok(),
        false => encode::write_f64(packed, number).is_ok(),
    }
}

fn put_table(control: &Control, packed: &mut Vec<u8>, table: &Table, depth: usize) -> mlua::Result<()> {
    let (count, is_array) = shape(table)?;
    let length = u32::try_from(count).unwrap_or(u32::MAX);
    if is_array {
        encode::write_array_len(packed, length).map_err(mlua::Error::external)?;
        for nth in 1..=count {
            put(control, packed, &table.raw_get::<Value>(nth)?, depth + 1)?;
        }
        return Ok(());
    }
    encode::write_map_len(packed, length).map_err(mlua::Error::external)?;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        put(control, packed, &key, depth + 1)?;
        put(control, packed, &value, depth + 1)?;
    }
    Ok(())
}

/// The number of pairs of a table, and whether its keys are exactly 1 to that number.
fn shape(table: &Table) -> mlua::Result<(usize, bool)> {
    let (mut count, mut most, mut are_places) = (0, 0.0, true);
    for pair in table.pairs::<Value, Value>() {
        match number_of(&pair?.0) {
            Some(key) if key >= 1.0 && key.fract() == 0.0 => most = key.max(most),
            _ => are_places = false,
        }
        count += 1;
    }
    Ok((count, are_places && most == count as f64))
}

fn unpack_limit(
    lua: &Lua,
    control: &Control,
    text: &Value,
    limit: Option<f64>,
    offset: Option<f64>,
) -> mlua::Result<MultiValue> {
    let limit = limit.ok_or_else(|| fault::bad_argument(lua, 2, "unpack_limit", "number expected"))?;
    if limit < 0.0 {
        let text = format!("Invalid request to unpack with offset of 0 and limit of {limit}.");
        return Err(fault::at_call(lua, &text));
    }
    unpack(lua, control, text, limit as usize, offset_of(lua, offset)?)
}

fn offset_of(lua: &Lua, offset: Option<f64>) -> mlua::Result<usize> {
    match offset.unwrap_or(0.0) {
        offset if offset >= 0.0 => Ok(offset as usize),
        offset => {
            let text = format!("Invalid request to unpack with offset of {offset} and limit of 1.");
            Err(fault::at_call(lua, &text))
        }
    }
}

/// The values in a text from `offset` on: all of them, or up to `limit` and before them where to go
/// on, -1 at the end.
fn unpack(
    lua: &Lua,
    control: &Control,
    text: &Value,
    limit: usize,
    offset: usize,
) -> mlua::Result<MultiValue> {
    let why = || format!("string expected, got {}", got(text));
    let text =
        lua.coerce_string(text.clone())?.ok_or_else(|| fault::bad_argument(lua, 1, "unpack", &why()))?;
    let text = text.as_bytes();
    if offset > text.len() {
        let text = format!("Start offset {offset} greater than input length {}.", text.len());
        return Err(fault::at_call(lua, &text));
    }
    let mut rest = &text[offset..];
    let mut values = Vec::new();
    while !rest.is_empty() && (limit == 0 || values.len() < limit) {
        if values.len() == RESULTS_MOST {
            return Err(fault::at_call(lua, "too many results to unpack"));
        }
        values.push(Unpacking { lua, control, rest: &mut rest }.value(0)?);
    }
    if limit > 0 {
        let next = if rest.is_empty() { -1.0 } else { (text.len() - rest.len()) as f64 };
        values.insert(0, Value::Number(next));
    }
    Ok(MultiValue::from_vec(values))
}

struct Unpacking<'a, 'r> {
    lua: &'a Lua,
    control: &'a Control,
    rest: &'r mut &'a [u8],
}

impl<'a> Unpacking<'a, '_> {
    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        if depth > UNPACKED_DEPTH {
            return Err(self.bad());
        }
        self.control.work(1).map_err(fault::stopped)?;
        let [marker] = self.word::<1>()?;
        Ok(match Marker::from_u8(marker) {
            Marker::Null => Value::Nil,
            Marker::True => Value::Boolean(true),
            Marker::False => Value::Boolean(false),
            Marker::FixPos(number) => Value::Number(f64::from(number)),
            Marker::FixNeg(number) => Value::Number(f64::from(number)),
            Marker::U8 | Marker::U16 | Marker::U32 | Marker::U64 => {
                Value::Number(self.unsigned(marker)? as f64)
            }
            Marker::I8 => Value::Number(f64::from(i8::from_be_bytes(self.word()?))),
            Marker::I16 => Value::Number(f64::from(i16::from_be_bytes(self.word()?))),
            Marker::I32 => Value::Number(f64::from(i32::from_be_bytes(self.word()?))),
            Marker::I64 => Value::Number(i64::from_be_bytes(self.word()?) as f64),
            Marker::F32 => Value::Number(f64::from(f32::from_be_bytes(self.word()?))),
            Marker::F64 => Value::Number(f64::from_be_bytes(self.word()?)),
            Marker::FixStr(length) => self.text(u64::from(length))?,
            Marker::Str8 | Marker::Bin8 => self.sized(1)?,
            Marker::Str16 | Marker::Bin16 => self.sized(2)?,
            Marker::Str32 | Marker::Bin32 => self.sized(4)?,
            Marker::FixArray(length) => self.array(u64::from(length), depth)?,
            Marker::Array16 => self.length(2).and_then(|length| self.array(length, depth))?,
            Marker::Array32 => self.length(4).and_then(|length| self.array(length, depth))?,
            Marker::FixMap(length) => self.map(u64::from(length), depth)?,
            Marker::Map16 => self.length(2).and_then(|length| self.map(length, depth))?,
            Marker::Map32 => self.length(4).and_then(|length| self.map(length, depth))?,
            _ => return Err(self.bad()),
        })
    }

    fn unsigned(&mut self, marker: u8) -> mlua::Result<u64> {
        // 0xcc to 0xcf: 1, 2, 4 and 8 bytes.
        self.length(1 << (marker - 0xcc))
    }

    /// A number of so many bytes.
    fn length(&mut self, bytes: usize) -> mlua::Result<u64> {
        let bytes = self.bytes(bytes as u64)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn sized(&mut self, bytes: usize) -> mlua::Result<Value> {
        let length = self.length(bytes)?;
        self.text(length)
    }

    fn text(&mut self, length: u64) -> mlua::Result<Value> {
        let bytes = self.bytes(length)?;
        self.lua.create_string(bytes).map(Value::String)
    }

    fn array(&mut self, length: u64, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        for nth in 1..=length {
            table.raw_set(nth, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: u64, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let (key, value) = (self.value(depth + 1)?, self.value(depth + 1)?);
            if key.is_nil() || matches!(key, Value::Number(number) if number.is_nan()) {
                return Err(self.bad());
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }

    fn word<const N: usize>(&mut self) -> mlua::Result<[u8; N]> {
        let (word, rest) = self.rest.split_first_chunk().ok_or_else(|| self.short())?;
        *self.rest = rest;
        Ok(*word)
    }

    fn bytes(&mut self, count: u64) -> mlua::Result<&'a [u8]> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.short())?;
        *self.rest = rest;
        Ok(bytes)
    }

    fn short(&self) -> mlua::Error {
        fault::at_call(self.lua, "Missing bytes in input.")
    }

    fn bad(&self) -> mlua::Error {
        fault::at_call(self.lua, "Bad data format in input.")
    }
}
