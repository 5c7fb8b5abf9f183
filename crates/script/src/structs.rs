//! The library `struct`: packs values into bytes by a format, and unpacks them.
//!
//! Formats: `>` `<` `=` order, `!n` alignment, `x` a zero byte, `b` `B` `h` `H` `l` `L` `T` `in`
//! `In` integers, `f` `d` floats, `s` a string with a zero at its end, `cn` a string of n bytes;
//! `c0` is a whole string, or in `unpack` one as long as the number before it says.

use std::rc::Rc;

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use crate::{
    bits::got,
    control::{Control, RESULTS_MOST},
    fault,
    number::truncated,
};

/// Maximum size of an integer, bytes.
const INTEGER_MOST: usize = 32;
/// The alignment of `!` without a number.
const NATIVE_ALIGNMENT: usize = 8;

/// The table.
pub(crate) fn table(lua: &Lua, control: &Rc<Control>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let of = Rc::clone(control);
    table.raw_set("pack", lua.create_function(move |lua, args| pack(lua, &args, &of))?)?;
    table.raw_set("unpack", lua.create_function(unpack)?)?;
    table.raw_set("size", lua.create_function(size)?)?;
    Ok(table)
}

/// A part of a format.
#[derive(Clone, Copy)]
enum Part {
    Padding,
    Integer {
        size: usize,
        signed: bool,
    },
    Float,
    Double,
    /// Up to a zero.
    Text,
    /// Zero: the whole string.
    Bytes(usize),
}

impl Part {
    fn size(self) -> usize {
        match self {
            Part::Padding => 1,
            Part::Integer { size, .. } => size,
            Part::Float => 4,
            Part::Double => 8,
            Part::Text => 0,
            Part::Bytes(size) => size,
        }
    }
}

/// Reads a format.
struct Format<'a> {
    lua: &'a Lua,
    /// The function that reads it, for errors.
    function: &'static str,
    rest: &'a [u8],
    is_big: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(lua: &'a Lua, function: &'static str, format: &'a [u8]) -> Format<'a> {
        Format { lua, function, rest: format, is_big: cfg!(target_endian = "big"), alignment: 1 }
    }

    /// A number in the format, or `default` if there is none.
    fn number(&mut self, default: usize) -> usize {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let add = |sum: usize, digit: &u8| sum.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
        if digits == 0 { default } else { number.iter().fold(0, add) }
    }

    /// The next part, and how many zeros come before it at this place.
    fn next(&mut self, at: usize) -> mlua::Result<Option<(Part, usize)>> {
        while let Some((&letter, rest)) = self.rest.split_first() {
            self.rest = rest;
            let part = match letter {
                b'x' => Part::Padding,
                b'b' | b'B' => self.integer(letter, 1)?,
                b'h' | b'H' => self.integer(letter, 2)?,
                b'l' | b'L' | b'T' => self.integer(letter, 8)?,
                b'i' | b'I' => {
                    let size = self.number(4);
                    self.integer(letter, size)?
                }
                b'f' => Part::Float,
                b'd' => Part::Double,
                b's' => Part::Text,
                b'c' => Part::Bytes(self.number(1)),
                letter => {
                    self.control(letter)?;
                    continue;
                }
            };
            return Ok(Some((part, self.gap(part, at))));
        }
        Ok(None)
    }

    fn integer(&self, letter: u8, size: usize) -> mlua::Result<Part> {
        if size > INTEGER_MOST {
            let text = format!("integral size {size} is larger than limit of {INTEGER_MOST}");
            return Err(fault::at_call(self.lua, &text));
        }
        Ok(Part::Integer { size, signed: letter.is_ascii_lowercase() })
    }

    fn control(&mut self, letter: u8) -> mlua::Result<()> {
        match letter {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'=' => self.is_big = cfg!(target_endian = "big"),
            b'!' => {
                self.alignment = self.number(NATIVE_ALIGNMENT);
                if !self.alignment.is_power_of_two() {
                    return Err(fault::at_call(self.lua, "alignment is not a power of 2"));
                }
            }
            letter => {
                let text = format!("invalid format option '{}'", char::from(letter));
                return Err(fault::bad_argument(self.lua, 1, self.function, &text));
            }
        }
        Ok(())
    }

    fn gap(&self, part: Part, at: usize) -> usize {
        let size = part.size().min(self.alignment);
        if matches!(part, Part::Bytes(_)) || size <= 1 { 0 } else { (size - (at & (size - 1))) & (size - 1) }
    }
}

