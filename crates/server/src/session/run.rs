//! Runs one command: looks it up, checks whether it may run, queues or executes it, and writes its
//! error.

use std::sync::atomic::Ordering::Relaxed;

use terrace::cold;
use terrace_protocol::Args;

use super::route::{self, Refusal};
use crate::{
    command::{
        Command, Context, Nested, Run, ScriptRules, category, effects, flag, is_of_another_type, table,
    },
    state::{
        clock::unix_ms,
        config::Key,
        failure::{Failure, Outcome},
        flow::Flow,
        routing,
        session_state::State,
    },
};

/// A command that exists. `place` identifies it in the table.
#[derive(Clone, Copy)]
struct Resolved {
    command: &'static Command,
    /// As in [`State::last_command`](super::State).
    place: usize,
}

/// Whether no other command may run while this one does: SWAPDB, or a transaction with it, or one
/// that makes room.
pub(super) fn must_be_alone(state: &State, place: Option<usize>) -> bool {
    state.waits.makes_room()
        || place.is_some_and(|place| match &state.multi {
            Some(multi) => table::TABLE[place].name == "exec" && multi.swaps(),
            None => table::TABLE[place].name == "swapdb",
        })
}

/// Queues the command inside MULTI, executes it otherwise. Fails, without any effect, if its slot
/// is being moved.
pub(super) fn dispatch(cx: &mut Context<'_>, args: Args<'_>, place: Option<usize>) -> Result<(), Flow> {
    // A browser that was tricked into sending to this port. What follows is under the control of an
    // attacker.
    if place.is_none() && (args.is(0, "POST") || args.is(0, "HOST:")) {
        cx.state.flow = Flow::Close;
        return Ok(());
    }
    match resolve(args, place).and_then(|resolved| admit(cx, args, resolved).map(|()| resolved)) {
        Ok(resolved) => dispatch_admitted(cx, args, resolved)?,
        Err(failure) if args.is(0, "EXEC") => {
            cx.state.clear_transaction();
            let message = failure.message();
            let why = message.strip_prefix(b"ERR ").unwrap_or(message);
            fail(cx, Failure::of(&[b"EXECABORT Transaction discarded because of: ", why]));
        }
        Err(failure) => refuse(cx, failure),
    }
    if cx.state.asking && cx.state.multi.is_none() && !args.is(0, "ASKING") && !cold::is_stuck() {
        cx.state.asking = false;
    }
    Ok(())
}

fn dispatch_admitted(cx: &mut Context<'_>, args: Args<'_>, resolved: Resolved) -> Result<(), Flow> {
    let Resolved { command, place } = resolved;
    let is_queued = is_queued(cx, command);
    if !is_queued && let Some(since_ms) = cx.shared.alone.since().filter(|_| writes(command)) {
        // Its own clock: the time at which commands run may be another one.
        return wait_for_end(cx, resolved, unix_ms().saturating_sub(since_ms), Failure::BUSY);
    }
    if !cx.state.waits.is_alone() && must_be_alone(cx.state, Some(place & 0xffff)) {
        let since_ms = cx.state.waits.begin(cx.now_ms);
        let why = if cx.state.waits.makes_room() { NO_ROOM } else { OTHERS_RUN };
        return wait_for_end(cx, resolved, cx.now_ms.saturating_sub(since_ms), why);
    }
    match route::check(cx, command, args, is_queued) {
        // As in Redis, what could not run now breaks the transaction at once.
        Ok(_) if is_queued && command.has(flag::DENYOOM) && cx.shared.is_above_limit() => {
            cx.state.counters.record_rejection(table::number(place));
            refuse(cx, Failure::ABOVE_LIMIT);
        }
        Ok(slot) if is_queued => queue(cx, command, args, slot),
        Ok(_) => return execute_at_once(cx, args, resolved),
        Err(Refusal::Held) => return Err(Flow::Later),
        Err(Refusal::Failure(failure)) => {
            cx.state.counters.record_rejection(table::number(place));
            if command.name == "exec" {
                cx.state.clear_transaction();
            }
            refuse(cx, failure);
        }
    }
    Ok(())
}

