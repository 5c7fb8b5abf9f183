//! Scans, and the collector's walk.
//!
//! A position consists of a cell of the directory, how far the homes of its table have been
//! visited, and how many cells are visited together:
//!
//! ```text
//!   | 63:60 cell | 59:14 home, as a fraction | 13:11 log2 of the cells, and 1 | 10:0 0 |
//! ```
//!
//! It means the same in tables of any size. If a table was halved, both halves continue where the
//! whole was. A key is visited with its home, wherever it lies.

use super::bucket::{SlotLock, meta};
use super::place::{BUCKETS_LOG2_MAX, Place, WINDOW};
use super::shape::{BucketShape, Entry, cell_of};
use super::stripes::STRIPE_BYTES;
use super::tables::DataTables;
use super::view::*;
use crate::Position;
use crate::cursor::UNUSED_BITS;
use std::ops::Range;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker};

const CODE_BITS: u32 = 3;
const CODE_AT: u32 = UNUSED_BITS;
const HOME_AT: u32 = CODE_AT + CODE_BITS;
const HOME_BITS: u32 = CELL_AT - HOME_AT;
const CELL_AT: u32 = 60;
const CELLS_LOG2: u64 = CELLS.ilog2() as u64;
// A position distinguishes all homes of the largest table.
const _: () = assert!(BUCKETS_LOG2_MAX <= HOME_BITS);

/// A decoded position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ScanPosition {
    first_cell: usize,
    cells_log2: u64,
    /// The top bits of the homes, as a fraction of 2^[`HOME_BITS`].
    home: u64,
}

impl ScanPosition {
    /// Decodes a position; any word is one. If it has no number of cells, those of the table are
    /// visited together, without those before the position: the scan never goes back.
    fn at(position: Position, directory: &Directory) -> Self {
        let cell = cell_of(position);
        let cells_log2 = match position >> CODE_AT & ((1 << CODE_BITS) - 1) {
            0 => {
                let shared = directory.cells.iter().filter(|&&place| place == directory.cells[cell]).count();
                u64::from(shared.ilog2().min(cell.trailing_zeros()))
            }
            code => (code - 1).min(CELLS_LOG2),
        };
        let first_cell = cell >> cells_log2 << cells_log2;
        Self { first_cell, cells_log2, home: position << (64 - CELL_AT) >> (64 - HOME_BITS) }
    }

    fn mask(self) -> u64 {
        ((1 << (1 << self.cells_log2)) - 1) << self.first_cell
    }

    /// The position of the same cells from another home on; of the next cells if that is beyond the
    /// last home; 0 behind the last cell.
    fn next(self, home: u64) -> Position {
        if home >> HOME_BITS == 0 {
            let code = self.cells_log2 + 1;
            return (self.first_cell as u64) << CELL_AT | home << HOME_AT | code << CODE_AT;
        }
        let cell = self.first_cell + (1 << self.cells_log2);
        if cell == CELLS { 0 } else { (cell as u64) << CELL_AT }
    }
}

impl<M: MappedMedium, K: BucketShape> DataTables<M, K> {
    /// See [`PointIndex::scan`](crate::PointIndex::scan). Takes no lock. The entries that are
    /// visited together are read before the first is returned, and are read again if a resize began
    /// or ended meanwhile.
    pub(super) fn scan_from(
        &self,
        guard: &Guard<'_, M>,
        from: Position,
        at_least: usize,
        mut each: impl FnMut(u64),
    ) -> Position {
        // Each step reads a window of buckets besides its own homes. Where they have no key, the
        // next step is twice as long, so that the windows do not add up in a sparse table.
        let longest = 4 * WINDOW as usize * K::SLOTS / 2;
        let (mut position, mut seen, mut step) = (from, 0, 0);
        let mut entries = Vec::new();
        loop {
            let wanted = at_least.saturating_sub(seen).max(step);
            let next = self.gather(guard, position, wanted, &mut entries);
            step = if entries.is_empty() { wanted.saturating_mul(2).clamp(K::SLOTS, longest) } else { 0 };
            seen += entries.len();
            entries.drain(..).for_each(|entry| each(entry.word));
            position = next;
            if position == 0 || seen >= at_least {
                return position;
            }
        }
    }