fn pack(lua: &Lua, args: &MultiValue, control: &Control) -> mlua::Result<LuaString> {
    let at = |nth: usize| args.get(nth).unwrap_or(&Value::Nil);
    let text = text(lua, "pack", 1, at(0))?;
    let text = text.as_bytes();
    let mut format = Format::new(lua, "pack", &text);
    let (mut packed, mut nth) = (Vec::new(), 1);
    while let Some((part, gap)) = format.next(packed.len())? {
        control.work(1).map_err(fault::stopped)?;
        control.has_room(packed.len()).map_err(|()| fault::no_memory())?;
        packed.resize(packed.len() + gap, 0);
        put(lua, &mut packed, part, format.is_big, nth, at(nth))?;
        nth += usize::from(!matches!(part, Part::Padding));
    }
    lua.create_string(packed)
}

/// Appends a value, the argument at `nth`.
fn put(
    lua: &Lua,
    packed: &mut Vec<u8>,
    part: Part,
    is_big: bool,
    nth: usize,
    value: &Value,
) -> mlua::Result<()> {
    match part {
        Part::Padding => packed.push(0),
        Part::Integer { size, .. } => {
            let integer = truncated(number(lua, "pack", nth + 1, value)?);
            // Beyond 8 bytes there are zeros, as in the library of Redis.
            let mut bytes = integer.to_le_bytes().to_vec();
            bytes.resize(size.max(8), 0);
            append(packed, &bytes[..size], is_big);
        }
        Part::Float => append(packed, &(number(lua, "pack", nth + 1, value)? as f32).to_le_bytes(), is_big),
        Part::Double => append(packed, &number(lua, "pack", nth + 1, value)?.to_le_bytes(), is_big),
        Part::Text => {
            packed.extend_from_slice(&text(lua, "pack", nth + 1, value)?.as_bytes());
            packed.push(0);
        }
        Part::Bytes(size) => {
            let text = text(lua, "pack", nth + 1, value)?;
            let text = text.as_bytes();
            let size = if size == 0 { text.len() } else { size };
            let part = text.get(..size);
            let part = part.ok_or_else(|| fault::bad_argument(lua, nth + 2, "pack", "string too short"))?;
            packed.extend_from_slice(part);
        }
    }
    Ok(())
}

fn append(packed: &mut Vec<u8>, bytes: &[u8], is_big: bool) {
    if is_big { packed.extend(bytes.iter().rev()) } else { packed.extend_from_slice(bytes) }
}

