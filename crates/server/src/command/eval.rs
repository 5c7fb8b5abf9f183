//! EVAL, EVALSHA, EVAL_RO, EVALSHA_RO
//!
//! A script is one transaction: it sees the store through an overlay as EXEC does, and runs again
//! if what it has read was changed by others. If it fails, or is ended, nothing of it happens.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use terrace::cold;
use terrace_protocol::Args;
use terrace_script::{
    CallError, Ended, Host, Limits, Machine, Run as ScriptRun, Script, Stop, StopFlag, flag as script_flag,
};

use super::*;
use crate::{
    keyspace::Keyspace,
    state::{
        alone::Runs, clock::unix_ms, config::Key, flow::Flow, replies::ReplyLimit, session_state::State,
        shared::Shared, stats,
    },
};

pub(super) static EVAL: Command = Command {
    keys: &[KeySpec::counted(
        2,
        ACCESS,
        "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE",
    )],
    summary: "Runs a Lua script as one transaction.",
    ..family("eval", 0, eval)
};

pub(super) static EVALSHA: Command = Command {
    keys: &[KeySpec::counted(2, ACCESS, "")],
    summary: "Runs a Lua script that the server knows by the SHA-1 of its text, as one transaction.",
    ..family("evalsha", 0, evalsha)
};

pub(super) static EVAL_RO: Command = Command {
    keys: &[KeySpec::counted(
        2,
        ACCESS_RO,
        "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS",
    )],
    since: "7.0.0",
    summary: "Runs a Lua script that writes nothing.",
    ..family("eval_ro", flag::READONLY, eval_ro)
};

pub(super) static EVALSHA_RO: Command = Command {
    keys: &[KeySpec::counted(2, ACCESS_RO, "")],
    since: "7.0.0",
    summary: "Runs a Lua script that writes nothing and that the server knows by the SHA-1 of its text.",
    ..family("evalsha_ro", flag::READONLY, evalsha_ro)
};

const ACCESS: &[&str] = &["RW", "access", "update"];
const ACCESS_RO: &[&str] = &["RO", "access"];
const FLAGS: u32 =
    flag::NOSCRIPT | flag::STALE | flag::SKIP_MONITOR | flag::NO_MANDATORY_KEYS | flag::MOVABLE_KEYS;

const fn family(
    name: &'static str,
    more: u32,
    run: fn(&mut Context<'_>, Args<'_>, &Nested) -> Outcome,
) -> Command {
    Command {
        flags: FLAGS | more,
        categories: category::SCRIPTING,
        since: "2.6.0",
        complexity: "Depends on the script that is executed.",
        ..Command::new(name, -3, group::SCRIPTING, Run::Nested(run))
    }
}

/// Instructions after which a script leaves its loop: about a millisecond. It then runs again, on a
/// thread for long scripts.
const BUDGET: u64 = 200_000;

/// Instructions that compiling a script may count as on a loop: as [`BUDGET`].
const COMPILE_BUDGET: u64 = 50_000;

thread_local! {
    /// The state of Lua of this thread, while no script runs.
    static MACHINE: RefCell<Option<Box<Kept>>> = const { RefCell::new(None) };
    /// The script that EVAL has found last on this thread.
    static LAST: RefCell<Option<Arc<Script>>> = const { RefCell::new(None) };
}

/// Bytes of memory of the states of Lua of this process.
static LUA_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of memory of the states of Lua, without what running scripts have added.
pub(super) fn lua_bytes() -> u64 {
    // ORDER: Relaxed, all: a statistic.
    LUA_BYTES.load(Relaxed) as u64
}

/// A state of Lua, and its part of [`LUA_BYTES`].
struct Kept {
    machine: Machine,
    counted: usize,
}

impl Kept {
    fn new() -> Result<Box<Kept>, String> {
        let mut kept = Box::new(Kept { machine: Machine::new()?, counted: 0 });
        kept.count(kept.machine.used_memory());
        Ok(kept)
    }

