//! Tests: P-HOT passes the suites for indexes and for ordered indexes, on every medium and for both
//! kinds of keys.

use terrace_conformance::{NAME, Setup, point_index, point_index_races, range_index, range_index_races};
use terrace_index::ordered::{Hot, OrderedKind};
use terrace_index::{Bytes, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_testkit::{TappedPmem, TappedShm, TestRecord};

fn hot<M: MappedMedium, K: OrderedKind>(setup: Setup) -> Hot<M, K> {
    Hot::create(&setup.pool(), NAME, setup.capacity).expect("room for a root")
}

#[test]
fn on_dram() {
    point_index(hot::<Dram, U64>);
}

#[test]
fn on_counted_pmem() {
    point_index(hot::<TappedPmem, U64>);
}

#[test]
fn byte_strings_on_shm() {
    point_index(hot::<Shm, Bytes<TestRecord>>);
}

#[test]
fn byte_strings_on_pmem() {
    point_index(hot::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn ranges_on_dram() {
    range_index(hot::<Dram, U64>);
}

#[test]
fn ranges_on_pmem() {
    range_index(hot::<Pmem, U64>);
}

#[test]
fn ranges_of_byte_strings_on_shm() {
    range_index(hot::<Shm, Bytes<TestRecord>>);
}

#[test]
fn ranges_of_byte_strings_on_pmem() {
    range_index(hot::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn races_on_dram() {
    point_index_races(hot::<TappedShm, U64>);
}

#[test]
fn races_of_byte_strings_on_pmem() {
    point_index_races(hot::<TappedPmem, Bytes<TestRecord>>);
}

#[test]
fn races_of_ranges_on_dram() {
    range_index_races(hot::<TappedShm, U64>);
}

#[test]
fn races_of_ranges_of_byte_strings_on_pmem() {
    range_index_races(hot::<TappedPmem, Bytes<TestRecord>>);
}
