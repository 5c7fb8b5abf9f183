//! Tests: P-CLHT passes the suite for indexes, on every medium and for both kinds of keys.
//!
//! Each medium and each kind of keys occurs, not each pair of them: the code for a pair has no
//! parts beyond those of the medium and of the keys.

use terrace_conformance::{NAME, Setup, point_index, point_index_races};
use terrace_index::hash::{Clht, ClhtShape};
use terrace_index::{Bytes, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_testkit::{TappedPmem, TappedShm, TestRecord};

fn clht<M: MappedMedium, K: ClhtShape>(setup: Setup) -> Clht<M, K> {
    Clht::create(&setup.pool(), NAME, setup.capacity).expect("room for a table")
}

#[test]
fn on_dram() {
    point_index(clht::<Dram, U64>);
}

#[test]
fn on_counted_pmem() {
    point_index(clht::<TappedPmem, U64>);
}

#[test]
fn byte_strings_on_shm() {
    point_index(clht::<Shm, Bytes<TestRecord>>);
}

#[test]
fn byte_strings_on_pmem() {
    point_index(clht::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn races_on_dram() {
    point_index_races(clht::<TappedShm, U64>);
}

#[test]
fn races_of_byte_strings_on_pmem() {
    point_index_races(clht::<TappedPmem, Bytes<TestRecord>>);
}
