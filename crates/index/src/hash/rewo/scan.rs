//! Scans, and the collector's walk.
//!
//! A position is a cell of the directory, how far the homes of its table have been visited, and how many cells are visited together: `| 63:60 cell | 59:3 home, as a fraction | 2:0 binary logarithm of the
//! cells, and 1 |`. It means the same in tables of any size, and of a table that was halved both halves go on where the whole was. A key is visited with its home, wherever it lies.

use super::bucket::{Mark, meta};
use super::ops::Rewo;
use super::place::{Place, WINDOW};
use super::resize::view_at;
use super::shape::{Entry, Nests, cell_of};
use super::stripes::STRIPE_BYTES;
use super::view::*;
use crate::Position;
use crate::planted::{self, Bug};
use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker};

const HOME_BITS: u32 = 57;
const CODE_BITS: u32 = 3;
const CELLS_LOG2: u64 = CELLS.ilog2() as u64;

/// A position, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Spot {
    first_cell: usize,
    cells_log2: u64,
    /// The top bits of the homes, as a fraction of 2^57.
    home: u64,
}

impl Spot {
    /// Any word is one. Where it does not say how many cells, those of the table are visited together.
    fn at(position: Position, directory: &Directory) -> Self {
        let cell = cell_of(position);
        let cells_log2 = match position & ((1 << CODE_BITS) - 1) {
            0 => {
                let shared = directory.cells.iter().filter(|&&place| place == directory.cells[cell]).count();
                u64::from(shared.ilog2())
            }
            code => (code - 1).min(CELLS_LOG2),
        };
        let first_cell = cell >> cells_log2 << cells_log2;
        Self { first_cell, cells_log2, home: position << 4 >> (64 - HOME_BITS) }
    }

    fn mask(self) -> u64 {
        ((1 << (1 << self.cells_log2)) - 1) << self.first_cell
    }

    /// The same cells from another home on; the next ones if it is beyond the last; 0 behind those.
    fn next(self, home: u64) -> Position {
        if home >> HOME_BITS == 0 {
            return (self.first_cell as u64) << 60 | home << CODE_BITS | (self.cells_log2 + 1);
        }
        let cell = self.first_cell + (1 << self.cells_log2);
        if cell == CELLS { 0 } else { (cell as u64) << 60 }
    }
}

impl<M: MappedMedium, K: Nests> Rewo<M, K> {
    /// See [`PointIndex::scan`](crate::PointIndex::scan). Takes no lock. What is visited together is read before the first of it is handed out, and read again if a resize began or ended meanwhile.
    pub(super) fn scan_from(
        &self,
        guard: &Guard<'_, M>,
        from: Position,
        at_least: usize,
        mut each: impl FnMut(u64),
    ) -> Position {
        let (mut position, mut seen) = (from, 0);
        let mut entries = Vec::new();
        loop {
            let next = self.gather(guard, position, at_least.saturating_sub(seen), &mut entries);
            seen += entries.len();
            entries.drain(..).for_each(|entry| each(entry.word));
            position = next;
            if position == 0 || seen >= at_least {
                return position;
            }
        }
    }

