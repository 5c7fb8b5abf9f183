//! Makes room for a write that finds the pool full, before the write fails.
//!
//! Each step runs only if the one before has freed nothing: reclaim memory that waits for readers
//! (`reclaim_blocking` in the pool); remove expired records; free the memory between records
//! (`compact`); empty a *window*, a run of units, of records and of values that lie in extents.
//!
//! # Invariants
//! 1. No step is repeated in vain: a step that found nothing is not tried again before something
//!    has been freed or written or has expired.
//! 2. One thread of a process makes room at a time. A thread that waited for another first tries
//!    its write again. So writers do not undo each other's work forever: every turn of a thread is
//!    a gain, or its last.
//! 3. A thread that holds an entry pinned makes no room: it would wait for itself.

use crate::record::records::Records;
use crate::record::view::Record;
use crate::upkeep::compact::{Compaction, Destination, State};
use crate::upkeep::expiry::Expiry;
use std::ops::Range;
use terrace_index::Place;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, PAGE, Pool, Sparse};

/// Bytes of records that one attempt moves: more than one slab, also for later writes.
const BYTES: u64 = 1 << 20;
/// Each try doubles it, at most this often.
const MOST_DOUBLINGS: u32 = 12;
/// Maximum use, in percent, of the slabs that are emptied: the sparsest are tried first.
const PERCENTS: [u64; 3] = [20, 60, 100];
/// Rounds for each of these percentages that may free nothing.
const ROUNDS: usize = 2;
/// A failed attempt is repeated once a slab's worth, or this fraction of all slack, has been freed.
const PART: u64 = 1024;
/// Windows that are tried for one write.
const WINDOWS: u32 = 16;
/// Records that are read under one pin.
const PIECE: usize = 256;
/// Steps of a pass for expired records that one refused write takes: the next one goes on.
const STEPS: usize = 64;

/// Room for writes. It borrows what the removal of expired entries and the moving of records
/// borrow: both stand below it.
#[derive(Clone, Copy)]
pub(crate) struct Room<'s, M: MappedMedium> {
    pub(crate) expiry: Expiry<'s, M>,
    pub(crate) compaction: Compaction<'s, M>,
}

