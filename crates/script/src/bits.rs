//! The library `bit`: operations on 32 bits, as in Lua BitOp.

use mlua::{Lua, MultiValue, Table, Value};

use crate::fault;

/// The table.
pub(crate) fn table(lua: &Lua) -> mlua::Result<Table> {
    let bit = lua.create_table()?;
    for (name, operation) in FOLDS {
        bit.raw_set(name, lua.create_function(move |lua, args| fold(lua, name, &args, operation))?)?;
    }
    for (name, operation) in SHIFTS {
        let shift = move |lua: &Lua, (value, by): (Value, Value)| {
            let by = bits(lua, name, 2, &by)? & 31;
            Ok(signed(operation(bits(lua, name, 1, &value)?, by)))
        };
        bit.raw_set(name, lua.create_function(shift)?)?;
    }
    for (name, operation) in UNARY {
        let apply = move |lua: &Lua, value: Value| Ok(signed(operation(bits(lua, name, 1, &value)?)));
        bit.raw_set(name, lua.create_function(apply)?)?;
    }
    bit.raw_set("tohex", lua.create_function(to_hex)?)?;
    Ok(bit)
}

type Fold = fn(u32, u32) -> u32;
const FOLDS: [(&str, Fold); 3] = [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];

const SHIFTS: [(&str, Fold); 5] = [
    ("lshift", |value, by| value << by),
    ("rshift", |value, by| value >> by),
    ("arshift", |value, by| (value as i32 >> by) as u32),
    ("rol", u32::rotate_left),
    ("ror", u32::rotate_right),
];

type Unary = fn(u32) -> u32;
const UNARY: [(&str, Unary); 3] =
    [("tobit", |value| value), ("bnot", |value| !value), ("bswap", u32::swap_bytes)];

fn fold(lua: &Lua, name: &str, args: &MultiValue, operation: Fold) -> mlua::Result<f64> {
    let mut result = bits(lua, name, 1, args.front().unwrap_or(&Value::Nil))?;
    for (nth, arg) in args.iter().enumerate().skip(1) {
        result = operation(result, bits(lua, name, nth + 1, arg)?);
    }
    Ok(signed(result))
}

fn signed(bits: u32) -> f64 {
    f64::from(bits as i32)
}

/// The low 32 bits of a number, rounded to the nearest integer.
fn bits(lua: &Lua, name: &str, nth: usize, value: &Value) -> mlua::Result<u32> {
    let number = lua.coerce_number(value.clone())?;
    let number = number.ok_or_else(|| {
        fault::bad_argument(lua, nth, name, &format!("number expected, got {}", got(value)))
    })?;
    const MODULUS: f64 = 4_294_967_296.0;
    let rounded = number.round_ties_even();
    // Not finite: what is left of it is 0.
    Ok(rounded.rem_euclid(MODULUS) as u32)
}

/// What an error calls the type of a value.
pub(crate) fn got(value: &Value) -> &'static str {
    match value {
        Value::Nil => "no value",
        Value::Integer(_) => "number",
        value => value.type_name(),
    }
}

fn to_hex(lua: &Lua, (value, digits): (Value, Option<f64>)) -> mlua::Result<String> {
    let digits = digits.unwrap_or(8.0);
    let value = bits(lua, "tohex", 1, &value)?;
    let count = (digits.abs() as usize).min(8);
    let hex = if digits < 0.0 { format!("{value:08X}") } else { format!("{value:08x}") };
    Ok(hex[8 - count..].into())
}
