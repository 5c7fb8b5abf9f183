//! A Lua state that runs scripts, one at a time.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    iter::Take,
    rc::Rc,
};

use mlua::{Error, Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value, VmState, chunk::ChunkMode};
use terrace_protocol::{Args, ArgsIter, Reply};

use crate::{
    calls::{Calls, HOST, UNLIMITED},
    cjson,
    control::{Control, Limits, SOON_BYTES, STEP, Stop, StopFlag},
    fault::{self, NO_MEMORY, stopped, text_of_stop},
    host::Host,
    random::Random,
    resp::{self, Returned},
    sandbox::{self, Sandbox},
    script::Script,
};

/// Scripts that a state keeps compiled.
const COMPILED_MOST: usize = 512;
/// Bytes of memory from which on a state is given up after a run.
const KEPT_BYTES: usize = 8 << 20;
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
    sandbox: Sandbox,
    calls: Rc<RefCell<Calls>>,
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
        let calls: Rc<RefCell<Calls>> = Rc::default();
        let libraries = sandbox::libraries(&lua, &control, (&random, &json), &calls)?;
        let sandbox = Sandbox::new(&lua, &libraries, &control)?;
        let of = Rc::clone(&control);
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(STEP), move |_, _| {
            of.tick().map_or(Ok(VmState::Continue), |stop| Err(stopped(stop)))
        })?;
        let functions = RefCell::new(lua.create_table()?);
        Ok(Machine {
            lua,
            control,
            random,
            json,
            sandbox,
            calls,
            compiled: RefCell::default(),
            functions,
            last: RefCell::default(),
            runs: Cell::new(0),
            is_spoilt: Cell::new(false),
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
            let function = chunk.set_environment(self.sandbox.environment.clone()).into_function()?;
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
        self.note_memory(&done);
        let ended = match done {
            _ if self.control.stopped().is_some() => Err(self.ended(script, Value::Nil)),
            Ok(Ok(value)) => self.encode(script, &value, host, reply),
            Ok(Err(raised)) => {
                tell_of_command(&raised, host);
                Err(self.ended(script, raised))
            }
            Err(error) => Err(Ended::Failed(format!("ERR {}", fault::text_of(&error)).into_bytes().into())),
        };
        self.last.replace(Some(body));
        self.finish(is_large);
        ended.inspect_err(|_| reply.rewind(mark))
    }

    /// Notes that a run has ended for lack of memory, if it has.
    fn note_memory(&self, done: &mlua::Result<Result<Value, Value>>) {
        match done {
            Ok(Err(Value::String(text))) if text == NO_MEMORY => self.control.out_of_memory(),
            Err(error) if fault::text_of(error) == NO_MEMORY => self.control.out_of_memory(),
            _ => {}
        }
    }

    fn limit_memory(&self, limit: usize) -> mlua::Result<()> {
        self.lua.set_memory_limit(limit).map(|_| ())
    }

    fn begin(&self, run: Run<'_>) -> mlua::Result<()> {
        debug_assert!(run.keys <= run.args.len(), "keys are the first of the arguments");
        self.random.begin();
        self.json.reset();
        let fill = |texts: Take<ArgsIter<'_>>| {
            let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
            for (nth, text) in texts.enumerate() {
                table.raw_set(nth + 1, self.lua.create_string(text)?)?;
            }
            Ok::<Table, Error>(table)
        };
        self.sandbox.globals.raw_set("KEYS", fill(run.args.iter().take(run.keys))?)?;
        self.sandbox.globals.raw_set("ARGV", fill(run.args.from(run.keys).iter().take(usize::MAX))?)
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
        let called = HOST.set(host, || self.sandbox.run.call((body, runs.is_multiple_of(CHECKED))));
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
            let clear = |name| self.sandbox.globals.raw_set(name, Value::Nil);
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

/// Tells the host that a script has raised the error of a command.
fn tell_of_command(raised: &Value, host: &mut dyn Host) {
    if let Value::Table(table) = raised
        && fault::is_of_command(table)
        && let Ok(Value::String(error)) = table.raw_get("err")
    {
        host.raised(resp::printed(&error.as_bytes()));
    }
}
