//! The environment of scripts: Redis's libraries, and the sandbox around them.

use std::{borrow::Cow, cell::RefCell, rc::Rc};

use mlua::{Error, Function, Lua, LuaString, MultiValue, Table, Value, chunk::ChunkMode, debug::Debug};

use crate::{
    bits,
    calls::{CHECK, Calls, PCALL, mark},
    cjson, cmsgpack,
    control::Control,
    fault::{self, NO_MEMORY, SANDBOX, stopped},
    random::{self, Random},
    redis, script, strings, structs,
};

/// What the state keeps of the sandbox.
pub(crate) struct Sandbox {
    /// The environment of scripts.
    pub(crate) environment: Table,
    /// What the environment reads from.
    pub(crate) globals: Table,
    /// Runs the function of a script.
    pub(crate) run: Function,
}

impl Sandbox {
    /// Makes the sandbox from these libraries.
    pub(crate) fn new(lua: &Lua, libraries: &Table, control: &Rc<Control>) -> mlua::Result<Sandbox> {
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name(SANDBOX).set_mode(ChunkMode::Text);
        let (environment, globals, run): (Table, Table, Function) = sandbox.call(libraries)?;
        let (scope, of) = (environment.clone(), Rc::clone(control));
        let compile = move |lua: &Lua, (text, name): (Value, Value)| {
            let text = structs::text(lua, "loadstring", 1, &text)?;
            let name = if name.is_nil() { None } else { Some(structs::text(lua, "loadstring", 2, &name)?) };
            load(lua, &text.as_bytes(), name.as_ref(), (&scope, &of))
        };
        libraries.raw_set("compile", lua.create_function(compile)?)?;
        Ok(Sandbox { environment, globals, run })
    }
}

/// Redis's libraries, as a table that the sandbox takes.
pub(crate) fn libraries(
    lua: &Lua,
    control: &Rc<Control>,
    (random, json): (&Rc<Random>, &cjson::Settings),
    calls: &Rc<RefCell<Calls>>,
) -> mlua::Result<Table> {
    let redis = redis::table(lua, control)?;
    let (of, by) = (Rc::clone(calls), Rc::clone(control));
    let call = move |lua: &Lua, args: MultiValue| of.borrow_mut().dispatch(lua, args, &by);
    redis.raw_set("call", lua.create_function(call)?)?;
    let ours = lua.create_table()?;
    ours.raw_set("redis", &redis)?;
    ours.raw_set("cjson", cjson::table(lua, json)?)?;
    ours.raw_set("cmsgpack", cmsgpack::table(lua, control)?)?;
    ours.raw_set("struct", structs::table(lua, control)?)?;
    ours.raw_set("bit", bits::table(lua)?)?;
    ours.raw_set("os", clock(lua)?)?;
    add_helpers(lua, &ours, control, random)?;
    Ok(ours)
}

/// The functions that the sandbox is made of.
fn add_helpers(lua: &Lua, ours: &Table, control: &Rc<Control>, random: &Rc<Random>) -> mlua::Result<()> {
    ours.raw_set("PCALL", mark(PCALL))?;
    ours.raw_set("CHECK", mark(CHECK))?;
    ours.raw_set("seen", lua.create_function(fault::seen)?)?;
    ours.raw_set("handle", lua.create_function(handle)?)?;
    let of = Rc::clone(control);
    let check = move |_: &Lua, error: Value| {
        if matches!(error, Value::String(text) if text == NO_MEMORY) {
            of.out_of_memory();
        }
        of.stopped().map_or(Ok(()), |stop| Err(stopped(stop)))
    };
    ours.raw_set("check_stop", lua.create_function(check)?)?;
    let of = Rc::clone(control);
    ours.raw_set("is_stopped", lua.create_function(move |_, ()| Ok(of.stopped().is_some()))?)?;
    let of = Rc::clone(control);
    let work = move |_: &Lua, count: f64| of.work(count as u64).map_err(stopped);
    ours.raw_set("work", lua.create_function(work)?)?;
    let of = Rc::clone(control);
    let room = move |_: &Lua, bytes: f64| of.has_room(bytes as usize).map_err(|()| fault::no_memory());
    ours.raw_set("room", lua.create_function(room)?)?;
    ours.raw_set("bad_argument", lua.create_function(bad_argument)?)?;
    let of = Rc::clone(random);
    let install = move |lua: &Lua, math: Table| random::install(lua, &math, &of);
    ours.raw_set("install_random", lua.create_function(install)?)?;
    strings::install(lua, ours, control)
}

