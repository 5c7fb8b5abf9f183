//! The number of keys: counters in stripes, so that writers share no line, and a recount after a
//! crash.
//!
//! ```text
//!   stripes: a line a writer, by its thread slot         | column 0 | column 1 | figures ... |
//!   a line of the root                                   | mode | base | frontier | ... |
//! ```
//! `len` is `base`, which never changes, plus the sum of the active column. The counters are not
//! persisted: a killed process may leave a count off by one a thread, a power failure may leave
//! anything. So the collector's walk recounts, under each bucket's lock, while writers continue. If
//! the walk has passed a writer's bucket, the writer adds to the other column, too. At the end, the
//! walk's total and that column are the exact count, and the columns swap roles in one store.
//!
//! Mode: bit 0 is the active column, bit 1 says that a recount is in progress. The frontier is the
//! walk's progress in hash space, halved, so that its end (2^63) differs from its start. A tree has
//! no such space. There the word is the number of the last walk, which notes it in each node.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Line, Medium, Word};

/// Thread slots with a stripe of their own; the others share the rest.
const OWN: u64 = 24;
/// Shared stripes: a power of two.
const SHARED: u64 = 8;
pub(crate) const STRIPES: u64 = OWN + SHARED;
pub(crate) type Stripes = [Line; STRIPES as usize];

const MODE: usize = 0;
const BASE: usize = 1;
const FRONTIER: usize = 2;
/// The first of the figures of a stripe, behind its columns.
const FIGURES: usize = 2;
const COLUMN: u64 = 1;
const RECOUNTING: u64 = 2;
/// The frontier when the walk has passed every bucket.
const END: u64 = 1 << 63;

/// The counters of one index.
pub(crate) struct Count<'r, M> {
    pub(crate) medium: &'r M,
    /// Its first three words are the count's.
    pub(crate) line: &'r Line,
    pub(crate) stripes: &'r Stripes,
}

