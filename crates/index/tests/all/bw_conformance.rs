//! Tests: P-BwTree passes the suites for indexes and for ordered indexes, on every medium and for
//! both kinds of keys.

use terrace_conformance::{NAME, Setup, point_index, point_index_races, range_index, range_index_races};
use terrace_index::ordered::{BwShape, BwTree, OrderedKind};
use terrace_index::{Bytes, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_testkit::{TappedPmem, TappedShm, TestRecord};

fn bw<M: MappedMedium, K: OrderedKind>(setup: Setup) -> BwTree<M, K> {
    BwTree::create(&setup.pool(), NAME, setup.capacity).expect("room for a root")
}

/// Pages of a few keys: each suite splits and merges pages of several levels.
fn small<M: MappedMedium, K: OrderedKind>(setup: Setup) -> BwTree<M, K> {
    let shape = BwShape { most: 4, least: 2, slots: 2, numbers_log2: 3, spares: 2, is_scarce: false };
    BwTree::with_shape(&setup.pool(), NAME, shape).expect("room for a root")
}

#[test]
fn on_dram() {
    point_index(bw::<Dram, U64>);
}

#[test]
fn on_counted_pmem() {
    point_index(bw::<TappedPmem, U64>);
}

#[test]
fn byte_strings_on_shm() {
    point_index(bw::<Shm, Bytes<TestRecord>>);
}

#[test]
fn byte_strings_on_pmem() {
    point_index(bw::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn ranges_on_dram() {
    range_index(bw::<Dram, U64>);
}

#[test]
fn ranges_on_pmem() {
    range_index(bw::<Pmem, U64>);
}

#[test]
fn ranges_of_byte_strings_on_shm() {
    range_index(bw::<Shm, Bytes<TestRecord>>);
}

#[test]
fn ranges_of_byte_strings_on_pmem() {
    range_index(bw::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn races_on_dram() {
    point_index_races(bw::<TappedShm, U64>);
}

#[test]
fn races_of_byte_strings_on_pmem() {
    point_index_races(bw::<TappedPmem, Bytes<TestRecord>>);
}

#[test]
fn races_of_ranges_on_dram() {
    range_index_races(bw::<TappedShm, U64>);
}

#[test]
fn races_of_ranges_of_byte_strings_on_pmem() {
    range_index_races(bw::<TappedPmem, Bytes<TestRecord>>);
}

#[test]
fn ranges_over_small_pages() {
    range_index(small::<Dram, U64>);
}

#[test]
fn ranges_of_byte_strings_over_small_pages() {
    range_index(small::<Pmem, Bytes<TestRecord>>);
}

#[test]
fn races_in_small_pages() {
    point_index_races(small::<TappedPmem, U64>);
}

#[test]
fn races_of_byte_strings_in_small_pages() {
    point_index_races(small::<TappedShm, Bytes<TestRecord>>);
}

#[test]
fn races_of_ranges_over_small_pages() {
    range_index_races(small::<TappedShm, U64>);
}

#[test]
fn races_of_ranges_of_byte_strings_over_small_pages() {
    range_index_races(small::<TappedPmem, Bytes<TestRecord>>);
}
