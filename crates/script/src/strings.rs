//! The functions of `string` that look for patterns. `gmatch`, and `gsub` with a function or a
//! table, are loops over `search` in the sandbox, so that what they call may fail as ever.

use std::rc::Rc;

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use crate::{
    bits::got,
    control::Control,
    fault,
    number::{general, truncated},
    pattern::{self, Capture, Fault, Matcher},
    structs::text,
};

type Searching = fn(&Lua, &MultiValue, &Control) -> mlua::Result<MultiValue>;

/// Adds the functions to what the sandbox is made of.
pub(crate) fn install(lua: &Lua, ours: &Table, control: &Rc<Control>) -> mlua::Result<()> {
    let functions: [(&str, Searching); 4] =
        [("find", find), ("match", matching), ("gsub_text", replace), ("search", search)];
    for (name, function) in functions {
        let of = Rc::clone(control);
        ours.raw_set(name, lua.create_function(move |lua, args| function(lua, &args, &of))?)?;
    }
    ours.raw_set("check_texts", lua.create_function(|lua, args: MultiValue| texts(lua, &args).map(drop))?)
}

/// The argument at `nth`, which errors count from `nth - skipped`, as a text.
fn text_at(
    lua: &Lua,
    function: &str,
    args: &MultiValue,
    nth: usize,
    skipped: usize,
) -> mlua::Result<LuaString> {
    match args.get(nth) {
        Some(Value::Nil) => {
            Err(fault::bad_argument(lua, nth + 1 - skipped, function, "string expected, got nil"))
        }
        arg => text(lua, function, nth + 1 - skipped, arg.unwrap_or(&Value::Nil)),
    }
}

fn at(args: &MultiValue, nth: usize) -> &Value {
    args.get(nth).unwrap_or(&Value::Nil)
}

/// The place in a text of so many bytes that the third argument says, from 0.
fn start(lua: &Lua, args: &MultiValue, function: &str, len: usize) -> mlua::Result<usize> {
    let value = at(args, 2);
    if value.is_nil() {
        return Ok(0);
    }
    let why = || format!("number expected, got {}", got(value));
    let number = lua.coerce_number(value.clone())?;
    let number = truncated(number.ok_or_else(|| fault::bad_argument(lua, 3, function, &why()))?);
    let from_end = len.saturating_sub(usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX));
    Ok(match number {
        0 => 0,
        1.. => usize::try_from(number - 1).unwrap_or(usize::MAX).min(len),
        _ => from_end,
    })
}

fn raise(lua: &Lua, fault: Fault) -> mlua::Error {
    match fault {
        Fault::Pattern(why) => fault::at_call(lua, why),
        Fault::Stopped(stop) => fault::stopped(stop),
    }
}

fn find(lua: &Lua, args: &MultiValue, control: &Control) -> mlua::Result<MultiValue> {
    let (subject, wanted) = (text_at(lua, "find", args, 0, 0)?, text_at(lua, "find", args, 1, 0)?);
    let (subject, wanted) = (subject.as_bytes(), wanted.as_bytes());
    let from = start(lua, args, "find", subject.len())?;
    let is_plain = !matches!(at(args, 3), Value::Nil | Value::Boolean(false));
    if is_plain || pattern::is_plain(&wanted) {
        let found = pattern::find_plain(control, &subject, &wanted, from).map_err(fault::stopped)?;
        return Ok(match found {
            Some(found) => place(found, found + wanted.len()).into_iter().collect(),
            None => nothing(),
        });
    }
    let (anchored, pattern) = anchor(&wanted);
    let mut matcher = Matcher::new(control, &subject, pattern);
    match matcher.search(from, anchored).map_err(|fault| raise(lua, fault))? {
        Some((from, to)) => {
            let captured = captured(lua, &matcher, &subject)?;
            Ok(place(from, to).into_iter().chain(captured).collect())
        }
        None => Ok(nothing()),
    }
}

fn matching(lua: &Lua, args: &MultiValue, control: &Control) -> mlua::Result<MultiValue> {
    let (subject, wanted) = (text_at(lua, "match", args, 0, 0)?, text_at(lua, "match", args, 1, 0)?);
    let (subject, wanted) = (subject.as_bytes(), wanted.as_bytes());
    let from = start(lua, args, "match", subject.len())?;
    let (anchored, pattern) = anchor(&wanted);
    let mut matcher = Matcher::new(control, &subject, pattern);
    match matcher.search(from, anchored).map_err(|fault| raise(lua, fault))? {
        Some(found) => captured_or_whole(lua, &matcher, &subject, found),
        None => Ok(nothing()),
    }
}

/// The text and the pattern among the arguments `function, text, pattern`.
fn texts(lua: &Lua, args: &MultiValue) -> mlua::Result<(LuaString, LuaString)> {
    let function = text(lua, "search", 1, at(args, 0))?.to_string_lossy();
    Ok((text_at(lua, &function, args, 1, 1)?, text_at(lua, &function, args, 2, 1)?))
}

/// `search(function, text, pattern, from, is_anchored, only_first)`: where the first match begins
/// and ends, from 1, and what it has captured, or all of it. Nothing if there is none.
fn search(lua: &Lua, args: &MultiValue, control: &Control) -> mlua::Result<MultiValue> {
    let (subject, wanted) = texts(lua, args)?;
    let (subject, wanted) = (subject.as_bytes(), wanted.as_bytes());
    let from = crate::resp::number_of(at(args, 3)).unwrap_or(1.0) as usize - 1;
    let (anchored, pattern) = match at(args, 4) {
        Value::Boolean(true) => anchor(&wanted),
        _ => (false, &*wanted),
    };
    let mut matcher = Matcher::new(control, &subject, pattern);
    match matcher.search(from, anchored).map_err(|fault| raise(lua, fault))? {
        Some(found) => {
            let captured = match at(args, 5) {
                Value::Boolean(true) => first(lua, &matcher, &subject, found)?,
                _ => captured_or_whole(lua, &matcher, &subject, found)?,
            };
            Ok(place(found.0, found.1).into_iter().chain(captured).collect())
        }
        None => Ok(MultiValue::new()),
    }
}