/// Executes a command whose slot is here. Fails, without any effect, if it was put off.
fn execute_at_once(cx: &mut Context<'_>, args: Args<'_>, resolved: Resolved) -> Result<(), Flow> {
    match execute(cx, resolved, args) {
        // The slot has left since it was looked at, and nothing has happened. A transaction is gone
        // with its EXEC, so that says so.
        Err(Failure::NotOwner { slot }) if resolved.command.name != "exec" && route::may_wait(cx) => {
            route::join_line(cx, slot);
            return Err(Flow::Later);
        }
        _ if cx.state.waits.is_put_off() => return Err(cx.state.waits.take_put_off()),
        done => {
            cx.state.waits.end();
            _ = done.map_err(|failure| fail(cx, failure));
        }
    }
    Ok(())
}

/// Whether a command may write, by itself or by what it executes.
pub(super) fn writes(command: &Command) -> bool {
    command.has(flag::WRITE) || ["exec", "eval", "evalsha"].contains(&command.name)
}

/// What becomes of a command that others keep from running: it is tried again in a moment, or
/// refused if that takes long.
fn wait_for_end(
    cx: &mut Context<'_>,
    resolved: Resolved,
    waited_ms: u64,
    refusal: Failure,
) -> Result<(), Flow> {
    let threshold_ms = cx.shared.config.number(Key::BusyReplyThreshold);
    if threshold_ms == 0 || waited_ms <= threshold_ms {
        return Err(Flow::Later);
    }
    cx.state.counters.record_rejection(table::number(resolved.place));
    if resolved.command.name == "exec" {
        cx.state.clear_transaction();
    }
    cx.state.waits.end();
    refuse(cx, refusal);
    Ok(())
}

const NO_ROOM: Failure = Failure::Text(
    "OOM the pool has no room to remove these keys at once, and other commands take too long to remove them alone. \
     Try again, end a script with SCRIPT KILL, or use DEL outside of transactions",
);
const OTHERS_RUN: Failure = Failure::Text(
    "BUSY SWAPDB has to wait until the commands and scripts under way have ended, and one takes long. \
     Try again, or end a script with SCRIPT KILL.",
);

/// Replies with an error instead of queueing or executing a command. A transaction then fails.
fn refuse(cx: &mut Context<'_>, failure: Failure) {
    if let Some(multi) = &mut cx.state.multi {
        multi.refuse();
    }
    fail(cx, failure);
}

/// How EXEC and EVAL execute commands.
static NESTED: Nested = Nested { queued: run, in_script: call_in_script };

/// Executes a command that MULTI has queued. Returns what identifies it, if its call was counted.
/// Fails if the transaction cannot go on.
fn run(cx: &mut Context<'_>, args: Args<'_>) -> Result<Option<usize>, Failure> {
    let resolved = resolve(args, table::position(args.name()));
    match resolved.and_then(|resolved| admit(cx, args, resolved).map(|()| resolved)) {
        Ok(resolved) => match execute(cx, resolved, args) {
            Err(failure) if failure.is_of_cluster() || cx.state.waits.is_put_off() => Err(failure),
            done => {
                _ = done.map_err(|failure| fail(cx, failure));
                Ok((!cold::is_stuck()).then_some(resolved.place))
            }
        },
        Err(failure) => {
            fail(cx, failure);
            Ok(None)
        }
    }
}

/// Executes a command of a script. Adds what identifies it to `executed`, if its call was counted.
fn call_in_script(
    cx: &mut Context<'_>,
    args: Args<'_>,
    rules: &mut ScriptRules,
    executed: &mut Vec<usize>,
) -> Outcome {
    let resolved = resolve(args, table::position(args.name())).map_err(|_| unknown_in_script(args))?;
    let allowed = check_call(cx, args, resolved.command, rules);
    allowed.inspect_err(|_| cx.state.counters.record_rejection(table::number(resolved.place)))?;
    let outcome = execute(cx, resolved, args);
    executed.extend((!cold::is_stuck()).then_some(resolved.place));
    outcome
}

