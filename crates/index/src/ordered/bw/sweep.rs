//! Background work: pages that have become small without a writer that noticed are merged, and
//! those that were changed in place are written anew.

use super::super::keys::OrderedKind;
use super::entry::State;
use super::ops::BwTree;
use super::page::Pid;
use crate::ChangeError;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Pages that one call looks at.
const PAGES: u64 = 64;
/// Some page was merged since the sweep was at the first one.
const MERGED: u64 = 1 << 63;

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// See [`PointIndex::maintain`](crate::PointIndex::maintain).
    pub(super) fn sweep_some(&self, guard: &Guard<'_, M>) -> bool {
        let place = self.sweep.load(Relaxed);
        let (first, numbers) = (place & !MERGED, self.tree.numbers());
        let (mut next, end) = (first, (first + PAGES).min(numbers));
        let mut has_merged = place & MERGED != 0;
        // Without memory for notes of what is retired, the caller unpins first.
        while next < end && !(guard.is_limbo_full() && next > first) {
            // A page that cannot be merged now is right as it is.
            has_merged |= self.tend(guard, next as Pid).unwrap_or(false);
            next += 1;
        }
        let end = next;
        if end < numbers {
            self.sweep.store(end | if has_merged { MERGED } else { 0 }, Relaxed);
            return true;
        }
        self.sweep.store(0, Relaxed);
        // What was merged may now be small enough for its other neighbour.
        has_merged
    }

    /// Completes what a thread has left of a page, and merges the page if it is small.
    fn tend(&self, guard: &Guard<'_, M>, pid: Pid) -> Result<bool, ChangeError> {
        self.settle_merge(guard, pid)?;
        let spot = self.tree.page(guard, pid)?;
        if spot.is_some_and(|spot| spot.entry.state() == State::InPlace) && !self.was_refused() {
            self.reopen_in_place(guard, pid)?;
        }
        // A neighbour that the page above was not told of, for want of memory, is merged only then.
        self.post(guard, pid)?;
        self.merge(guard, pid)
    }
}
