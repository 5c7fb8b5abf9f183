//! A Lua state that runs scripts, one at a time.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::HashMap,
    iter::Take,
    rc::Rc,
};

use mlua::{
    Error, Function, HookTriggers, LightUserData, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table,
    Value, VmState, chunk::ChunkMode, debug::Debug,
};
use terrace_protocol::{Args, ArgsIter, Queue, Reply};

use crate::{
    bits, cjson, cmsgpack,
    control::{Control, Limits, SOON_BYTES, STEP, Stop, StopFlag},
    fault::{self, NO_MEMORY, Raised, SANDBOX, Seen, stopped, text_of_stop},
    host::{CallError, Host},
    random::{self, Random},
    redis,
    resp::{self, Encoded, Returned},
    script::{self, Script},
    strings, structs,
};

/// Scripts that a state keeps compiled.
const COMPILED_MOST: usize = 512;
/// What a command counts as, in instructions.
const COMMAND: u64 = 100;
/// Bytes of a command or of its reply that count as another one.
const BYTES_PER_STEP: usize = 64;
/// Bytes of memory from which on a state is given up after a run.
const KEPT_BYTES: usize = 8 << 20;
/// Bytes of arguments or of a reply that become values without a look at the limit of memory:
/// `mlua` protects each allocation below a limit, which takes several times as long. Lua's own next
/// allocation looks at it.
const UNLIMITED: usize = 64 << 10;
/// Memory of a state before its first run, for Lua's own libraries.
const MEMORY_LEAST: usize = 1 << 20;