/// Whether a script may call a command with these arguments.
fn check_call(cx: &Context<'_>, args: Args<'_>, command: &Command, rules: &mut ScriptRules) -> Outcome {
    if !command.accepts(args.len()) {
        return Err(Failure::Text("ERR Wrong number of args calling Redis command from script"));
    }
    if command.has(flag::NOSCRIPT) {
        return Err(NOT_ALLOWED);
    }
    if command.name == "swapdb" {
        return Err(Failure::Text(
            "ERR SWAPDB is not possible from a script: all other commands wait for it",
        ));
    }
    if rules.is_read_only && command.has(flag::WRITE) {
        return Err(Failure::Text("ERR Write commands are not allowed from read-only scripts."));
    }
    if rules.refuses_oom && command.has(flag::DENYOOM) {
        return Err(Failure::Text("OOM command not allowed when used memory > 'maxmemory'."));
    }
    rules.refuses_oom &= !command.has(flag::WRITE);
    if let Some(routing) = cx.shared.routing()
        && let Some(slot) = route::slot_of(command, args)?
    {
        let is_here = || matches!(routing.place(slot, cx.state.asking), routing::Place::Here);
        match rules.slot {
            Some(first) if first == slot => {}
            Some(_) => return Err(Failure::Text(CROSSES)),
            None if is_here() => rules.slot = Some(slot),
            None => return Err(Failure::Text(NOT_HERE)),
        }
    }
    Ok(())
}

const CROSSES: &str = "ERR Script attempted to access keys that do not hash to the same slot";
const NOT_HERE: &str = "ERR Script attempted to access a non local key in a cluster node";

fn unknown_in_script(args: Args<'_>) -> Failure {
    let name = args.name();
    if NEVER_IN_SCRIPTS.iter().any(|never| never.as_bytes().eq_ignore_ascii_case(name)) {
        return NOT_ALLOWED;
    }
    match is_of_another_type(name) {
        true => Failure::of(&[UNKNOWN_IN_SCRIPT, b" ", OF_ANOTHER_TYPE]),
        false => Failure::of(&[UNKNOWN_IN_SCRIPT]),
    }
}

const NOT_ALLOWED: Failure = Failure::Text("ERR This Redis command is not allowed from script");

/// Commands that Terrace has not, or not all subcommands of, and that no script of Redis may call.
const NEVER_IN_SCRIPTS: [&str; 15] = [
    "acl",
    "bgrewriteaof",
    "cluster",
    "debug",
    "failover",
    "monitor",
    "psubscribe",
    "psync",
    "punsubscribe",
    "replicaof",
    "slaveof",
    "ssubscribe",
    "subscribe",
    "sync",
    "unsubscribe",
];

const UNKNOWN_IN_SCRIPT: &[u8] = b"ERR Unknown Redis command called from script";
const OF_ANOTHER_TYPE: &[u8] =
    b"(Terrace holds strings: it has no hashes, lists, sets, sorted sets, streams or other types)";

/// Executes a command. If it fails, it has written no reply.
fn execute(cx: &mut Context<'_>, Resolved { command, place }: Resolved, args: Args<'_>) -> Outcome {
    let (mark, tally) = (cx.reply.mark(), cx.state.tally);
    cx.state.tally.count_commands(1, command.has(flag::READONLY), command.has(flag::WRITE));
    cx.state.last_command = place;
    let number = table::number(place);
    let began = cx.state.counters.begin(number, command.is_quick());
    let outcome = call(cx, command, args);
    if cold::is_stuck() {
        // It runs again, as if for the first time.
        cx.reply.rewind(mark);
        cx.state.tally = tally;
        cx.state.counters.cancel(number);
        return Ok(());
    }
    let has_failed = std::mem::take(&mut cx.state.has_failed) || outcome.is_err();
    if outcome.as_ref().is_err_and(Failure::is_rejection) {
        cx.state.counters.reject(number);
    } else {
        cx.state.counters.end(number, began, has_failed);
    }
    outcome.inspect_err(|_| cx.reply.rewind(mark))
}

fn call(cx: &mut Context<'_>, command: &Command, args: Args<'_>) -> Outcome {
    // As in Redis, EXPIRE, RENAME and others are possible above maxmemory.
    if command.has(flag::WRITE) && !command.has(flag::DENYOOM) {
        let shared = cx.shared;
        return shared.store.evictor().unlimited(|| call_within_limit(cx, command, args));
    }
    call_within_limit(cx, command, args)
}

fn call_within_limit(cx: &mut Context<'_>, command: &Command, args: Args<'_>) -> Outcome {
    // ORDER: Relaxed: as CLIENT LIST.
    if command.has(flag::NO_USE) || command.name != "touch" && cx.state.client.no_touch.load(Relaxed) {
        let shared = cx.shared;
        return shared.store.evictor().unrecorded(|| call_recorded(cx, command, args));
    }
    call_recorded(cx, command, args)
}

