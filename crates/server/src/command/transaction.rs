//! MULTI, EXEC, DISCARD, WATCH, UNWATCH
//!
//! MULTI queues the following commands. EXEC runs them in one transaction of the store, each sees
//! the writes of those before it. It commits if nothing that it read or that the client watches has
//! changed. Meanwhile no key is locked.

use std::sync::atomic::Ordering::Relaxed;

use terrace::{Transaction, Version, cold};
use terrace_protocol::{Args, Queue, Reply};

use super::*;
use crate::{
    keyspace::{Keyspace, Overlay, Selected},
    session,
    state::{
        alone::Runs,
        clock::unix_ms,
        config::Key,
        databases::Map,
        session_state::{Flow, ReplyLimit, State},
        shared::Shared,
    },
};

pub(super) static MULTI: Command = Command {
    flags: FLAGS | flag::FAST | flag::ALLOW_BUSY,
    summary: "Starts a transaction; later commands are queued.",
    ..family("multi", 1, multi)
};

pub(super) static EXEC: Command = Command {
    flags: FLAGS | flag::SKIP_SLOWLOG,
    is_long: Some(exec_is_long),
    complexity: "Depends on commands in the transaction",
    summary: "Runs the queued commands atomically; null if a watched key has changed.",
    ..family("exec", 1, exec)
};

pub(super) static DISCARD: Command = Command {
    flags: FLAGS | flag::FAST | flag::ALLOW_BUSY,
    since: "2.0.0",
    complexity: "O(N) where N is the number of queued commands",
    summary: "Discards the queued commands.",
    ..family("discard", 1, discard)
};

pub(super) static WATCH: Command = Command {
    flags: FLAGS | flag::FAST | flag::ALLOW_BUSY,
    keys: &[KeySpec::every(1, &["RO"])],
    since: "2.2.0",
    complexity: "O(1) for each key",
    summary: "Makes the next EXEC do nothing if one of these keys changes before it.",
    ..family("watch", -2, watch)
};

pub(super) static UNWATCH: Command = Command {
    flags: FLAGS | flag::FAST | flag::ALLOW_BUSY,
    since: "2.2.0",
    summary: "Stops watching all keys.",
    ..family("unwatch", 1, unwatch)
};

const FLAGS: u32 = flag::NOSCRIPT | flag::LOADING | flag::STALE;

const fn family(name: &'static str, arity: i32, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        categories: category::TRANSACTION,
        since: "1.2.0",
        ..Command::new(name, arity, group::TRANSACTIONS, Run::General(run))
    }
}

/// The state between MULTI and EXEC.
#[derive(Default)]
pub(crate) struct Multi {
    queue: Queue,
    /// A command was refused, so EXEC will fail.
    broken: bool,
    /// In a cluster, the slot of the first command with keys.
    slot: Option<u16>,
    /// Another command has keys in another slot, so EXEC will fail.
    crosses_slots: bool,
    /// SWAPDB is one of the commands.
    swaps: bool,
    /// One of the commands takes long by itself.
    has_long: bool,
    /// A command reads a key, so concurrent writes can make the transaction run again.
    may_run_again: bool,
}

/// A watched key of a database. It is stored elsewhere after SWAPDB.
#[derive(Debug)]
pub(crate) struct Watched {
    database: u8,
    /// Of the key where it is stored now, at WATCH or at the last SWAPDB.
    version: Version,
    /// Whether it has changed by a SWAPDB or before one.
    has_changed: bool,
}

/// Keys as they are stored, and the versions in which they have to be.
type Versions = Vec<(Vec<u8>, Version)>;

/// Maximum number of bytes that a client may queue.
const QUEUE_BYTES_MAX: usize = 1 << 30;