    /// Reads the entries of as many homes as there would be `wanted` keys in, of half full buckets.
    fn gather(
        &self,
        guard: &Guard<'_, M>,
        position: Position,
        wanted: usize,
        entries: &mut Vec<Entry>,
    ) -> Position {
        loop {
            let view = self.view();
            let directory = view.directory();
            let spot = Spot::at(position, &directory);
            let moving = directory.to.filter(|_| directory.moving & spot.mask() != 0);
            let tables = || directory.tables(spot.mask()).map(|(place, _)| place).chain(moving);
            // In steps of the smallest table's homes: so every table's are visited whole.
            let coarse = tables().map(Place::log2).min().expect("cells have tables");
            let fine = tables().map(Place::log2).max().expect("cells have tables");
            let homes = (wanted as u64 / (K::SLOTS as u64 / 2)) >> (fine - coarse);
            let first = spot.home >> (HOME_BITS - coarse);
            let end = first.saturating_add(homes + 1).min(1 << coarse);
            let evictions = self.evictions();
            let mut is_doubtful = moving.is_some();
            for place in tables() {
                let finer = place.log2() - coarse;
                is_doubtful |= self.visit(guard, place, first << finer..end << finer, |entry| {
                    if spot.mask() >> cell_of(K::top(entry, self.seed)) & 1 == 1 {
                        entries.push(entry);
                    }
                });
            }
            if self.view_offset() != view.offset {
                entries.clear();
                continue;
            }
            if is_doubtful || self.evictions() != evictions {
                self.visit_once(guard, entries);
            }
            return spot.next(end << (HOME_BITS - coarse));
        }
    }

    fn evictions(&self) -> u64 {
        self.root[3].0[EVICTIONS].load(self.pool.medium(), Acquire)
    }

    /// Every key of a table with its home among `homes`: those in their first buckets, then those in their second, in the order in which keys move. Says whether slots were locked.
    fn visit(
        &self,
        guard: &Guard<'_, M>,
        place: Place,
        homes: Range<u64>,
        mut each: impl FnMut(Entry),
    ) -> bool {
        let mut is_locked = false;
        let mut read = |index: u64, seconds: bool| {
            let bucket = self.bucket(place, index);
            let is_marked = || meta(self.pool.medium(), bucket).mark::<K>() != Mark::None;
            // ORDER: before the slots, by its Acquire: an eviction that was counted before this scan takes the mark away with the slot, so who meets the slot has met the mark.
            is_locked |= !planted::has(Bug::MarkSeenLate) && is_marked();
            for slot in 0..K::SLOTS {
                let Some(entry) = K::read(guard, bucket, slot) else { continue };
                let is_second = K::is_second(entry, place, index, self.seed);
                let is_wanted = !is_second || homes.contains(&place.home_of_second(index, entry.tag));
                if is_second == seconds && is_wanted {
                    each(entry);
                }
            }
            is_locked |= planted::has(Bug::MarkSeenLate) && is_marked();
            if self.may_be_unsettled(place.bucket(index)) {
                // PERSIST: what a writer stored to this bucket, before it is answered.
                self.pool.region().persist(bucket);
            }
        };
        homes.clone().for_each(|index| read(index, false));
        let seconds = (homes.end - homes.start + WINDOW).min(place.buckets());
        (0..seconds).for_each(|by| read(place.behind(homes.start, by), true));
        is_locked
    }

    /// Keeps of entries with the same key one: of a key that has just moved, or of which a crash has left two.
    fn visit_once(&self, guard: &Guard<'_, M>, entries: &mut Vec<Entry>) {
        entries.sort_by_key(|&entry| K::likeness(entry));
        let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
        for &entry in &*entries {
            let alike = kept.iter().rev().take_while(|&&other| K::likeness(other) == K::likeness(entry));
            if !alike.into_iter().any(|&other| K::same_key(guard, other, entry)) {
                kept.push(entry);
            }
        }
        *entries = kept;
    }

