//! Tests of `finding`.

use crate::format::layout::SUPERBLOCK_STEP;
use crate::tests::fixtures::exclusive_pool;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Dram, Offset, Word};

#[test]
fn damaged_or_foreign_superblock_copy_is_located() {
    let pool = exclusive_pool::<Dram>();
    assert_eq!(pool.verify_superblock_and_roots(), []);
    let places =
        || pool.verify_superblock_and_roots().iter().map(|finding| finding.offset).collect::<Vec<u64>>();
    for copy in [0, SUPERBLOCK_STEP] {
        let word = pool.region().at::<Word>(Offset::new(copy + 16));
        word.fetch_add(pool.medium(), 1, Relaxed);
        assert_eq!(places(), [copy]);
        word.fetch_sub(pool.medium(), 1, Relaxed);
    }
    // Both are intact, but differ from what this process has stored.
    let mut other = pool.0.superblock().clone();
    other.sequence += 1;
    other.store(pool.region(), 0).unwrap();
    assert_eq!(places(), [0, SUPERBLOCK_STEP]);
}
