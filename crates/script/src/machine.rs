//! A Lua state that runs scripts, one at a time.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::HashMap,
    iter::Take,
    rc::Rc,
};

use mlua::{
    Error, Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, VmState,
    chunk::ChunkMode, debug::Debug,
};
use terrace_protocol::{Args, ArgsIter, Queue, Reply};

use crate::{
    bits, cjson, cmsgpack,
    control::{Control, Limits, STEP, Stop, StopFlag},
    fault,
    host::{CallError, Host},
    random::{self, Random},
    redis,
    resp::{self, Encoded, Returned},
    script::Script,
    structs,
};

/// Scripts that a state keeps compiled.
const COMPILED_MOST: usize = 512;
/// What a command counts as, in instructions.
const COMMAND: u64 = 100;
/// Bytes of memory from which on a state is given up after a run.
const KEPT_BYTES: usize = 8 << 20;
/// Bytes of arguments or of a reply that become values without a look at the limit of memory:
/// `mlua` protects each allocation below a limit, which takes several times as long. Lua's own next
/// allocation looks at it.
const UNLIMITED: usize = 64 << 10;
/// The name of the sandbox's code.
const SANDBOX: &str = "=sandbox";
/// Memory of a state before its first run, for Lua's own libraries.
const MEMORY_LEAST: usize = 1 << 20;

/// A Lua state with Redis's libraries.
pub struct Machine {
    lua: Lua,
    control: Rc<Control>,
    random: Rc<Random>,
    json: cjson::Settings,
    /// The environment of scripts.
    environment: Table,
    /// What the environment reads from.
    globals: Table,
    redis: Table,
    run: Function,
    compiled: RefCell<HashMap<String, Function>>,
    is_spoilt: Cell<bool>,
}

/// What a script runs with.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Its keys, then its other arguments: the tables KEYS and ARGV.
    pub args: Args<'a>,
    /// The number of keys.
    pub keys: usize,
    /// Its limits.
    pub limits: Limits,
    /// Ends it from another thread.
    pub flag: &'a StopFlag,
}

/// How a script ended, if not with a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an error, which is the reply.
    Failed(Box<[u8]>),
    /// Before it was done; the text is the reply.
    Stopped(Stop, Box<[u8]>),
}

