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
use super::ops::Rewo;
use super::place::{BUCKETS_LOG2_MAX, Place, WINDOW};
use super::resize::view_at;
use super::shape::{BucketShape, Entry, cell_of};
use super::stripes::STRIPE_BYTES;
use super::view::*;
use crate::Position;
use crate::cursor::UNUSED_BITS;
use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;
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

impl<M: MappedMedium, K: BucketShape> Rewo<M, K> {
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
            let view = self.view();
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

    pub(super) fn evictions(&self) -> u64 {
        self.root[3].0[EVICTIONS].load(self.pool.medium(), Acquire)
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
            let bucket = self.bucket(place, index);
            let is_marked = || meta(self.pool.medium(), bucket).slot_lock::<K>() != SlotLock::None;
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
            if self.may_be_unfenced(place.bucket(index)) {
                // PERSIST: what a writer stored to this bucket, before it is answered.
                self.pool.region().persist(bucket);
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
        marker.mark(self.root.offset().raw(), size_of::<Root>());
        marker.mark(self.stripe_lines.offset().raw(), self.stripes() * STRIPE_BYTES);
        self.recover_buckets(guard);
        loop {
            let view = self.view();
            // The thread that stored it may have died before its fence, and blocks that it does not
            // name are reused.
            self.persist_view(view.offset);
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
            if self.view_offset() == view.offset {
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
mod tests {
    use super::super::super::test_pools::{Medium, Power, interrupted, pool};
    use super::super::bucket::store_overflow;
    use super::super::shape::sealed::Shape;
    use super::super::together::CopyBatch;
    use super::super::write::Slot;
    use super::*;
    use crate::hash::rewo::stripes::LockedStripes;
    use crate::{KeyKind, PointIndex, Stored, U64};
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::{Arc, Mutex};
    use terrace_medium::{Dram, Pmem};
    use terrace_pool::Pool;
    use terrace_testkit::schedule::Scheduler;
    use terrace_testkit::{TappedPmem, TappedShm};

    /// A thread that begins or ends a resize may die between its store of the view and the fence
    /// behind that. Then the collector takes the replaced view.
    #[test]
    fn collector_persists_the_view_that_it_follows() {
        let pool = Pool::<TappedPmem>::anonymous(16 << 20).unwrap();
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
            // The state between the store and the fence.
            map.root[2].0[DURABLE_VIEW].store(pool.medium(), 0, Relaxed);
            assert_eq!(trace(), (1, 1), "moving: {is_moving}");
            assert_eq!(trace(), (0, 0));
        }
    }

    /// All words, sorted, from scans that ask for `at_least` at a time.
    fn scanned<M: MappedMedium>(map: &Rewo<M, U64>, at_least: usize) -> Vec<u64> {
        let (guard, mut words, mut position) = (map.pool().pin(), Vec::new(), 0);
        loop {
            position = map.scan_from(&guard, position, at_least, |word| words.push(word));
            if position == 0 {
                words.sort_unstable();
                return words;
            }
        }
    }

    #[test]
    fn scan_visits_each_key_once_during_a_resize() {
        let pool = pool::<Dram>(16 << 20);
        let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 1, 6).unwrap();
        let (guard, mut keys, mut moving) = (pool.pin(), 0, 0);
        while map.view().directory().spare().is_none() {
            map.insert(&guard, &keys, keys).unwrap();
            keys += 1;
        }
        let spare = map.view().directory().spare().unwrap();
        assert_eq!(map.view().count(), 0, "nothing of it is cleared");
        for index in 0..spare.buckets() {
            let words = map.bucket(spare, index).iter().flat_map(|line| &line.0);
            words.for_each(|word| word.store(pool.medium(), !0, Relaxed));
        }
        while map.stats(&guard).resizes == 0 {
            map.insert(&guard, &keys, keys).unwrap();
            keys += 1;
            for at_least in [5, 100, usize::MAX] {
                assert_eq!(scanned(&map, at_least), (0..keys).collect::<Vec<_>>(), "{at_least} at a time");
            }
            moving += u64::from(map.view().is_moving());
        }
        assert!(moving >= 4, "{moving}");
        assert_eq!(map.verify(&guard), []);
    }

    /// A table in which the next insert evicts a key, and that number of keys; or the same with
    /// `keys` keys.
    fn before_an_eviction<M: MappedMedium>(pool: &Pool<M>, keys: Option<u64>) -> (Rewo<M, U64>, u64) {
        let map = Rewo::<M, U64>::with_shape(pool, "map", 1, 2).unwrap();
        let guard = pool.pin();
        let mut key = 0;
        while keys.map_or(map.evictions() == 0, |keys| key < keys) {
            map.insert(&guard, &key, key).unwrap();
            key += 1;
        }
        drop(guard);
        (map, key)
    }

    #[test]
    fn scan_visits_an_evicted_key_once() {
        let scheduler = Scheduler::new();
        let (_, until) = before_an_eviction(&pool::<Dram>(1 << 20), None);
        let last = until - 1;
        for steps in (1..700).step_by(9) {
            let power = Power::new();
            let map = Arc::new(before_an_eviction(&power.pool, Some(last)).0);
            let [reader, writer] = [map.clone(), map.clone()];
            let seen = Arc::new(Mutex::new(Vec::new()));
            let answer = seen.clone();
            let read = move || *answer.lock().unwrap() = scanned(&reader, usize::MAX);
            interrupted(&scheduler, steps, read, move || {
                writer.insert(&writer.pool().pin(), &last, last).unwrap();
            });
            assert_eq!(map.evictions(), 1);
            let mut seen = std::mem::take(&mut *seen.lock().unwrap());
            // It was added meanwhile.
            _ = seen.pop_if(|word| *word == last);
            assert_eq!(seen, (0..last).collect::<Vec<_>>(), "after {steps} steps");
        }
    }

    #[test]
    fn scan_piece_has_homes_for_half_full_buckets() {
        let pool = pool::<Dram>(1 << 20);
        let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 1, 4).unwrap();
        let (guard, place) = (pool.pin(), map.view().directory().cells[0]);
        for home in 0..16 {
            let keys = (0..).filter(|key| place.home(U64::hash(key, map.seed)) == home);
            keys.take(7).for_each(|key| _ = map.insert(&guard, &key, home).unwrap());
        }
        // All cells are visited together.
        let at =
            |home: u64| ScanPosition { first_cell: 0, cells_log2: 4, home: 0 }.next(home << (HOME_BITS - 4));
        let piece = |from, at_least| {
            let mut homes = Vec::new();
            let end = map.scan_from(&guard, from, at_least, |home| homes.push(home));
            homes.dedup();
            (end, homes)
        };
        assert_eq!(piece(0, 70), (at(11), (0..11).collect()));
        assert_eq!(piece(at(11), 7), (at(13), vec![11, 12]));
        assert_eq!(piece(at(13), 6), (at(14), vec![13]));
        assert_eq!(piece(at(14), 500), (0, vec![14, 15]));
        assert_eq!(piece(0, usize::MAX), (0, (0..16).collect()));
    }

    #[test]
    fn scan_piece_reads_its_homes_and_their_window() {
        let pool = pool::<TappedShm>(16 << 20);
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 10).unwrap();
        let guard = pool.pin();
        // A key in nearly each home.
        (0..7000).for_each(|key| _ = map.insert(&guard, &key, key).unwrap());
        for (from, homes) in [(0, 1), (512, 1), (512, 10), (1000, 10)] {
            let position =
                ScanPosition { first_cell: 0, cells_log2: 4, home: 0 }.next(from << (HOME_BITS - 10));
            let at_least = 7 * (homes as usize - 1);
            let (read, _) = pool.medium().touched(|| map.gather(&guard, position, at_least, &mut Vec::new()));
            // Plus root and view.
            assert!((homes + 256..homes + 262).contains(&(read.blocks() as u64)), "{}", read.blocks());
        }
    }

    #[test]
    fn scan_pieces_are_disjoint_during_growth() {
        let pool = pool::<Dram>(4 << 20);
        let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 4, 3).unwrap();
        let (guard, mut keys, mut larger) = (pool.pin(), 0, 0);
        while larger < 10 {
            map.insert(&guard, &keys, keys).unwrap();
            keys += 1;
            let directory = map.view().directory();
            if directory.moving == ALL_CELLS {
                assert!(directory.to.is_some_and(|to| to.log2() > directory.cells[0].log2() + 3));
                larger += 1;
                for at_least in [1, 30, usize::MAX] {
                    assert_eq!(scanned(&map, at_least), (0..keys).collect::<Vec<_>>(), "{at_least}");
                }
            }
        }
    }

