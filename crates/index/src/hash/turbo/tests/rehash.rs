//! Tests of `rehash.rs`.

use super::super::super::test_pools::pool;
use super::*;
use crate::{PointIndex, Stored, U64};
use terrace_medium::Dram;
use terrace_pool::Pool;
use terrace_testkit::TappedShm;

/// Small shards lie in slabs of the pool, whose first block begins behind a header.
#[test]
fn buckets_are_media_blocks_in_shards_of_every_size() {
    let pool = Pool::<Dram>::anonymous(64 << 20).unwrap();
    let index = Turbo::<Dram, U64>::with_shards(&pool, "turbo", 4, 0).unwrap();
    let (guard, mut sizes) = (pool.pin(), std::collections::BTreeSet::new());
    for key in 0..100_000 {
        index.insert(&guard, &key, key).unwrap();
        let (shard, _) = index.route(<U64 as crate::KeyKind>::hash(&key, index.seed));
        let place = index.place(shard);
        assert!(
            place.start().is_multiple_of(BLOCK as u64),
            "{} buckets at {:#x}",
            place.buckets(),
            place.start()
        );
        sizes.insert(place.log2());
    }
    assert!((0..=9).all(|log2| sizes.contains(&log2)), "{sizes:?}");
}

#[test]
fn shard_drops_its_deleted_slots() {
    for (removed, helps) in [(13, false), (14, true)] {
        let pool = pool::<Dram>(1 << 20);
        // 112 slots.
        let index = Turbo::<Dram, U64>::with_shards(&pool, "index", 0, 80).unwrap();
        let guard = pool.pin();
        (0..60).for_each(|key| _ = index.insert(&guard, &key, !key).unwrap());
        (0..removed).for_each(|key| assert_eq!(index.remove(&guard, &key), Some(!key)));
        let before = index.place(0);
        let (lock, mut held) = index.lock_shard(&guard, 0);
        assert_eq!(index.count(held), (60 - removed, removed));
        assert_eq!(index.rehash_if_useful(&guard, &mut held), Ok(helps));
        assert_eq!(index.count(held), (60 - removed, if helps { 0 } else { removed }));
        drop(lock);
        assert_eq!((index.place(0) != before, index.place(0).log2()), (helps, 3));
        assert!((0..60).all(|key| index.get(&guard, &key) == (key >= removed).then_some(!key)));
        assert_eq!(index.verify(&guard), []);
    }
}

#[test]
fn rebuilt_keys_of_one_home_are_all_reachable() {
    let pool = pool::<Dram>(1 << 20);
    let index = Turbo::<Dram, U64>::with_shards(&pool, "index", 0, 80).unwrap();
    let (guard, seed) = (pool.pin(), index.seed);
    // Keys of the last of eight buckets, so that paths wrap around the end; all of one class of
    // tags.
    let hash = |key: &u64| <U64 as crate::KeyKind>::hash(key, seed);
    let alike = (0..).filter(|key| hash(key) >> 61 == 7 && hash(key) as u8 >> 2 == 5);
    let keys: Vec<u64> = alike.take(30).collect();
    keys.iter().for_each(|key| _ = index.insert(&guard, key, !key).unwrap());
    let (lock, mut held) = index.lock_shard(&guard, 0);
    index.rehash(&guard, &mut held, 3).unwrap();
    drop(lock);
    assert!(keys.iter().all(|key| index.get(&guard, key) == Some(!key)));
    assert_eq!(index.verify(&guard), []);
}

#[test]
fn maintain_locks_no_filled_or_absent_shard() {
    let pool = pool::<TappedShm>(1 << 20);
    let index = Turbo::<_, U64>::with_shards(&pool, "index", 3, 0).unwrap();
    let guard = pool.pin();
    (0..3).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    let has_buckets = |shard| !index.place(shard).is_none();
    assert!((0..8).any(has_buckets) && !(0..8).all(has_buckets));
    let (counts, is_more) = pool.medium().during(|| index.maintain(&guard));
    assert_eq!((counts.rmws, is_more), (0, false));
}

#[test]
fn shard_is_recounted_before_its_release() {
    let pool = pool::<Dram>(1 << 20);
    let index = Turbo::<Dram, U64>::with_shards(&pool, "index", 0, 0).unwrap();
    let guard = pool.pin();
    (0..3).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    index.descriptor(0).set_keys(pool.medium(), 0);
    assert!(!index.maintain(&guard));
    assert_eq!((index.len(), index.get(&guard, &2)), (3, Some(2)));
}

#[test]
fn grown_table_uses_exactly_its_stated_bytes() {
    let pool = pool::<Dram>(4 << 20);
    let index = Turbo::<Dram, U64>::with_shards(&pool, "index", 4, 0).unwrap();
    let guard = pool.pin();
    (0..3000).for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    let stats = index.stats(&guard);
    // A descriptor and a place for each shard, and the root.
    assert_eq!(stats.bytes, 256 * stats.buckets + 16 * (64 + 8) + 128);
    assert_eq!((stats.slots, stats.keys), (14 * stats.buckets, 3000));
    drop(guard);
    while pool.reclaim_blocking() {}
    let blocks = pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| ()));
    assert_eq!(blocks.iter().map(|&(_, bytes)| bytes).sum::<u64>(), pool.space().used_by_blocks);
}

#[test]
fn first_rehash_retires_nothing() {
    let pool = pool::<Dram>(1 << 20);
    let index = Turbo::<Dram, U64>::with_shards(&pool, "index", 0, 0).unwrap();
    let guard = pool.pin();
    // Then the pool has blocks of this size in stock.
    let block = guard.alloc(BLOCK).unwrap();
    let before = pool.space();
    index.insert(&guard, &1, 1).unwrap();
    let after = pool.space();
    assert_eq!((after.free, after.metadata), (before.free, before.metadata), "there is nothing to note");
    drop(block);
}
