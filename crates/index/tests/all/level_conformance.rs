//! Tests: Level hashing passes the suite for indexes, on every medium and for both kinds of keys.
//!
//! Each medium and each kind of keys occurs, not each pair of them: the code for a pair has no
//! parts beyond those of the medium and of the keys.

use terrace_conformance::{NAME, Setup, point_index, point_index_races};
use terrace_index::hash::{Level, LevelShape};
use terrace_index::{Bytes, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_testkit::{TappedPmem, TappedShm, TestRecord};

fn level<M: MappedMedium, K: LevelShape>(setup: Setup) -> Level<M, K> {
    Level::create(&setup.pool(), NAME, setup.capacity).expect("room for a table")
}

#[test]
fn on_dram() {
    point_index(level::<Dram, U64>);
}

#[test]
fn on_counted_pmem() {
    point_index(level::<TappedPmem, U64>);
}

#[test]
fn byte_strings_on_shm() {
    point_index(level::<Shm, Bytes<TestRecord>>);
}

#[test]
fn byte_strings_on_pmem() {
    point_index(level::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn races_on_dram() {
    point_index_races(level::<TappedShm, U64>);
}

#[test]
fn races_of_byte_strings_on_pmem() {
    point_index_races(level::<TappedPmem, Bytes<TestRecord>>);
}