impl<M: Medium> Count<'_, M> {
    /// Counts a key that was added (`by` 1) or removed (`by` -1). Called under the lock of its
    /// bucket.
    #[inline(always)]
    pub(crate) fn add(&self, thread_slot: u64, hash: u64, by: i64) {
        self.add_where(thread_slot, by, |frontier| hash >> 1 < frontier);
    }

    /// As [`Count::add`]. `passed` says for a frontier whether the walk has passed the key's place.
    #[inline(always)]
    pub(crate) fn add_where(&self, thread_slot: u64, by: i64, passed: impl FnOnce(u64) -> bool) {
        let mode = self.word(MODE).load(self.medium.point("count.add"), Acquire);
        if mode & RECOUNTING == 0 && thread_slot < OWN {
            // No other thread writes this word. The mode may change meanwhile, but only to a
            // recount in the same column: any further change has to wait for the lock of this
            // bucket.
            self.add_own(thread_slot, by, mode);
        } else {
            self.add_shared(thread_slot, by, mode, passed);
        }
    }

    #[cold]
    fn add_shared(&self, thread_slot: u64, by: i64, mode: u64, passed: impl FnOnce(u64) -> bool) {
        self.add_to_column(thread_slot, by, mode);
        if mode & RECOUNTING != 0
            && passed(self.word(FRONTIER).load(self.medium.point("count.frontier"), Acquire))
        {
            self.add_to_column(thread_slot, by, !mode);
        }
    }

    /// Adds keys to a column of a thread's own stripe. No other thread writes that word now.
    #[inline(always)]
    fn add_own(&self, thread_slot: u64, by: i64, column: u64) {
        let word = &self.stripes[thread_slot as usize].0[(column & COLUMN) as usize];
        word.store(self.medium, word.load(self.medium, Relaxed).wrapping_add(by as u64), Relaxed);
    }

    /// The stripe of a thread, which others may share.
    fn stripe(&self, thread_slot: u64) -> &Line {
        let stripe = if thread_slot < OWN { thread_slot } else { OWN + thread_slot % SHARED };
        &self.stripes[stripe as usize]
    }

    /// The column that is active, and whether a recount is in progress.
    pub(crate) fn columns(&self) -> (u64, bool) {
        let mode = self.word(MODE).load(self.medium.point("count.columns"), Acquire);
        (mode & COLUMN, mode & RECOUNTING != 0)
    }

    /// Counts keys that were added to a page, or removed from it, without a lock. `column` is the
    /// page's: the active one, or the other once the walk of a recount has passed the page. The
    /// thread has been pinned since it read the column, and the walk waits for pinned threads
    /// before it begins anew. So a page's column that is neither the active one nor that of a
    /// recount is of the one before: the walk has counted the change.
    #[inline(always)]
    pub(crate) fn add_in_column(&self, thread_slot: u64, by: i64, column: u64) {
        let (active, is_recounting) = self.columns();
        if column != active {
            if is_recounting {
                self.add_to_column(thread_slot, by, active);
                self.add_to_column(thread_slot, by, column);
            }
        } else if thread_slot < OWN && !is_recounting {
            self.add_own(thread_slot, by, column);
        } else {
            self.add_to_column(thread_slot, by, column);
        }
    }

    /// Adds keys to one column.
    pub(crate) fn add_to_column(&self, thread_slot: u64, by: i64, column: u64) {
        let word = &self.stripe(thread_slot).0[(column & COLUMN) as usize];
        word.fetch_add(self.medium, by as u64, Relaxed);
    }

    /// Adds to a figure (0 to 5) that is kept beside the count: an estimate after a crash.
    pub(crate) fn add_figure(&self, thread_slot: u64, figure: usize, by: i64) {
        self.stripe(thread_slot).0[FIGURES + figure].fetch_add(self.medium, by as u64, Relaxed);
    }

    pub(crate) fn figure(&self, figure: usize) -> u64 {
        (self.sum(FIGURES + figure) as i64).max(0) as u64
    }

    /// Corrects a figure that was counted as `found` while threads may have changed it.
    pub(crate) fn correct_figure(&self, figure: usize, found: u64) {
        let wrong = self.sum(FIGURES + figure).wrapping_sub(found);
        self.stripes[OWN as usize].0[FIGURES + figure].fetch_sub(self.medium, wrong, Relaxed);
    }

    pub(crate) fn len(&self) -> u64 {
        loop {
            let mode = self.word(MODE).load(self.medium.point("count.len"), Acquire);
            let len = self.len_in(mode);
            // ORDER: Relaxed: after the Acquire loads of the columns. A recount may have ended and
            // another begun by now: a thread that read a word cleared by that one sees another
            // mode.
            if self.word(MODE).load(self.medium, Relaxed) & COLUMN == mode & COLUMN {
                return len;
            }
        }
    }

    fn len_in(&self, mode: u64) -> u64 {
        let base = self.word(BASE).load(self.medium, Relaxed);
        let len = base.wrapping_add(self.sum((mode & COLUMN) as usize)) as i64;
        len.max(0) as u64
    }

    /// Starts a recount. The caller excludes other recounts.
    pub(crate) fn start_recount(&self) {
        self.clear();
        let column = self.word(MODE).load(self.medium, Relaxed) & COLUMN;
        self.word(MODE).store(self.medium.point("count.begin"), column | RECOUNTING, Release);
    }

    /// As [`Count::start_recount`], for an index whose nodes keep the number of the last walk that
    /// has passed them. Returns the number of this one. No node has it: an abandoned recount's
    /// writers add to no cleared word.
    pub(crate) fn start_numbered_recount(&self) -> u16 {
        let number = self.word(FRONTIER).load(self.medium, Relaxed).wrapping_add(1) & 0xffff;
        self.word(FRONTIER).store(self.medium, number, Relaxed);
        self.clear_column();
        let column = self.word(MODE).load(self.medium, Relaxed) & COLUMN;
        self.word(MODE).store(self.medium.point("count.begin"), column | RECOUNTING, Release);
        number as u16
    }

    /// Clears the inactive column. An abandoned recount may still be in progress, so the frontier
    /// is reset first: no writer then adds to a cleared word before the walk has passed. (Except
    /// writers that have already read the old frontier, at most one add a thread.)
    fn clear(&self) {
        self.word(FRONTIER).store(self.medium, 0, Relaxed);
        self.clear_column();
    }

    fn clear_column(&self) {
        let other = 1 - (self.word(MODE).load(self.medium, Relaxed) & COLUMN) as usize;
        // ORDER: Release: see `len`.
        self.stripes.iter().for_each(|stripe| stripe.0[other].store(self.medium, 0, Release));
    }

    /// The walk has counted every bucket up to the hash `end` (0: all of them). Called under the
    /// lock of the last one.
    pub(crate) fn advance_frontier(&self, end: u64) {
        let frontier = if end == 0 { END } else { end >> 1 };
        self.word(FRONTIER).store(self.medium, frontier, Release);
    }

    /// Ends a recount that found `total` keys.
    pub(crate) fn finish_recount(&self, total: u64) {
        self.fill(total);
        let column = self.word(MODE).load(self.medium, Relaxed) & COLUMN;
        self.word(MODE).store(self.medium.point("count.end"), COLUMN ^ column, Release);
    }

    /// Adds the walk's result to the column that becomes active. The base stays: it counts for
    /// both, until a single store selects the other column.
    fn fill(&self, total: u64) {
        let other = 1 - (self.word(MODE).load(self.medium, Relaxed) & COLUMN) as usize;
        let missing = total.wrapping_sub(self.word(BASE).load(self.medium, Relaxed));
        self.stripes[OWN as usize].0[other].fetch_add(self.medium, missing, Relaxed);
    }

    /// After a crash: no recount is in progress. A column may be selected whose recount did not
    /// finish.
    pub(crate) fn recover(&self) {
        let column = self.word(MODE).load(self.medium, Relaxed) & COLUMN;
        self.word(MODE).store(self.medium, column, Release);
    }

    fn word(&self, index: usize) -> &Word {
        &self.line.0[index]
    }

    fn sum(&self, column: usize) -> u64 {
        let columns = self.stripes.iter().map(|stripe| stripe.0[column].load(self.medium, Acquire));
        columns.fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
#[path = "tests/count.rs"]
mod tests;
