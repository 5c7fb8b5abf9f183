//! The hash tables on every medium, for both kinds of keys, through the suite that every index passes.

use terrace_index::hash::{Buckets, Clht, Level, LevelBuckets, Nests, Rewo, Slots, Turbo};
use terrace_index::{Bytes, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::conformance::{NAME, Setup, point_index, point_index_races};
use terrace_testkit::{Counting, Jittery, TestRecord};

/// An empty table in anonymous memory. The hash seed is fixed, so that a failure can be repeated.
fn clht<M: MappedMedium, K: Slots>(setup: Setup) -> Clht<M, K> {
    Clht::create(&pool(setup), NAME, setup.capacity).expect("room for a table")
}

fn turbo<M: MappedMedium, K: Buckets>(setup: Setup) -> Turbo<M, K> {
    Turbo::create(&pool(setup), NAME, setup.capacity).expect("room for a table")
}

/// With a single shard: every key meets every other.
fn one_shard<M: MappedMedium, K: Buckets>(setup: Setup) -> Turbo<M, K> {
    Turbo::with_shards(&pool(setup), NAME, 0, setup.capacity).expect("room for a table")
}

fn rewo<M: MappedMedium, K: Nests>(setup: Setup) -> Rewo<M, K> {
    Rewo::create(&pool(setup), NAME, setup.capacity).expect("room for a table")
}

/// From a single bucket, with two locks for all: every eviction and every resize there is, and every key meets every other.
fn smallest<M: MappedMedium, K: Nests>(setup: Setup) -> Rewo<M, K> {
    Rewo::with_shape(&pool(setup), NAME, 1, 0).expect("room for a table")
}

fn level<M: MappedMedium, K: LevelBuckets>(setup: Setup) -> Level<M, K> {
    Level::create(&pool(setup), NAME, setup.capacity).expect("room for a table")
}

fn pool<M: MappedMedium>(setup: Setup) -> Pool<M> {
    let options = PoolOptions::anonymous().size(setup.pool_bytes).hash_seed(0x7e44_ace0);
    options.create().expect("memory for a pool")
}

#[test]
fn clht_on_dram() {
    point_index(clht::<Dram, U64>);
}

#[test]
fn clht_on_shm() {
    point_index(clht::<Shm, U64>);
}

#[test]
fn clht_on_pmem() {
    point_index(clht::<Pmem, U64>);
}

#[test]
fn clht_on_counted_pmem() {
    point_index(clht::<Counting<Pmem>, U64>);
}

#[test]
fn clht_of_byte_strings_on_dram() {
    point_index(clht::<Dram, Bytes<TestRecord>>);
}

#[test]
fn clht_of_byte_strings_on_shm() {
    point_index(clht::<Shm, Bytes<TestRecord>>);
}

#[test]
fn clht_of_byte_strings_on_pmem() {
    point_index(clht::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn clht_of_byte_strings_on_counted_shm() {
    point_index(clht::<Counting<Shm>, Bytes<TestRecord>>);
}

#[test]
fn races_on_dram() {
    point_index_races(clht::<Jittery<Dram>, U64>);
}

#[test]
fn races_on_pmem() {
    point_index_races(clht::<Jittery<Pmem>, U64>);
}

#[test]
fn races_of_byte_strings_on_dram() {
    point_index_races(clht::<Jittery<Dram>, Bytes<TestRecord>>);
}

#[test]
fn races_of_byte_strings_on_pmem() {
    point_index_races(clht::<Jittery<Pmem>, Bytes<TestRecord>>);
}

#[test]
fn turbo_on_dram() {
    point_index(turbo::<Dram, U64>);
}

#[test]
fn turbo_on_shm() {
    point_index(turbo::<Shm, U64>);
}

#[test]
fn turbo_on_pmem() {
    point_index(turbo::<Pmem, U64>);
}

#[test]
fn turbo_of_one_shard_on_counted_pmem() {
    point_index(one_shard::<Counting<Pmem>, U64>);
}

#[test]
fn turbo_of_byte_strings_on_dram() {
    point_index(turbo::<Dram, Bytes<TestRecord>>);
}

#[test]
fn turbo_of_byte_strings_on_pmem() {
    point_index(turbo::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn turbo_of_byte_strings_in_one_shard_on_shm() {
    point_index(one_shard::<Shm, Bytes<TestRecord>>);
}

#[test]
fn turbo_races_on_dram() {
    point_index_races(turbo::<Jittery<Dram>, U64>);
}

#[test]
fn turbo_races_on_pmem() {
    point_index_races(one_shard::<Jittery<Pmem>, U64>);
}

#[test]
fn turbo_races_of_byte_strings_on_dram() {
    point_index_races(one_shard::<Jittery<Dram>, Bytes<TestRecord>>);
}

#[test]
fn turbo_races_of_byte_strings_on_pmem() {
    point_index_races(turbo::<Jittery<Pmem>, Bytes<TestRecord>>);
}

#[test]
fn rewo_on_dram() {
    point_index(rewo::<Dram, U64>);
}

#[test]
fn rewo_on_shm() {
    point_index(smallest::<Shm, U64>);
}

#[test]
fn rewo_on_pmem() {
    point_index(rewo::<Pmem, U64>);
}

#[test]
fn rewo_on_counted_pmem() {
    point_index(smallest::<Counting<Pmem>, U64>);
}

#[test]
fn rewo_of_byte_strings_on_dram() {
    point_index(smallest::<Dram, Bytes<TestRecord>>);
}

#[test]
fn rewo_of_byte_strings_on_pmem() {
    point_index(rewo::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn rewo_races_on_dram() {
    point_index_races(rewo::<Jittery<Dram>, U64>);
}

#[test]
fn rewo_races_on_pmem() {
    point_index_races(smallest::<Jittery<Pmem>, U64>);
}

#[test]
fn rewo_races_of_byte_strings_on_dram() {
    point_index_races(smallest::<Jittery<Dram>, Bytes<TestRecord>>);
}

#[test]
fn rewo_races_of_byte_strings_on_pmem() {
    point_index_races(rewo::<Jittery<Pmem>, Bytes<TestRecord>>);
}

#[test]
fn level_on_dram() {
    point_index(level::<Dram, U64>);
}

#[test]
fn level_on_shm() {
    point_index(level::<Shm, U64>);
}

#[test]
fn level_on_pmem() {
    point_index(level::<Pmem, U64>);
}

#[test]
fn level_on_counted_pmem() {
    point_index(level::<Counting<Pmem>, U64>);
}

#[test]
fn level_of_byte_strings_on_dram() {
    point_index(level::<Dram, Bytes<TestRecord>>);
}

#[test]
fn level_of_byte_strings_on_shm() {
    point_index(level::<Shm, Bytes<TestRecord>>);
}

#[test]
fn level_of_byte_strings_on_pmem() {
    point_index(level::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn level_races_on_dram() {
    point_index_races(level::<Jittery<Dram>, U64>);
}

#[test]
fn level_races_on_pmem() {
    point_index_races(level::<Jittery<Pmem>, U64>);
}

#[test]
fn level_races_of_byte_strings_on_dram() {
    point_index_races(level::<Jittery<Dram>, Bytes<TestRecord>>);
}

#[test]
fn level_races_of_byte_strings_on_pmem() {
    point_index_races(level::<Jittery<Pmem>, Bytes<TestRecord>>);
}
