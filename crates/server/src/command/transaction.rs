//! MULTI, EXEC, DISCARD, WATCH, UNWATCH
//!
//! MULTI queues the following commands. EXEC runs them in one transaction of the store, each sees
//! the writes of those before it. It commits if nothing that it read or that the client watches has
//! changed. Meanwhile no key is locked.

use std::sync::atomic::Ordering::Relaxed;

use terrace::{Transaction, Version, cold};
use terrace_protocol::{Args, Reply};

use super::*;
use crate::{
    keyspace::{Keyspace, Overlay, Removals, Selected},
    state::{
        alone::Runs,
        clock::unix_ms,
        config::Key,
        multi::{Effects, Multi, Watched},
        replies::ReplyLimit,
        session_state::State,
        shared::Shared,
    },
};

pub(super) static MULTI: Command = Command {
    flags: FLAGS | flag::FAST | flag::ALLOW_BUSY,
    summary: "Starts a transaction; later commands are queued.",
    ..family("multi", 1, Run::General(multi))
};

pub(super) static EXEC: Command = Command {
    flags: FLAGS | flag::SKIP_SLOWLOG,
    is_long: Some(exec_is_long),
    complexity: "Depends on commands in the transaction",
    summary: "Runs the queued commands atomically; null if a watched key has changed.",
    ..family("exec", 1, Run::Nested(exec))
};

pub(super) static DISCARD: Command = Command {
    flags: FLAGS | flag::FAST | flag::ALLOW_BUSY,
    since: "2.0.0",
    complexity: "O(N) where N is the number of queued commands",
    summary: "Discards the queued commands.",
    ..family("discard", 1, Run::General(discard))
};

pub(super) static WATCH: Command = Command {
    flags: FLAGS | flag::FAST | flag::ALLOW_BUSY,
    keys: &[KeySpec::every(1, &["RO"])],
    since: "2.2.0",
    complexity: "O(1) for each key",
    summary: "Makes the next EXEC do nothing if one of these keys changes before it.",
    ..family("watch", -2, Run::General(watch))
};

pub(super) static UNWATCH: Command = Command {
    flags: FLAGS | flag::FAST | flag::ALLOW_BUSY,
    since: "2.2.0",
    summary: "Stops watching all keys.",
    ..family("unwatch", 1, Run::General(unwatch))
};

const FLAGS: u32 = flag::NOSCRIPT | flag::LOADING | flag::STALE;

const fn family(name: &'static str, arity: i32, run: Run) -> Command {
    Command {
        categories: category::TRANSACTION,
        since: "1.2.0",
        ..Command::new(name, arity, group::TRANSACTIONS, run)
    }
}

/// Keys as they are stored, and the versions in which they have to be.
type Versions = Vec<(Vec<u8>, Version)>;

/// What a transaction has to know of a command that it queues.
pub(crate) fn effects(command: &Command, args: Args<'_>, is_long: bool, slot: Option<u16>) -> Effects {
    let is_put = command.as_put.is_some_and(|as_put| as_put(args, 0).is_some());
    // X.DELRANGE and X.DELPREFIX find the keys that they read.
    let removes_range = command.name.starts_with("x.del");
    let reads = !is_put && (!command.keys.is_empty() || removes_range);
    Effects { slot, swaps: command.name == "swapdb", is_long, reads }
}

/// Whether EXEC takes long. A transaction that may run again counts as short: see
/// `session/long.rs`.
fn exec_is_long(shared: &Shared, state: &State, args: Args<'_>) -> bool {
    let Some(multi) = &state.multi else { return false };
    let is_large = multi.len() > MANY || multi.has_long();
    // ORDER: Relaxed: only this client's commands change it.
    let may_run_again = multi.may_run_again() || state.client.watched.load(Relaxed) > 0;
    is_large && !may_run_again || !is_large && may_wait(shared, state, args)
}

fn multi(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    if cx.state.multi.is_some() {
        return Err(Failure::Text("ERR MULTI calls can not be nested"));
    }
    cx.state.multi = Some(Multi::default());
    cx.reply.ok();
    Ok(())
}

fn discard(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    if cx.state.multi.take().is_none() {
        return Err(Failure::Text("ERR DISCARD without MULTI"));
    }
    cx.state.client.take_watches();
    cx.reply.ok();
    Ok(())
}

fn watch(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if cx.state.multi.is_some() {
        return Err(Failure::Text("ERR WATCH inside MULTI is not allowed"));
    }
    for key in args.from(1) {
        let stored = cx.state.place().encode(key);
        if !cx.state.client.watch(|watches| watches.contains_key(&*stored)) {
            let version = cx.shared.store.version(&stored)?;
            let watched = Watched::new(cx.state.selection.database(), version);
            cx.state.client.watch(|watches| watches.insert(stored.into_owned(), watched));
        }
    }
    cx.reply.ok();
    Ok(())
}

fn unwatch(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cx.state.client.take_watches();
    cx.reply.ok();
    Ok(())
}

