//! What every hash index makes of a change to one key: all of them are one operation under the key's lock, which is told how to decide and when to fence.

use crate::{Deferred, Swapped};
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Guard, Lock};

/// Whether a write waits for its own fence or leaves it to [`PointIndex::settle`](crate::PointIndex::settle).
pub(super) enum Fencing<'d> {
    Now,
    Deferred(&'d mut Deferred),
}

/// What an operation makes of the state that it found.
pub(super) enum Change {
    Keep,
    To(Option<u64>),
}

/// The decision of an update.
pub(super) fn change_present(word: u64) -> impl Fn(Option<u64>) -> Change {
    move |before| if before.is_some() { Change::To(Some(word)) } else { Change::Keep }
}

/// The decision of a compare-and-swap.
pub(super) fn change_if(expected: Option<u64>, new: Option<u64>) -> impl Fn(Option<u64>) -> Change {
    move |before| if before == expected { Change::To(new) } else { Change::Keep }
}

/// What a compare-and-swap answers that found this state.
#[inline(always)]
pub(super) fn swapped(found: Option<u64>, expected: Option<u64>) -> Swapped {
    if found == expected { Swapped::Done } else { Swapped::Found(found) }
}

/// Makes deferred changes durable, which are noted by the places of their locks.
pub(super) fn settle<M: MappedMedium>(guard: &Guard<'_, M>, deferred: Deferred) {
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
