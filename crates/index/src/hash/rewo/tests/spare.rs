//! Tests of `spare.rs`.

use super::super::super::test_pools::{Medium, Power};
use super::super::ops::Rewo;
use super::*;
use crate::{PointIndex, Stored, U64};
use terrace_medium::Dram;
use terrace_pool::Pool;
use terrace_testkit::{TappedPmem, TappedShm};

/// Fills a table of 64 buckets until it has a spare. Returns its number of keys.
fn filled<M: MappedMedium>(pool: &Pool<M>) -> (Rewo<M, U64>, u64) {
    let map = Rewo::<M, U64>::with_shape(pool, "map", 1, 6).unwrap();
    let mut keys = 0;
    while map.base().view().directory().spare().is_none() {
        map.insert(&pool.pin(), &keys, keys).unwrap();
        keys += 1;
    }
    (map, keys)
}

/// Fills all free memory with bytes other than zero.
fn soil<M: MappedMedium>(pool: &Pool<M>) {
    let guard = pool.pin();
    let blocks: Vec<_> = std::iter::from_fn(|| guard.alloc(BLOCK).ok()).collect();
    blocks.iter().for_each(|block| block.stream_lines(0, &[[!0; 8]; 4]));
    pool.region().fence();
}

#[test]
fn spare_is_cleared_again_after_power_loss() {
    let power = Power::new();
    soil(&power.pool);
    let (map, keys) = filled(&power.pool);
    assert!(keys >= 64 * 14 * 85 / 100, "{keys} keys");
    let guard = power.pool.pin();
    let view = map.base().view();
    for cleared in [16, 32, 48] {
        assert!(!map.resize(&guard).clear_some(view, PIECE));
        assert_eq!((view.count(), map.verify(&guard)), (cleared, vec![]));
    }
    let pool = power.after_power_loss();
    let after = Rewo::<Medium, U64>::recover(&pool, "map").unwrap().unwrap();
    assert_eq!(after.base().view().directory(), view.directory());
    assert_eq!(after.base().view().count(), 0, "nothing has made it durable");
    pool.request_collection();
    pool.collect(&mut |marker| after.trace(&pool.pin(), marker, |_, _| ()));
    soil(&pool);
    let guard = pool.pin();
    assert_eq!(after.verify(&guard), [], "it is nobody else's");
    for key in keys..3 * keys {
        assert_eq!(after.insert(&guard, &key, key), Ok(crate::Inserted::New));
    }
    assert!(after.stats(&guard).resizes >= 1);
    assert!((0..3 * keys).all(|key| after.get(&guard, &key) == Some(key)));
    assert_eq!(after.verify(&guard), []);
    drop(guard);
    drop(after);
    pool.abandon();
}

#[test]
fn content_in_a_cleared_spare_is_reported() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let (map, _) = filled(&pool);
    let (guard, view) = (pool.pin(), map.base().view());
    assert!(!map.resize(&guard).clear_some(view, PIECE));
    let spare = view.directory().spare().unwrap();
    for (index, is_told) in [(0, true), (view.count() - 1, true), (view.count(), false)] {
        let word = &map.base().bucket(spare, index)[0].0[7];
        word.store(pool.medium(), 1, Relaxed);
        let findings = map.verify(&guard);
        let places: Vec<u64> = findings.iter().map(|finding| finding.offset).collect();
        assert_eq!(places, is_told.then(|| spare.bucket(index).raw()).as_slice(), "{index}: {findings:?}");
        word.store(pool.medium(), 0, Relaxed);
    }
}

#[test]
fn spare_for_another_resize_is_retired() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let (map, _) = filled(&pool);
    let free_with = |log2s: &[u32]| {
        for &log2 in log2s {
            map.resize(&pool.pin()).take_spare(map.base().view(), log2).unwrap();
        }
        pool.reclaim_blocking();
        pool.space().free
    };
    let free = free_with(&[8]);
    assert_eq!(free_with(&[10, 4, 8]), free);
    assert_eq!(map.verify(&pool.pin()), []);
}