impl<'s, M: MappedMedium> Room<'s, M> {
    fn records(&self) -> &'s Records<M> {
        self.compaction.records()
    }

    fn pool(&self) -> &'s Pool<M> {
        self.compaction.pool()
    }

    /// Makes room for `wanted` contiguous bytes. Returns whether there may be some, so that the
    /// write must be tried again. `tries` is the number of earlier tries: each makes more room.
    /// `gains` is the count from before the write.
    pub(crate) fn make_room(&self, wanted: u64, tries: u32, gains: u64) -> bool {
        if self.records().check_writable().is_err() || self.records().is_pinned() {
            return false;
        }
        let mut state = self.compaction.compactor.lock();
        // Another thread has made room since the write found none.
        if self.compaction.compactor.gains() != gains {
            return true;
        }
        let bytes = BYTES.max(2 * wanted) << tries.min(MOST_DOUBLINGS);
        let has_gained =
            self.reclaim_expired(bytes, usize::MAX, &mut state) || self.gain(wanted, bytes, &mut state);
        if has_gained {
            self.compaction.compactor.count_gain();
        }
        has_gained
    }

    /// Removes records of about `bytes` bytes that have expired, for a write above the limit.
    pub(crate) fn remove_expired(&self, bytes: u64) {
        self.reclaim_expired(bytes, STEPS, &mut self.compaction.compactor.lock());
    }

    fn reclaim_expired(&self, bytes: u64, steps: usize, state: &mut State) -> bool {
        let has_removed = self.expiry.sweep_for(bytes, steps, &mut state.pass);
        if has_removed {
            self.pool().wait_for_readers();
        }
        has_removed
    }

    fn gain(&self, wanted: u64, bytes: u64, state: &mut State) -> bool {
        let (pool, freed) = (self.pool(), self.pool().total_freed());
        let enough = (pool.compaction().slack().0 / PART).max(pool.compaction().slab_bytes());
        let is_early = |(then, least)| freed.wrapping_sub(then) < enough && wanted >= least;
        if state.refused.is_some_and(is_early) {
            return false;
        }
        state.was_blocked = false;
        state.forget_stuck(freed, pool.size());
        let has_ended_one = self.compaction.end_round(state);
        let has_gained = match pool.compaction().is_extent(wanted) {
            true => self.gain_window(wanted, state),
            false => {
                has_ended_one
                    || self.gain_slabs(bytes, state)
                    || self.gain_window(pool.compaction().slab_bytes(), state)
            }
        };
        // Memory that was freed meanwhile belonged to moved records. An attempt that readers
        // blocked may succeed once they have finished.
        state.refused = (!has_gained && !state.was_blocked).then(|| (pool.total_freed(), wanted));
        has_gained
    }

    /// Moves the records of sparse slabs together until one slab is free.
    fn gain_slabs(&self, bytes: u64, state: &mut State) -> bool {
        for percent in PERCENTS.into_iter().flat_map(|percent| [percent; ROUNDS]) {
            let which = Sparse { bytes, percent };
            let slabs =
                self.pool().compaction().vacate(which, &|slab| self.compaction.should_stay(state, slab));
            if !slabs.is_empty() && self.compaction.empty_slabs(&slabs, Destination::InUse, state) > 0 {
                return true;
            }
        }
        false
    }

    /// Empties a run of units for `wanted` bytes.
    fn gain_window(&self, wanted: u64, state: &mut State) -> bool {
        let pool = self.pool();
        // Closes a window that a dead process has left. A living process tries again.
        pool.compaction().close_window();
        for _ in 0..WINDOWS {
            if state.was_blocked {
                return false;
            }
            let ((free, longest), (_, slack)) = (pool.compaction().free_bytes(), pool.compaction().slack());
            if pool.compaction().is_extent(wanted) && longest >= wanted + PAGE {
                return true;
            }
            if free + slack < wanted.next_multiple_of(pool.compaction().slab_bytes()) {
                return false;
            }
            let Some(window) = self.find_window(wanted, state) else { return false };
            if self.empty_window(&window, state) {
                return true;
            }
        }
        false
    }

    /// The cheapest window to empty. Windows without values in extents come first: others need a
    /// pass over all records.
    fn find_window(&self, wanted: u64, state: &State) -> Option<Range<u64>> {
        let pool = self.pool();
        let is_left_out = |unit: u64| self.compaction.should_stay(state, unit);
        pool.compaction().cheapest_window(wanted, &|_| 0, &is_left_out).or_else(|| {
            let movable = self.count_movable();
            let granules = |unit: u64| movable.get(unit as usize).copied().unwrap_or(0);
            pool.compaction().cheapest_window(wanted, &granules, &is_left_out)
        })
    }

    /// Moves everything out of a window. Returns whether the window is free.
    fn empty_window(&self, window: &Range<u64>, state: &mut State) -> bool {
        let pool = self.pool();
        let slabs = pool.compaction().open_window(window);
        self.compaction.empty_slabs(&slabs, Destination::Anywhere, state);
        self.move_extents(window);
        state.was_blocked |= !pool.wait_for_readers();
        let left = pool.compaction().used_units_in(window);
        pool.compaction().close_window();
        let is_free = left.is_empty();
        if !state.was_blocked {
            state.add_stuck(left, pool.total_freed());
        }
        is_free
    }

    /// Number of granules in each unit that belong to movable values and records.
    fn count_movable(&self) -> Vec<u32> {
        let mut counts = Vec::new();
        self.each_extent(|guard, record| {
            if !self.compaction.slots.claims().may_move(guard, record) {
                return true;
            }
            for (offset, bytes) in extents_of(record) {
                self.pool().compaction().for_each_unit_of(offset, bytes, &mut |unit, granules| {
                    let unit = unit as usize;
                    if counts.len() <= unit {
                        counts.resize(unit + 1, 0u32);
                    }
                    counts[unit] += granules;
                });
            }
            true
        });
        counts
    }

    /// Moves the values and the records that lie in extents in `window`.
    fn move_extents(&self, window: &Range<u64>) {
        self.each_extent(|guard, record| {
            let is_inside =
                |(offset, bytes): (u64, u64)| offset < window.end && offset + bytes > window.start;
            if extents_of(record).any(is_inside) && self.compaction.slots.claims().may_move(guard, record) {
                // If there is no room for this one, there may be some for another.
                let _ = self.compaction.move_extent(guard, record);
            }
            !guard.is_limbo_full()
        });
    }

    /// Calls `each` with every record that has an extent or is one. When `each` returns false, the
    /// pin ends, and the walk continues from about there under another.
    fn each_extent(&self, mut each: impl FnMut(&Guard<'_, M>, &Record<'_>) -> bool) {
        let (mut place, mut words) = (Place::Start, Vec::with_capacity(2 * PIECE));
        loop {
            let guard = self.pool().pin();
            let next = self.records().index.scan(&guard, &place, PIECE, &mut |word| words.push(word));
            let is_cut_short = words.drain(..).any(|word| {
                let Ok(record) = Record::at(&guard, word) else { return false };
                let has_one = record.shape.has_external_value()
                    || self.pool().compaction().is_extent(record.shape.size() as u64);
                has_one && record.verify().is_ok() && !each(&guard, &record)
            });
            if is_cut_short {
                // Records that were moved are outside the window on the next visit.
                continue;
            }
            place = next;
            if place.is_end() {
                return;
            }
        }
    }
}

/// Offset and length of a record and of its external value. They lie in extents, or may.
fn extents_of(record: &Record<'_>) -> impl Iterator<Item = (u64, u64)> + use<> {
    let value = record.body.external.map(|external| (external.extent, record.shape.value_len as u64));
    [(record.offset, record.shape.size() as u64)].into_iter().chain(value)
}