/// Raises the error of a wrong argument: "string expected, got nil".
fn bad_argument(
    lua: &Lua,
    (nth, function, wanted, value): (usize, String, String, Value),
) -> mlua::Result<()> {
    Err(fault::bad_argument(lua, nth, &function, &format!("{wanted}, got {}", bits::got(&value))))
}

/// `os` with its one function.
fn clock(lua: &Lua) -> mlua::Result<Table> {
    let os = lua.create_table()?;
    let clock = |_: &Lua, ()| {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
    };
    os.raw_set("clock", lua.create_function(clock)?)?;
    Ok(os)
}

/// Compiles a text for `loadstring` and `load`: a function, or nil and an error. Code that is
/// compiled already could break the state, so it is refused.
fn load(
    lua: &Lua,
    text: &[u8],
    name: Option<&LuaString>,
    (environment, control): (&Table, &Control),
) -> mlua::Result<(Value, Option<String>)> {
    let cost = match script::cost(text) {
        Ok(cost) => cost,
        Err(error) => return Ok((Value::Nil, Some(error))),
    };
    control.work(cost).map_err(stopped)?;
    let name = name.map_or(text.to_vec(), |name| name.as_bytes().to_vec());
    let name: String = String::from_utf8_lossy(&name).split('\0').next().unwrap_or_default().into();
    let chunk = lua.load(text).set_name(name).set_mode(ChunkMode::Text);
    Ok(match chunk.set_environment(environment.clone()).into_function() {
        Ok(function) => (Value::Function(function), None),
        Err(error @ Error::MemoryError(_)) => return Err(error),
        Err(error) => (Value::Nil, Some(fault::text_of(&error))),
    })
}

/// The error handler of a script: a table with the text of the error and its place.
fn handle(lua: &Lua, raised: Value) -> mlua::Result<Value> {
    if let Value::String(text) = &raised
        && *text == NO_MEMORY
    {
        return Ok(raised);
    }
    // The place in the sandbox at which a function of Lua's has failed means nothing to a client.
    let outside = match &raised {
        Value::String(text) => {
            fault::outside(&text.as_bytes()).map(|text| [fault::place(lua, 2).as_bytes(), text].concat())
        }
        _ => None,
    };
    let raised = outside.map_or(Ok(raised), |text| lua.create_string(text).map(Value::String))?;
    let table = match fault::seen(lua, raised)? {
        Value::Table(table) => table,
        Value::Nil => fault::error_table(lua, b"ERR nil")?,
        Value::Boolean(value) => fault::error_table(lua, format!("ERR {value}").as_bytes())?,
        value => {
            let text = lua.coerce_string(value.clone())?;
            let text = text.map_or(value.type_name().into(), |text| text.as_bytes().to_vec());
            fault::error_table(lua, &[b"ERR ", &text[..]].concat())?
        }
    };
    if let Some((source, line)) = place_of_script(lua) {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(Value::Table(table))
}

/// The place in a script at which a value was raised: a function in C or of the sandbox may have
/// raised it for the script.
fn place_of_script(lua: &Lua) -> Option<(String, usize)> {
    let place = |level| {
        let read = |frame: &Debug<'_>| (frame.source().source.map(Cow::into_owned), frame.current_line());
        lua.inspect_stack(level, read)
    };
    let is_ours = |place: &(Option<String>, Option<usize>)| {
        place.0.as_deref().is_some_and(|source| ["=[C]", SANDBOX].contains(&source))
    };
    let (source, line) = (1..=4).map_while(place).find(|place| !is_ours(place))?;
    source.zip(line)
}
