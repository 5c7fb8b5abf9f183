//! How many keys there are: counters in stripes, so that writers do not share one, and a recount after a crash.
//!
//! ```text
//!   stripes: a line a writer, by its seat              | column 0 | column 1 | 0 ... |
//!   a line of the root                                 | mode | base | frontier | ... |
//! ```
//! `len` is `base` plus the sum of the active column. The counters are not persisted: a killed process may leave a count off by
//! one a thread, a power failure may leave anything. So the collector's walk counts again, under each bucket's lock, while writers go on:
//! a writer adds to the other column too if the walk has already passed its bucket. At the end the walk's own total and that column are the
//! exact count, and the columns swap roles in one store.
//!
//! Mode: bit 0 the active column, bit 1 a recount is under way. The frontier is the walk's progress in hash space, halved, so that its end
//! (2^63) can be told from its start.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Line, Medium, Word};

/// Seats that have a stripe to themselves; the others share the rest.
const OWN: u64 = 24;
/// A power of two.
const SHARED: u64 = 8;
pub(super) const STRIPES: u64 = OWN + SHARED;
pub(super) type Stripes = [Line; STRIPES as usize];

const MODE: usize = 0;
const BASE: usize = 1;
const FRONTIER: usize = 2;
const COLUMN: u64 = 1;
const RECOUNTING: u64 = 2;
/// The frontier when the walk has passed everything.
const END: u64 = 1 << 63;

/// The counters of one index.
pub(super) struct Count<'r, M> {
    pub(super) medium: &'r M,
    /// Of which the first three words are the count's.
    pub(super) line: &'r Line,
    pub(super) stripes: &'r Stripes,
}

impl<M: Medium> Count<'_, M> {
    /// A key came (`by` 1) or went (`by` -1). Called under the lock of its bucket.
    #[inline(always)]
    pub(super) fn add(&self, seat: u64, hash: u64, by: i64) {
        let mode = self.word(MODE).load(self.medium, Acquire);
        let column = (mode & COLUMN) as usize;
        if mode & RECOUNTING == 0 && seat < OWN {
            // Nobody else writes it. The mode may change meanwhile, but to a recount in the same column, and no further: that has to wait for
            // the lock of this bucket.
            let word = &self.stripes[seat as usize].0[column];
            word.store(self.medium, word.load(self.medium, Relaxed).wrapping_add(by as u64), Relaxed);
        } else {
            self.add_shared(seat, hash, by, mode);
        }
    }

    #[cold]
    fn add_shared(&self, seat: u64, hash: u64, by: i64, mode: u64) {
        let stripe = if seat < OWN { seat } else { OWN + seat % SHARED };
        let (line, column) = (&self.stripes[stripe as usize], (mode & COLUMN) as usize);
        line.0[column].fetch_add(self.medium, by as u64, Relaxed);
        if mode & RECOUNTING != 0 && hash >> 1 < self.word(FRONTIER).load(self.medium, Acquire) {
            line.0[1 - column].fetch_add(self.medium, by as u64, Relaxed);
        }
    }

    pub(super) fn len(&self) -> u64 {
        let mode = self.word(MODE).load(self.medium, Acquire);
        let base = self.word(BASE).load(self.medium, Relaxed);
        let len = base.wrapping_add(self.sum((mode & COLUMN) as usize)) as i64;
        len.max(0) as u64
    }

    /// Starts a recount. One at a time.
    pub(super) fn start_recount(&self) {
        let column = self.word(MODE).load(self.medium, Relaxed) & COLUMN;
        for stripe in self.stripes {
            stripe.0[1 - column as usize].store(self.medium, 0, Relaxed);
        }
        self.word(FRONTIER).store(self.medium, 0, Relaxed);
        self.word(MODE).store(self.medium, column | RECOUNTING, Release);
    }

    /// The walk has counted every bucket up to the hash `end` (0: all of them). Called under the lock of the last one.
    pub(super) fn advance_frontier(&self, end: u64) {
        let frontier = if end == 0 { END } else { end >> 1 };
        self.word(FRONTIER).store(self.medium, frontier, Release);
    }

    /// Ends a recount that found `total` keys.
    pub(super) fn finish_recount(&self, total: u64) {
        let column = self.word(MODE).load(self.medium, Relaxed) & COLUMN;
        self.word(BASE).store(self.medium, total, Relaxed);
        self.word(MODE).store(self.medium, COLUMN ^ column, Release);
    }

    /// After a crash no recount is under way, and a column may be selected that was never finished.
    pub(super) fn recover(&self) {
        let column = self.word(MODE).load(self.medium, Relaxed) & COLUMN;
        self.word(MODE).store(self.medium, column, Release);
    }

    fn word(&self, index: usize) -> &Word {
        &self.line.0[index]
    }

    fn sum(&self, column: usize) -> u64 {
        let columns = self.stripes.iter().map(|stripe| stripe.0[column].load(self.medium, Relaxed));
        columns.fold(0, u64::wrapping_add)
    }
}