fn unpack(lua: &Lua, args: MultiValue) -> mlua::Result<MultiValue> {
    let at = |nth: usize| args.get(nth).unwrap_or(&Value::Nil);
    let (format, data) = (text(lua, "unpack", 1, at(0))?, text(lua, "unpack", 2, at(1))?);
    let (format, data) = (format.as_bytes(), data.as_bytes());
    let start = if at(2).is_nil() { 1.0 } else { number(lua, "unpack", 3, at(2))? };
    if start < 1.0 || start.is_nan() {
        return Err(fault::bad_argument(lua, 3, "unpack", "offset must be 1 or greater"));
    }
    let mut format = Format::new(lua, "unpack", &format);
    let mut place = start as usize - 1;
    let mut values: Vec<Value> = Vec::new();
    while let Some((part, gap)) = format.next(place)? {
        place = place.saturating_add(gap);
        let rest = data.get(place..).unwrap_or_default();
        let size = match part {
            Part::Bytes(0) => match values.pop().as_ref().and_then(crate::resp::number_of) {
                Some(size) if size >= 0.0 => size as usize,
                _ => return Err(fault::at_call(lua, "format 'c0' needs a previous size")),
            },
            part => part.size(),
        };
        let bytes = rest.get(..size);
        let bytes = bytes.ok_or_else(|| fault::bad_argument(lua, 2, "unpack", "data string too short"))?;
        if values.len() == RESULTS_MOST {
            return Err(fault::at_call(lua, "too many results to unpack"));
        }
        let (value, used) = take(lua, part, bytes, rest, format.is_big)?;
        values.extend(value);
        place += used;
    }
    values.push(Value::Number((place + 1) as f64));
    Ok(MultiValue::from_vec(values))
}

/// The value of a part, and the bytes that it takes. `rest` begins with its `bytes`.
fn take(
    lua: &Lua,
    part: Part,
    bytes: &[u8],
    rest: &[u8],
    is_big: bool,
) -> mlua::Result<(Option<Value>, usize)> {
    let mut low: Vec<u8> = bytes.to_vec();
    if is_big {
        low.reverse();
    }
    let value = match part {
        Part::Padding => None,
        Part::Integer { size, signed } => Some(Value::Number(integer(&low, size, signed))),
        Part::Float => low.try_into().ok().map(|low| Value::Number(f64::from(f32::from_le_bytes(low)))),
        Part::Double => low.try_into().ok().map(|low| Value::Number(f64::from_le_bytes(low))),
        Part::Text => {
            let end = rest.iter().position(|byte| *byte == 0);
            let end = end.ok_or_else(|| fault::at_call(lua, "unfinished string in data"))?;
            return Ok((Some(Value::String(lua.create_string(&rest[..end])?)), end + 1));
        }
        Part::Bytes(_) => Some(Value::String(lua.create_string(bytes)?)),
    };
    Ok((value, bytes.len()))
}

/// The integer in bytes whose first one is the lowest.
fn integer(low: &[u8], size: usize, signed: bool) -> f64 {
    let mut word = [0; 8];
    let used = size.min(8);
    word[..used].copy_from_slice(&low[..used]);
    let word = u64::from_le_bytes(word);
    if !signed {
        return word as f64;
    }
    let unused = 64 - 8 * used as u32;
    if unused == 64 { 0.0 } else { (((word << unused) as i64) >> unused) as f64 }
}

fn size(lua: &Lua, format: Value) -> mlua::Result<usize> {
    let format = text(lua, "size", 1, &format)?;
    let format = format.as_bytes();
    let mut format = Format::new(lua, "size", &format);
    let mut at: usize = 0;
    while let Some((part, gap)) = format.next(at)? {
        match part {
            Part::Text => return Err(fault::bad_argument(lua, 1, "size", "option 's' has no fixed size")),
            Part::Bytes(0) => {
                return Err(fault::bad_argument(lua, 1, "size", "option 'c0' has no fixed size"));
            }
            part => at = at.saturating_add(gap).saturating_add(part.size()),
        }
    }
    Ok(at)
}

/// A string, or a number as one: the argument at `nth`.
pub(crate) fn text(lua: &Lua, function: &str, nth: usize, value: &Value) -> mlua::Result<LuaString> {
    let text = if value.is_table() { None } else { lua.coerce_string(value.clone())? };
    let why = || format!("string expected, got {}", got(value));
    text.ok_or_else(|| fault::bad_argument(lua, nth, function, &why()))
}

fn number(lua: &Lua, function: &str, nth: usize, value: &Value) -> mlua::Result<f64> {
    let why = || format!("number expected, got {}", got(value));
    lua.coerce_number(value.clone())?.ok_or_else(|| fault::bad_argument(lua, nth, function, &why()))
}
