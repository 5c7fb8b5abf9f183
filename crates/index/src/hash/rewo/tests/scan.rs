//! Tests of `scan.rs`.

use super::super::super::test_pools::{Medium, Power, interrupted, pool};
use super::super::bucket::store_overflow;
use super::super::ops::Rewo;
use super::super::shape::sealed::Shape;
use super::super::tables::Slot;
use super::super::together::CopyBatch;
use super::*;
use crate::hash::rewo::stripes::LockedStripes;
use crate::{KeyKind, PointIndex, Stored, U64};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use terrace_medium::Dram;
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
        while map.base().view().is_moving() != is_moving {
            map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
        }
        assert_eq!(trace(), (0, 0));
        // The state between the store and the fence.
        map.base().root[2].0[DURABLE_VIEW].store(pool.medium(), 0, Relaxed);
        assert_eq!(trace(), (1, 1), "moving: {is_moving}");
        assert_eq!(trace(), (0, 0));
    }
}

/// All words, sorted, from scans that ask for `at_least` at a time.
fn scanned<M: MappedMedium>(map: &Rewo<M, U64>, at_least: usize) -> Vec<u64> {
    let (guard, mut words, mut position) = (map.pool().pin(), Vec::new(), 0);
    loop {
        position = map.tables.scan_from(&guard, position, at_least, |word| words.push(word));
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
    while map.base().view().directory().spare().is_none() {
        map.insert(&guard, &keys, keys).unwrap();
        keys += 1;
    }
    let spare = map.base().view().directory().spare().unwrap();
    assert_eq!(map.base().view().count(), 0, "nothing of it is cleared");
    for index in 0..spare.buckets() {
        let words = map.base().bucket(spare, index).iter().flat_map(|line| &line.0);
        words.for_each(|word| word.store(pool.medium(), !0, Relaxed));
    }
    while map.stats(&guard).resizes == 0 {
        map.insert(&guard, &keys, keys).unwrap();
        keys += 1;
        for at_least in [5, 100, usize::MAX] {
            assert_eq!(scanned(&map, at_least), (0..keys).collect::<Vec<_>>(), "{at_least} at a time");
        }
        moving += u64::from(map.base().view().is_moving());
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
    while keys.map_or(map.base().evictions() == 0, |keys| key < keys) {
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
        assert_eq!(map.base().evictions(), 1);
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
    let (guard, place) = (pool.pin(), map.base().view().directory().cells[0]);
    for home in 0..16 {
        let keys = (0..).filter(|key| place.home(U64::hash(key, map.tables.seed)) == home);
        keys.take(7).for_each(|key| _ = map.insert(&guard, &key, home).unwrap());
    }
    // All cells are visited together.
    let at = |home: u64| ScanPosition { first_cell: 0, cells_log2: 4, home: 0 }.next(home << (HOME_BITS - 4));
    let piece = |from, at_least| {
        let mut homes = Vec::new();
        let end = map.tables.scan_from(&guard, from, at_least, |home| homes.push(home));
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
        let position = ScanPosition { first_cell: 0, cells_log2: 4, home: 0 }.next(from << (HOME_BITS - 10));
        let at_least = 7 * (homes as usize - 1);
        let (read, _) =
            pool.medium().touched(|| map.tables.gather(&guard, position, at_least, &mut Vec::new()));
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
        let directory = map.base().view().directory();
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
    let evicts = |map: &Rewo<Dram, U64>, _| map.base().evictions() > 0;
    let (_, keys) = filled(&pool::<Dram>(1 << 20), 2, evicts);
    check_interrupted_insert(2, keys - 1, (1..260).step_by(4));
}

#[test]
fn interrupted_resize_start_loses_no_key() {
    let has_spare = |map: &Rewo<Dram, U64>, _| map.base().view().directory().spare().is_some();
    let (_, keys) = filled(&pool::<Dram>(1 << 20), 3, has_spare);
    check_interrupted_insert(3, keys - 1, (20..520).step_by(17));
    let moves = |map: &Rewo<Dram, U64>, _| map.base().view().is_moving();
    let (_, keys) = filled(&pool::<Dram>(1 << 20), 3, moves);
    check_interrupted_insert(3, keys - 1, (20..520).step_by(17));
}

#[test]
fn interrupted_move_leaves_each_key_once() {
    let moves = |map: &Rewo<Dram, U64>, _| map.base().view().is_moving();
    let (_, keys) = filled(&pool::<Dram>(1 << 20), 3, moves);
    check_interrupted_insert(3, keys, (5..3000).step_by(61));
}

/// The slot of a key.
fn slot_of(map: &Rewo<Dram, U64>, place: Place, index: u64, key: u64) -> Option<usize> {
    let guard = map.pool().pin();
    (0..U64::SLOTS).find(|&slot| {
        U64::read(&guard, map.base().bucket(place, index), slot).is_some_and(|entry| entry.key == key)
    })
}

#[test]
fn collection_completes_an_eviction() {
    for (mark, is_copied) in [(true, true), (true, false), (false, true)] {
        let pool = pool::<Dram>(1 << 20);
        let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 1, 2).unwrap();
        let guard = pool.pin();
        (0..20).for_each(|key| _ = map.insert(&guard, &key, key).unwrap());
        let (place, hash) = (map.base().view().directory().cells[0], U64::hash(&7, map.tables.seed));
        let home = place.home(hash);
        let (second, slot) = (place.second(home, hash as u8), slot_of(&map, place, home, 7).unwrap());
        let is_locked =
            || meta(pool.medium(), map.base().bucket(place, home)).slot_lock::<U64>() != SlotLock::None;
        if mark {
            map.tables.lock_slots(place, home, SlotLock::Slot(slot));
        }
        if is_copied {
            store_overflow::<_, U64>(pool.medium(), map.base().bucket(place, home), hash as u8);
            let entry = U64::read(&guard, map.base().bucket(place, home), slot).unwrap();
            let free = meta(pool.medium(), map.base().bucket(place, second)).free::<U64>().trailing_zeros();
            map.tables.install(&guard, Slot { place, index: second, slot: free as usize }, entry);
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
    while !map.base().view().is_moving() {
        map.insert(&guard, &keys, keys).unwrap();
        keys += 1;
    }
    let directory = map.base().view().directory();
    let (place, to) = (directory.cells[CELLS - 1], directory.to.unwrap());
    let leaving = |index: u64| {
        let entries =
            (0..U64::SLOTS).filter_map(|slot| U64::read(&guard, map.base().bucket(place, index), slot));
        entries.filter(|&entry| map.tables.leaves(&directory, place, entry)).collect::<Vec<_>>()
    };
    let index = (map.base().view().count()..place.buckets()).find(|&index| leaving(index).len() > 2).unwrap();
    map.tables.lock_slots(place, index, SlotLock::Moving);
    let (mut held, mut copies) = (LockedStripes::none(), CopyBatch::default());
    let mut copied = 0;
    for entry in leaving(index).into_iter().step_by(2) {
        let home = map.tables.home_in(&guard, to, (place, index), entry);
        copied += u64::from(map.tables.add_copy(&guard, &mut held, (to, home), entry, &mut copies));
    }
    map.tables.publish_copies(&mut copies);
    assert!(
        copied > 0
            && meta(pool.medium(), map.base().bucket(place, index)).slot_lock::<U64>() == SlotLock::Moving
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