impl Machine {
    /// A new state.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new() -> Result<Machine, String> {
        Machine::build().map_err(|error| fault::text_of(&error))
    }

    fn build() -> mlua::Result<Machine> {
        let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, LuaOptions::new())?;
        let (control, random, json) = (Rc::default(), Rc::new(Random::default()), cjson::Settings::default());
        let redis = redis::table(&lua, &control)?;
        let ours = lua.create_table()?;
        ours.raw_set("redis", &redis)?;
        ours.raw_set("cjson", cjson::table(&lua, &json)?)?;
        ours.raw_set("cmsgpack", cmsgpack::table(&lua)?)?;
        ours.raw_set("struct", structs::table(&lua)?)?;
        ours.raw_set("bit", bits::table(&lua)?)?;
        ours.raw_set("os", clock(&lua)?)?;
        add_helpers(&lua, &ours, &control, &random)?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name(SANDBOX).set_mode(ChunkMode::Text);
        let (environment, globals, run): (Table, Table, Function) = sandbox.call(&ours)?;
        let scope = environment.clone();
        let compile = move |lua: &Lua, (text, name): (LuaString, Option<LuaString>)| {
            load(lua, &text.as_bytes(), name.as_ref(), &scope)
        };
        ours.raw_set("compile", lua.create_function(compile)?)?;
        let of = Rc::clone(&control);
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(STEP), move |_, _| {
            of.tick().map_or(Ok(VmState::Continue), |stop| Err(stopped(stop)))
        })?;
        let compiled = RefCell::default();
        let is_spoilt = Cell::new(false);
        Ok(Machine { lua, control, random, json, environment, globals, redis, run, compiled, is_spoilt })
    }

    /// Whether the state is to be given up: it has taken much memory, or a script has changed it.
    pub fn is_spoilt(&self) -> bool {
        self.is_spoilt.get() || self.lua.used_memory() > KEPT_BYTES
    }

    /// Compiles a script, unless it is. The error is a reply.
    pub fn compile(&self, script: &Script) -> Result<(), Box<[u8]>> {
        self.function(script).map(|_| ())
    }

    fn function(&self, script: &Script) -> Result<Function, Box<[u8]>> {
        if let Some(function) = self.compiled.borrow().get(&script.sha) {
            return Ok(function.clone());
        }
        let chunk = self.lua.load(script.code()).set_name("@user_script").set_mode(ChunkMode::Text);
        let function = chunk.set_environment(self.environment.clone()).into_function().map_err(|error| {
            let text = format!("ERR Error compiling script (new function): {}", fault::text_of(&error));
            text.into_bytes().into_boxed_slice()
        })?;
        let mut compiled = self.compiled.borrow_mut();
        if compiled.len() >= COMPILED_MOST {
            compiled.clear();
        }
        compiled.insert(script.sha.clone(), function.clone());
        Ok(function)
    }

    /// Runs a script from its beginning, and writes its reply.
    pub fn run(
        &self,
        script: &Script,
        run: Run<'_>,
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> Result<(), Ended> {
        let body = self.function(script).map_err(Ended::Failed)?;
        let mark = reply.mark();
        let limits = run.limits;
        let limit = if limits.memory == 0 { 0 } else { limits.memory.max(MEMORY_LEAST) };
        self.control.begin(limits, run.flag);
        let is_large = run.args.bytes() > UNLIMITED;
        let done = self
            .limit_memory(if is_large { limit } else { 0 })
            .and_then(|()| self.begin(run))
            .and_then(|()| self.execute(&body, host, limit));
        let ended = match done {
            _ if self.control.stopped().is_some() => Err(self.ended(script, Value::Nil)),
            Ok(Ok(value)) => self.encode(&value, reply).map_err(|text| Ended::Failed(text.as_bytes().into())),
            Ok(Err(raised)) => Err(self.ended(script, raised)),
            Err(error) => Err(Ended::Failed(format!("ERR {}", fault::text_of(&error)).into_bytes().into())),
        };
        self.finish(is_large);
        ended.inspect_err(|_| reply.rewind(mark))
    }

    fn limit_memory(&self, limit: usize) -> mlua::Result<()> {
        self.lua.set_memory_limit(limit).map(|_| ())
    }

    fn begin(&self, run: Run<'_>) -> mlua::Result<()> {
        self.random.seed(0);
        self.json.reset();
        let fill = |texts: Take<ArgsIter<'_>>| {
            let table = self.lua.create_table()?;
            for (nth, text) in texts.enumerate() {
                table.raw_set(nth + 1, self.lua.create_string(text)?)?;
            }
            Ok::<Table, Error>(table)
        };
        self.globals.raw_set("KEYS", fill(run.args.iter().take(run.keys))?)?;
        self.globals.raw_set("ARGV", fill(run.args.from(run.keys).iter().take(usize::MAX))?)
    }

    /// Calls the function of a script. The inner result is what it returned, or raised.
    fn execute(
        &self,
        body: &Function,
        host: &mut dyn Host,
        limit: usize,
    ) -> mlua::Result<Result<Value, Value>> {
        let calls = RefCell::new(Calls { host, queue: Queue::default(), reply: Vec::new(), limit });
        self.lua.scope(|scope| {
            let call = |lua: &Lua, args: MultiValue| {
                calls.borrow_mut().call(lua, &args, &self.control)?.map_err(|text| fault::reply(&text))
            };
            let pcall =
                |lua: &Lua, args: MultiValue| match calls.borrow_mut().call(lua, &args, &self.control)? {
                    Ok(value) => Ok(value),
                    Err(text) => fault::error_table(lua, &text).map(Value::Table),
                };
            let check = |_: &Lua, args: MultiValue| calls.borrow_mut().knows(&args);
            self.redis.raw_set("call", scope.create_function(call)?)?;
            self.redis.raw_set("pcall", scope.create_function(pcall)?)?;
            self.redis.raw_set("acl_check_cmd", scope.create_function(check)?)?;
            self.is_spoilt.set(true);
            self.limit_memory(limit)?;
            let called = self.run.call(body);
            self.limit_memory(0)?;
            let (ok, value, is_clean): (bool, Value, bool) = called?;
            self.is_spoilt.set(!is_clean);
            Ok(if ok { Ok(value) } else { Err(value) })
        })
    }

    fn encode(&self, value: &Value, reply: &mut Reply<'_>) -> Result<(), &'static str> {
        let most = match self.control.limits().memory {
            0 => usize::MAX,
            memory => reply.mark().saturating_add(memory),
        };
        Returned { reply, resp3: self.control.resp3.get(), most }.value(value, 0)
    }

    /// Gives back what the run has left.
    fn finish(&self, is_large: bool) {
        // A limit below what is in use would let everything fail.
        let mut done = self.limit_memory(0);
        if is_large {
            let clear = |name| self.globals.raw_set(name, Value::Nil);
            done = done.and_then(|()| clear("KEYS")).and_then(|()| clear("ARGV"));
        }
        if done.is_err() {
            self.is_spoilt.set(true);
        }
    }

    /// How a run ended that has raised a value or was stopped.
    fn ended(&self, script: &Script, raised: Value) -> Ended {
        if let Some(stop) = self.control.stopped() {
            return Ended::Stopped(
                stop,
                format!("{} script: {}", text_of(stop), script.sha).into_bytes().into(),
            );
        }
        let Value::Table(table) = raised else {
            let text = match fault::seen(&self.lua, raised) {
                Ok(Value::String(text)) => text.to_string_lossy(),
                _ => "execution failure".into(),
            };
            return Ended::Failed(format!("ERR {text} script: {}", script.sha).into_bytes().into());
        };
        let text = match table.raw_get("err") {
            Ok(Value::String(text)) => resp::printed(&text.as_bytes()).to_vec(),
            _ => b"ERR unknown error".to_vec(),
        };
        let place = match (table.raw_get::<String>("source"), table.raw_get::<i64>("line")) {
            (Ok(source), Ok(line)) => format!(" script: {}, on {source}:{line}.", script.sha),
            _ => format!(" script: {}", script.sha),
        };
        Ended::Failed([&text[..], place.as_bytes()].concat().into())
    }
}

