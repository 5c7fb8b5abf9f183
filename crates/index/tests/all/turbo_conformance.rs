//! Tests: TurboHash passes the suite for indexes, on every medium and for both kinds of keys.
//!
//! Each medium and each kind of keys occurs, not each pair of them: the code for a pair has no
//! parts beyond those of the medium and of the keys.

use terrace_conformance::{NAME, Setup, point_index, point_index_races};
use terrace_index::hash::{Turbo, TurboShape};
use terrace_index::{Bytes, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_testkit::{TappedPmem, TappedShm, TestRecord};

fn turbo<M: MappedMedium, K: TurboShape>(setup: Setup) -> Turbo<M, K> {
    Turbo::create(&setup.pool(), NAME, setup.capacity).expect("room for a table")
}

/// With a single shard: every key meets every other.
fn one_shard<M: MappedMedium, K: TurboShape>(setup: Setup) -> Turbo<M, K> {
    Turbo::with_shards(&setup.pool(), NAME, 0, setup.capacity).expect("room for a table")
}

#[test]
fn on_dram() {
    point_index(turbo::<Dram, U64>);
}

#[test]
fn one_shard_on_counted_pmem() {
    point_index(one_shard::<TappedPmem, U64>);
}

#[test]
fn byte_strings_on_pmem() {
    point_index(turbo::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn byte_strings_in_one_shard_on_shm() {
    point_index(one_shard::<Shm, Bytes<TestRecord>>);
}

#[test]
fn races_on_pmem() {
    point_index_races(one_shard::<TappedPmem, U64>);
}

#[test]
fn races_of_byte_strings_on_dram() {
    point_index_races(one_shard::<TappedShm, Bytes<TestRecord>>);
}