/// Of so many runs of scripts that have run before, one is checked for a change of the state. All
/// ways that are known to change it are closed.
const CHECKED: u32 = 64;

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
    calls: Rc<RefCell<Calls>>,
    run: Function,
    /// Scripts that are compiled, by their names, and their functions.
    compiled: RefCell<HashMap<String, usize>>,
    functions: RefCell<Table>,
    /// The script that has run last.
    last: RefCell<Option<(String, Function)>>,
    /// Runs since a script was compiled.
    runs: Cell<u32>,
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
        let control: Rc<Control> = Rc::default();
        let (random, json) = (Rc::new(Random::new()), cjson::Settings::new(&control));
        let redis = redis::table(&lua, &control)?;
        let calls: Rc<RefCell<Calls>> = Rc::default();
        let (of, by) = (Rc::clone(&calls), Rc::clone(&control));
        let call = move |lua: &Lua, args: MultiValue| of.borrow_mut().dispatch(lua, args, &by);
        redis.raw_set("call", lua.create_function(call)?)?;
        let ours = lua.create_table()?;
        ours.raw_set("redis", &redis)?;
        ours.raw_set("cjson", cjson::table(&lua, &json)?)?;
        ours.raw_set("cmsgpack", cmsgpack::table(&lua, &control)?)?;
        ours.raw_set("struct", structs::table(&lua, &control)?)?;
        ours.raw_set("bit", bits::table(&lua)?)?;
        ours.raw_set("os", clock(&lua)?)?;
        add_helpers(&lua, &ours, &control, &random)?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name(SANDBOX).set_mode(ChunkMode::Text);
        let (environment, globals, run): (Table, Table, Function) = sandbox.call(&ours)?;
        let scope = environment.clone();
        let of = Rc::clone(&control);
        let compile = move |lua: &Lua, (text, name): (Value, Value)| {
            let text = structs::text(lua, "loadstring", 1, &text)?;
            let name = if name.is_nil() { None } else { Some(structs::text(lua, "loadstring", 2, &name)?) };
            load(lua, &text.as_bytes(), name.as_ref(), (&scope, &of))
        };
        ours.raw_set("compile", lua.create_function(compile)?)?;
        let of = Rc::clone(&control);
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(STEP), move |_, _| {
            of.tick().map_or(Ok(VmState::Continue), |stop| Err(stopped(stop)))
        })?;
        let (compiled, functions) = (RefCell::default(), RefCell::new(lua.create_table()?));
        let is_spoilt = Cell::new(false);
        Ok(Machine {
            lua,
            control,
            random,
            json,
            environment,
            globals,
            calls,
            run,
            compiled,
            functions,
            last: RefCell::default(),
            runs: Cell::new(0),
            is_spoilt,
        })
    }

    /// Whether the state is to be given up: it has taken much memory, or a script has changed it.
    pub fn is_spoilt(&self) -> bool {
        self.is_spoilt.get() || self.lua.used_memory() > KEPT_BYTES
    }

    /// Bytes of memory in use.
    pub fn used_memory(&self) -> usize {
        self.lua.used_memory()
    }

    /// Whether a script is compiled.
    pub fn has(&self, script: &Script) -> bool {
        self.compiled.borrow().contains_key(&script.sha)
    }

    /// Compiles a script, unless it is. The error is a reply.
    pub fn compile(&self, script: &Script, limits: Limits) -> Result<(), Box<[u8]>> {
        self.function(script, limits).map(|_| ())
    }

    /// Takes the function of a script, which `last` gets back.
    fn take(&self, script: &Script, limits: Limits) -> Result<(String, Function), Box<[u8]>> {
        match self.last.take() {
            Some(last) if last.0 == script.sha => Ok(last),
            _ => Ok((script.sha.clone(), self.function(script, limits)?)),
        }
    }

    fn function(&self, script: &Script, limits: Limits) -> Result<Function, Box<[u8]>> {
        let mut compiled = self.compiled.borrow_mut();
        let found = compiled.get(&script.sha).map(|place| self.functions.borrow().raw_get(*place));
        if let Some(Ok(function)) = found {
            return Ok(function);
        }
        let done = self.limit_memory(self.limit(limits)).and_then(|()| {
            let chunk = self.lua.load(script.code()).set_name("@user_script").set_mode(ChunkMode::Text);
            let function = chunk.set_environment(self.environment.clone()).into_function()?;
            if compiled.len() >= COMPILED_MOST {
                compiled.clear();
                self.functions.replace(self.lua.create_table()?);
            }
            let place = compiled.len() + 1;
            self.functions.borrow().raw_set(place, &function)?;
            Ok((function, place))
        });
        let done = self.limit_memory(0).and(done);
        let (function, place) = done.map_err(|error| {
            let text = format!("ERR Error compiling script (new function): {}", fault::text_of(&error));
            text.into_bytes().into_boxed_slice()
        })?;
        compiled.insert(script.sha.clone(), place);
        self.runs.set(0);
        Ok(function)
    }

    /// The limit of memory of a run, of which some is in use.
    fn limit(&self, limits: Limits) -> usize {
        let limit = if limits.memory == 0 { 0 } else { limits.memory.max(MEMORY_LEAST) };
        match limits.budget {
            0 => limit,
            _ => match self.lua.used_memory() + SOON_BYTES {
                soon if limit == 0 => soon,
                soon => soon.min(limit),
            },
        }
    }

    /// Runs a script from its beginning, and writes its reply.
    pub fn run(
        &self,
        script: &Script,
        run: Run<'_>,
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> Result<(), Ended> {
        let limits = run.limits;
        let body = self.take(script, limits).map_err(Ended::Failed)?;
        let (mark, limit) = (reply.mark(), self.limit(limits));
        self.control.begin(limits, run.flag);
        let is_large = run.args.bytes() > UNLIMITED;
        let done = self
            .limit_memory(if is_large { limit } else { 0 })
            .and_then(|()| self.begin(run))
            .and_then(|()| self.execute(&body.1, host, limit));
        match &done {
            Ok(Err(Value::String(text))) if text == NO_MEMORY => self.control.out_of_memory(),
            Err(error) if fault::text_of(error) == NO_MEMORY => self.control.out_of_memory(),
            _ => {}
        }
        let ended = match done {
            _ if self.control.stopped().is_some() => Err(self.ended(script, Value::Nil)),
            Ok(Ok(value)) => self.encode(script, &value, host, reply),
            Ok(Err(raised)) => {
                if let Value::Table(table) = &raised
                    && fault::is_of_command(table)
                    && let Ok(Value::String(error)) = table.raw_get("err")
                {
                    host.raised(resp::printed(&error.as_bytes()));
                }
                Err(self.ended(script, raised))
            }
            Err(error) => Err(Ended::Failed(format!("ERR {}", fault::text_of(&error)).into_bytes().into())),
        };
        self.last.replace(Some(body));
        self.finish(is_large);
        ended.inspect_err(|_| reply.rewind(mark))
    }

    fn limit_memory(&self, limit: usize) -> mlua::Result<()> {
        self.lua.set_memory_limit(limit).map(|_| ())
    }

    fn begin(&self, run: Run<'_>) -> mlua::Result<()> {
        self.random.begin();
        self.json.reset();
        let fill = |texts: Take<ArgsIter<'_>>| {
            let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
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
        self.calls.borrow_mut().limit = limit;
        self.is_spoilt.set(true);
        self.limit_memory(limit)?;
        let runs = self.runs.replace(self.runs.get().wrapping_add(1));
        let called = HOST.set(host, || self.run.call((body, runs.is_multiple_of(CHECKED))));
        self.limit_memory(0)?;
        let (ok, value, is_clean): (bool, Value, bool) = called?;
        self.is_spoilt.set(!is_clean);
        Ok(if ok { Ok(value) } else { Err(value) })
    }

    fn encode(
        &self,
        script: &Script,
        value: &Value,
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> Result<(), Ended> {
        let Limits { memory, budget, .. } = self.control.limits();
        let most = match if budget > 0 { SOON_BYTES } else { memory } {
            0 => usize::MAX,
            memory => reply.mark().saturating_add(memory),
        };
        let resp3 = self.control.resp3.get();
        match (Returned { reply, resp3, most, host }.value(value, 0)) {
            Err(resp::TOO_LONG) if budget > 0 => {
                self.control.out_of_memory();
                Err(self.ended(script, Value::Nil))
            }
            done => done.map_err(|text| Ended::Failed(text.as_bytes().into())),
        }
    }

    /// Gives back what the run has left.
    fn finish(&self, is_large: bool) {
        // A limit below what is in use would let everything fail.
        let mut done = self.limit_memory(0);
        self.calls.borrow_mut().shrink();
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
                format!("{} script: {}", text_of_stop(stop), script.sha).into_bytes().into(),
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

scoped_tls_hkt::scoped_thread_local!(
    /// Executes the commands of the script that this thread runs.
    static mut HOST: for<'h> &'h mut dyn Host
);

/// The memory in which commands of scripts are made.
#[derive(Default)]
struct Calls {
    queue: Queue,
    reply: Vec<u8>,
    /// The limit of memory.
    limit: usize,
}

impl Calls {
    /// Gives back what a large command has taken.
    fn shrink(&mut self) {
        if self.reply.capacity() > UNLIMITED {
            self.reply = Vec::new();
        }
        if self.queue.bytes() > UNLIMITED {
            self.queue = Queue::default();
        }
    }

    /// `redis.call`; or another function, if the first argument says so: see [`PCALL`].
    fn dispatch(&mut self, lua: &Lua, mut args: MultiValue, control: &Control) -> mlua::Result<Value> {
        let mark = match args.front() {
            Some(Value::LightUserData(mark)) => mark.0.addr(),
            _ => 0,
        };
        match mark {
            PCALL => {
                args.pop_front();
                self.call(lua, args, control)?.or_else(|raised| raised.value(lua))
            }
            CHECK => {
                args.pop_front();
                self.knows(args, control).map(Value::Boolean)
            }
            _ => self.call(lua, args, control)?.map_err(Error::external),
        }
    }

    /// Executes a command. The inner error is its reply.
    fn call(
        &mut self,
        lua: &Lua,
        args: MultiValue,
        control: &Control,
    ) -> mlua::Result<Result<Value, Raised>> {
        let uncalled = |text: &str| Raised { text: text.as_bytes().into(), seen: Seen::Table };
        if let Err(text) = self.queue(args, control)? {
            return Ok(Err(uncalled(text)));
        }
        let Calls { queue, reply, limit } = self;
        let Some(args) = queue.iter().next() else { return Ok(Err(uncalled(NO_ARGUMENT))) };
        control.work(COMMAND + (args.bytes() / BYTES_PER_STEP) as u64).map_err(stopped)?;
        reply.clear();
        match HOST.with(|host| host.call(args, control.resp3.get(), reply)) {
            Ok(()) => {
                control.work((reply.len() / BYTES_PER_STEP) as u64).map_err(stopped)?;
                match value_of(lua, reply, *limit)? {
                    Value::Table(table) if reply.starts_with(b"-") => {
                        let text = table.raw_get::<LuaString>("err")?.as_bytes().as_ref().into();
                        Ok(Err(Raised { text, seen: Seen::Table }))
                    }
                    value => Ok(Ok(value)),
                }
            }
            Err(CallError::Failed(text)) => Ok(Err(Raised { text, seen: Seen::OfCommand })),
            Err(CallError::Abandon) => {
                control.stop(Stop::Abandoned);
                Err(stopped(Stop::Abandoned))
            }
        }
    }

    fn queue(&mut self, args: MultiValue, control: &Control) -> mlua::Result<Result<(), &'static str>> {
        self.queue.clear();
        if args.is_empty() {
            return Ok(Err(NO_ARGUMENT));
        }
        let mut bytes = 0;
        for arg in args {
            let mut add = |text: &[u8]| {
                bytes += text.len();
                control.has_room(bytes).map_err(|()| fault::no_memory())?;
                self.queue.add(text);
                Ok::<(), Error>(())
            };
            match arg {
                Value::String(text) => add(&text.as_bytes())?,
                arg => match resp::argument(&arg) {
                    Some(text) => add(&text)?,
                    None => return Ok(Err(WRONG_ARGUMENT)),
                },
            }
        }
        self.queue.end();
        Ok(Ok(()))
    }

    fn knows(&mut self, args: MultiValue, control: &Control) -> mlua::Result<bool> {
        let queued = self.queue(args, control)?;
        let known =
            queued.is_ok() && self.queue.iter().next().is_some_and(|args| HOST.with(|host| host.knows(args)));
        match (queued, known) {
            (Err(text), _) => Err(fault::reply(text.as_bytes())),
            (_, false) => Err(fault::reply(b"ERR Invalid command passed to redis.acl_check_cmd()")),
            // One password allows everything.
            (_, true) => Ok(true),
        }
    }
}

/// Marks by which the sandbox asks `redis.call` for the work of `redis.pcall` and
/// `redis.acl_check_cmd`, whose errors it shows as its own. No script has them.
const PCALL: usize = 1;
const CHECK: usize = 2;

fn mark(number: usize) -> Value {
    Value::LightUserData(LightUserData(std::ptr::without_provenance_mut(number)))
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
