//! Tests of `write.rs`.

use super::super::super::test_pools::pool;
use super::*;
use crate::{KeyKind, PointIndex, Stored, U64};
use terrace_medium::Dram;
use terrace_testkit::{TappedPmem, TappedShm};

#[test]
fn every_write_helps_once_if_needed() {
    let pool = pool::<Dram>(16 << 20);
    let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 1, 6).unwrap();
    let (guard, mut keys) = (pool.pin(), 0..);
    while map.base().view().directory().spare().is_none() {
        map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
    }
    // Pieces of the spare, then buckets that keys leave.
    let helps = |cleared: u64, write: &dyn Fn()| {
        let (view, before) = (map.base().view_offset(), map.base().view().count());
        write();
        assert_eq!((map.base().view_offset(), map.base().view().count() - before), (view, cleared));
    };
    assert_eq!(map.base().view().count(), 0);
    helps(16, &|| _ = map.update(&guard, &0, 2));
    helps(16, &|| _ = map.remove(&guard, &u64::MAX));
    helps(0, &|| _ = map.get(&guard, &0));
    let lock = map.base().resize_lock().acquire(&guard);
    helps(0, &|| _ = map.update(&guard, &0, 3));
    lock.release();
    while !map.base().view().is_moving() {
        map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
    }
    assert_eq!(map.base().view().count(), 0);
    helps(8, &|| _ = map.update(&guard, &0, 2));
    helps(8, &|| _ = map.insert(&guard, &u64::MAX, 1).unwrap());
    let lock = map.base().resize_lock().acquire(&guard);
    helps(0, &|| _ = map.update(&guard, &0, 3));
    lock.release();
    while map.maintain(&guard) {}
    assert_eq!((map.stats(&guard).resizes, map.verify(&guard)), (1, vec![]));
}

#[test]
fn write_without_resize_locks_only_its_buckets() {
    let pool = pool::<TappedShm>(1 << 20);
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 2).unwrap();
    let guard = pool.pin();
    (0..20).for_each(|key| _ = map.insert(&guard, &key, key).unwrap());
    for key in 0..20 {
        let probe = Probe::<U64>::new(&key, map.tables.seed);
        let (offsets, len) = Path::new(map.base().view().route(probe.hash), probe.hash).offsets();
        let (locking, _) = pool.medium().during(|| drop(map.base().lock_buckets(&guard, &offsets[..len])));
        let (updating, _) = pool.medium().during(|| map.update(&guard, &key, key));
        assert_eq!((updating.rmws, locking.rmws > 0), (locking.rmws, true), "key {key}");
    }
    // Nor does an insert that evicts no key.
    let mut keys = 20..;
    while map.base().evictions() == 0 {
        let key = keys.next().unwrap();
        let probe = Probe::<U64>::new(&key, map.tables.seed);
        let (offsets, len) = Path::new(map.base().view().route(probe.hash), probe.hash).offsets();
        let (locking, _) = pool.medium().during(|| drop(map.base().lock_buckets(&guard, &offsets[..len])));
        let (inserting, _) = pool.medium().during(|| map.insert(&guard, &key, key).unwrap());
        assert!(inserting.rmws == locking.rmws || map.base().evictions() > 0, "key {key}");
    }
}

#[test]
fn wait_for_takes_and_releases_the_lock() {
    let pool = pool::<TappedShm>(1 << 20);
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 2).unwrap();
    let guard = pool.pin();
    for _ in 0..2 {
        let (waiting, ()) = pool.medium().during(|| map.base().wait_for(&guard, 3));
        assert!(waiting.rmws > 0);
    }
}

#[test]
fn buckets_of_one_lock_are_fenced_in_between() {
    let pool = pool::<TappedPmem>(1 << 20);
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 2).unwrap();
    let place = map.base().view().directory().cells[0];
    let fences = |one, other| pool.medium().during(|| map.base().fence_between(place, one, other)).0.fences;
    assert_eq!([fences(0, 1), fences(0, 2), fences(3, 1), fences(3, 0)], [0, 1, 1, 0]);
}

#[test]
fn overflow_bit_is_stored_once_a_class() {
    let pool = pool::<TappedPmem>(1 << 20);
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 2).unwrap();
    let (guard, place) = (pool.pin(), map.base().view().directory().cells[0]);
    let insert = |key: u64| _ = map.insert(&guard, &key, key).unwrap();
    let hash = |key: &u64| U64::hash(key, map.tables.seed);
    let of_home = || (0..).filter(|key| place.home(hash(key)) == 1);
    // Three quarters of the slots.
    of_home().take(11).for_each(insert);
    assert_eq!(meta(pool.medium(), map.base().bucket(place, 1)).keys::<U64>(), 11);
    let tag = hash(&of_home().nth(11).unwrap()) as u8;
    let costs = of_home().skip(11).filter(|key| hash(key) as u8 == tag).take(2).map(|key| {
        let (counts, ()) = pool.medium().during(|| insert(key));
        (counts.write_backs, counts.fences)
    });
    // Both go to the first line of the second bucket, where one fence is enough.
    assert_eq!(costs.collect::<Vec<_>>(), [(3, 2), (1, 1)]);
}

#[test]
fn one_removal_in_256_checks_for_a_shrink() {
    for looks in [false, true] {
        let pool = pool::<Dram>(16 << 20);
        let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 1, 6).unwrap();
        let guard = pool.pin();
        let key = (0..).find(|key| (U64::hash(key, map.tables.seed) & 0xff == 0) == looks).unwrap();
        map.insert(&guard, &key, 1).unwrap();
        assert_eq!(map.base().view().directory().spare(), None);
        assert_eq!(map.remove(&guard, &key), Some(1));
        assert_eq!(map.base().view().directory().spare().is_some(), looks);
    }
}
