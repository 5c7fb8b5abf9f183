//! Errors that functions of ours raise in a script.
//!
//! `mlua` passes them through Lua as values of its own. The sandbox turns them into what Redis's
//! functions raise wherever a script can see them: see `sandbox.lua`.

use std::fmt;

use mlua::{Error, Lua, Table, Value, debug::Debug};

use crate::control::Stop;

/// An error of a library, of a command, or the end of a run.
#[derive(Debug)]
pub(crate) struct Raised {
    pub(crate) text: Box<[u8]>,
    pub(crate) seen: Seen,
}

/// What a script sees of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A string.
    Text,
    /// A table with the field `err`.
    Table,
    /// The same, of a command that was called: see [`OF_COMMAND`].
    OfCommand,
}

impl Raised {
    /// What a script sees.
    pub(crate) fn value(&self, lua: &Lua) -> mlua::Result<Value> {
        match self.seen {
            Seen::Text => lua.create_string(&self.text).map(Value::String),
            Seen::Table => error_table(lua, &self.text).map(Value::Table),
            Seen::OfCommand => command_table(lua, &self.text).map(Value::Table),
        }
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl std::error::Error for Raised {}

/// The name of the sandbox's code.
pub(crate) const SANDBOX: &str = "=sandbox";
/// How errors of Lua's begin that have happened in the sandbox's code.
const IN_SANDBOX: &str = "sandbox:";

/// The place of the script's code that runs at this level of the stack, or that has called the
/// sandbox's code there, as `name:line: `; none if that is a function in C.
pub(crate) fn place(lua: &Lua, level: usize) -> String {
    let read = |frame: &Debug<'_>| {
        let source = frame.source();
        let name = source.short_src.as_deref().unwrap_or_default();
        let line = frame.current_line();
        let place = line.map_or(String::new(), |line| format!("{name}:{line}: "));
        (source.source.as_deref() != Some(SANDBOX)).then_some(place)
    };
    (level..level + 4).map_while(|level| lua.inspect_stack(level, read)).flatten().next().unwrap_or_default()
}

/// A text of an error without the place in the sandbox at which it has happened.
pub(crate) fn outside(text: &[u8]) -> Option<&[u8]> {
    let line = text.strip_prefix(IN_SANDBOX.as_bytes())?;
    line.get(line.iter().position(|byte| *byte == b' ')? + 1..)
}

/// An error of a library function, with the place of its call in front.
pub(crate) fn at_call(lua: &Lua, text: &str) -> Error {
    plain(&format!("{}{text}", place(lua, 1)))
}

/// The error of a function for which there is no memory.
pub(crate) fn no_memory() -> Error {
    plain(NO_MEMORY)
}

/// What Lua raises where there is no memory.
pub(crate) const NO_MEMORY: &str = "not enough memory";

/// The error that ends a run.
pub(crate) fn stopped(stop: Stop) -> Error {
    reply(text_of_stop(stop).as_bytes())
}

/// What a client is told of the end of a run.
pub(crate) fn text_of_stop(stop: Stop) -> &'static str {
    match stop {
        Stop::Killed => "ERR Script killed by user with SCRIPT KILL...",
        Stop::ShutDown => "ERR the script was ended because the server stops",
        Stop::OverBudget => "ERR the script was put off",
        Stop::OverLimit => "ERR the script executed more instructions than script-instructions allows",
        Stop::Abandoned => "ERR the script was given up",
    }
}

/// The error of a wrong argument of a library function.
pub(crate) fn bad_argument(lua: &Lua, nth: usize, function: &str, why: &str) -> Error {
    at_call(lua, &format!("bad argument #{nth} to '{function}' ({why})"))
}

/// An error that a script sees as this string.
pub(crate) fn plain(text: &str) -> Error {
    Error::external(Raised { text: text.as_bytes().into(), seen: Seen::Text })
}

/// An error that a script sees as a table with this text, which begins with its code.
pub(crate) fn reply(text: &[u8]) -> Error {
    Error::external(Raised { text: text.into(), seen: Seen::Table })
}

/// What a script sees of a value that was raised.
pub(crate) fn seen(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let error = match value {
        Value::Error(error) => error,
        Value::String(text) => {
            let outside = outside(&text.as_bytes()).map(<[u8]>::to_vec);
            return Ok(Value::String(outside.map_or(Ok(text), |text| lua.create_string(text))?));
        }
        value => return Ok(value),
    };
    match error.downcast_ref::<Raised>() {
        Some(raised) => raised.value(lua),
        None => lua.create_string(text_of(&error)).map(Value::String),
    }
}

/// The text of an error of Lua or of `mlua`, without tracebacks.
pub(crate) fn text_of(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } | Error::BadArgument { cause, .. } => text_of(cause),
        Error::WithContext { cause, .. } => text_of(cause),
        Error::MemoryError(_) => NO_MEMORY.into(),
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => {
            text.split("\nstack traceback:").next().unwrap_or_default().into()
        }
        Error::StackError => "too many arguments or results".into(),
        error => error.to_string(),
    }
}

/// `{err = text}`
pub(crate) fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(table)
}

/// By this field Redis knows the error of a command, which it has counted when the command failed.
pub(crate) const OF_COMMAND: &str = "ignore_error_stats_update";

/// The same, of a command that was called.
fn command_table(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let table = error_table(lua, text)?;
    table.raw_set(OF_COMMAND, true)?;
    Ok(table)
}

/// Whether a table with the field `err` is the error of a command.
pub(crate) fn is_of_command(table: &Table) -> bool {
    table.raw_get(OF_COMMAND).is_ok_and(|value: Value| value == Value::Boolean(true))
}
