//! The table `redis`, but for `call` and `pcall`, which belong to a run: see `machine.rs`.

use std::rc::Rc;

use log::Level;
use mlua::{Lua, MultiValue, Table, Value};

use crate::{control::Control, fault, resp::number_of, script::Script};

/// The version that scripts are told, as the server tells its clients.
const VERSION: &str = "7.2.0";
const VERSION_NUMBER: i64 = 0x0007_0200;

const LOG_LEVELS: [(&str, i64); 4] =
    [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)];
const REPLICATION: [(&str, i64); 5] =
    [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)];

/// The table.
pub(crate) fn table(lua: &Lua, control: &Rc<Control>) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    for (name, number) in LOG_LEVELS.into_iter().chain(REPLICATION) {
        redis.raw_set(name, number)?;
    }
    redis.raw_set("REDIS_VERSION", VERSION)?;
    redis.raw_set("REDIS_VERSION_NUM", VERSION_NUMBER)?;
    redis.raw_set("error_reply", lua.create_function(error_reply)?)?;
    redis.raw_set("status_reply", lua.create_function(status_reply)?)?;
    redis.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    redis.raw_set("log", lua.create_function(log_line)?)?;
    let control = Rc::clone(control);
    redis.raw_set("setresp", lua.create_function(move |lua, args| set_resp(lua, &args, &control))?)?;
    // Every script is a transaction, and there is nothing to replicate.
    redis.raw_set("replicate_commands", lua.create_function(|_, _: MultiValue| Ok(true))?)?;
    redis.raw_set("set_repl", lua.create_function(set_repl)?)?;
    // There is no debugger.
    redis.raw_set("breakpoint", lua.create_function(|_, _: MultiValue| Ok(false))?)?;
    redis.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    Ok(redis)
}

/// The only argument, if it is a string.
fn single(args: &MultiValue) -> Option<Vec<u8>> {
    match args.iter().collect::<Vec<_>>()[..] {
        [Value::String(text)] => Some(text.as_bytes().to_vec()),
        _ => None,
    }
}

const WRONG: &[u8] = b"ERR wrong number or type of arguments";

fn error_reply(lua: &Lua, args: MultiValue) -> mlua::Result<Table> {
    let Some(text) = single(&args) else { return fault::error_table(lua, WRONG) };
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    match text.contains(&b' ') {
        true => fault::error_table(lua, text),
        false => fault::error_table(lua, &[b"ERR ", text].concat()),
    }
}

fn status_reply(lua: &Lua, args: MultiValue) -> mlua::Result<Table> {
    let Some(text) = single(&args) else { return fault::error_table(lua, WRONG) };
    let table = lua.create_table()?;
    table.raw_set("ok", lua.create_string(text)?)?;
    Ok(table)
}

fn sha1hex(lua: &Lua, args: MultiValue) -> mlua::Result<String> {
    if args.len() != 1 {
        return Err(fault::reply(b"ERR wrong number of arguments"));
    }
    let text = lua.coerce_string(args[0].clone())?;
    Ok(Script::sha(text.map(|text| text.as_bytes().to_vec()).unwrap_or_default().as_slice()))
}

/// Maximum length of a line in the log, bytes, as in Redis.
const LOGGED_MOST: usize = 1024;

fn log_line(lua: &Lua, args: MultiValue) -> mlua::Result<()> {
    if args.len() < 2 {
        return Err(fault::reply(b"ERR redis.log() requires two arguments or more."));
    }
    let level = match number_of(&args[0]).map(|level| level as i64) {
        None => return Err(fault::reply(b"ERR First argument must be a number (log level).")),
        Some(0) => Level::Trace,
        Some(1) => Level::Debug,
        Some(2) => Level::Info,
        Some(3) => Level::Warn,
        Some(_) => return Err(fault::reply(b"ERR Invalid debug level.")),
    };
    let mut words = Vec::new();
    for arg in args.iter().skip(1) {
        if words.len() >= LOGGED_MOST {
            break;
        }
        if let Some(word) = lua.coerce_string(arg.clone())? {
            let word = word.as_bytes();
            words.extend_from_slice(&word[..word.len().min(LOGGED_MOST)]);
            words.push(b' ');
        }
    }
    words.truncate(LOGGED_MOST);
    log::log!(level, "a script: {}", String::from_utf8_lossy(&words).trim_end());
    Ok(())
}

fn set_resp(_: &Lua, args: &MultiValue, control: &Control) -> mlua::Result<()> {
    if args.len() != 1 {
        return Err(fault::reply(b"ERR redis.setresp() requires one argument."));
    }
    match number_of(&args[0]) {
        Some(2.0) => control.resp3.set(false),
        Some(3.0) => control.resp3.set(true),
        _ => return Err(fault::reply(b"ERR RESP version must be 2 or 3.")),
    }
    Ok(())
}

fn set_repl(_: &Lua, args: MultiValue) -> mlua::Result<()> {
    if args.len() != 1 {
        return Err(fault::reply(b"ERR redis.set_repl() requires two arguments."));
    }
    match number_of(&args[0]) {
        Some(flags) if (0.0..=3.0).contains(&flags) => Ok(()),
        _ => Err(fault::reply(
            b"ERR Invalid replication flags. Please use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        )),
    }
}
