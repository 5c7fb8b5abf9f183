//! Transactions that only remove, in a full pool.
//!
//! A transaction of several keys needs memory for the record that makes it one, and a full pool has
//! none. If it only removes, it runs again while no other command does (see
//! `state/databases/gate.rs`), and its keys go one after another. So it is atomic for all clients
//! of this server; a crash in between leaves the keys that are left; other processes that share the
//! pool may see some gone.

use super::{Command, Failure, Outcome, flag, table};
use crate::{
    keyspace::Removals,
    state::{session_state::State, shared::Shared},
};

/// Instructions of a script that makes room: all clients wait for it.
pub(super) const INSTRUCTIONS: u64 = 20_000_000;

/// What becomes of a transaction that has executed these commands, and then failed: its removals
/// are done one by one, or it is to run again for that. `None`: it has failed.
pub(super) fn settle(
    shared: &Shared,
    state: &mut State,
    removed: Option<Removals>,
    (failure, executed): (&Failure, &[usize]),
) -> Option<Outcome> {
    match removed {
        Some(removed) => Some(remove(shared, &removed)),
        None => put_off(shared, state, failure, executed).then_some(Err(Failure::PUT_OFF)),
    }
}

/// Puts off a transaction that has executed these commands, and then failed, if it may only remove.
/// Returns whether it did.
fn put_off(shared: &Shared, state: &mut State, failure: &Failure, executed: &[usize]) -> bool {
    let may_only_remove = || {
        let command = |place: &usize| table::TABLE[place & 0xffff];
        // What a script in EXEC has done, the next run tells.
        let may_remove = |command: &Command| command.has(flag::WRITE) || command.name.starts_with("eval");
        executed.iter().all(|place| !command(place).has(flag::DENYOOM))
            && executed.iter().any(|place| may_remove(command(place)))
    };
    // Stores on files keep room for removals, and a cluster's nodes have no gate in common.
    let is_pool = || !shared.is_of_cluster() && shared.store.evictor().can_evict();
    if state.waits.makes_room() || !failure.is_full() || !is_pool() || !may_only_remove() {
        return false;
    }
    state.waits.put_off_to_make_room();
    true
}

/// Removes what a transaction removes, while it runs alone.
fn remove(shared: &Shared, removals: &Removals) -> Outcome {
    if removals.all {
        return Ok(shared.store.clear()?);
    }
    removals.keys.iter().try_for_each(|key| Ok(shared.store.remove(key).map(drop)?))
}