    fn count(&mut self, bytes: usize) {
        // Before the old part goes, so that the sum is never negative.
        LUA_BYTES.fetch_add(bytes, Relaxed);
        LUA_BYTES.fetch_sub(std::mem::replace(&mut self.counted, bytes), Relaxed);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// Calls `body` with this thread's state of Lua.
pub(super) fn with_machine<R>(body: impl FnOnce(&Machine) -> R) -> Result<R, Failure> {
    let kept = MACHINE.with_borrow_mut(Option::take);
    let made = kept.map_or_else(Kept::new, Ok);
    let mut kept =
        made.map_err(|error| Failure::Made(format!("ERR cannot start Lua: {error}").into_bytes().into()))?;
    let result = body(&kept.machine);
    if !kept.machine.is_spoilt() {
        let used = kept.machine.used_memory();
        if used != kept.counted {
            kept.count(used);
        }
        MACHINE.with_borrow_mut(|place| *place = Some(kept));
    }
    Ok(result)
}

fn eval(cx: &mut Context<'_>, args: Args<'_>, nested: &Nested) -> Outcome {
    let script = by_text(cx, args.at(1))?;
    execute(cx, &script, args, false, nested)
}

fn eval_ro(cx: &mut Context<'_>, args: Args<'_>, nested: &Nested) -> Outcome {
    let script = by_text(cx, args.at(1))?;
    execute(cx, &script, args, true, nested)
}

fn evalsha(cx: &mut Context<'_>, args: Args<'_>, nested: &Nested) -> Outcome {
    let script = by_sha(cx.shared, args.at(1))?;
    execute(cx, &script, args, false, nested)
}

fn evalsha_ro(cx: &mut Context<'_>, args: Args<'_>, nested: &Nested) -> Outcome {
    let script = by_sha(cx.shared, args.at(1))?;
    execute(cx, &script, args, true, nested)
}

fn by_text(cx: &mut Context<'_>, text: &[u8]) -> Result<Arc<Script>, Failure> {
    // Most clients send one script again and again: its name is known.
    let last = LAST.with_borrow(|last| last.clone()).filter(|last| *last.text == *text);
    let found = match &last {
        Some(last) => cx.shared.scripts.get(&last.sha),
        None => cx.shared.scripts.get(&Script::sha(text)),
    };
    let script = found.map_or_else(|| load(cx, text, false), Ok)?;
    LAST.with_borrow_mut(|last| {
        if !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &script)) {
            *last = Some(Arc::clone(&script));
        }
    });
    Ok(script)
}

fn by_sha(shared: &Shared, sha: &[u8]) -> Result<Arc<Script>, Failure> {
    let sha = String::from_utf8_lossy(sha).to_ascii_lowercase();
    shared.scripts.get(&sha).ok_or(Failure::Text("NOSCRIPT No matching script. Please use EVAL."))
}

/// Compiles a script and keeps it.
pub(super) fn load(cx: &mut Context<'_>, text: &[u8], for_ever: bool) -> Result<Arc<Script>, Failure> {
    let script = Script::new(text).map_err(|error| Failure::Made(error.into_bytes().into()))?;
    wait_for_thread(cx)?;
    leave_to_compile(cx, &script)?;
    let limits = Limits { budget: 0, ..limits(cx.shared, cx.state) };
    with_machine(|machine| machine.compile(&script, limits))?.map_err(Failure::Made)?;
    let script = Arc::new(script);
    cx.shared.scripts.add(Arc::clone(&script), for_ever);
    Ok(script)
}

/// A script that takes long to compile, which nothing ends, leaves its loop for that, unless it is
/// compiled there.
fn leave_to_compile(cx: &mut Context<'_>, script: &Script) -> Outcome {
    if !cx.state.waits.may_put_off()
        || script.cost <= COMPILE_BUDGET
        || with_machine(|machine| machine.has(script))?
    {
        return Ok(());
    }
    cx.state.waits.put_off_script(cx.now_ms);
    Err(Failure::PUT_OFF)
}

/// The number of keys among the arguments.
fn key_count(args: Args<'_>) -> Result<usize, Failure> {
    match usize::try_from(parse::integer(args.at(2))?) {
        Err(_) => Err(Failure::Text("ERR Number of keys can't be negative")),
        Ok(count) if count > args.len() - 3 => {
            Err(Failure::Text("ERR Number of keys can't be greater than number of args"))
        }
        Ok(count) => Ok(count),
    }
}

