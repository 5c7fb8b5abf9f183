//! Decides which commands take so long that other connections of the loop should not wait.
//!
//! The decision is made before a command runs, by its arguments and the server's state. A command
//! with few arguments and without `is_long` is never long. A transaction stays on its loop if
//! concurrent writes can make it run again: on a worker, the loop's writes might repeat it forever.

use terrace_protocol::Args;

use crate::{
    command::{MANY, table},
    state::{session_state::State, shared::Shared},
};

/// Bytes of arguments from which on a command takes long.
const BYTES: usize = 8 << 20;

/// Whether a command takes long. `place` is its index in the table.
pub(super) fn is_long(shared: &Shared, state: &State, args: Args<'_>, place: Option<usize>) -> bool {
    let Some(command) = place.map(|place| table::TABLE[place]) else { return false };
    if !state.access.is_granted() || command.name == "exec" && state.multi.is_none() {
        return false;
    }
    if args.len() > MANY || args.bytes() > BYTES {
        return true;
    }
    // MULTI only queues it, which is quick; EXEC decides about all queued commands.
    let is_queued = state.multi.is_some() && command.name != "exec";
    !is_queued && command.is_long.is_some_and(|is_long| is_long(shared, state, args))
}
