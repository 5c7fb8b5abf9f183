//! Which commands take long: so long that the other connections of a loop should not wait for them.
//!
//! A command is judged before it runs, by its arguments and by what the server holds. One with few arguments and without
//! an `is_long` of its own never takes long. A transaction that may have to run again because others write meanwhile stays
//! on its loop: beside that loop's own connections it might never end.

use std::sync::atomic::Ordering::Relaxed;

use terrace_protocol::Args;

use super::State;
use crate::{command::table, shared::Shared};

/// Arguments, keys or connections from which on a command takes long: those of a good tenth of a millisecond.
pub(crate) const MANY: usize = 1024;
/// Bytes of arguments from which on it does.
const BYTES: usize = 8 << 20;

/// Whether a command takes long. `place` is its place in the table.
pub(super) fn is_long(shared: &Shared, state: &State, args: Args<'_>, place: Option<usize>) -> bool {
    let Some(command) = place.map(|place| table::TABLE[place]) else { return false };
    if !state.authenticated || command.name == "exec" && state.multi.is_none() {
        return false;
    }
    if args.len() > MANY || args.bytes() > BYTES {
        return true;
    }
    // MULTI queues it, which is quickly done; EXEC judges all that is queued.
    let is_queued = state.multi.is_some() && command.name != "exec";
    !is_queued && command.is_long.is_some_and(|is_long| is_long(shared, state, args))
}

/// Of a command that goes through all keys: whether there are many.
pub(crate) fn has_many_keys(shared: &Shared, _: &State, _: Args<'_>) -> bool {
    shared.store.len() > MANY as u64
}

/// Of a command that describes all connections: whether there are many.
pub(crate) fn has_many_clients(shared: &Shared, _: &State, _: Args<'_>) -> bool {
    shared.clients.len() > MANY
}

/// Of a command that changes several keys as one: whether it may have to wait until a long one has done so.
pub(crate) fn may_wait(shared: &Shared, _: &State, _: Args<'_>) -> bool {
    // ORDER: Relaxed: if it comes a moment late, one command waits on its loop.
    shared.long_commands.load(Relaxed) > 0
}
