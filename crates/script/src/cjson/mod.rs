//! The library `cjson`. It works on bytes, as Lua's strings do, so a parser of UTF-8 text does not
//! fit; its errors are part of what scripts see.

mod decode;
mod encode;
mod options;

use std::{cell::Cell, rc::Rc};

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use self::{
    decode::Decoder,
    encode::Encoder,
    options::{Invalid, Options},
};
use crate::{bits::got, control::Control, fault, resp::number_of};

/// The settings of a state, which each run finds as they were in the beginning.
#[derive(Clone)]
pub(crate) struct Settings(Rc<Cell<Options>>, Rc<Control>);

impl Settings {
    pub(crate) fn new(control: &Rc<Control>) -> Settings {
        Settings(Rc::default(), Rc::clone(control))
    }

    pub(crate) fn reset(&self) {
        self.0.set(Options::default());
    }
}

/// The table.
pub(crate) fn table(lua: &Lua, settings: &Settings) -> mlua::Result<Table> {
    let cjson = lua.create_table()?;
    cjson.raw_set("_NAME", "cjson")?;
    cjson.raw_set("_VERSION", "2.1.0")?;
    cjson.raw_set("null", Value::NULL)?;
    let of = settings.clone();
    cjson.raw_set("encode", lua.create_function(move |lua, args| encode(lua, &args, &of))?)?;
    let of = settings.clone();
    cjson.raw_set("decode", lua.create_function(move |lua, args| decode(lua, &args, &of))?)?;
    add(lua, &cjson, "encode_sparse_array", settings, sparse_array)?;
    add(lua, &cjson, "encode_max_depth", settings, |lua, args, options| {
        depth(lua, args, "encode_max_depth", &mut options.encode_depth)
    })?;
    add(lua, &cjson, "decode_max_depth", settings, |lua, args, options| {
        depth(lua, args, "decode_max_depth", &mut options.decode_depth)
    })?;
    add(lua, &cjson, "encode_number_precision", settings, |lua, args, options| {
        let new = integer(lua, args, 0, "encode_number_precision", 1, 14)?;
        options.precision = new.unwrap_or(options.precision);
        one(options.precision as f64)
    })?;
    add(lua, &cjson, "encode_keep_buffer", settings, |lua, args, options| {
        options.keep_buffer = switch(lua, args, 0, "encode_keep_buffer", options.keep_buffer)?;
        Ok(MultiValue::from_vec(vec![Value::Boolean(options.keep_buffer)]))
    })?;
    add(lua, &cjson, "encode_invalid_numbers", settings, |lua, args, options| {
        invalid(lua, args, "encode_invalid_numbers", &mut options.encode_invalid)
    })?;
    add(lua, &cjson, "decode_invalid_numbers", settings, |lua, args, options| {
        invalid(lua, args, "decode_invalid_numbers", &mut options.decode_invalid)
    })?;
    let of = Rc::clone(&settings.1);
    cjson.raw_set("new", lua.create_function(move |lua, ()| table(lua, &Settings::new(&of)))?)?;
    Ok(cjson)
}

type Body = fn(&Lua, &MultiValue, &mut Options) -> mlua::Result<MultiValue>;

fn add(lua: &Lua, cjson: &Table, name: &str, settings: &Settings, body: Body) -> mlua::Result<()> {
    let settings = settings.clone();
    let function = lua.create_function(move |lua, args: MultiValue| {
        let mut options = settings.0.get();
        let result = body(lua, &args, &mut options)?;
        settings.0.set(options);
        Ok(result)
    })?;
    cjson.raw_set(name, function)
}

fn one(number: f64) -> mlua::Result<MultiValue> {
    Ok(MultiValue::from_vec(vec![Value::Number(number)]))
}

fn encode(lua: &Lua, args: &MultiValue, settings: &Settings) -> mlua::Result<LuaString> {
    if args.len() != 1 {
        return Err(fault::bad_argument(lua, 1, "encode", "expected 1 argument"));
    }
    let mut encoder = Encoder { lua, options: settings.0.get(), control: &settings.1, out: Vec::new() };
    encoder.value(&args[0], 0)?;
    lua.create_string(encoder.out)
}

