//! Tests of `scan.rs`.

use super::super::super::test_pools::pool;
use super::*;
use crate::{KeyKind, PointIndex, U64};
use terrace_testkit::TappedShm;

#[test]
fn scan_reads_only_the_homes_that_it_needs() {
    let pool = pool::<TappedShm>(1 << 20);
    let index = Turbo::<_, U64>::with_shards(&pool, "index", 0, 120).unwrap();
    let guard = pool.pin();
    assert_eq!(index.place(0).buckets(), 16);
    for home in 0..16 {
        let keys = (0..).filter(|key| U64::hash(key, index.seed) >> 60 == home);
        keys.take(7).for_each(|key| _ = index.insert(&guard, &key, home).unwrap());
    }
    let piece = |from: u64, at_least| {
        let mut homes = Vec::new();
        let scan = || index.scan_from(&guard, from << 60, at_least, |home| homes.push(home));
        let (counts, end) = pool.medium().during(scan);
        homes.dedup();
        // Reading the shard's place takes one more block.
        (end >> 60, homes, counts.blocks_read - 1)
    };
    assert_eq!(piece(0, 70), (11, (0..11).collect(), 11));
    assert_eq!(piece(11, 7), (13, vec![11, 12], 2));
    assert_eq!(piece(13, 6), (14, vec![13], 1));
    assert_eq!(piece(14, 500), (0, vec![14, 15], 2));
    assert_eq!(piece(0, usize::MAX), (0, (0..16).collect(), 16));
}
