//! Tests: Rewo-Hash passes the suite for indexes, with and without its cached table, on every
//! medium and for both kinds of keys.
//!
//! Each medium and each kind of keys occurs, not each pair of them: the code for a pair has no
//! parts beyond those of the medium and of the keys.

use terrace_conformance::{NAME, Setup, point_index, point_index_races};
use terrace_index::hash::{Rewo, RewoShape};
use terrace_index::{Bytes, CacheBounds, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_testkit::{TappedPmem, TappedShm, TestRecord};

fn rewo<M: MappedMedium, K: RewoShape>(setup: Setup) -> Rewo<M, K> {
    Rewo::create(&setup.pool(), NAME, setup.capacity).expect("room for a table")
}

/// From a single bucket, with two locks in total: covers every kind of eviction and resize, and
/// every key meets every other.
fn smallest<M: MappedMedium, K: RewoShape>(setup: Setup) -> Rewo<M, K> {
    Rewo::with_shape(&setup.pool(), NAME, 1, 0).expect("room for a table")
}

/// The smallest table under a cache of `bytes` bytes: one bucket has seven keys, so keys are always
/// replaced; a large cache knows all keys.
fn cached<M: MappedMedium, K: RewoShape>(setup: Setup, bytes: u64) -> Rewo<M, K> {
    smallest(setup).with_cache(CacheBounds { min: bytes, max: bytes })
}

#[test]
fn on_dram() {
    point_index(rewo::<Dram, U64>);
}

#[test]
fn on_counted_pmem() {
    point_index(smallest::<TappedPmem, U64>);
}

#[test]
fn byte_strings_on_shm() {
    point_index(rewo::<Shm, Bytes<TestRecord>>);
}

#[test]
fn byte_strings_on_pmem() {
    point_index(rewo::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn races_on_pmem() {
    point_index_races(smallest::<TappedPmem, U64>);
}

#[test]
fn races_of_byte_strings_on_dram() {
    point_index_races(smallest::<TappedShm, Bytes<TestRecord>>);
}

#[test]
fn under_a_large_cache() {
    point_index(|setup| cached::<Dram, U64>(setup, 64 << 10));
}

#[test]
fn under_a_small_cache() {
    point_index(|setup| cached::<Pmem, Bytes<TestRecord>>(setup, 256));
}

#[test]
fn races_under_a_large_cache() {
    point_index_races(|setup| cached::<TappedPmem, U64>(setup, 64 << 10));
}

#[test]
fn races_under_a_small_cache() {
    point_index_races(|setup| cached::<TappedPmem, U64>(setup, 128));
}