/// `gsub` whose third argument is a text.
fn replace(lua: &Lua, args: &MultiValue, control: &Control) -> mlua::Result<MultiValue> {
    let (subject, wanted) = (text_at(lua, "gsub", args, 0, 0)?, text_at(lua, "gsub", args, 1, 0)?);
    let (subject, wanted) = (subject.as_bytes(), wanted.as_bytes());
    let by = match at(args, 2) {
        by @ (Value::String(_) | Value::Number(_) | Value::Integer(_)) => text(lua, "gsub", 3, by)?,
        _ => return Err(fault::bad_argument(lua, 3, "gsub", "string/function/table expected")),
    };
    let most = match at(args, 3) {
        Value::Nil => f64::INFINITY,
        value => lua.coerce_number(value.clone())?.ok_or_else(|| {
            fault::bad_argument(lua, 4, "gsub", &format!("number expected, got {}", got(value)))
        })?,
    };
    let (anchored, pattern) = anchor(&wanted);
    let mut matcher = Matcher::new(control, &subject, pattern);
    let (mut out, mut from, mut count) = (Vec::new(), 0, 0_u64);
    while from <= subject.len() && (count as f64) < most {
        let found = matcher.search(from, anchored).map_err(|fault| raise(lua, fault))?;
        let Some((begin, end)) = found else { break };
        count += 1;
        out.extend_from_slice(&subject[from..begin]);
        put(lua, &mut out, &by.as_bytes(), &matcher, &subject, (begin, end))?;
        from = end;
        if begin == end {
            out.extend(subject.get(end));
            from += 1;
        }
        control.has_room(out.len()).map_err(|()| fault::no_memory())?;
        if anchored {
            break;
        }
    }
    out.extend_from_slice(subject.get(from..).unwrap_or_default());
    Ok([Value::String(lua.create_string(out)?), Value::Number(count as f64)].into_iter().collect())
}

/// Appends what replaces a match: `%1` in `by` is the first capture, `%0` all of the match.
fn put(
    lua: &Lua,
    out: &mut Vec<u8>,
    by: &[u8],
    matcher: &Matcher<'_>,
    subject: &[u8],
    (begin, end): (usize, usize),
) -> mlua::Result<()> {
    let mut bytes = by.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'%' => match bytes.next().copied().unwrap_or(0) {
                b'0' => out.extend_from_slice(&subject[begin..end]),
                digit @ b'1'..=b'9' => {
                    let capture = matcher.capture(usize::from(digit - b'1'));
                    match capture.map_err(|fault| raise(lua, fault))? {
                        Some(Capture::Part(from, to)) => out.extend_from_slice(&subject[from..to]),
                        Some(Capture::Place(at) | Capture::Open(at)) => {
                            out.extend_from_slice(general((at + 1) as f64, 14).as_bytes());
                        }
                        None if digit == b'1' => out.extend_from_slice(&subject[begin..end]),
                        None => return Err(fault::at_call(lua, "invalid capture index")),
                    }
                }
                other => out.push(other),
            },
            byte => out.push(byte),
        }
    }
    Ok(())
}

fn nothing() -> MultiValue {
    [Value::Nil].into_iter().collect()
}

fn place(from: usize, to: usize) -> [Value; 2] {
    [Value::Number((from + 1) as f64), Value::Number(to as f64)]
}

/// Whether a pattern holds at its beginning alone, and the rest of it.
fn anchor(pattern: &[u8]) -> (bool, &[u8]) {
    pattern.strip_prefix(b"^").map_or((false, pattern), |pattern| (true, pattern))
}

fn value_of(lua: &Lua, subject: &[u8], capture: Capture) -> mlua::Result<Value> {
    match capture {
        Capture::Part(from, to) => lua.create_string(&subject[from..to]).map(Value::String),
        Capture::Place(at) | Capture::Open(at) => Ok(Value::Number((at + 1) as f64)),
    }
}

fn captured(lua: &Lua, matcher: &Matcher<'_>, subject: &[u8]) -> mlua::Result<Vec<Value>> {
    let captures = matcher.captures().map_err(|fault| raise(lua, fault))?;
    captures.iter().map(|capture| value_of(lua, subject, *capture)).collect()
}

/// The first capture, or else the whole match.
fn first(
    lua: &Lua,
    matcher: &Matcher<'_>,
    subject: &[u8],
    (from, to): (usize, usize),
) -> mlua::Result<MultiValue> {
    let capture = matcher.capture(0).map_err(|fault| raise(lua, fault))?;
    Ok([value_of(lua, subject, capture.unwrap_or(Capture::Part(from, to)))?].into_iter().collect())
}

fn captured_or_whole(
    lua: &Lua,
    matcher: &Matcher<'_>,
    subject: &[u8],
    (from, to): (usize, usize),
) -> mlua::Result<MultiValue> {
    let captured = captured(lua, matcher, subject)?;
    match captured.is_empty() {
        false => Ok(captured.into_iter().collect()),
        true => Ok([Value::String(lua.create_string(&subject[from..to])?)].into_iter().collect()),
    }
}
