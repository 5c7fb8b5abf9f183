//! Runs the suite for ordered indexes on the reference.

use terrace_index::{Bytes, U64};
use terrace_medium::Dram;
use terrace_testkit::conformance::range_index;
use terrace_testkit::{Reference, TestRecord};

#[test]
fn reference_passes_with_integers() {
    range_index(|setup| Reference::<Dram, U64>::new(&setup.pool()));
}

#[test]
fn reference_passes_with_byte_strings() {
    range_index(|setup| Reference::<Dram, Bytes<TestRecord>>::new(&setup.pool()));
}
