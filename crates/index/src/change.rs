//! A change to one key, which all writes are: what the table holds is told, and what to make of it is answered.

use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Guard, Lock};

/// The locks of what deferred writes have yet to make durable. [`PointIndex::settle`](crate::PointIndex::settle) does it for all of them with one fence.
#[derive(Default, Debug)]
#[must_use = "deferred writes are durable only after they are settled"]
pub struct Deferred(pub(crate) Vec<u64>);

/// Whether a write waits for its own fence or leaves it to [`PointIndex::settle`](crate::PointIndex::settle).
#[derive(Debug)]
pub enum Fencing<'d> {
    /// Durable when the call returns.
    Now,
    /// Durable when this is settled.
    Deferred(&'d mut Deferred),
}

/// What an operation makes of the state that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key stays as it is.
    Keep,
    /// The key gets this word, or goes.
    To(Option<u64>),
}

/// What became of a compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The key had the expected word, or was absent as expected, and has the new one now.
    Done,
    /// The key has this word instead (`None`: it is absent); nothing changed.
    Found(Option<u64>),
}

/// The decision of a compare-and-swap.
pub(crate) fn change_if(expected: Option<u64>, new: Option<u64>) -> impl Fn(Option<u64>) -> Change {
    move |before| if before == expected { Change::To(new) } else { Change::Keep }
}

/// What a compare-and-swap answers that found this state.
#[inline(always)]
pub(crate) fn swapped(found: Option<u64>, expected: Option<u64>) -> Swapped {
    if found == expected { Swapped::Done } else { Swapped::Found(found) }
}

/// Makes deferred changes durable, which are noted by the places of their locks.
pub(crate) fn settle<M: MappedMedium>(guard: &Guard<'_, M>, deferred: Deferred) {
    if deferred.0.is_empty() {
        return;
    }
    let region = guard.pool().region();
    // PERSIST: all deferred changes at once; then their locks are marked settled, unless others have taken them since.
    region.fence();
    for at in deferred.0 {
        region.at(Offset::<Lock>::new(at)).settle(guard);
    }
}