/// Runs a script as one transaction, and replies.
fn execute(
    cx: &mut Context<'_>,
    script: &Script,
    args: Args<'_>,
    is_read_only: bool,
    nested: &Nested,
) -> Outcome {
    let keys = key_count(args)?;
    if cx.state.waits.is_alone() && !cx.state.waits.makes_room() {
        return Err(Failure::Text(
            "ERR a transaction with SWAPDB runs no scripts: all other commands wait for its end",
        ));
    }
    wait_for_thread(cx)?;
    leave_to_compile(cx, script)?;
    let shared = cx.shared;
    if shared.is_of_cluster() && script.has(script_flag::NO_CLUSTER) {
        return Err(Failure::Text("ERR Can not run script on cluster, 'no-cluster' flag is set."));
    }
    let is_above_limit = shared.is_above_limit();
    if !is_read_only && script.refuses_oom() && is_above_limit {
        return Err(Failure::SCRIPT_ABOVE_LIMIT);
    }
    let rules = ScriptRules {
        is_read_only: is_read_only || script.has(script_flag::NO_WRITES),
        refuses_oom: is_above_limit && !script.has(script_flag::ALLOW_OOM),
        slot: (keys > 0).then(|| terrace_protocol::slot(args.at(3))),
    };
    let (flag, limits) = (StopFlag::default(), limits(shared, cx.state));
    // A script with a budget ends soon by itself.
    let running = (limits.budget == 0).then(|| shared.scripts.begin(unix_ms(), &flag));
    let run = ScriptRun { args: args.from(3), keys, limits, flag: &flag };
    let place = cx.state.last_command;
    let mut run = || with_machine(|machine| transact(cx, machine, script, run, rules, nested));
    let done = if script.has(script_flag::ALLOW_OOM) { shared.store.unlimited(run) } else { run() }?;
    cx.state.last_command = place;
    drop(running);
    done
}

fn limits(shared: &Shared, state: &State) -> Limits {
    let number = |key| shared.config.number(key);
    let memory = usize::try_from(number(Key::ScriptMemory)).unwrap_or(usize::MAX);
    let instructions = number(Key::ScriptInstructions);
    if state.waits.makes_room() {
        let most = removals::INSTRUCTIONS;
        let instructions = if instructions == 0 { most } else { instructions.min(most) };
        return Limits { memory, instructions, budget: 0 };
    }
    Limits { memory, instructions, budget: if state.waits.may_put_off() { BUDGET } else { 0 } }
}

/// Runs a script until it commits or fails.
fn transact(
    cx: &mut Context<'_>,
    machine: &Machine,
    script: &Script,
    run: ScriptRun<'_>,
    rules: ScriptRules,
    nested: &Nested,
) -> Outcome {
    let Context { keys, shared, state, reply, now_ms } = cx;
    let (mark, tally, selection) = (reply.mark(), state.tally, state.selection);
    let alone_next = state.waits.take_alone_next();
    let mut runs = Runs::new(&shared.alone, unix_ms, *now_ms, alone_next);
    let (mut executed, mut has_ended, mut removed) = (Vec::new(), false, None);
    let mut errors = Errors::default();
    // Within EXEC, that is the transaction, and may write behind the script.
    let is_own = !keys.is_transaction();
    let mut done = keys.atomically(&mut |keys| {
        // The store runs this again after a conflicting write: start from the beginning.
        reply.rewind(mark);
        (has_ended, removed, errors) = (false, None, Errors::default());
        state.selection.select(selection.database());
        let Some(now_ms) = runs.begin() else {
            state.waits.put_off_to_be_alone();
            return Err(Failure::PUT_OFF);
        };
        terrace::at_instant(now_ms, || {
            let (executed, errors, failure) = (&mut executed, &mut errors, None);
            let held_most = match run.limits.memory {
                0 => usize::MAX,
                memory => keys.held_bytes().saturating_add(memory),
            };
            let reply_limit = match run.limits.memory {
                bytes @ 1.. if bytes < state.reply_limit.bytes => ReplyLimit { bytes, name: "script-memory" },
                _ => state.reply_limit,
            };
            let mut calls = Calls {
                keys: &mut *keys,
                shared,
                state,
                now_ms,
                rules,
                nested,
                executed,
                errors,
                failure,
                held_most,
                reply_limit,
            };
            let ended = machine.run(script, run, &mut calls, reply);
            let failure = calls.failure.take();
            if cold::is_stuck() {
                // It will want its keys, so their cold reads are made at once.
                (0..run.keys).for_each(|nth| _ = keys.read(run.args.at(nth), &mut |_| {}));
            }
            match ended {
                Ok(()) => {
                    has_ended = true;
                    removed = if state.waits.makes_room() && is_own { keys.removals()? } else { None };
                    if removed.is_some() { Err(Failure::PUT_OFF) } else { Ok(()) }
                }
                Err(Ended::Failed(text)) => Err(Failure::Made(text)),
                Err(Ended::Stopped(Stop::OverBudget, _)) => {
                    state.waits.put_off_script(now_ms);
                    Err(Failure::PUT_OFF)
                }
                Err(Ended::Stopped(_, text)) => Err(failure.unwrap_or(Failure::Made(text))),
            }
        })
    });
    // What a script selects, it selects for itself.
    state.selection.select(selection.database());
    if let Err(failure) = &done
        && has_ended
        && is_own
        && let Some(settled) = removals::settle(shared, state, removed, (failure, &executed))
    {
        done = settled;
    }
    let is_put_off = cold::is_stuck() || state.waits.is_put_off();
    if is_put_off {
        // It runs again, as if for the first time.
        state.tally = tally;
        executed.into_iter().for_each(|place| state.counters.cancel(table::number(place)));
    } else {
        for (code, count) in errors.counts {
            state.tally.errors += count;
            state.counters.record_errors(&code, count);
        }
        state.has_failed = errors.are_returned && done.is_ok();
    }
    done
}