    /// Checks a table after a power loss: each key is there once, except perhaps the last, and a
    /// collection leaves nothing to complete.
    fn check_whole(pool: Pool<Medium>, keys: u64, when: &str) {
        let map = Rewo::<_, U64>::recover(&pool, "map").unwrap().unwrap();
        let is_there = || {
            let mut words = scanned(&map, usize::MAX);
            _ = words.pop_if(|word| *word == keys);
            assert_eq!(words, (0..keys).collect::<Vec<_>>(), "{when}");
        };
        is_there();
        pool.request_collection();
        pool.collect(&mut |marker| map.trace(&pool.pin(), marker, |_, _| ()));
        assert_eq!(map.verify(&pool.pin()), [], "{when}");
        is_there();
        drop(map);
        pool.abandon();
    }

    /// A table that was filled until `is_so`, and its number of keys.
    fn filled<M: MappedMedium>(
        pool: &Pool<M>,
        log2: u32,
        until: impl Fn(&Rewo<M, U64>, u64) -> bool,
    ) -> (Rewo<M, U64>, u64) {
        let map = Rewo::<M, U64>::with_shape(pool, "map", 1, log2).unwrap();
        let mut keys = 0;
        while !until(&map, keys) {
            map.insert(&pool.pin(), &keys, keys).unwrap();
            keys += 1;
        }
        (map, keys)
    }

