//! Room for a write that finds the pool full: what is had back before it is refused.
//!
//! In this order, each step only if the one before has brought nothing: memory that waits for
//! readers (`reclaim_blocking` in the pool); records that have expired; the memory between records
//! (`compact`); a *window*, a run of units that is emptied of records and of values that lie in
//! extents.
//!
//! # Invariants
//! 1. No step runs again in vain: what has found nothing is not tried again before something has
//!    been freed, or written, or has expired.
//! 2. One thread of a process makes room at a time. A thread that waited for another tries its
//!    write again first. So writers do not undo each other's work without an end: every turn of one
//!    is a gain, or its last.
//! 3. A thread that keeps an entry pinned makes no room: it would wait for itself.

use super::compact::{Elsewhere, State};
use super::store::Direct;
use super::view::Record;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_index::Swapped;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, PAGE, PoolFull, Sparse};

/// Bytes of records that are moved to make room, at a time: more slabs than one, for the writes
/// that follow.
const BYTES: u64 = 1 << 20;
/// That much is doubled so often at most.
const MOST_DOUBLINGS: u32 = 12;
/// Slabs are emptied of which at most so many percent is in use: the sparsest are tried first.
const PERCENTS: [u64; 3] = [20, 60, 100];
/// Rounds for each of these that may come to nothing.
const ROUNDS: usize = 2;
/// What was tried in vain is tried again when a slab's worth has been freed, or this part of all.
const PART: u64 = 1024;
/// Windows that are tried for one write.
const WINDOWS: u32 = 16;
/// Records that are looked at under one pin.
const PIECE: usize = 256;

impl<M: MappedMedium> Direct<M> {
    /// Makes room for `wanted` bytes in one piece. Returns whether there may be some, so that the
    /// write is to be tried again. `tries` is how often it has been tried: the more, the more room
    /// is made.
    pub(super) fn make_room(&self, wanted: u64, tries: u32) -> bool {
        if self.is_running().is_err() || self.keeps_anything() {
            return false;
        }
        // ORDER: Acquire: pairs with the Release below.
        let gains = || self.compactor.gains.load(Acquire);
        let before = gains();
        let mut state = self.compactor.lock();
        if gains() != before {
            return true;
        }
        let bytes = BYTES.max(2 * wanted) << tries.min(MOST_DOUBLINGS);
        let has_gained = self.take_back_expired(bytes, &mut state) || self.gain(wanted, bytes, &mut state);
        if has_gained {
            // ORDER: Release: a thread that sees the gain finds what was freed.
            self.compactor.gains.fetch_add(1, Release);
        }
        has_gained
    }

    /// Whether this thread is pinned.
    fn keeps_anything(&self) -> bool {
        self.pool().try_pin().is_ok_and(|guard| guard.depth() > 1)
    }

    fn take_back_expired(&self, bytes: u64, state: &mut State) -> bool {
        let has_removed = self.sweep_for(bytes, &mut state.pass);
        if has_removed {
            self.pool().outwait();
        }
        has_removed
    }

    fn gain(&self, wanted: u64, bytes: u64, state: &mut State) -> bool {
        let (pool, freed) = (self.pool(), self.pool().freed());
        let enough = (pool.slack().0 / PART).max(pool.slab_bytes());
        let is_early = |(then, least)| freed.wrapping_sub(then) < enough && wanted >= least;
        if state.refused.is_some_and(is_early) {
            return false;
        }
        state.was_held_up = false;
        state.forget_stuck(freed, pool.size());
        let has_ended_one = self.end_round(state);
        let has_gained = match pool.is_extent(wanted) {
            true => self.gain_window(wanted, state),
            false => {
                has_ended_one || self.gain_slabs(bytes, state) || self.gain_window(pool.slab_bytes(), state)
            }
        };
        // What has been freed meanwhile was moved. Once readers have gone it may be another matter.
        state.refused = (!has_gained && !state.was_held_up).then(|| (pool.freed(), wanted));
        has_gained
    }

    /// Moves the records of sparse slabs together, until one slab is free.
    fn gain_slabs(&self, bytes: u64, state: &mut State) -> bool {
        for percent in PERCENTS.into_iter().flat_map(|percent| [percent; ROUNDS]) {
            let which = Sparse { bytes, percent };
            let slabs = self.pool().vacate(which, &|slab| self.is_to_stay(state, slab));
            if !slabs.is_empty() && self.empty_slabs(&slabs, Elsewhere::InUse, state) > 0 {
                return true;
            }
        }
        false
    }

