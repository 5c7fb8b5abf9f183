//! Tests of `stored.rs`.

use super::super::super::test_keys::Numbered;
use super::super::super::test_pools::pool;
use super::*;
use crate::{Bytes, U64};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::Dram;

#[test]
fn presized_shard_is_four_fifths_full() {
    let pairs = [(0, 0), (11, 0), (12, 1), (22, 1), (23, 2), (1000, 7), (1 << 40, BUCKETS_LOG2_MAX)];
    for (keys, log2) in pairs {
        assert_eq!(buckets_log2::<U64>(keys, true), Some(log2), "{keys}");
        assert_eq!(buckets_log2::<U64>(keys, false), None);
    }
    let strings = [(0, 0), (21, 0), (22, 1), (43, 1), (44, 2), (u64::MAX, BUCKETS_LOG2_MAX)];
    for (keys, log2) in strings {
        assert_eq!(buckets_log2::<Bytes<Numbered>>(keys, true), Some(log2), "{keys}");
    }
}

#[test]
fn expected_keys_are_divided_among_shards() {
    for (shards, capacity, buckets) in
        [(0, 0, 0), (0, 12, 2), (2, 1, 4), (2, 47, 4), (2, 48, 8), (4, 400, 64)]
    {
        let pool = pool::<Dram>(1 << 20);
        let index = Turbo::<Dram, U64>::with_shards(&pool, "index", shards, capacity).unwrap();
        assert_eq!(index.stats(&pool.pin()).buckets, buckets, "{capacity} keys in 2^{shards} shards");
    }
}

#[test]
fn root_with_too_many_shards_is_refused() {
    let pool = pool::<Dram>(1 << 20);
    drop(Turbo::<Dram, U64>::with_shards(&pool, "index", 2, 0).unwrap());
    let root = pool.root("index", "turbo").unwrap().unwrap();
    let line = &pool.region().at(Offset::<Root>::new(root))[0].0;
    let most = u64::from(SHARDS_LOG2_MAX);
    // The pool has no room for the largest possible number.
    let cases = [(most, "the directory of shards lies"), (most + 1, "an impossible number of shards")];
    for (shards, says) in cases.into_iter().chain([(most + 11, cases[1].1), (1 << 40, cases[1].1)]) {
        line[ROOT_SHARDS].store(pool.medium(), shards, Relaxed);
        let words: [u64; ROOT_CHECK] = std::array::from_fn(|at| line[at].load(pool.medium(), Relaxed));
        line[ROOT_CHECK].store(pool.medium(), root_check(&words), Relaxed);
        let Err(error) = Turbo::<Dram, U64>::recover(&pool, "index") else { panic!("not refused") };
        assert!(error.to_string().contains(says), "{shards}: {error}");
    }
}

/// Another process may be about to publish the place of a shard.
#[test]
fn opening_a_table_in_use_changes_nothing() {
    let pool = pool::<Dram>(1 << 20);
    let index = Turbo::<Dram, U64>::with_shards(&pool, "index", 0, 1).unwrap();
    let guard = pool.pin();
    index.insert(&guard, &1, 1).unwrap();
    let before = index.place(0);
    let (lock, mut held) = index.lock_shard(&guard, 0);
    index.rehash(&guard, &mut held, 1).unwrap();
    index.publish(0, before);
    pool.initialize().done();
    assert!(Turbo::<Dram, U64>::recover(&pool, "index").unwrap().is_some());
    assert_eq!(index.place(0), before);
    drop(lock);
}
