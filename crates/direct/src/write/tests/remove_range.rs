//! Tests of `remove_range`.

use crate::tests::fixtures::{Store, ordered_store};
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::Pooled;
use terrace_engine::{Durably, Engine, Ordered, WriteError};

fn key(n: u16) -> [u8; 2] {
    n.to_be_bytes()
}

fn remove(store: &Store, from: Bound<&[u8]>, to: Bound<&[u8]>, at_most: u64) -> (u64, Option<u16>) {
    let (removed, next) = store.remove_range(from, to, at_most, Durably::Store).unwrap();
    (removed, next.map(|key| u16::from_be_bytes((*key).try_into().unwrap())))
}

fn assert_clean(store: &Store) {
    let memory = store.memory();
    assert_eq!((memory.garbage, memory.used), (0, memory.reachable));
}

#[test]
fn remove_range_removes_up_to_its_limit() {
    let (store, _) = ordered_store();
    (0..1000).for_each(|n| store.put_entry(&key(n), b"value", None));
    assert_eq!(remove(&store, Unbounded, Unbounded, 0), (0, Some(0)));
    assert_eq!(remove(&store, Included(&key(10)), Excluded(&key(20)), 3), (3, Some(13)));
    assert_eq!(remove(&store, Included(&key(10)), Excluded(&key(20)), 7), (7, None));
    assert_eq!(remove(&store, Included(&key(10)), Excluded(&key(20)), 7), (0, None));
    assert_eq!(remove(&store, Excluded(&key(100)), Included(&key(200)), u64::MAX), (100, None));
    assert_eq!(remove(&store, Included(&key(900)), Included(&key(800)), u64::MAX), (0, None));
    let long = vec![0xff; terrace_engine::KEY_MAX + 1];
    assert_eq!(remove(&store, Included(&key(500)), Included(&long), 17), (17, Some(517)));
    assert_eq!(store.len().get(), 1000 - 10 - 100 - 17);
    assert_eq!(remove(&store, Unbounded, Unbounded, u64::MAX), (873, None));
    assert_eq!(store.len().get(), 0);
    assert_clean(&store);
}

#[test]
fn remove_range_counts_expired_entries_as_work() {
    let (store, clock) = ordered_store();
    (0..100).for_each(|n| store.put_entry(&key(n), b"value", (n < 30).then_some(2000)));
    clock.advance(5000);
    assert_eq!(remove(&store, Unbounded, Unbounded, 20), (0, Some(20)));
    assert_eq!(remove(&store, Unbounded, Unbounded, 20), (10, Some(40)));
    assert_eq!(store.len().get(), 60);
}

#[test]
fn remove_range_goes_past_what_it_cannot_read() {
    let (store, _) = ordered_store();
    (0..100).for_each(|n| store.put_entry(&key(n), b"value", None));
    // A shape; and a stamp, whose record can still be removed.
    store.damage(store.record_offset(&key(3)));
    store.damage(store.record_offset(&key(4)) + 8);
    let refused = store.remove_range(Unbounded, Excluded(&key(50)), u64::MAX, Durably::Store);
    assert!(matches!(refused, Err(WriteError::Corrupt { .. })), "{refused:?}");
    assert_eq!(store.len().get(), 51);
}

/// A bit of a record's key has changed: the key seems to lie elsewhere.
#[test]
fn remove_range_goes_past_a_damaged_key() {
    for (n, bit) in [0, 31, 32, 50, 99].into_iter().flat_map(|n| (0..16).map(move |bit| (n, bit))) {
        let (store, _) = ordered_store();
        (0..100).for_each(|n| store.put_entry(&key(n), b"value", None));
        let (place, medium) = (store.raw(store.record_offset(&key(n)) + 16), store.pool().medium());
        place.store(medium, place.load(medium, Relaxed) ^ 1 << bit, Relaxed);
        let refused = store.remove_range(Unbounded, Unbounded, u64::MAX, Durably::Store);
        // The damaged one may go, too, if it seems to be where it is.
        let is_told = matches!(refused, Err(WriteError::Corrupt { .. }));
        assert_eq!(store.len().get(), u64::from(is_told), "{n}, {bit}: {refused:?}");
    }
}

/// The key of a damaged record may be that of another one.
#[test]
fn remove_range_removes_no_key_outside() {
    let (store, _) = ordered_store();
    (0..100).for_each(|n| store.put_entry(&key(n), b"value", None));
    let (guard, other) = (store.pool().pin(), store.record_offset(&key(70)));
    let word = store.record_offset(&key(7));
    store.index().compare_and_swap(&guard, &key(7), Some(word), Some(other)).unwrap();
    drop(guard);
    let refused = store.remove_range(Unbounded, Excluded(&key(50)), u64::MAX, Durably::Store);
    assert!(matches!(refused, Err(WriteError::Corrupt { .. })), "{refused:?}");
    assert!(store.get(&key(70)).unwrap().is_some());
}

#[test]
fn remove_range_obeys_a_stopped_store() {
    let (store, _) = ordered_store();
    store.put_entry(b"key", b"value", None);
    store.stop("a test".into());
    let refused = store.remove_range(Unbounded, Unbounded, 1, Durably::Store);
    assert_eq!(refused, Err(WriteError::Stopped("a test".into())));
}