fn decode(lua: &Lua, args: &MultiValue, settings: &Settings) -> mlua::Result<Value> {
    if args.len() != 1 {
        return Err(fault::bad_argument(lua, 1, "decode", "expected 1 argument"));
    }
    let text = lua.coerce_string(args[0].clone())?.ok_or_else(|| {
        fault::bad_argument(lua, 1, "decode", &format!("string expected, got {}", got(&args[0])))
    })?;
    let text = text.as_bytes();
    Decoder::new(lua, settings.0.get(), &settings.1, &text).whole()
}

fn sparse_array(lua: &Lua, args: &MultiValue, options: &mut Options) -> mlua::Result<MultiValue> {
    const NAME: &str = "encode_sparse_array";
    options.sparse_converts = switch(lua, args, 0, NAME, options.sparse_converts)?;
    options.sparse_ratio = integer(lua, args, 1, NAME, 0, i32::MAX)?.unwrap_or(options.sparse_ratio);
    options.sparse_safe = integer(lua, args, 2, NAME, 0, i32::MAX)?.unwrap_or(options.sparse_safe);
    Ok(MultiValue::from_vec(vec![
        Value::Boolean(options.sparse_converts),
        Value::Number(options.sparse_ratio as f64),
        Value::Number(options.sparse_safe as f64),
    ]))
}

/// Maximum depth that a script may set: deeper ones would not fit on a thread's stack.
const DEPTH_MOST: i32 = 1000;

fn depth(lua: &Lua, args: &MultiValue, name: &str, value: &mut usize) -> mlua::Result<MultiValue> {
    *value = integer(lua, args, 0, name, 1, i32::MAX)?.unwrap_or(*value).min(DEPTH_MOST as usize);
    one(*value as f64)
}

fn integer(
    lua: &Lua,
    args: &MultiValue,
    nth: usize,
    name: &str,
    least: i32,
    most: i32,
) -> mlua::Result<Option<usize>> {
    let Some(arg) = args.get(nth).filter(|arg| !arg.is_nil()) else { return Ok(None) };
    let within = |number: f64| number >= f64::from(least) && number <= f64::from(most);
    match number_of(arg).map(f64::trunc) {
        Some(number) if within(number) => Ok(Some(number as usize)),
        _ => {
            let why = format!("expected integer between {least} and {most}");
            Err(fault::bad_argument(lua, nth + 1, name, &why))
        }
    }
}

fn switch(lua: &Lua, args: &MultiValue, nth: usize, name: &str, now: bool) -> mlua::Result<bool> {
    match args.get(nth) {
        None | Some(Value::Nil) => Ok(now),
        Some(Value::Boolean(value)) => Ok(*value),
        Some(Value::String(word)) if word == "on" => Ok(true),
        Some(Value::String(word)) if word == "off" => Ok(false),
        Some(other) => Err(invalid_option(lua, nth, name, other)),
    }
}

fn invalid_option(lua: &Lua, nth: usize, name: &str, value: &Value) -> mlua::Error {
    let why = match value {
        Value::String(word) => format!("invalid option '{}'", word.to_string_lossy()),
        value => format!("string expected, got {}", got(value)),
    };
    fault::bad_argument(lua, nth + 1, name, &why)
}

fn invalid(lua: &Lua, args: &MultiValue, name: &str, value: &mut Invalid) -> mlua::Result<MultiValue> {
    *value = match args.front() {
        Some(Value::String(word)) if word == "null" => Invalid::Null,
        _ if *value == Invalid::Null && args.is_empty() => Invalid::Null,
        _ => match switch(lua, args, 0, name, *value == Invalid::Keep)? {
            true => Invalid::Keep,
            false => Invalid::Refuse,
        },
    };
    Ok(MultiValue::from_vec(vec![match value {
        Invalid::Null => Value::String(lua.create_string("null")?),
        value => Value::Boolean(*value == Invalid::Keep),
    }]))
}
