//! The commands that a script calls: from Lua's arguments to the host, and its replies back.

use mlua::{Error, LightUserData, Lua, LuaString, MultiValue, Value};
use terrace_protocol::Queue;

use crate::{
    control::{Control, Stop},
    fault::{self, Raised, Seen, stopped},
    host::{CallError, Host},
    resp::{self, Encoded},
};

/// What a command counts as, in instructions.
const COMMAND: u64 = 100;
/// Bytes of a command or of its reply that count as another one.
const BYTES_PER_STEP: usize = 64;
/// Bytes of arguments or of a reply that become values without a look at the limit of memory:
/// `mlua` protects each allocation below a limit, which takes several times as long. Lua's own next
/// allocation looks at it.
pub(crate) const UNLIMITED: usize = 64 << 10;

scoped_tls_hkt::scoped_thread_local!(
    /// Executes the commands of the script that this thread runs.
    pub(crate) static mut HOST: for<'h> &'h mut dyn Host
);

/// The memory in which commands of scripts are made.
#[derive(Default)]
pub(crate) struct Calls {
    queue: Queue,
    reply: Vec<u8>,
    /// The limit of memory.
    pub(crate) limit: usize,
}

impl Calls {
    /// Gives back what a large command has taken.
    pub(crate) fn shrink(&mut self) {
        if self.reply.capacity() > UNLIMITED {
            self.reply = Vec::new();
        }
        if self.queue.bytes() > UNLIMITED {
            self.queue = Queue::default();
        }
    }

    /// `redis.call`; or another function, if the first argument says so: see [`PCALL`].
    pub(crate) fn dispatch(
        &mut self,
        lua: &Lua,
        mut args: MultiValue,
        control: &Control,
    ) -> mlua::Result<Value> {
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
        debug_assert!(self.queue.iter().count() == 1, "the queue has this command alone");
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
pub(crate) const PCALL: usize = 1;
pub(crate) const CHECK: usize = 2;

pub(crate) fn mark(number: usize) -> Value {
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