fn exec(cx: &mut Context<'_>, _: Args<'_>, nested: &Nested) -> Outcome {
    let Some(multi) = cx.state.multi.take() else { return Err(Failure::Text("ERR EXEC without MULTI")) };
    let watched = cx.state.client.take_watches();
    if multi.is_broken() {
        return Err(Failure::Text("EXECABORT Transaction discarded because of previous errors."));
    }
    let was = cx.state.selection;
    let done = if watched.values().any(Watched::has_changed) {
        cx.reply.null_array();
        Ok(false)
    } else {
        let versions: Versions =
            watched.iter().map(|(stored, watched)| (stored.clone(), watched.version())).collect();
        run_queue(cx, &multi, &versions, nested)
    };
    let is_put_off = cold::is_stuck() || cx.state.waits.is_put_off();
    if is_put_off || !matches!(done, Ok(true)) {
        cx.state.selection = was;
    } else if let Some(map) = cx.state.selection.map().filter(|_| multi.swaps()) {
        cx.shared.publish_swap(map);
    }
    if is_put_off {
        // It runs again after the cold reads that it wants, or elsewhere, or later.
        cx.state.multi = Some(multi);
        cx.state.client.watch(|watches| *watches = watched);
        cx.state.resp3 = cx.reply.resp3();
    }
    done.map(drop)
}

const HOLDS_TOO_MUCH: Failure = Failure::Text(
    "OOM the replies and the writes of the transaction take more than transaction-memory, so nothing of it has \
     happened: use smaller transactions, or raise transaction-memory",
);

/// The commands of a transaction, and what they need.
struct Queued<'a> {
    multi: &'a Multi,
    shared: &'a Shared,
    nested: &'a Nested,
    /// Bytes that the replies and the writes may take.
    most: usize,
}

/// What the runs of a transaction have done so far.
#[derive(Default)]
struct Progress {
    /// The replies of the last run. A command that fails leaves an error among them; the others
    /// still run, as in Redis.
    replies: Vec<u8>,
    /// The commands that all runs have executed.
    executed: Vec<usize>,
    /// Whether the last run has executed all commands.
    has_ended: bool,
    /// What the last run removes, if it makes room.
    removed: Option<Removals>,
}

/// Runs the queued commands in a transaction, and replies. Returns whether it has committed.
fn run_queue(
    cx: &mut Context<'_>,
    multi: &Multi,
    watched: &[(Vec<u8>, Version)],
    nested: &Nested,
) -> Result<bool, Failure> {
    let (shared, now_ms) = (cx.shared, cx.now_ms);
    let (was_resp3, was_selected) = (cx.reply.resp3(), cx.state.selection);
    let state = &mut *cx.state;
    let mut runs = Runs::new(&shared.alone, unix_ms, now_ms, state.waits.take_alone_next());
    let most = usize::try_from(shared.config.number(Key::TransactionMemory)).unwrap_or(usize::MAX);
    let (queued, mut progress) = (Queued { multi, shared, nested, most }, Progress::default());
    let run = |transaction: &mut Transaction<'_>| {
        // The store runs this again after a conflicting write: start from the beginning.
        (progress.has_ended, progress.removed) = (false, None);
        progress.replies.clear();
        (state.resp3, state.selection) = (was_resp3, was_selected);
        let Some(now_ms) = runs.begin() else {
            state.waits.put_off_to_be_alone();
            return Err(Failure::PUT_OFF);
        };
        terrace::at_instant(now_ms, || queued.run_once(transaction, state, now_ms, &mut progress))
    };
    let done = shared.store.transaction_if(watched, run);
    let has_committed = progress.settle(cx, done)?;
    if has_committed {
        cx.reply.array(multi.len());
        cx.reply.raw(&progress.replies);
        cx.reply.set_resp3(cx.state.resp3);
    } else {
        cx.reply.null_array();
    }
    Ok(has_committed)
}

impl Progress {
    /// The end of the transaction: whether it has committed. One that found no room makes some, or
    /// is put off.
    fn settle(&mut self, cx: &mut Context<'_>, done: Result<Option<()>, Failure>) -> Result<bool, Failure> {
        let mut done = done;
        if let Err(failure) = &done
            && self.has_ended
            && let Some(settled) =
                removals::settle(cx.shared, cx.state, self.removed.take(), (failure, &self.executed))
        {
            done = settled.map(Some);
        }
        if cold::is_stuck() || cx.state.waits.is_put_off() {
            self.executed.iter().for_each(|place| cx.state.counters.cancel(table::number(*place)));
        }
        Ok(done?.is_some())
    }
}

impl Queued<'_> {
    /// Runs the commands once, at an instant.
    fn run_once(
        &self,
        transaction: &mut Transaction<'_>,
        state: &mut State,
        now_ms: u64,
        progress: &mut Progress,
    ) -> Outcome {
        let mut overlay = Overlay::new(&self.shared.store, transaction);
        for args in self.multi.commands() {
            // Behind one that wants cold reads, others tell theirs, so that all are made at once.
            // Those without keys have none, and may have an effect of their own.
            let names_keys = || table::lookup(args.name()).is_some_and(|command| !command.keys.is_empty());
            if cold::is_stuck() && !names_keys() {
                continue;
            }
            let reply = Reply::new(&mut progress.replies, state.resp3);
            let keys = &mut Selected::new(&mut overlay, state.place(), self.shared);
            let cx = &mut Context { keys, shared: self.shared, state, reply, now_ms };
            let left = self.most.saturating_sub(cx.reply.mark());
            cx.state.reply_limit = ReplyLimit { bytes: left, name: "transaction-memory" };
            let ran = (self.nested.queued)(cx, args);
            cx.state.reply_limit = ReplyLimit::OF_A_COMMAND;
            progress.executed.extend(ran?);
            if progress.replies.len().saturating_add(overlay.held_bytes()) > self.most {
                return Err(HOLDS_TOO_MUCH);
            }
        }
        progress.has_ended = !cold::is_stuck();
        let makes_room = progress.has_ended && state.waits.makes_room();
        progress.removed = if makes_room { overlay.removals()? } else { None };
        if !progress.has_ended || progress.removed.is_some() { Err(Failure::PUT_OFF) } else { Ok(()) }
    }
}
