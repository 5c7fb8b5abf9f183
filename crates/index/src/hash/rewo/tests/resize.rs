//! Tests of `resize.rs`.

use super::super::super::test_pools::{Power, interrupted};
use super::super::bucket::{SlotLock, all_slots, meta, store_meta};
use crate::hash::Rewo;
use crate::{KeyKind, PointIndex, Stored, U64};
use std::sync::Arc;
use terrace_medium::Dram;
use terrace_pool::Pool;
use terrace_testkit::schedule::Scheduler;

#[test]
fn table_shrinks_to_half_full() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 1, 6).unwrap();
    let guard = pool.pin();
    // 64 buckets of 14 slots; twice as many slots as there are keys, and a quarter of the
    // buckets.
    let log2s = [(0, Some(1)), (6, Some(1)), (7, Some(2)), (21, Some(3)), (48, Some(3)), (49, Some(4))];
    let mut keys = 0..;
    for (count, log2) in
        log2s.into_iter().chain([(104, Some(4)), (105, Some(5)), (112, Some(5)), (113, None)])
    {
        while map.len() < count {
            map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
        }
        assert_eq!(map.resize(&guard).shrunk_log2(map.base().view()), log2, "{count} keys");
    }
}

#[test]
fn full_table_reports_twice_its_size() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 1, 6).unwrap();
    let guard = pool.pin();
    let full = map.resize(&guard).table_full(map.base().view().directory().cells[0]);
    assert_eq!((full.wanted, full.size), (2 * 64 * 256, pool.size()));
}

#[test]
fn is_filled_samples_the_whole_table() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 1, 8).unwrap();
    let (guard, place) = (pool.pin(), map.base().view().directory().cells[0]);
    let fill = |indexes: std::ops::Range<u64>| {
        for bucket in indexes.map(|index| map.base().bucket(place, index)) {
            let all = all_slots::<U64>();
            store_meta(
                pool.medium(),
                bucket,
                meta(pool.medium(), bucket).becoming::<U64>(all, SlotLock::None),
            );
        }
    };
    let is_filled = || map.resize(&guard).is_filled(place, 64, 90);
    assert!(!is_filled());
    fill(0..128);
    assert!(!is_filled(), "half of it");
    // 90% of the sampled 64 buckets, one in four, are 57.6.
    fill(128..4 * 57);
    assert!(!is_filled());
    fill(4 * 57..4 * 58);
    assert!(is_filled());
}

#[test]
fn delayed_mover_keeps_inserts_out_of_the_new_table() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let map = Rewo::<Dram, U64>::create(&pool, "map", 0).unwrap();
    let guard = pool.pin();
    let mut keys = 0..;
    // Until a resize of some hundred buckets is in progress.
    while !map.base().view().is_moving() || map.base().view().directory().buckets() < 100 {
        map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
    }
    let to = map.base().view().directory().to;
    let into_new = |key: &u64| Some(map.base().view().route(U64::hash(key, map.tables.seed)).target()) == to;
    let added: Vec<u64> = keys.filter(into_new).take(2000).collect();
    let moving = map.base().resize_lock().acquire(&guard);
    std::thread::scope(|threads| {
        let others = threads.spawn(|| {
            let guard = pool.pin();
            added.iter().for_each(|key| _ = map.insert(&guard, key, 2).unwrap());
        });
        // Time for other threads to fill it, if they could; a slow thread shows nothing.
        for _ in 0..20_000 {
            std::thread::yield_now();
        }
        assert!(!others.is_finished());
        drop(moving);
    });
    assert!(added.iter().all(|key| map.get(&guard, key) == Some(2)));
}

#[test]
fn insert_waits_for_the_mover_and_helps() {
    let power = Power::new();
    let map = Rewo::<_, U64>::with_shape(&power.pool, "map", 1, 5).unwrap();
    let mut keys = 0..;
    while !map.base().view().is_moving() {
        map.insert(&power.pool.pin(), &keys.next().unwrap(), 1).unwrap();
    }
    let (before, map) = (map.base().view().count(), Arc::new(map));
    let (mover, writer, key) = (map.clone(), map.clone(), keys.next().unwrap());
    // Moves nothing, but has the lock when the other thread comes.
    let hold = move || {
        let guard = mover.pool().pin();
        let lock = mover.base().resize_lock().acquire(&guard);
        (0..100).for_each(|_| _ = mover.len());
        drop(lock);
    };
    interrupted(&Scheduler::new(), 200, hold, move || {
        writer.insert(&writer.pool().pin(), &key, 1).unwrap();
    });
    assert_eq!((map.base().view().is_moving(), map.base().view().count() - before), (true, 8));
    assert_eq!(map.get(&power.pool.pin(), &key), Some(1));
}

#[test]
fn count_is_durable_every_64_buckets() {
    let power = Power::new();
    let map = Rewo::<_, U64>::with_shape(&power.pool, "map", 1, 7).unwrap();
    let (mut keys, guard) = (0.., power.pool.pin());
    while !map.base().view().is_moving() {
        map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
    }
    let view = map.base().view();
    for (moved, remembered) in [(63, 0), (64, 64), (70, 64), (127, 64)] {
        assert!(map.resize(&guard).advance(view, moved - view.count()).is_ok());
        assert_eq!(view.count(), moved);
        power.pool.region().fence();
        let pool = power.after_power_loss();
        let after = Rewo::<_, U64>::recover(&pool, "map").unwrap().unwrap();
        assert_eq!(after.base().view().count(), remembered, "{moved} buckets");
        drop(after);
        pool.abandon();
    }
}

#[test]
fn grown_table_uses_exactly_its_stated_bytes() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 6, 2).unwrap();
    let guard = pool.pin();
    (0..3000).for_each(|key| _ = map.insert(&guard, &key, key).unwrap());
    while map.maintain(&guard) {}
    assert!(map.stats(&guard).resizes > 16, "all tables were replaced by one");
    let spare = map.base().view().directory().spare().map_or(0, |spare| spare.buckets());
    let (stats, stripes) = (map.stats(&guard), 64 * 32);
    // Plus root and view.
    assert_eq!(stats.bytes, 256 * (stats.buckets + spare) + stripes + 256 + 256);
    assert_eq!(stats.slots, 14 * stats.buckets);
    drop(guard);
    while pool.reclaim_blocking() {}
    let blocks = pool.reachable(&mut |marker| map.trace(&pool.pin(), marker, |_, _| ()));
    assert_eq!(blocks.iter().map(|&(_, bytes)| bytes).sum::<u64>(), pool.space().used_by_blocks);
}
