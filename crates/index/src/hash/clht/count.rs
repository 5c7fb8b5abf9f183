//! How many keys there are: counters in stripes, so that writers do not share one, and a recount after a crash.
//!
//! ```text
//!   stripes: STRIPES lines, one a writer by its seat   | column 0 | column 1 | 0 ... |
//!   root line 1                                        | mode | base | frontier | 0 ... |
//! ```
//! `len` is `base` plus the sum of the active column. The counters are not persisted: a killed process may leave a count off by
//! one a thread, a power failure may leave anything. So the collector's walk counts again, under each bucket's lock, while writers go on:
//! a writer adds to the other column too if the walk has already passed its bucket. At the end the walk's own total and that column are the
//! exact count, and the columns swap roles in one store.
//!
//! Mode: bit 0 the active column, bit 1 a recount is under way. The frontier is the walk's progress in hash space, halved, so that its end
//! (2^63) can be told from its start.

use super::table::Root;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Line, Medium, Offset, Region, Word};

pub(super) const STRIPES: u64 = 32;

const MODE: usize = 0;
const BASE: usize = 1;
const FRONTIER: usize = 2;
const COLUMN: u64 = 1;
const RECOUNTING: u64 = 2;
/// The frontier when the walk has passed everything.
const END: u64 = 1 << 63;

/// The counters of one index.
pub(super) struct Count<'r, M> {
    pub(super) region: &'r Region<M>,
    pub(super) root: &'r Root,
    pub(super) stripes: Offset<Line>,
}

impl<M: Medium> Count<'_, M> {
    /// A key came (`by` 1) or went (`by` -1). Called under the lock of its bucket.
    #[inline(always)]
    pub(super) fn add(&self, seat: u64, hash: u64, by: i64) {
        let medium = self.region.medium();
        let line = self.region.at(self.stripes.element(seat % STRIPES));
        let mode = self.word(MODE).load(medium, Acquire);
        let column = (mode & COLUMN) as usize;
        line.0[column].fetch_add(medium, by as u64, Relaxed);
        if mode & RECOUNTING != 0 && hash >> 1 < self.word(FRONTIER).load(medium, Acquire) {
            line.0[1 - column].fetch_add(medium, by as u64, Relaxed);
        }
    }

    pub(super) fn len(&self) -> u64 {
        let medium = self.region.medium();
        let mode = self.word(MODE).load(medium, Acquire);
        let base = self.word(BASE).load(medium, Relaxed);
        let len = base.wrapping_add(self.sum((mode & COLUMN) as usize)) as i64;
        len.max(0) as u64
    }

    /// Starts a recount. One at a time.
    pub(super) fn start_recount(&self) {
        let medium = self.region.medium();
        let column = self.word(MODE).load(medium, Relaxed) & COLUMN;
        for stripe in 0..STRIPES {
            self.region.at(self.stripes.element(stripe)).0[1 - column as usize].store(medium, 0, Relaxed);
        }
        self.word(FRONTIER).store(medium, 0, Relaxed);
        self.word(MODE).store(medium, column | RECOUNTING, Release);
    }

    /// The walk has counted every bucket up to the hash `end` (0: all of them). Called under the lock of the last one.
    pub(super) fn advance_frontier(&self, end: u64) {
        let frontier = if end == 0 { END } else { end >> 1 };
        self.word(FRONTIER).store(self.region.medium(), frontier, Release);
    }

    /// Ends a recount that found `total` keys.
    pub(super) fn finish_recount(&self, total: u64) {
        let medium = self.region.medium();
        let column = self.word(MODE).load(medium, Relaxed) & COLUMN;
        self.word(BASE).store(medium, total, Relaxed);
        self.word(MODE).store(medium, COLUMN ^ column, Release);
    }

    /// After a crash no recount is under way, and a column may be selected that was never finished.
    pub(super) fn recover(&self) {
        let medium = self.region.medium();
        let column = self.word(MODE).load(medium, Relaxed) & COLUMN;
        self.word(MODE).store(medium, column, Release);
    }

    fn word(&self, index: usize) -> &Word {
        &self.root[1].0[index]
    }

    fn sum(&self, column: usize) -> u64 {
        (0..STRIPES)
            .map(|stripe| {
                self.region.at(self.stripes.element(stripe)).0[column].load(self.region.medium(), Relaxed)
            })
            .fold(0, u64::wrapping_add)
    }
}
