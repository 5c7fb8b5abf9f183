//! Tests of `records`.

use super::*;
use crate::tests::fixtures::{self, settings, store};
use terrace_medium::Shm;
use terrace_pool::PoolOptions;

#[test]
fn random_u64_is_splitmix64() {
    let (store, _) = store();
    store.records().random_state.store(1_234_567, Relaxed);
    // The second number is the first of the published list for this seed.
    let _ = store.records().random_u64();
    assert_eq!(
        [(); 2].map(|()| store.records().random_u64()),
        [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
    );
}

#[test]
fn random_u64_differs_by_pool_and_open() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut first = std::collections::BTreeSet::new();
    for (name, seed) in [("three", 3), ("four", 4), ("eight", 8)] {
        for _ in 0..2 {
            let options = PoolOptions::at(directory.path().join(name)).size(4 << 20).hash_seed(seed);
            let store = fixtures::open::<Shm>(options.open_or_create().unwrap(), settings()).unwrap();
            first.insert(store.records().random_u64());
        }
    }
    assert_eq!(first.len(), 6);
}
