//! Tests: P-ART passes the suites for indexes and for ordered indexes, on every medium and for both
//! kinds of keys.

use terrace_conformance::{NAME, Setup, point_index, point_index_races, range_index, range_index_races};
use terrace_index::ordered::{Art, OrderedKind};
use terrace_index::{Bytes, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_testkit::{TappedPmem, TappedShm, TestRecord};

fn art<M: MappedMedium, K: OrderedKind>(setup: Setup) -> Art<M, K> {
    Art::create(&setup.pool(), NAME, setup.capacity).expect("room for a root")
}

#[test]
fn on_dram() {
    point_index(art::<Dram, U64>);
}

#[test]
fn on_counted_pmem() {
    point_index(art::<TappedPmem, U64>);
}

#[test]
fn byte_strings_on_shm() {
    point_index(art::<Shm, Bytes<TestRecord>>);
}

#[test]
fn byte_strings_on_pmem() {
    point_index(art::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn ranges_on_dram() {
    range_index(art::<Dram, U64>);
}

#[test]
fn ranges_on_pmem() {
    range_index(art::<Pmem, U64>);
}

#[test]
fn ranges_of_byte_strings_on_shm() {
    range_index(art::<Shm, Bytes<TestRecord>>);
}

#[test]
fn ranges_of_byte_strings_on_pmem() {
    range_index(art::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn races_on_dram() {
    point_index_races(art::<TappedShm, U64>);
}

#[test]
fn races_of_byte_strings_on_pmem() {
    point_index_races(art::<TappedPmem, Bytes<TestRecord>>);
}

#[test]
fn races_of_ranges_on_dram() {
    range_index_races(art::<TappedShm, U64>);
}

#[test]
fn races_of_ranges_of_byte_strings_on_pmem() {
    range_index_races(art::<TappedPmem, Bytes<TestRecord>>);
}
