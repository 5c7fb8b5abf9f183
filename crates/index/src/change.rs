//! Changes to one key. Every write is a decision about the key's current state.

use crate::Damage;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Guard, Lock, PoolFull};

/// The locks of deferred writes that are not durable yet.
/// [`PointIndex::persist_deferred`](crate::PointIndex::persist_deferred) persists all of them with
/// one fence.
#[derive(Default, Debug)]
#[must_use = "deferred writes are durable only after `persist_deferred`"]
pub struct Deferred(pub(crate) Vec<u64>);

/// Whether a write waits for its own fence or leaves it to
/// [`PointIndex::persist_deferred`](crate::PointIndex::persist_deferred).
#[derive(Debug)]
pub enum Fencing<'d> {
    /// Durable when the call returns.
    Now,
    /// Durable after `persist_deferred`.
    Deferred(&'d mut Deferred),
}

/// What an operation does to the state that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Leave the key as it is.
    Keep,
    /// Give the key this word, or remove it.
    Set(Option<u64>),
}

/// The result of a compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The key was in the expected state and has the new one now.
    Done,
    /// The key was in this state instead (`None`: absent); nothing changed.
    Found(Option<u64>),
}

/// Why an index did not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// An absent key must be added, and the pool is full.
    Full(PoolFull),
    /// The key's place depends on a record or a part of the index that is damaged.
    Damaged(Damage),
}

impl std::fmt::Display for ChangeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(full) => full.fmt(f),
            Self::Damaged(Damage { offset, what }) => {
                write!(f, "the index is damaged at offset {offset:#x}: {what}")
            }
        }
    }
}

impl std::error::Error for ChangeError {}

impl From<PoolFull> for ChangeError {
    fn from(full: PoolFull) -> Self {
        Self::Full(full)
    }
}

impl From<Damage> for ChangeError {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

/// The decision of a compare-and-swap.
pub(crate) fn decide_if(expected: Option<u64>, new: Option<u64>) -> impl Fn(Option<u64>) -> Decision {
    move |before| if before == expected { Decision::Set(new) } else { Decision::Keep }
}

/// The result of a compare-and-swap that found this state.
#[inline(always)]
pub(crate) fn swapped(found: Option<u64>, expected: Option<u64>) -> Swapped {
    if found == expected { Swapped::Done } else { Swapped::Found(found) }
}

/// Persists deferred changes, which are identified by the offsets of their locks.
pub(crate) fn persist_deferred<M: MappedMedium>(guard: &Guard<'_, M>, deferred: Deferred) {
    if deferred.0.is_empty() {
        return;
    }
    let region = guard.pool().region();
    // PERSIST: all deferred changes at once. Then their locks are confirmed, unless other threads
    // have taken them since.
    region.fence();
    for at in deferred.0 {
        region.at(Offset::<Lock>::new(at)).confirm(guard);
    }
}
