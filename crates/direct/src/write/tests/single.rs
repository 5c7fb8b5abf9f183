//! Tests of `single`.

use super::*;
use crate::tests::fixtures::{Store, settings, store};
use terrace_engine::Pooled;
use terrace_engine::{Durably, Engine, KEY_MAX};
use terrace_medium::Shm;
use terrace_pool::PoolOptions;

/// How often a write is tried that finds the pool full each time, with `waiting` bytes in
/// limbo, and needs a hundred.
fn tries(store: &Store, waiting: u64) -> u32 {
    let mut tries = 0;
    let refused: Result<(), _> = store.writes.retry_after_reclaim(|| {
        tries += 1;
        Err(WriteError::PoolFull { wanted: 100, size: 4 << 20, longest: None, waiting })
    });
    assert!(matches!(refused, Err(WriteError::PoolFull { .. })));
    tries
}

/// A store without room, and with nothing to make room of.
fn full() -> Store {
    let (store, _) = store();
    for len in [3000, 300, 30] {
        let put = |n: u64| {
            let key = (n << 32 | len as u64).to_le_bytes();
            store.put(Put { key: &key, value: &vec![0; len], expires_at: None }, Durably::Store)
        };
        (0..).find(|&n| put(n).is_err()).unwrap();
    }
    while store.pool().reclaim_blocking() {}
    assert_eq!(store.pool().waiting_bytes(), 0);
    store
}

#[test]
fn full_pool_write_is_retried_while_it_may_help() {
    let store = full();
    // Nothing was in limbo, and nothing was reclaimed: one more try, with larger blocks.
    assert_eq!(tries(&store, 0), 2);
    // Other threads have reclaimed it: one try for that, and more if it would suffice.
    assert_eq!(tries(&store, 99), 3);
    assert_eq!(tries(&store, 100), 2 + RETRIES_MAX);
    assert_eq!(tries(&store, 1 << 20), 2 + RETRIES_MAX);
    let mut tries = 0;
    let refused: Result<(), _> = store.writes.retry_after_reclaim(|| {
        tries += 1;
        Err(WriteError::KeyTooLong)
    });
    assert_eq!((tries, refused), (1, Err(WriteError::KeyTooLong)));
}

#[test]
fn write_is_retried_after_another_one_made_room() {
    let store = full();
    assert_eq!(tries(&store, 0), 2);
    let mut tries = 0;
    let written = store.writes.retry_after_reclaim(|| {
        tries += 1;
        if tries < 5 {
            // Another thread, before this one asks for room.
            store.writes.upkeep.compaction(store.slots()).compactor.count_gain();
            return Err(WriteError::PoolFull { wanted: 100, size: 4 << 20, longest: None, waiting: 0 });
        }
        Ok(tries)
    });
    assert_eq!(written, Ok(5));
}

#[test]
fn puts_together_equal_single_puts() {
    let (store, _) = store();
    store.put_entry(b"there", &[7; 9000], Some(5000));
    let (keys, long) = ((0..200u32).map(u32::to_le_bytes).collect::<Vec<_>>(), vec![7; KEY_MAX + 1]);
    let mut puts: Vec<Put<'_>> = keys.iter().map(|key| Put { key, value: key, expires_at: None }).collect();
    puts[70].key = &long;
    puts[71].key = b"there";
    puts[72].key = b"there";
    let done = store.put_many(&puts, Durably::Store);
    assert!(done.len() == 200 && done[70] == Err(WriteError::KeyTooLong));
    assert!(done.iter().enumerate().all(|(nth, done)| nth == 70 || done.is_ok()));
    let is_there = |key: &[u8; 4]| store.get(key).unwrap().is_some_and(|value| *value == *key);
    let missing: Vec<usize> = (0..200).filter(|&nth| !is_there(&keys[nth])).collect();
    assert_eq!(missing, [70, 71, 72]);
    assert_eq!(*store.get(b"there").unwrap().unwrap(), keys[72]);
    assert_eq!((store.len().get(), store.stats().data_bytes, store.stats().expiring), (198, 197 * 8 + 9, 0));
    let memory = store.memory();
    assert_eq!((memory.garbage, memory.used), (0, memory.reachable));
}

#[test]
fn unchanged_expiry_writes_nothing() {
    let (store, _) = store();
    store.put_entry(b"key", b"value", Some(5000));
    let version = store.version(b"key");
    let expire = |key: &[u8], at| store.modify(key, &mut |_| Change::Expire(at), Durably::Store).unwrap();
    expire(b"absent", Some(5000));
    expire(b"key", Some(5000));
    assert_eq!((store.version(b"key"), store.len().get()), (version.clone(), 1));
    expire(b"key", None);
    assert_ne!(store.version(b"key"), version);
    assert_eq!(store.get(b"key").unwrap().unwrap().expires_at(), None);
}

#[test]
fn memory_reclaimed_by_others_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let pool = PoolOptions::at(folder.path().join("pool")).size(4 << 20).open_or_create::<Shm>().unwrap();
    let store = crate::tests::fixtures::open::<Shm>(pool, settings()).unwrap();
    let replace =
        || store.put(Put { key: b"key", value: &[7; 9000], expires_at: None }, Durably::Store).unwrap();
    // Only limbo is left to reclaim.
    while store.pool().reclaim_blocking() {}
    replace();
    replace();
    let waiting = store.pool().space().waiting_bytes;
    assert!(waiting >= 9000);

    let mut tries = 0;
    let written = store.writes.retry_after_reclaim(|| {
        tries += 1;
        if tries > 1 {
            return Ok(tries);
        }
        // Another thread reclaims, between the failure and the retry.
        while store.pool().reclaim_blocking() {}
        Err(WriteError::PoolFull { wanted: 100, size: 4 << 20, longest: None, waiting })
    });
    assert_eq!(written.unwrap(), 2);
}
