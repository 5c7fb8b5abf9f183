//! Tests of `recover.rs`.

use super::super::ops::Rewo;
use super::*;
use crate::hash::rewo::bucket::store_overflow;
use crate::hash::rewo::shape::{Entry, sealed::Shape};
use crate::hash::rewo::tables::Slot;
use crate::{PointIndex, Stored, U64};
use std::sync::Barrier;
use terrace_medium::Shm;
use terrace_pool::{Marker, Pool, PoolOptions};

#[test]
fn pieces_are_divided_and_each_is_done_once() {
    let pool = Pool::<Shm>::anonymous(4 << 20).unwrap();
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 2).unwrap();
    for (threads, pieces) in [(1, 5), (2, 2), (3, 3), (4, 100), (5, 3), (2, 0)] {
        let together = threads.min(pieces);
        let done: Vec<_> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
        let meeting = Barrier::new(together);
        map.tables.divide(&pool.pin(), threads, pieces, |guard, piece| {
            assert_eq!(guard.depth(), 1);
            // The first pieces end only once this many threads are working.
            if piece < together {
                meeting.wait();
            }
            done[piece].fetch_add(1, Relaxed);
        });
        assert!(done.iter().all(|times| times.load(Relaxed) == 1), "{threads} threads");
    }
}

/// As a crash in the middle of an eviction leaves it, in every eighth bucket: the slot is
/// locked, and its key may already be in its second bucket.
#[test]
fn recovery_resolves_locked_slots_and_counts_keys() {
    const BUCKETS_LOG2: u32 = 16;
    const KEYS: u64 = 300_000;
    let pool = PoolOptions::anonymous().size(64 << 20).create::<Shm>().unwrap();
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 8, BUCKETS_LOG2).unwrap();
    let guard = pool.pin();
    (0..KEYS).for_each(|key| _ = map.insert(&guard, &key, !key).unwrap());
    let place = map.base().view().directory().cells[0];
    assert_eq!(place.log2(), BUCKETS_LOG2);
    let (mut copied, mut locked) = (0, 0);
    for index in (0..place.buckets()).step_by(8) {
        let bucket = map.base().bucket(place, index);
        let homely = |entry: &Entry| !U64::is_second(*entry, place, index, map.tables.seed);
        let found = (0..14).find_map(|slot| Some((slot, U64::read(&guard, bucket, slot).filter(homely)?)));
        let Some((slot, entry)) = found else { continue };
        map.tables.lock_slots(place, index, SlotLock::Slot(slot));
        locked += 1;
        let to = place.second(index, entry.tag);
        let free = meta(pool.medium(), map.base().bucket(place, to)).free::<U64>();
        if locked % 2 == 0 && to != index && free != 0 {
            let at = Slot { place, index: to, slot: free.trailing_zeros() as usize };
            store_overflow::<_, U64>(pool.medium(), bucket, entry.tag);
            map.tables.install(&guard, at, U64::placed(entry, true));
            copied += 1;
        }
    }
    assert!(copied > 1000 && locked > 2 * copied - 100, "{locked} are locked, {copied} have copies");
    assert_eq!(map.len(), KEYS + copied);
    map.base().set_keys(3, 1 << 40);
    drop(guard);

    pool.request_collection();
    pool.collect(&mut |marker: &mut Marker<'_>| map.trace(&pool.pin(), marker, |_, _| {}));
    let guard = pool.pin();
    assert_eq!((map.len(), map.verify(&guard)), (KEYS, vec![]));
    let is_there = |key: &u64| map.get(&guard, key) == Some(!key);
    assert!((0..KEYS).all(|key| is_there(&key)));
    let is_marked =
        |index| meta(pool.medium(), map.base().bucket(place, index)).slot_lock::<U64>() != SlotLock::None;
    assert!(!(0..place.buckets()).any(is_marked));
}

#[test]
fn one_thread_for_four_mebibytes_up_to_all_processors() {
    let threads = |buckets| threads_for(buckets, || 4);
    assert_eq!([0, 1, (2 << 14) - 1, 2 << 14, (3 << 14) - 1].map(threads), [1, 1, 1, 2, 2]);
    assert_eq!([4 << 14, 5 << 14, 1 << 31].map(threads), [4, 4, 4]);
    let nobody_asks = |buckets| threads_for(buckets, || unreachable!());
    assert_eq!([0, (2 << 14) - 1].map(nobody_asks), [1, 1]);
}

/// A thread may reach a table after another has replaced it; no thread writes to it any more.
#[test]
fn retired_table_is_not_touched() {
    let pool = Pool::<Shm>::anonymous(4 << 20).unwrap();
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 0).unwrap();
    let (guard, mut keys) = (pool.pin(), 0..);
    let first = map.base().view().directory().cells[0];
    let is_gone = || map.base().view().directory().all().all(|place| place != first);
    while !is_gone() {
        map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
    }
    let is_marked =
        |place| meta(pool.medium(), map.base().bucket(place, 0)).slot_lock::<U64>() != SlotLock::None;
    for (place, is_left) in [(first, true), (map.base().view().directory().cells[0], false)] {
        map.tables.lock_slots(place, 0, SlotLock::Slot(13));
        map.tables.repair_piece(&guard, place, 0);
        assert_eq!(is_marked(place), is_left);
    }
}

#[test]
fn piece_covers_exactly_its_buckets() {
    let pool = Pool::<Shm>::anonymous(4 << 20).unwrap();
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 12).unwrap();
    let (guard, place) = (pool.pin(), map.base().view().directory().cells[0]);
    let indexes = [0, PIECE - 1, PIECE, 2 * PIECE - 1, 2 * PIECE, 4 * PIECE - 1];
    indexes.iter().for_each(|&index| map.tables.lock_slots(place, index, SlotLock::Slot(3)));
    let marked = || {
        let is_marked =
            |index| meta(pool.medium(), map.base().bucket(place, index)).slot_lock::<U64>() != SlotLock::None;
        indexes.map(is_marked)
    };
    map.tables.repair_piece(&guard, place, 1);
    assert_eq!(marked(), [true, true, false, false, true, true]);
    map.tables.repair_piece(&guard, place, 3);
    assert_eq!(marked(), [true, true, false, false, true, false]);
    map.tables.repair_piece(&guard, place, 0);
    assert_eq!(marked(), [false, false, false, false, true, false]);
}