    /// Stops an insert of key number `keys` after each of `steps`. Then another thread scans, and
    /// the power is lost.
    fn check_interrupted_insert(log2: u32, keys: u64, steps: impl Iterator<Item = u32>) {
        let scheduler = Scheduler::new();
        for steps in steps {
            let power = Arc::new(Power::new());
            let map = Arc::new(filled(&power.pool, log2, |_, there| there == keys).0);
            let (writer, reader, off) = (map.clone(), map.clone(), power.clone());
            let seen = Arc::new(Mutex::new(None));
            let answer = seen.clone();
            let write = move || _ = writer.insert(&writer.pool().pin(), &keys, keys).unwrap();
            interrupted(&scheduler, steps, write, move || {
                // The scan persists what it meets.
                let pool = off.after_power_loss();
                *answer.lock().unwrap() = Some((pool, scanned(&reader, usize::MAX)));
            });
            let (pool, mut words) = seen.lock().unwrap().take().unwrap();
            _ = words.pop_if(|word| *word == keys);
            assert_eq!(words, (0..keys).collect::<Vec<_>>(), "after {steps} steps");
            check_whole(pool, keys, &format!("after {steps} steps"));
        }
    }

    #[test]
    fn interrupted_eviction_leaves_each_key_once() {
        let evicts = |map: &Rewo<Dram, U64>, _| map.evictions() > 0;
        let (_, keys) = filled(&pool::<Dram>(1 << 20), 2, evicts);
        check_interrupted_insert(2, keys - 1, (1..260).step_by(4));
    }

    #[test]
    fn interrupted_resize_start_loses_no_key() {
        let has_spare = |map: &Rewo<Dram, U64>, _| map.view().directory().spare().is_some();
        let (_, keys) = filled(&pool::<Dram>(1 << 20), 3, has_spare);
        check_interrupted_insert(3, keys - 1, (20..520).step_by(17));
        let moves = |map: &Rewo<Dram, U64>, _| map.view().is_moving();
        let (_, keys) = filled(&pool::<Dram>(1 << 20), 3, moves);
        check_interrupted_insert(3, keys - 1, (20..520).step_by(17));
    }