    /// Reads the entries of as many homes as would have `wanted` keys in half full buckets.
    fn gather(
        &self,
        guard: &Guard<'_, M>,
        position: Position,
        wanted: usize,
        entries: &mut Vec<Entry>,
    ) -> Position {
        loop {
            let view = self.base.view();
            let directory = view.directory();
            let spot = ScanPosition::at(position, &directory);
            let moving = directory.to.filter(|_| directory.moving & spot.mask() != 0);
            let tables = || directory.tables(spot.mask()).map(|(place, _)| place).chain(moving);
            // In steps of the smallest table's homes, so every table's homes are visited whole.
            let coarse = tables().map(Place::log2).min().expect("cells have tables");
            let fine = tables().map(Place::log2).max().expect("cells have tables");
            let homes = (wanted as u64 / (K::SLOTS as u64 / 2)) >> (fine - coarse);
            let first = spot.home >> (HOME_BITS - coarse);
            let end = first.saturating_add(homes + 1).min(1 << coarse);
            let evictions = self.base.evictions();
            let mut is_doubtful = moving.is_some();
            for place in tables() {
                let finer = place.log2() - coarse;
                is_doubtful |= self.visit(guard, place, first << finer..end << finer, |entry| {
                    if spot.mask() >> cell_of(K::top(entry, self.seed)) & 1 == 1 {
                        entries.push(entry);
                    }
                });
            }
            if self.base.view_offset() != view.offset {
                entries.clear();
                continue;
            }
            if is_doubtful || self.base.evictions() != evictions {
                self.visit_once(guard, entries);
            }
            return spot.next(end << (HOME_BITS - coarse));
        }
    }

    /// Visits every key of a table with its home among `homes`: those in their first buckets, then
    /// those in their second, in the order in which keys move. Returns whether slots were locked.
    fn visit(
        &self,
        guard: &Guard<'_, M>,
        place: Place,
        homes: Range<u64>,
        mut each: impl FnMut(Entry),
    ) -> bool {
        let mut is_locked = false;
        let mut read = |index: u64, seconds: bool| {
            let bucket = self.base.bucket(place, index);
            let is_marked = || meta(self.base.pool.medium(), bucket).slot_lock::<K>() != SlotLock::None;
            // ORDER: before the slots, by its Acquire. An eviction that was counted before this
            // scan clears the mark together with the slot, so a scan that meets the slot has met
            // the mark.
            is_locked |= is_marked();
            for slot in 0..K::SLOTS {
                let Some(entry) = K::read(guard, bucket, slot) else { continue };
                let is_second = K::is_second(entry, place, index, self.seed);
                let is_wanted = !is_second || homes.contains(&place.home_of_second(index, entry.tag));
                if is_second == seconds && is_wanted {
                    each(entry);
                }
            }
            if self.base.may_be_unfenced(place.bucket(index)) {
                // PERSIST: what a writer stored to this bucket, before it is answered.
                self.base.pool.region().persist(bucket);
            }
        };
        homes.clone().for_each(|index| read(index, false));
        let seconds = (homes.end - homes.start + WINDOW).min(place.buckets());
        (0..seconds).for_each(|by| read(place.behind(homes.start, by), true));
        is_locked
    }

    /// Keeps one of several entries with the same key: the key has just moved, or a crash has left
    /// it twice.
    fn visit_once(&self, guard: &Guard<'_, M>, entries: &mut Vec<Entry>) {
        sort::<K>(entries);
        let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
        for &entry in &*entries {
            let alike = kept.iter().rev().take_while(|&&other| K::sort_key(other) == K::sort_key(entry));
            if !alike.into_iter().any(|&other| K::same_key(guard, other, entry)) {
                kept.push(entry);
            }
        }
        *entries = kept;
    }

    /// See [`PointIndex::trace`](crate::PointIndex::trace). Recounts the keys, stripe by stripe
    /// under its lock, and completes what a crash has left in buckets.
    pub(super) fn trace_all(
        &self,
        guard: &Guard<'_, M>,
        marker: &mut Marker<'_>,
        mut each: impl FnMut(&mut Marker<'_>, u64),
    ) {
        marker.mark(self.base.root.offset().raw(), size_of::<Root>());
        marker.mark(self.base.stripe_lines.offset().raw(), self.base.stripes() * STRIPE_BYTES);
        self.recover_buckets(guard);
        loop {
            let view = self.base.view();
            // The thread that stored it may have died before its fence, and blocks that it does not
            // name are reused.
            self.base.persist_view(view.offset);
            let directory = view.directory();
            for offset in
                [view.offset, view_at(directory.after)].into_iter().filter(|offset| !offset.is_null())
            {
                marker.mark(offset.raw(), size_of::<ViewBlock>());
            }
            if let Some(spare) = directory.spare() {
                marker.mark(spare.start(), spare.bytes());
            }
            for place in directory.all() {
                marker.mark(place.start(), place.bytes());
                self.visit(guard, place, 0..place.buckets(), |entry| each(marker, entry.word));
            }
            // Keys move forward through the tables of one view, in the order of the walk. If there
            // is another view now, they may have moved to a table that was not visited.
            if self.base.view_offset() == view.offset {
                return;
            }
        }
    }
}

/// Not in the method, which would compile the sort for each medium.
fn sort<K: BucketShape>(entries: &mut [Entry]) {
    entries.sort_by_key(|&entry| K::sort_key(entry));
}

#[cfg(test)]
#[path = "tests/scan.rs"]
mod tests;
