//! Errors that functions of ours raise in a script.
//!
//! `mlua` passes them through Lua as values of its own. The sandbox turns them into what Redis's
//! functions raise wherever a script can see them: see `sandbox.lua`.

use std::fmt;

use mlua::{Error, Lua, Table, Value};

/// An error of a library, of a command, or the end of a run.
#[derive(Debug)]
pub(crate) struct Raised {
    pub(crate) text: Box<[u8]>,
    /// Whether a script sees a table with the field `err`, and not a string.
    pub(crate) as_table: bool,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl std::error::Error for Raised {}

/// An error of a library function, with the place of its call in front.
pub(crate) fn at_call(lua: &Lua, text: &str) -> Error {
    let place = lua.inspect_stack(1, |frame| {
        let source = frame.source();
        let name = source.short_src.as_deref().unwrap_or_default();
        frame.current_line().map_or(String::new(), |line| format!("{name}:{line}: "))
    });
    plain(&format!("{}{text}", place.unwrap_or_default()))
}

/// The error of a wrong argument of a library function.
pub(crate) fn bad_argument(lua: &Lua, nth: usize, function: &str, why: &str) -> Error {
    at_call(lua, &format!("bad argument #{nth} to '{function}' ({why})"))
}

/// An error that a script sees as this string.
pub(crate) fn plain(text: &str) -> Error {
    Error::external(Raised { text: text.as_bytes().into(), as_table: false })
}

/// An error that a script sees as a table with this text, which begins with its code.
pub(crate) fn reply(text: &[u8]) -> Error {
    Error::external(Raised { text: text.into(), as_table: true })
}

/// What a script sees of a value that was raised.
pub(crate) fn seen(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = value else { return Ok(value) };
    match error.downcast_ref::<Raised>() {
        Some(Raised { text, as_table: false }) => lua.create_string(text).map(Value::String),
        Some(Raised { text, as_table: true }) => error_table(lua, text).map(Value::Table),
        None => lua.create_string(text_of(&error)).map(Value::String),
    }
}

/// The text of an error of Lua or of `mlua`, without tracebacks.
pub(crate) fn text_of(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } | Error::BadArgument { cause, .. } => text_of(cause),
        Error::WithContext { cause, .. } => text_of(cause),
        Error::MemoryError(_) => "not enough memory".into(),
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => {
            text.split("\nstack traceback:").next().unwrap_or_default().into()
        }
        error => error.to_string(),
    }
}

/// `{err = text}`
pub(crate) fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(table)
}
