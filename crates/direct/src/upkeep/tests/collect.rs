//! Tests of `collect`.

use super::*;
use crate::Direct;
use crate::tests::fixtures::{self, settings};
use crate::{Key, Settings};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::{Durably, Engine, Pooled, Put};
use terrace_index::{Bytes, Swapped, hash::Clht};
use terrace_medium::Shm;
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::TappedPmem;

/// The thread that finished a batch may have died between its last store and the fence. The
/// blocks of the batch can be reused after a collection. If a loss of power then restored the
/// old name, recovery would treat them as the batch's.
#[test]
fn trace_persists_active_batch_first() {
    let pool = Pool::<TappedPmem>::anonymous(16 << 20).unwrap();
    let settings = Settings { expected_keys: 1, ..settings() };
    let store = Direct::open::<Clht<_, Bytes<Key>>>(pool.clone(), settings).unwrap();
    store.put(Put { key: b"key", value: b"value", expires_at: None }, Durably::Store).unwrap();
    let (counts, reachable) = pool.medium().during(|| store.reachable());
    // The other fence is the index's.
    assert_eq!((counts.write_backs, counts.fences, reachable.is_empty()), (1, 2, false));
}

#[test]
fn memory_reports_leaked_and_freed_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let pool = PoolOptions::at(folder.path().join("pool")).size(16 << 20).create::<Shm>().unwrap();
    let store = Direct::open::<Clht<Shm, Bytes<Key>>>(pool, settings()).unwrap();
    for n in 0..3000u64 {
        // Small and large values, added, replaced and removed.
        let value = vec![7; 1 << (n % 15)];
        store
            .put(Put { key: &(n % 500).to_be_bytes(), value: &value, expires_at: None }, Durably::Store)
            .unwrap();
        store.remove(&(n / 3).to_be_bytes(), Durably::Store).unwrap();
    }
    let sound = store.memory();
    let Memory { reachable, .. } = sound;
    assert_eq!(sound, Memory { reachable, used: reachable, waiting: 0, garbage: 0, overlapping: 0 });
    assert!(reachable > 50_000, "{sound:?}");

    let lose = |bytes: usize| store.pool().pin().alloc(bytes).unwrap().persist().into_offset();
    for bytes in [64, 100_000] {
        lose(bytes);
        assert!(store.memory().garbage >= bytes as u64);
        assert_eq!(store.memory(), sound, "it was found and is free again");
    }
    // The smallest block is a record.
    let (at, bytes) = *store.reachable().iter().min_by_key(|block| block.1).unwrap();
    store.pool().pin().free(at, bytes as usize);
    assert_eq!(store.memory(), Memory { used: reachable - bytes, ..sound });
}

#[test]
fn memory_reports_overlapping_blocks() {
    let (store, _) = fixtures::store();
    [&b"one"[..], b"two"].iter().for_each(|key| store.put_entry(key, b"value", None));
    assert_eq!(store.memory().overlapping, 0);
    // Both keys have the same record.
    let (one, two) = (store.record_offset(b"one"), store.record_offset(b"two"));
    let guard = store.pool().pin();
    store.index().compare_and_swap(&guard, b"one", Some(one), None).unwrap();
    store.raw(one).store(store.pool().medium(), 0, Relaxed);
    assert_eq!(store.index().compare_and_swap(&guard, b"other", None, Some(two)), Ok(Swapped::Done));
    drop(guard);
    assert_eq!(store.memory().overlapping, 1);
}

#[test]
fn stopped_trace_changes_nothing() {
    let (store, _) = fixtures::store();
    (0..5000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", None));
    let asked = Cell::new(0);
    let trace = |stop_at: u32, marker: &mut Marker<'_>| {
        asked.set(0);
        store.collection().trace(marker, &|| {
            asked.set(asked.get() + 1);
            asked.get() == stop_at
        });
    };
    let all = store.pool().reachable(&mut |marker| trace(0, marker)).len();
    assert_eq!(asked.get(), 5000 / STEP as u32);
    assert!(all >= 5000);
    // A partial count is discarded.
    let before = store.stats().data_bytes;
    let some = store.pool().reachable(&mut |marker| trace(2, marker)).len();
    assert!(some < all - 2000, "{some} of {all}");
    assert_eq!(store.stats().data_bytes, before);
    assert!(asked.get() < 5, "it still asks after giving up");

    store.pool().request_collection();
    store.collect(&|| true);
    assert!(store.needs_collection());
    store.collect(&|| false);
    assert!(!store.needs_collection());
    assert_eq!(store.memory().garbage, 0);
}

#[test]
fn trace_keeps_damaged_record_but_not_its_extent() {
    let (store, _) = fixtures::store();
    let long = vec![7; 9000];
    [&b"shape"[..], b"sum", b"whole"].iter().for_each(|key| store.put_entry(key, &long, None));
    let [shape, sum, whole] = [&b"shape"[..], b"sum", b"whole"].map(|key| store.record_offset(key));
    let guard = store.pool().pin();
    let extent = |at| Record::at(&guard, at).unwrap().body.external.unwrap().extent;
    let extents = [shape, sum, whole].map(extent);
    store.damage(shape);
    store.damage(sum + 16);
    let reachable: BTreeMap<u64, u64> = store.reachable().into_iter().collect();
    let is_there = |at: &u64| reachable.contains_key(at);
    assert!([shape, sum, whole].iter().all(is_there));
    assert_eq!(extents.each_ref().map(is_there), [false, false, true]);
    assert!(reachable[&extents[2]] >= 9000);
}
