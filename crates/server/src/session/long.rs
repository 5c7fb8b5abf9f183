//! Decides which commands take so long that other connections of the loop should not wait.
//!
//! The decision is made before a command runs, by its arguments and the server's state. A command
//! with few arguments and without `is_long` is never long. A transaction stays on its loop if
//! concurrent writes can make it run again: on a worker, the loop's writes might repeat it forever.

use std::sync::atomic::Ordering::Relaxed;

use terrace_protocol::Args;

use super::State;
use crate::{command::table, state::shared::Shared};

/// Number of arguments, keys or connections from which on a command takes long: a good tenth of a
/// millisecond of work.
pub(crate) const MANY: usize = 1024;
/// Bytes of arguments from which on a command takes long.
const BYTES: usize = 8 << 20;

/// Whether a command takes long. `place` is its index in the table.
pub(super) fn is_long(shared: &Shared, state: &State, args: Args<'_>, place: Option<usize>) -> bool {
    let Some(command) = place.map(|place| table::TABLE[place]) else { return false };
    if !state.authenticated || command.name == "exec" && state.multi.is_none() {
        return false;
    }
    if args.len() > MANY || args.bytes() > BYTES {
        return true;
    }
    // MULTI only queues it, which is quick; EXEC decides about all queued commands.
    let is_queued = state.multi.is_some() && command.name != "exec";
    !is_queued && command.is_long.is_some_and(|is_long| is_long(shared, state, args))
}

/// For commands about all keys: whether they ask the memory node of a cluster, and wait for it.
pub(crate) fn asks_elsewhere(shared: &Shared) -> bool {
    shared.routing.is_some()
}

/// For commands that visit all keys: whether there are many.
pub(crate) fn has_many_keys(shared: &Shared, _: &State, _: Args<'_>) -> bool {
    asks_elsewhere(shared) || shared.store.len() > MANY as u64
}

/// For commands that visit all keys if there are several databases: whether there are many.
pub(crate) fn has_many_keys_to_count(shared: &Shared, state: &State, args: Args<'_>) -> bool {
    asks_elsewhere(shared) || shared.databases.are_several() && has_many_keys(shared, state, args)
}

/// For commands that describe all connections: whether there are many.
pub(crate) fn has_many_clients(shared: &Shared, _: &State, _: Args<'_>) -> bool {
    shared.clients.len() > MANY
}

/// For commands that change several keys atomically: whether a long command may make them wait.
pub(crate) fn may_wait(shared: &Shared, _: &State, _: Args<'_>) -> bool {
    // ORDER: Relaxed: if the value is a moment old, one command waits on its loop.
    shared.long_commands.load(Relaxed) > 0
}
