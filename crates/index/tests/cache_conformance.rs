//! Rewo-Hash under its cached table, through the suite that every index passes.

use terrace_index::hash::{Nests, Rewo};
use terrace_index::{Bytes, CacheBounds, U64};
use terrace_medium::{Dram, MappedMedium, Pmem};
use terrace_pool::PoolOptions;
use terrace_testkit::conformance::{NAME, Setup, point_index, point_index_races};
use terrace_testkit::{Jittery, TestRecord};

/// From a table of a single bucket on, under a cache of so many bytes: one bucket has seven keys, and keys give way in it all the time; a large one knows all of them.
fn cached<M: MappedMedium, K: Nests>(setup: Setup, bytes: u64) -> Rewo<M, K> {
    let options = PoolOptions::anonymous().size(setup.pool_bytes).hash_seed(0x7e44_ace0);
    let index = Rewo::with_shape(&options.create().expect("memory for a pool"), NAME, 1, 0);
    index.expect("room for a table").with_cache(CacheBounds { min: bytes, max: bytes })
}

#[test]
fn under_a_large_cache() {
    point_index(|setup| cached::<Dram, U64>(setup, 64 << 10));
}

#[test]
fn under_a_small_cache() {
    point_index(|setup| cached::<Pmem, Bytes<TestRecord>>(setup, 256));
}

#[test]
fn races_under_a_large_cache() {
    point_index_races(|setup| cached::<Jittery<Pmem>, U64>(setup, 64 << 10));
}

#[test]
fn races_under_a_small_cache() {
    point_index_races(|setup| cached::<Jittery<Pmem>, U64>(setup, 128));
}
