//! The suite for ordered indexes, tried on the reference.

use terrace_index::{Bytes, U64};
use terrace_medium::Dram;
use terrace_pool::Pool;
use terrace_testkit::conformance::{Setup, range_index};
use terrace_testkit::{Reference, TestRecord};

fn pool(setup: Setup) -> Pool<Dram> {
    Pool::anonymous(setup.pool_bytes).unwrap()
}

#[test]
fn the_reference_passes_with_integers() {
    range_index(|setup| Reference::<Dram, U64>::new(&pool(setup)));
}

#[test]
fn the_reference_passes_with_byte_strings() {
    range_index(|setup| Reference::<Dram, Bytes<TestRecord>>::new(&pool(setup)));
}
