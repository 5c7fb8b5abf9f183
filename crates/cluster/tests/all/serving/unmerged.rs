//! Writes that the memory node has not merged.

use super::Cluster;
use std::sync::Arc;
use std::time::Duration;
use terrace::{ManualClock, Store, WriteError};
use terrace_conformance::Site;

const KEYS: u32 = 30_000;

/// With so little, all but what is unmerged comes from the memory.
fn cluster() -> (Cluster, Store) {
    let cluster = Cluster::new(Arc::new(ManualClock::at(Site::STARTED))).with(1, 2).start(1);
    let store = cluster.store(0);
    (cluster, store)
}

/// Large batches take a while to be merged, and the node hears often what is.
#[test]
fn write_is_seen_until_and_after_it_is_merged() {
    let mut cluster = Cluster::new(Arc::new(ManualClock::at(Site::STARTED))).with(1, 1);
    cluster.options.lease = Duration::from_millis(300);
    let cluster = cluster.start(1);
    let store = cluster.store(0);
    let key = |number: u32| format!("{{tag}} {number}");
    for round in 0..6_u32 {
        let put_all = |transaction: &mut terrace::Transaction<'_>| {
            (0..KEYS).try_for_each(|number| transaction.put(key(number), round.to_le_bytes()))
        };
        // A busy machine may lose a lease so short.
        super::wait_until("the write", || store.transaction(put_all).is_ok());
        let mut left = u64::MAX;
        while left > 0 {
            left = cluster.figures(0).unmerged;
            for number in (0..KEYS).rev().step_by(499) {
                let Ok(found) = store.get(key(number)) else { continue };
                assert_eq!(found.map(|value| value.to_vec()), Some(round.to_le_bytes().to_vec()), "{number}");
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