/// A script that was put off because it takes long waits for a thread, and is refused if that takes
/// long: those that have the threads may have no end.
fn wait_for_thread(cx: &mut Context<'_>) -> Outcome {
    let may_wait = cx.state.waits.may_put_off() && !cx.state.waits.makes_room();
    let Some(since_ms) = cx.state.waits.since_ms().filter(|_| may_wait) else { return Ok(()) };
    let threshold_ms = cx.shared.config.number(Key::BusyReplyThreshold);
    let waited_ms = cx.now_ms.saturating_sub(since_ms);
    if cx.shared.scripts.are_full() && threshold_ms > 0 && waited_ms > threshold_ms {
        return Err(Failure::BUSY);
    }
    cx.state.waits.put_off(if cx.shared.scripts.are_full() { Flow::Later } else { Flow::Script });
    Err(Failure::PUT_OFF)
}

const HOLDS_TOO_MUCH: Failure = Failure::Text(
    "OOM the writes of the script take more than script-memory, so nothing of it has happened: write less in one \
     script, or raise script-memory",
);

/// The commands of a script.
struct Calls<'a> {
    keys: &'a mut dyn Keyspace,
    shared: &'a Shared,
    state: &'a mut State,
    now_ms: u64,
    rules: ScriptRules,
    nested: &'a Nested,
    executed: &'a mut Vec<usize>,
    errors: &'a mut Errors,
    /// Why the transaction cannot go on.
    failure: Option<Failure>,
    /// What the transaction may hold in memory, bytes.
    held_most: usize,
    /// How large the replies of commands may become.
    reply_limit: ReplyLimit,
}

/// The errors that count, as in Redis: of commands that have failed, even if the script has caught
/// them, and others that the script returns.
#[derive(Default)]
struct Errors {
    /// How many have this code.
    counts: BTreeMap<Vec<u8>, u64>,
    /// Whether there are some in what the script returns.
    are_returned: bool,
}

impl Errors {
    fn add(&mut self, error: &[u8]) {
        *self.counts.entry(stats::code_of(error).to_vec()).or_default() += 1;
    }
}

impl Host for Calls<'_> {
    fn returned(&mut self, error: &[u8], of_command: bool) {
        self.errors.are_returned = true;
        if !of_command {
            self.errors.add(error);
        }
    }

    fn raised(&mut self, error: &[u8]) {
        // The reply of the script counts it.
        if let Some(count) = self.errors.counts.get_mut(stats::code_of(error)) {
            *count = count.saturating_sub(1);
        }
    }

    fn call(&mut self, args: Args<'_>, resp3: bool, out: &mut Vec<u8>) -> Result<(), CallError> {
        let (reply, database) = (terrace_protocol::Reply::new(out, resp3), self.state.selection.database());
        let before = std::mem::replace(&mut self.state.reply_limit, self.reply_limit);
        let cx = &mut Context {
            keys: &mut *self.keys,
            shared: self.shared,
            state: &mut *self.state,
            reply,
            now_ms: self.now_ms,
        };
        let outcome = (self.nested.in_script)(cx, args, &mut self.rules, self.executed);
        self.state.reply_limit = before;
        if self.state.selection.database() != database {
            self.keys.select(self.state.place());
        }
        match outcome {
            _ if cold::is_stuck() => Err(CallError::Abandon),
            Ok(()) if self.keys.held_bytes() > self.held_most => {
                self.failure = Some(HOLDS_TOO_MUCH);
                Err(CallError::Abandon)
            }
            Ok(()) => Ok(()),
            Err(failure) if failure.is_of_cluster() => {
                self.failure = Some(failure);
                Err(CallError::Abandon)
            }
            Err(failure) => {
                self.errors.add(failure.message());
                Err(CallError::Failed(failure.message().into()))
            }
        }
    }

    fn knows(&self, args: Args<'_>) -> bool {
        table::lookup(args.name()).is_some()
    }
}
