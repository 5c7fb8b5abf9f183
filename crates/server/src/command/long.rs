//! Predicates by which commands tell that they take long, so that other connections of the loop
//! should not wait.
//!
//! A command tells it before it runs, by its arguments and the server's state: see
//! [`Command::is_long`](super::Command::is_long).

use terrace_protocol::Args;

use crate::state::{session_state::State, shared::Shared};

/// Number of arguments, keys or connections from which on a command takes long: a good tenth of a
/// millisecond of work.
pub(crate) const MANY: usize = 1024;

/// For commands that visit all keys: whether there are many.
pub(crate) fn has_many_keys(shared: &Shared, _: &State, _: Args<'_>) -> bool {
    shared.is_of_cluster() || shared.store.len() > MANY as u64
}

/// For commands that visit all keys if there are several databases: whether there are many.
pub(crate) fn has_many_keys_to_count(shared: &Shared, state: &State, args: Args<'_>) -> bool {
    shared.is_of_cluster() || shared.databases.are_several() && has_many_keys(shared, state, args)
}

/// For commands that describe all connections: whether there are many.
pub(crate) fn has_many_clients(shared: &Shared, _: &State, _: Args<'_>) -> bool {
    shared.clients.len() > MANY
}

/// For commands that change several keys atomically: whether a long command may make them wait.
pub(crate) fn may_wait(shared: &Shared, _: &State, _: Args<'_>) -> bool {
    shared.runs_long_commands()
}