    /// See [`PointIndex::trace`](crate::PointIndex::trace). Counts the keys again, stripe by stripe under its lock, and ends what a crash has left in buckets.
    pub(super) fn trace_all(
        &self,
        guard: &Guard<'_, M>,
        marker: &mut Marker<'_>,
        mut each: impl FnMut(&mut Marker<'_>, u64),
    ) {
        marker.mark(self.root.offset().raw(), size_of::<Root>());
        marker.mark(self.stripe_lines.offset().raw(), self.stripes() * STRIPE_BYTES);
        self.recover_buckets(guard);
        loop {
            let view = self.view();
            // Who stored it may have died before its fence, and what is not named here is given to others.
            self.settle_view(view.offset);
            let directory = view.directory();
            for offset in
                [view.offset, view_at(directory.after)].into_iter().filter(|offset| !offset.is_null())
            {
                marker.mark(offset.raw(), size_of::<ViewBlock>());
            }
            if let Some(spare) = directory.spare().filter(|_| !planted::has(Bug::SpareUnmarked)) {
                marker.mark(spare.start(), spare.bytes());
            }
            for place in directory.all() {
                marker.mark(place.start(), place.bytes());
                self.visit(guard, place, 0..place.buckets(), |entry| each(marker, entry.word));
            }
            // Keys move forward through the tables of one view, in the order of the walk. If there is another one now, they may have moved to a table that was not visited.
            if self.view_offset() == view.offset {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PointIndex, U64};
    use std::sync::atomic::Ordering::Relaxed;
    use terrace_medium::Pmem;
    use terrace_pool::Pool;
    use terrace_testkit::Counting;

    /// Who begins a resize, or ends one, may die between its store of the view and the fence behind that. What the view has taken the place of is the collector's then.
    #[test]
    fn the_collector_makes_a_view_durable_before_it_follows_it() {
        let pool = Pool::<Counting<Pmem>>::anonymous(16 << 20).unwrap();
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 2).unwrap();
        let guard = pool.pin();
        let trace = || {
            let mut trace = |marker: &mut Marker<'_>| map.trace(&guard, marker, |_, _| {});
            let (counts, _) = pool.medium().during(|| pool.reachable(&mut trace));
            (counts.write_backs, counts.fences)
        };
        let mut keys = 0..;
        for is_moving in [true, false] {
            while map.view().is_moving() != is_moving {
                map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
            }
            assert_eq!(trace(), (0, 0));
            // As it is between the store and the fence.
            map.root[2].0[SETTLED].store(pool.medium(), 0, Relaxed);
            assert_eq!(trace(), (1, 1), "moving: {is_moving}");
            assert_eq!(trace(), (0, 0));
        }
    }

    fn directory(tables: u64) -> Directory {
        let cells = std::array::from_fn(|cell| Place::new(64 + 64 * (cell as u64 * tables / 16), 3));
        Directory::resting(cells)
    }

    #[test]
    fn a_position_goes_on_where_it_was_in_a_table_that_was_halved() {
        let spot = Spot::at(0, &directory(2));
        assert_eq!(spot, Spot { first_cell: 0, cells_log2: 3, home: 0 });
        let next = spot.next(5 << 50);
        assert_eq!(Spot::at(next, &directory(4)), Spot { first_cell: 0, cells_log2: 3, home: 5 << 50 });
        let behind = spot.next(1 << HOME_BITS);
        assert_eq!(Spot::at(behind, &directory(4)), Spot { first_cell: 8, cells_log2: 2, home: 0 });
        assert_eq!(Spot { first_cell: 12, cells_log2: 2, home: 0 }.next(1 << HOME_BITS), 0);
    }

    #[test]
    fn any_word_is_a_position_and_leads_to_the_end() {
        for word in [u64::MAX, 1, 7, 0x1234_5678_9abc_def6, 0xf000_0000_0000_0001] {
            let (mut position, mut steps, directory) = (word, 0, directory(8));
            while position != 0 {
                let spot = Spot::at(position, &directory);
                assert!(spot.first_cell + (1 << spot.cells_log2) <= CELLS && spot.home >> HOME_BITS == 0);
                position = spot.next(((spot.home >> (HOME_BITS - 3)) + 1) << (HOME_BITS - 3));
                steps += 1;
                assert!(steps < 1000);
            }
        }
    }

    #[test]
    fn a_mask_has_a_bit_for_each_cell() {
        let all = Spot { first_cell: 0, cells_log2: 4, home: 0 };
        let two = Spot { first_cell: 6, cells_log2: 1, home: 0 };
        assert_eq!((all.mask(), two.mask()), (0xffff, 0xc0));
    }
}