fn call_recorded(cx: &mut Context<'_>, command: &Command, args: Args<'_>) -> Outcome {
    let now_ms = cx.now_ms;
    match command.run {
        Run::Read(read) => cx.read(args.at(1), |reply, found| read(reply, args, found, now_ms))?,
        Run::General(run) => run(cx, args),
        Run::Nested(run) => run(cx, args, &NESTED),
        Run::Container => Err(Failure::arity(command.name)),
    }
}

fn fail(cx: &mut Context<'_>, failure: Failure) {
    route::fail(cx.shared, cx.state, &mut cx.reply, failure);
}

/// Looks up the command. [`admit`] decides whether it may run now.
fn resolve(args: Args<'_>, place: Option<usize>) -> Result<Resolved, Failure> {
    let Some(place) = place else { return Err(unknown(args)) };
    let command = table::TABLE[place];
    if args.len() == 1 || command.subcommands.is_empty() {
        return Ok(Resolved { command, place });
    }
    let name = args.at(1);
    let nth = command.subcommands.iter().position(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name));
    let Some(nth) = nth else {
        let container = command.name.to_ascii_uppercase();
        return Err(Failure::of(&[
            b"ERR unknown subcommand '",
            printed(name),
            b"'. Try ",
            container.as_bytes(),
            b" HELP.",
        ]));
    };
    Ok(Resolved { command: &command.subcommands[nth], place: place | (nth + 1) << 16 })
}

/// Whether a command may run, or be queued, now. Counts a rejection.
fn admit(cx: &Context<'_>, args: Args<'_>, resolved: Resolved) -> Outcome {
    let admitted = check(cx, args, resolved);
    if admitted.is_err() {
        cx.state.counters.record_rejection(table::number(resolved.place));
    }
    admitted
}

fn check(cx: &Context<'_>, args: Args<'_>, Resolved { command, place }: Resolved) -> Outcome {
    if !command.accepts(args.len()) {
        return Err(Failure::arity(&table::full_name(place)));
    }
    if !cx.state.access.is_granted() && !command.has(flag::NO_AUTH) {
        return Err(Failure::Text("NOAUTH Authentication required."));
    }
    if let Some(why) = cx.shared.databases.damage()
        && command.categories & (category::KEYSPACE | category::STRING | category::SCRIPTING) != 0
    {
        return Err(Failure::of(&[b"ERR ", why.as_bytes()]));
    }
    if cx.state.multi.is_some() && command.has(flag::NO_MULTI) {
        return Err(Failure::Text("ERR Command not allowed inside a transaction"));
    }
    Ok(())
}

/// Whether the command waits for EXEC. Inside MULTI all do, except those that end the transaction
/// or cannot be part of one.
fn is_queued(cx: &Context<'_>, command: &Command) -> bool {
    cx.state.multi.is_some()
        && !["exec", "discard", "multi", "watch", "quit", "reset"].contains(&command.name)
}

/// Queues a command with keys in this slot.
fn queue(cx: &mut Context<'_>, command: &Command, args: Args<'_>, slot: Option<u16>) {
    let is_long = command.is_long.is_some_and(|is_long| is_long(cx.shared, cx.state, args));
    match cx
        .state
        .multi
        .as_mut()
        .map_or(Ok(()), |multi| multi.push(args, effects(command, args, is_long, slot)))
    {
        Ok(()) => cx.reply.simple("QUEUED"),
        Err(failure) => fail(cx, failure),
    }
}

/// Maximum number of bytes of a request that an error quotes.
const QUOTED: usize = 128;

fn unknown(args: Args<'_>) -> Failure {
    let mut quoted = Vec::new();
    for arg in args.iter().skip(1) {
        if quoted.len() >= QUOTED {
            break;
        }
        quoted.push(b'\'');
        quoted.extend_from_slice(cut(arg, QUOTED - (quoted.len() - 1)));
        quoted.extend_from_slice(b"' ");
    }
    let why = if is_of_another_type(args.name()) { OF_ANOTHER_TYPE } else { b"" };
    Failure::of(&[
        b"ERR unknown command '",
        printed(args.name()),
        b"', with args beginning with: ",
        &quoted,
        why,
    ])
}

/// The part of a text that Redis prints in errors: up to 128 bytes, and up to a NUL.
fn printed(text: &[u8]) -> &[u8] {
    cut(text, QUOTED)
}

fn cut(text: &[u8], most: usize) -> &[u8] {
    let end = text.iter().take(most).position(|byte| *byte == 0).unwrap_or(text.len().min(most));
    &text[..end]
}