impl Multi {
    /// Queues a command that exists and has the right number of arguments. In a cluster, its keys
    /// are in `slot`.
    pub(crate) fn push(
        &mut self,
        command: &Command,
        args: Args<'_>,
        is_long: bool,
        slot: Option<u16>,
    ) -> Outcome {
        if self.queue.bytes() > QUEUE_BYTES_MAX {
            self.broken = true;
            return Err(Failure::Text(
                "ERR the queued commands are larger than 1 GiB: use smaller transactions",
            ));
        }
        // As in Redis, a broken transaction takes no notice of the commands behind.
        if !self.broken {
            self.crosses_slots |= self.slot.is_some_and(|first| slot.is_some_and(|slot| slot != first));
            self.slot = self.slot.or(slot);
        }
        self.swaps |= command.name == "swapdb";
        self.has_long |= is_long;
        let is_put = command.as_put.is_some_and(|as_put| as_put(args, 0).is_some());
        // X.DELRANGE and X.DELPREFIX find the keys that they read.
        let removes_range = command.name.starts_with("x.del");
        self.may_run_again |= !is_put && (!command.keys.is_empty() || removes_range);
        self.queue.push(args);
        Ok(())
    }

    /// Records that a command could not be queued.
    pub(crate) fn refuse(&mut self) {
        self.broken = true;
    }

    /// Whether SWAPDB is one of the commands.
    pub(crate) fn swaps(&self) -> bool {
        self.swaps
    }

