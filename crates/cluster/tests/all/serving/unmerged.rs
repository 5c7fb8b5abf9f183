//! Writes that the memory node has not merged.

use super::Cluster;
use std::sync::Arc;
use terrace::{ManualClock, Store, WriteError};
use terrace_testkit::conformance::Site;

const KEYS: u32 = 30_000;

/// With so little, all but what is unmerged comes from the memory.
fn cluster() -> (Cluster, Store) {
    let cluster = Cluster::new(Arc::new(ManualClock::at(Site::STARTED))).with(1, 2).start(1);
    let store = cluster.store(0);
    (cluster, store)
}

#[test]
fn write_is_seen_until_and_after_it_is_merged() {
    let (cluster, store) = cluster();
    let later = store.deferring();
    for round in 0..3_u32 {
        (0..KEYS).for_each(|key| later.put(key.to_le_bytes(), round.to_le_bytes()).unwrap());
        store.settle(store.ticket()).unwrap();
        let mut left = u64::MAX;
        while left > 0 {
            left = cluster.figures(0).unmerged;
            // The last ones are merged last.
            for key in (0..KEYS).rev().step_by(499) {
                let found = store.get(key.to_le_bytes()).unwrap().map(|value| value.to_vec());
                assert_eq!(found, Some(round.to_le_bytes().to_vec()), "key {key}");
            }
        }
    }
}

#[test]
fn transaction_is_one_entry() {
    let (cluster, store) = cluster();
    let merged = || cluster.memory.as_ref().unwrap().stats().merged_entries;
    let before = merged();
    store
        .transaction(|transaction| {
            (0..10).for_each(|nth| transaction.put(format!("{{tag}} {nth}"), b"value").unwrap());
            Ok::<_, WriteError>(())
        })
        .unwrap();
    cluster.wait_for_merges(0);
    assert_eq!(merged() - before, 1);
}