#[test]
fn resize_uses_a_spare_meant_for_another_table() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let (map, keys) = filled(&pool);
    let guard = pool.pin();
    let first = map.base().view().directory().spare();
    let mut keys = keys..;
    while !map.base().view().is_moving() {
        map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
    }
    assert_eq!(map.base().view().directory().to, first);
    while map.maintain(&guard) {}
    let directory = map.base().view().directory();
    let [one, other] = [0, CELLS - 1].map(|cell| directory.cells[cell]);
    map.resize(&guard).prepare_resize(one, 2);
    assert_eq!(map.base().view().directory().spare(), None, "it is half empty");
    map.resize(&guard).take_spare(map.base().view(), one.log2()).unwrap();
    let spare = map.base().view().directory().spare();
    // Only keys of the other table.
    let of_other = keys.filter(|key| {
        map.base().view().route(<U64 as crate::KeyKind>::hash(key, map.tables.seed)).from == other
    });
    for key in of_other {
        map.insert(&guard, &key, 1).unwrap();
        if map.base().view().is_moving() {
            break;
        }
        assert_eq!(map.base().view().directory().spare(), spare);
    }
    assert_eq!(map.base().view().directory().to, spare);
    assert!(
        map.base()
            .view()
            .directory()
            .tables(map.base().view().directory().moving)
            .all(|(place, _)| place == other)
    );
}

#[test]
fn resize_begins_after_two_evictions() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let (map, _) = filled(&pool);
    let (guard, view) = (pool.pin(), map.base().view());
    let place = view.directory().cells[0];
    let begins = |evictions| {
        map.resize(&guard).prepare_resize(place, evictions);
        map.base().view().is_moving()
    };
    assert!(!begins(2), "it is not cleared");
    while !map.resize(&guard).clear_some(view, PIECE) {
        assert!(!begins(2));
    }
    assert!(!begins(1) && begins(2));
}

#[test]
fn shrinking_uses_a_smaller_spare() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 6).unwrap();
    let guard = pool.pin();
    for (log2, shrunk) in [(6, 1), (1, 1), (5, 5)] {
        map.resize(&guard).take_spare(map.base().view(), log2).unwrap();
        map.resize(&guard).shrink(map.base().view());
        assert_eq!(map.base().view().directory().spare().map(Place::log2), Some(shrunk));
    }
    let smallest = Rewo::<_, U64>::with_shape(&pool, "smallest", 1, 1).unwrap();
    for (map, resizes) in [(map, 2), (smallest, 1)] {
        (0..3).for_each(|_| while map.maintain(&guard) {});
        assert_eq!((map.stats(&guard).buckets, map.stats(&guard).resizes), (1, resizes));
    }
}

#[test]
fn cleared_spare_waits_until_the_resize_is_due() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 6).unwrap();
    let (guard, place) = (pool.pin(), map.base().view().directory().cells[0]);
    // 896 slots, of which 90% are 806.4.
    (0..500).for_each(|key| _ = map.insert(&guard, &key, key).unwrap());
    map.resize(&guard).take_spare(map.base().view(), 6).unwrap();
    while !map.resize(&guard).clear_some(map.base().view(), PIECE) {}
    map.resize(&guard).prepare_resize(place, 2);
    assert!(!map.base().view().is_moving());
}

#[test]
fn clearing_a_piece_costs_one_fence() {
    let pool = Pool::<TappedPmem>::anonymous(16 << 20).unwrap();
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 6).unwrap();
    let guard = pool.pin();
    map.resize(&guard).take_spare(map.base().view(), 6).unwrap();
    let clear = |buckets| {
        let (counts, is_all) =
            pool.medium().during(|| map.resize(&guard).clear_some(map.base().view(), buckets));
        (counts.fences, map.base().view().count(), is_all)
    };
    assert_eq!(clear(16), (1, 16, false));
    assert_eq!(clear(64), (1, 48, false), "half of it at most");
    assert_eq!(clear(64), (1, 64, true));
    assert_eq!(clear(64), (0, 64, true));
}

#[test]
fn spare_is_not_allocated_twice_in_a_full_pool() {
    let pool = Pool::<TappedShm>::anonymous(1 << 20).unwrap();
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 6).unwrap();
    let (guard, place) = (pool.pin(), map.base().view().directory().cells[0]);
    let blocks: Vec<_> = std::iter::from_fn(|| guard.alloc(BLOCK << 6).ok()).collect();
    let mut keys = 0..;
    while !map.resize(&guard).is_filled(place, SAMPLE, DUE_PERCENT) {
        map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
    }
    map.tables.refused.store(0, Relaxed);
    let prepare_resize = || pool.medium().during(|| map.resize(&guard).prepare_resize(place, 1)).0.loads;
    let [first, second] = [prepare_resize(), prepare_resize()];
    assert!(first >= second + SAMPLE, "{first} loads, then {second}");
    drop(blocks);
    assert_eq!(prepare_resize(), second, "until there is another view");
    assert_eq!(map.base().view().directory().spare(), None);
}