    /// Empties a run of units for `wanted` bytes.
    fn gain_window(&self, wanted: u64, state: &mut State) -> bool {
        let pool = self.pool();
        // One that a process has left that died. A living one tries again.
        pool.close_window();
        for _ in 0..WINDOWS {
            if state.was_held_up {
                return false;
            }
            let ((free, longest), (_, slack)) = (pool.free_bytes(), pool.slack());
            if pool.is_extent(wanted) && longest >= wanted + PAGE {
                return true;
            }
            if free + slack < wanted.next_multiple_of(pool.slab_bytes()) {
                return false;
            }
            let Some(window) = self.find_window(wanted, state) else { return false };
            if self.empty_window(&window, state) {
                return true;
            }
        }
        false
    }

    /// The window that costs the least to empty: one without values in extents, for which all
    /// records are to be looked at, if there is one.
    fn find_window(&self, wanted: u64, state: &State) -> Option<Range<u64>> {
        let pool = self.pool();
        let is_left_out = |unit: u64| self.is_to_stay(state, unit);
        pool.cheapest_window(wanted, &|_| 0, &is_left_out).or_else(|| {
            let movable = self.count_movable();
            let granules = |unit: u64| movable.get(unit as usize).copied().unwrap_or(0);
            pool.cheapest_window(wanted, &granules, &is_left_out)
        })
    }

    /// Moves everything out of a window. Returns whether it is free.
    fn empty_window(&self, window: &Range<u64>, state: &mut State) -> bool {
        let pool = self.pool();
        let slabs = pool.open_window(window);
        self.empty_slabs(&slabs, Elsewhere::Anywhere, state);
        self.move_extents(window);
        state.was_held_up |= !pool.outwait();
        let left = pool.taken_in(window);
        pool.close_window();
        let is_free = left.is_empty();
        if !state.was_held_up {
            state.give_up(left, pool.freed());
        }
        is_free
    }

    /// How many granules of each unit belong to values and records that can be moved.
    fn count_movable(&self) -> Vec<u32> {
        let mut counts = Vec::new();
        self.each_extent(|guard, record| {
            if !self.may_move(guard, record) {
                return true;
            }
            for (offset, bytes) in extents_of(record) {
                self.pool().each_unit_of(offset, bytes, &mut |unit, granules| {
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
            if extents_of(record).any(is_inside) && self.may_move(guard, record) {
                // Where there is no room for it, there may be some for another.
                let _ = self.move_extent(guard, record);
            }
            !guard.is_limbo_full()
        });
    }

    /// Calls `each` with every record that has an extent, or is one. Where `each` says `false` the
    /// pin ends, and the walk goes on from about there under another.
    fn each_extent(&self, mut each: impl FnMut(&Guard<'_, M>, &Record<'_>) -> bool) {
        let (mut position, mut words) = (0, Vec::with_capacity(2 * PIECE));
        loop {
            let guard = self.pool().pin();
            let next = self.index.scan(&guard, position, PIECE, &mut |word| words.push(word));
            let is_cut_short = words.drain(..).any(|word| {
                let Ok(record) = Record::at(&guard, word) else { return false };
                let has_one = record.shape.is_outline() || self.pool().is_extent(record.shape.size() as u64);
                has_one && record.verify().is_ok() && !each(&guard, &record)
            });
            if is_cut_short {
                // What has been moved lies elsewhere the next time.
                continue;
            }
            position = next;
            if next == 0 {
                return;
            }
        }
    }

    /// Moves a record with its value.
    pub(super) fn move_extent(&self, guard: &Guard<'_, M>, record: &Record<'_>) -> Result<(), PoolFull> {
        guard.reserve_retirements(2)?;
        // A value that does not match its checksum stays where it is.
        let Ok((_, value)) = record.value(guard, true) else { return Ok(()) };
        let staged = self.stage_moved(guard, record, value)?;
        // PERSIST: record and value before the index's word for them.
        self.pool().region().fence();
        let new = staged.into_offset();
        let swapped = self.index.compare_and_swap(guard, record.body.key, Some(record.offset), Some(new));
        match swapped {
            Ok(Swapped::Done) => self.retire(guard, record, None),
            _ => self.discard(guard, new, None),
        }
        Ok(())
    }
}

/// What of a record lies in extents, or may: where, and how long it is.
fn extents_of(record: &Record<'_>) -> impl Iterator<Item = (u64, u64)> + use<> {
    let value = record.body.outline.map(|outline| (outline.extent, record.shape.value_len as u64));
    [(record.offset, record.shape.size() as u64)].into_iter().chain(value)
}