    #[test]
    fn interrupted_move_leaves_each_key_once() {
        let moves = |map: &Rewo<Dram, U64>, _| map.view().is_moving();
        let (_, keys) = filled(&pool::<Dram>(1 << 20), 3, moves);
        check_interrupted_insert(3, keys, (5..3000).step_by(61));
    }

    /// The slot of a key.
    fn slot_of(map: &Rewo<Dram, U64>, place: Place, index: u64, key: u64) -> Option<usize> {
        let guard = map.pool().pin();
        (0..U64::SLOTS).find(|&slot| {
            U64::read(&guard, map.bucket(place, index), slot).is_some_and(|entry| entry.key == key)
        })
    }

    #[test]
    fn collection_completes_an_eviction() {
        for (mark, is_copied) in [(true, true), (true, false), (false, true)] {
            let pool = pool::<Dram>(1 << 20);
            let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 1, 2).unwrap();
            let guard = pool.pin();
            (0..20).for_each(|key| _ = map.insert(&guard, &key, key).unwrap());
            let (place, hash) = (map.view().directory().cells[0], U64::hash(&7, map.seed));
            let home = place.home(hash);
            let (second, slot) = (place.second(home, hash as u8), slot_of(&map, place, home, 7).unwrap());
            let is_locked =
                || meta(pool.medium(), map.bucket(place, home)).slot_lock::<U64>() != SlotLock::None;
            if mark {
                map.lock_slots(place, home, SlotLock::Slot(slot));
            }
            if is_copied {
                store_overflow::<_, U64>(pool.medium(), map.bucket(place, home), hash as u8);
                let entry = U64::read(&guard, map.bucket(place, home), slot).unwrap();
                let free = meta(pool.medium(), map.bucket(place, second)).free::<U64>().trailing_zeros();
                map.install(&guard, Slot { place, index: second, slot: free as usize }, entry);
            }
            if mark {
                // A scan that meets both knows that it is one key.
                assert_eq!(scanned(&map, usize::MAX), (0..20).collect::<Vec<_>>());
            }
            let findings = map.verify(&guard);
            // A duplicate that is not moving is damage, which a collection leaves for people to
            // see.
            assert_eq!((findings.is_empty(), is_locked()), (mark, mark), "{findings:?}");
            pool.reachable(&mut |marker| map.trace(&guard, marker, |_, _| ()));
            let places = [home, second].map(|index| slot_of(&map, place, index, 7).is_some());
            assert_eq!((places, is_locked()), ([!(mark && is_copied), is_copied], false));
            if mark {
                assert_eq!((map.len(), map.verify(&guard)), (20, vec![]));
                assert_eq!(scanned(&map, usize::MAX), (0..20).collect::<Vec<_>>());
            }
        }
    }

    /// A resize whose mover died in a bucket: every other key that leaves the bucket already has a
    /// copy.
    fn half_moved(pool: &Pool<Dram>) -> (Rewo<Dram, U64>, u64) {
        let map = Rewo::<Dram, U64>::with_shape(pool, "map", 4, 3).unwrap();
        let (guard, mut keys) = (pool.pin(), 0);
        while !map.view().is_moving() {
            map.insert(&guard, &keys, keys).unwrap();
            keys += 1;
        }
        let directory = map.view().directory();
        let (place, to) = (directory.cells[CELLS - 1], directory.to.unwrap());
        let leaving = |index: u64| {
            let entries =
                (0..U64::SLOTS).filter_map(|slot| U64::read(&guard, map.bucket(place, index), slot));
            entries.filter(|&entry| map.leaves(&directory, place, entry)).collect::<Vec<_>>()
        };
        let index = (map.view().count()..place.buckets()).find(|&index| leaving(index).len() > 2).unwrap();
        map.lock_slots(place, index, SlotLock::Moving);
        let (mut held, mut copies) = (LockedStripes::none(), CopyBatch::default());
        let mut copied = 0;
        for entry in leaving(index).into_iter().step_by(2) {
            let home = map.home_in(&guard, to, (place, index), entry);
            copied += u64::from(map.add_copy(&guard, &mut held, (to, home), entry, &mut copies));
        }
        map.publish_copies(&mut copies);
        assert!(
            copied > 0
                && meta(pool.medium(), map.bucket(place, index)).slot_lock::<U64>() == SlotLock::Moving
        );
        drop(held);
        drop(guard);
        (map, keys)
    }

    #[test]
    fn writer_or_collector_completes_a_move() {
        let pools = [(); 3].map(|()| pool::<Dram>(1 << 20));
        // A scan completes nothing, and visits each key once. A key that is moving and in two
        // places is no finding.
        let (map, keys) = half_moved(&pools[0]);
        let guard = pools[0].pin();
        assert_eq!((scanned(&map, usize::MAX), map.verify(&guard)), ((0..keys).collect(), vec![]));
        pools[0].reachable(&mut |marker| map.trace(&guard, marker, |_, _| ()));
        assert_eq!((map.len(), map.verify(&guard)), (keys, vec![]));
        let (map, keys) = half_moved(&pools[1]);
        let guard = pools[1].pin();
        for key in 0..keys {
            assert_eq!(map.update(&guard, &key, key + 1000), Some(key));
            assert_eq!(map.get(&guard, &key), Some(key + 1000));
        }
        assert_eq!((map.len(), map.verify(&guard)), (keys, vec![]));
        assert_eq!(scanned(&map, usize::MAX), (1000..keys + 1000).collect::<Vec<_>>());
        let (map, keys) = half_moved(&pools[2]);
        let guard = pools[2].pin();
        while map.maintain(&guard) {}
        assert_eq!((map.len(), map.verify(&guard)), (keys, vec![]));
        assert_eq!(scanned(&map, usize::MAX), (0..keys).collect::<Vec<_>>());
    }

    fn directory(tables: u64) -> Directory {
        let cells = std::array::from_fn(|cell| Place::new(64 + 64 * (cell as u64 * tables / 16), 3));
        Directory::resting(cells)
    }

    #[test]
    fn position_continues_in_a_halved_table() {
        let spot = ScanPosition::at(0, &directory(2));
        assert_eq!(spot, ScanPosition { first_cell: 0, cells_log2: 3, home: 0 });
        let next = spot.next(5 << 40);
        assert_eq!(
            ScanPosition::at(next, &directory(4)),
            ScanPosition { first_cell: 0, cells_log2: 3, home: 5 << 40 }
        );
        let behind = spot.next(1 << HOME_BITS);
        assert_eq!(
            ScanPosition::at(behind, &directory(4)),
            ScanPosition { first_cell: 8, cells_log2: 2, home: 0 }
        );
        assert_eq!(ScanPosition { first_cell: 12, cells_log2: 2, home: 0 }.next(1 << HOME_BITS), 0);
    }

    #[test]
    fn any_word_is_a_position_and_leads_to_the_end() {
        for word in [u64::MAX, 1, 7 << CODE_AT, 0x1234_5678_9abc_def6, 0xf000_0000_0000_0800] {
            let (mut position, mut steps, directory) = (word, 0, directory(8));
            while position != 0 {
                let spot = ScanPosition::at(position, &directory);
                assert!(spot.first_cell + (1 << spot.cells_log2) <= CELLS && spot.home >> HOME_BITS == 0);
                position = spot.next(((spot.home >> (HOME_BITS - 3)) + 1) << (HOME_BITS - 3));
                steps += 1;
                assert!(steps < 1000);
            }
        }
    }

    #[test]
    fn mask_has_a_bit_for_each_cell() {
        let all = ScanPosition { first_cell: 0, cells_log2: 4, home: 0 };
        let two = ScanPosition { first_cell: 6, cells_log2: 1, home: 0 };
        assert_eq!((all.mask(), two.mask()), (0xffff, 0xc0));
    }
}