/// The commands of one run.
struct Calls<'h> {
    host: &'h mut dyn Host,
    queue: Queue,
    reply: Vec<u8>,
    /// The limit of memory.
    limit: usize,
}

impl Calls<'_> {
    /// Executes a command. The inner error is its reply.
    fn call(
        &mut self,
        lua: &Lua,
        args: &MultiValue,
        control: &Control,
    ) -> mlua::Result<Result<Value, Box<[u8]>>> {
        control.charge(COMMAND);
        if let Err(text) = self.queue(args) {
            return Ok(Err(text.as_bytes().into()));
        }
        let Calls { host, queue, reply, limit } = self;
        let Some(args) = queue.iter().next() else { return Ok(Err(NO_ARGUMENT.as_bytes().into())) };
        reply.clear();
        match host.call(args, control.resp3.get(), reply) {
            Ok(()) => match value_of(lua, reply, *limit)? {
                Value::Table(table) if reply.starts_with(b"-") => {
                    Ok(Err(table.raw_get::<LuaString>("err")?.as_bytes().as_ref().into()))
                }
                value => Ok(Ok(value)),
            },
            Err(CallError::Failed(text)) => Ok(Err(text)),
            Err(CallError::Abandon) => {
                control.stop(Stop::Abandoned);
                Err(stopped(Stop::Abandoned))
            }
        }
    }

    fn queue(&mut self, args: &MultiValue) -> Result<(), &'static str> {
        self.queue = Queue::default();
        if args.is_empty() {
            return Err(NO_ARGUMENT);
        }
        for arg in args {
            match arg {
                Value::String(text) => self.queue.add(&text.as_bytes()),
                arg => self.queue.add(&resp::argument(arg).ok_or(WRONG_ARGUMENT)?),
            }
        }
        self.queue.end();
        Ok(())
    }

    fn knows(&mut self, args: &MultiValue) -> mlua::Result<bool> {
        let queued = self.queue(args);
        let known = queued.is_ok() && self.queue.iter().next().is_some_and(|args| self.host.knows(args));
        match (queued, known) {
            (Err(text), _) => Err(fault::reply(text.as_bytes())),
            (_, false) => Err(fault::reply(b"ERR Invalid command passed to redis.acl_check_cmd()")),
            // One password allows everything.
            (_, true) => Ok(true),
        }
    }
}