    /// The slot of all keys, if the server belongs to a cluster and there are keys.
    pub(crate) fn slot(&self) -> Result<Option<u16>, Failure> {
        if self.crosses_slots { Err(Failure::CROSS_SLOT) } else { Ok(self.slot) }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

/// Whether EXEC takes long. A transaction that may run again counts as short: see
/// `session/long.rs`.
fn exec_is_long(shared: &Shared, state: &State, args: Args<'_>) -> bool {
    let Some(multi) = &state.multi else { return false };
    let is_large = multi.len() > session::MANY || multi.has_long;
    // ORDER: Relaxed: only this client's commands change it.
    let may_run_again = multi.may_run_again || state.client.watched.load(Relaxed) > 0;
    is_large && !may_run_again || !is_large && session::may_wait(shared, state, args)
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
            let watched = Watched { database: cx.state.database, version, has_changed: false };
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

fn exec(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let Some(multi) = cx.state.multi.take() else { return Err(Failure::Text("ERR EXEC without MULTI")) };
    let watched = cx.state.client.take_watches();
    if multi.broken {
        return Err(Failure::Text("EXECABORT Transaction discarded because of previous errors."));
    }
    let was = (cx.state.database, cx.state.map);
    let done = if watched.values().any(|watched| watched.has_changed) {
        cx.reply.null_array();
        Ok(false)
    } else {
        let versions: Versions =
            watched.iter().map(|(stored, watched)| (stored.clone(), watched.version)).collect();
        run_queue(cx, &multi, &versions)
    };
    let is_put_off = cold::is_stuck() || cx.state.put_off.is_some();
    if is_put_off || !matches!(done, Ok(true)) {
        (cx.state.database, cx.state.map) = was;
    } else if let Some(map) = cx.state.map.filter(|_| multi.swaps) {
        publish_swap(cx.shared, map);
    }
    if is_put_off {
        // It runs again after the cold reads that it wants, or elsewhere, or later.
        cx.state.multi = Some(multi);
        cx.state.client.watch(|watches| *watches = watched);
        cx.state.resp3 = cx.reply.resp3();
    }
    done.map(drop)
}

/// Publishes the map of a SWAPDB that has committed; no other command runs. A watch belongs to the
/// key of a database: it changes if the key is in one of the two places, and is of its new place
/// from now on.
pub(super) fn publish_swap(shared: &Shared, map: Map) {
    let (store, before) = (&shared.store, shared.databases.map());
    shared.databases.publish(map);
    let follow = |(stored, watched): (Vec<u8>, Watched)| {
        let place = map.place(watched.database);
        if place == before.place(watched.database) {
            return (stored, watched);
        }
        let key = before.place(watched.database).decode(&stored).unwrap_or_default();
        let now = place.encode(&key).into_owned();
        let versions = store.version(&stored).and_then(|was| Ok((was, store.version(&now)?)));
        let watched = match versions {
            Ok((was, version)) => {
                let is_there = was.token().is_some() || version.token().is_some();
                let has_changed = watched.has_changed || is_there || !was.meets(&watched.version);
                Watched { version, has_changed, ..watched }
            }
            // A reply of null is never wrong.
            Err(_) => Watched { has_changed: true, ..watched },
        };
        (now, watched)
    };
    // ORDER: Relaxed: the gate orders it.
    for client in shared.clients.all().iter().filter(|client| client.watched.load(Relaxed) > 0) {
        // It has happened, so a tier is waited for.
        cold::waiting(|| {
            client.watch(|watches| *watches = std::mem::take(watches).into_iter().map(follow).collect());
        });
    }
}

const HOLDS_TOO_MUCH: Failure = Failure::Text(
    "OOM the replies and the writes of the transaction take more than transaction-memory, so nothing of it has \
     happened: use smaller transactions, or raise transaction-memory",
);

/// Runs the queued commands in a transaction, and replies. Returns whether it has committed.
fn run_queue(cx: &mut Context<'_>, multi: &Multi, watched: &[(Vec<u8>, Version)]) -> Result<bool, Failure> {
    let (shared, now_ms) = (cx.shared, cx.now_ms);
    let (mut replies, mut executed) = (Vec::new(), Vec::new());
    let was_resp3 = cx.reply.resp3();
    let was_selected = (cx.state.database, cx.state.map);
    let state = &mut *cx.state;
    let mut runs = Runs::new(&shared.alone, unix_ms, now_ms, std::mem::take(&mut state.alone_next));
    let most = usize::try_from(shared.config.number(Key::TransactionMemory)).unwrap_or(usize::MAX);
    // A command that fails leaves an error among the replies; the others still run, as in Redis.
    let (mut has_ended, mut removed) = (false, None);
    let run = |transaction: &mut Transaction<'_>| {
        (has_ended, removed) = (false, None);
        // The store runs this again after a conflicting write: start from the beginning.
        replies.clear();
        state.resp3 = was_resp3;
        (state.database, state.map) = was_selected;
        let Some(now_ms) = runs.begin() else {
            (state.put_off, state.alone_next) = (Some(Flow::Later), true);
            return Err(Failure::PUT_OFF);
        };
        terrace::at_instant(now_ms, || {
            let mut overlay = Overlay::new(&shared.store, transaction);
            for args in multi.queue.iter() {
                let reply = Reply::new(&mut replies, state.resp3);
                let keys = &mut Selected::new(&mut overlay, state.place(), shared);
                let cx = &mut Context { keys, shared, state, reply, now_ms };
                // Behind one that wants cold reads, others tell theirs, so that all are made at
                // once. Those without keys have none, and may have an effect of their own.
                let names_keys =
                    || table::lookup(args.name()).is_some_and(|command| !command.keys.is_empty());
                if cold::is_stuck() && !names_keys() {
                    continue;
                }
                let replied = cx.reply.mark();
                cx.state.reply_limit =
                    ReplyLimit { bytes: most.saturating_sub(replied), name: "transaction-memory" };
                let ran = session::run(cx, args);
                cx.state.reply_limit = ReplyLimit::OF_A_COMMAND;
                executed.extend(ran?);
                if replies.len().saturating_add(overlay.held_bytes()) > most {
                    return Err(HOLDS_TOO_MUCH);
                }
            }
            has_ended = !cold::is_stuck();
            removed = if has_ended && state.makes_room { overlay.removals()? } else { None };
            if !has_ended || removed.is_some() { Err(Failure::PUT_OFF) } else { Ok(()) }
        })
    };
    let mut done = shared.store.transaction_if(watched, run);
    if let Err(failure) = &done
        && has_ended
        && let Some(settled) = removals::settle(shared, cx.state, removed, (failure, &executed))
    {
        done = settled.map(Some);
    }
    if cold::is_stuck() || cx.state.put_off.is_some() {
        executed.into_iter().for_each(|place| cx.state.counters.cancel(place));
    }
    let done = done?;
    if done.is_none() {
        cx.reply.null_array();
        return Ok(false);
    }
    cx.reply.array(multi.queue.len());
    cx.reply.raw(&replies);
    cx.reply.set_resp3(cx.state.resp3);
    Ok(true)
}
