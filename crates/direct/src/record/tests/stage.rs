//! Tests of `stage`.

use super::*;
use crate::tests::fixtures::store;
use terrace_engine::Pooled;
use terrace_engine::{Change, Durably, Engine};
use terrace_engine::{KEY_MAX, VALUE_MAX, WriteError};

const LONG: [u8; 9000] = [7; 9000];

#[test]
fn longest_key_and_value_can_be_written() {
    let (store, _) = store();
    let key = vec![7; KEY_MAX + 1];
    assert_eq!(store.records().check_write(&key[1..], VALUE_MAX), Ok(()));
    assert_eq!(store.records().check_write(&key, 0), Err(WriteError::KeyTooLong));
    assert_eq!(
        store.records().check_write(&[key.clone(), key.clone()].concat(), 0),
        Err(WriteError::KeyTooLong)
    );
    assert_eq!(store.records().check_write(b"", VALUE_MAX + 1), Err(WriteError::ValueTooLong));
    assert_eq!(store.records().check_write(b"", 2 * VALUE_MAX), Err(WriteError::ValueTooLong));
    assert_eq!(store.check_put(&key, b"value"), Err(WriteError::KeyTooLong));
    store.put_entry(&key[1..], b"value", None);
    assert_eq!(store.get(&key[1..]).unwrap().unwrap(), b"value");
}

#[test]
fn retried_change_leaks_nothing() {
    let (store, _) = store();
    store.put_entry(b"key", &LONG, None);
    let mut tries = 0;
    let mut change = |entry: Option<terrace_engine::Entry<'_>>| {
        tries += 1;
        if tries == 1 {
            store.put_entry(b"key", b"faster", None);
        }
        Change::Put { value: [entry.unwrap().value, &LONG].concat(), expires_at: None }
    };
    store.modify(b"key", &mut change, Durably::Store).unwrap();
    assert_eq!(tries, 2);
    assert_eq!(*store.get(b"key").unwrap().unwrap(), *[&b"faster"[..], &LONG].concat());
    let memory = store.memory();
    assert_eq!((memory.garbage, memory.used), (0, memory.reachable));

    // Nor does it free the value that it would have taken over.
    let mut tries = 0;
    let mut expire = |_: Option<terrace_engine::Entry<'_>>| {
        tries += 1;
        if tries == 1 {
            store.modify(b"key", &mut |_| Change::Expire(Some(7000)), Durably::Store).unwrap();
        }
        Change::Expire(Some(8000))
    };
    store.modify(b"key", &mut expire, Durably::Store).unwrap();
    let found = store.get(b"key").unwrap().unwrap();
    assert_eq!((tries, found.expires_at(), found.len()), (2, Some(8000), 9006));
    drop(found);
    let memory = store.memory();
    assert_eq!((memory.garbage, memory.used), (0, memory.reachable));
}

#[test]
fn damaged_record_frees_no_extent() {
    let (store, _) = store();
    [&b"damaged"[..], b"sound"].iter().for_each(|key| store.put_entry(key, &LONG, None));
    let guard = store.pool().pin();
    let extent = Record::at(&guard, store.record_offset(b"sound")).unwrap().body.external.unwrap().extent;
    let (word, medium) = (store.raw(store.record_offset(b"damaged") + 16), store.pool().medium());
    word.store(medium, extent, Relaxed);
    drop(guard);
    store.put_entry(b"damaged", b"whole again", None);
    while store.pool().reclaim_blocking() {}
    (0..50u8).for_each(|n| store.put_entry(&[n], &[n; 9000], None));
    assert_eq!(*store.get(b"sound").unwrap().unwrap(), LONG);
    // The collector finds the extent.
    let memory = store.memory();
    assert!(memory.garbage > 9000 && memory.overlapping == 0, "{memory:?}");
    assert_eq!(store.memory().used, store.memory().reachable);
}
