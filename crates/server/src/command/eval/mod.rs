//! EVAL, EVALSHA, EVAL_RO, EVALSHA_RO
//!
//! A script is one transaction: it sees the store through an overlay as EXEC does, and runs again
//! if what it has read was changed by others. If it fails, or is ended, nothing of it happens.

use std::{cell::RefCell, sync::Arc};

use terrace_protocol::Args;
use terrace_script::{Limits, Run as ScriptRun, Script, StopFlag, flag as script_flag};

mod machine;
mod run;

pub(super) use self::machine::lua_bytes;
use self::{machine::with_machine, run::Running};
use super::*;
use crate::state::{clock::unix_ms, config::Key, flow::Flow, session_state::State, shared::Shared};

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
    /// The script that EVAL has found last on this thread.
    static LAST: RefCell<Option<Arc<Script>>> = const { RefCell::new(None) };
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
    let rules = rules(cx.shared, script, (keys > 0).then(|| args.at(3)), is_read_only)?;
    let shared = cx.shared;
    let (flag, limits) = (StopFlag::default(), limits(shared, cx.state));
    // A script with a budget ends soon by itself.
    let running = (limits.budget == 0).then(|| shared.scripts.begin(unix_ms(), &flag));
    let run = ScriptRun { args: args.from(3), keys, limits, flag: &flag };
    let place = cx.state.last_command;
    let mut run = || with_machine(|machine| Running { machine, script, run, rules, nested }.transact(cx));
    let done =
        if script.has(script_flag::ALLOW_OOM) { shared.store.evictor().unlimited(run) } else { run() }?;
    cx.state.last_command = place;
    drop(running);
    done
}

/// What the commands of a script may do; the reason why it may not run at all.
fn rules(
    shared: &Shared,
    script: &Script,
    first_key: Option<&[u8]>,
    is_read_only: bool,
) -> Result<ScriptRules, Failure> {
    if shared.is_of_cluster() && script.has(script_flag::NO_CLUSTER) {
        return Err(Failure::Text("ERR Can not run script on cluster, 'no-cluster' flag is set."));
    }
    let is_above_limit = shared.is_above_limit();
    if !is_read_only && script.refuses_oom() && is_above_limit {
        return Err(Failure::SCRIPT_ABOVE_LIMIT);
    }
    Ok(ScriptRules {
        is_read_only: is_read_only || script.has(script_flag::NO_WRITES),
        refuses_oom: is_above_limit && !script.has(script_flag::ALLOW_OOM),
        slot: first_key.map(terrace_protocol::slot),
    })
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