/// The value of a reply.
fn value_of(lua: &Lua, reply: &[u8], limit: usize) -> mlua::Result<Value> {
    if reply.len() > UNLIMITED {
        return Encoded::new(reply).value(lua);
    }
    lua.set_memory_limit(0)?;
    let value = Encoded::new(reply).value(lua);
    lua.set_memory_limit(limit)?;
    value
}

const NO_ARGUMENT: &str = "ERR Please specify at least one argument for this redis lib call";
const WRONG_ARGUMENT: &str = "ERR Lua redis lib command arguments must be strings or integers";

/// The functions that the sandbox is made of.
fn add_helpers(lua: &Lua, ours: &Table, control: &Rc<Control>, random: &Rc<Random>) -> mlua::Result<()> {
    ours.raw_set("seen", lua.create_function(fault::seen)?)?;
    ours.raw_set("handle", lua.create_function(handle)?)?;
    let of = Rc::clone(control);
    let check = move |_: &Lua, ()| of.stopped().map_or(Ok(()), |stop| Err(stopped(stop)));
    ours.raw_set("check_stop", lua.create_function(check)?)?;
    let of = Rc::clone(control);
    ours.raw_set("is_stopped", lua.create_function(move |_, ()| Ok(of.stopped().is_some()))?)?;
    let of = Rc::clone(random);
    let install = move |lua: &Lua, math: Table| random::install(lua, &math, &of);
    ours.raw_set("install_random", lua.create_function(install)?)
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
    environment: &Table,
) -> mlua::Result<(Value, Option<String>)> {
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
    let table = match fault::seen(lua, raised)? {
        Value::Table(table) => table,
        Value::Nil => fault::error_table(lua, b"ERR nil")?,
        value => {
            let text = lua.coerce_string(value.clone())?;
            let text = text.map_or(value.type_name().into(), |text| text.as_bytes().to_vec());
            fault::error_table(lua, &[b"ERR ", &text[..]].concat())?
        }
    };
    let place = |level| {
        let read = |frame: &Debug<'_>| (frame.source().source.map(Cow::into_owned), frame.current_line());
        lua.inspect_stack(level, read)
    };
    // What has raised it may be a function in C, or of the sandbox.
    let is_ours = |place: &(Option<String>, Option<usize>)| {
        place.0.as_deref().is_some_and(|source| ["=[C]", SANDBOX].contains(&source))
    };
    if let Some((Some(source), Some(line))) = (1..=4).map_while(place).find(|place| !is_ours(place)) {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(Value::Table(table))
}

fn stopped(stop: Stop) -> Error {
    fault::reply(text_of(stop).as_bytes())
}

fn text_of(stop: Stop) -> &'static str {
    match stop {
        Stop::Killed => "ERR Script killed by user with SCRIPT KILL...",
        Stop::ShutDown => "ERR the script was ended because the server stops",
        Stop::OverBudget => "ERR the script was put off",
        Stop::OverLimit => "ERR the script executed more instructions than script-instructions allows",
        Stop::Abandoned => "ERR the script was given up",
    }
}
