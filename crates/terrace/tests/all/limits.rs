//! Tests: the longest keys and values, and longer ones.

use crate::common::{MEDIA, Medium, Site, assert_sound, contents};
use std::time::Duration;
use terrace::{ByteSize, Change, Engine, Index, KEY_MAX, Put, Store, Transaction, VALUE_MAX, WriteError};

#[test]
fn keys_of_every_length_are_kept() {
    for medium in MEDIA {
        let site = Site::new(medium, ByteSize::mib(32));
        let store = site.create();
        let lens = (0..100).chain([4095, 4096, 4097, KEY_MAX - 1, KEY_MAX]);
        for len in lens.clone() {
            store.put(vec![b'k'; len], len.to_le_bytes()).unwrap();
        }
        for len in lens {
            assert_eq!(store.get(vec![b'k'; len]).unwrap().unwrap(), &len.to_le_bytes());
        }
        let long = vec![b'k'; KEY_MAX + 1];
        assert_eq!(store.put(&long, b""), Err(WriteError::KeyTooLong));
        assert_eq!(store.remove(&long), Err(WriteError::KeyTooLong));
        assert_eq!(store.modify(&long, |_| (Change::Keep, ())), Err(WriteError::KeyTooLong));
        assert!(store.get(&long).unwrap().is_none());
        let mut batch = store.batch();
        batch.put(b"fine", b"1").put(&long, b"2");
        assert_eq!(batch.commit(), Err(WriteError::KeyTooLong));
        assert!(!store.contains(b"fine").unwrap());
        let put = |key| Put { key, value: b"1", expires_at: None };
        let each = store.put_many(&[put(b"fine"), put(&long), put(b"also fine")]);
        assert_eq!(each, [Ok(()), Err(WriteError::KeyTooLong), Ok(())]);
    }
}

#[test]
fn values_around_size_borders_are_kept() {
    for medium in MEDIA {
        let site = Site::new(medium, ByteSize::mib(64));
        let store = site.create();
        let lens =
            [0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 8192, 65_535, 65_536, 65_537, 1 << 20, (1 << 20) + 1];
        for len in lens {
            let value: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
            store.put(b"key", &value).unwrap();
            assert!(*store.get(b"key").unwrap().unwrap() == value, "{len}");
            store.modify(b"key", |_| (Change::Expire(Some(5_000_000)), ())).unwrap();
            let read = store.get(b"key").unwrap().unwrap();
            assert!(*read == value && read.expires_at() == Some(5_000_000), "{len}");
        }
        assert_sound(&store);
        store.remove(b"key").unwrap();
        assert_eq!(store.stats().data_bytes, 0);
    }
}

#[test]
fn value_of_64_mib_is_kept_and_freed() {
    let site = Site::new(Medium::Shm, ByteSize::mib(512));
    let store = site.create();
    let value: Vec<u8> = (0..64 << 20).map(|n: u32| (n >> 10) as u8 ^ n as u8).collect();
    store.put(b"large", &value).unwrap();
    // A new expiry copies only the head; otherwise this would take hundreds of copies.
    for n in 0..100 {
        store.modify(b"large", |_| (Change::Expire(Some(9_000_000 + n)), ())).unwrap();
    }
    let mut batch = store.batch();
    batch.put(b"other", b"1").expire(b"large", std::time::Duration::from_secs(100));
    batch.commit().unwrap();
    assert!(*store.get(b"large").unwrap().unwrap() == value);
    for _ in 0..5 {
        store.put(b"large", &value).unwrap();
    }
    store.close().unwrap();
    let store = site.open();
    assert!(*store.get(b"large").unwrap().unwrap() == value);
    assert_sound(&store);
    assert_eq!(store.remove(b"large"), Ok(true));
    store.put(b"larger", vec![1; 120 << 20]).unwrap();
}

#[test]
fn value_over_512_mib_is_refused() {
    let site = Site::new(Medium::Dram, ByteSize::mib(8));
    let store = site.create();
    // Untouched pages cost nothing.
    let value = vec![0; VALUE_MAX + 1];
    assert_eq!(store.put(b"key", &value), Err(WriteError::ValueTooLong));
    assert!(matches!(store.put(b"key", &value[..VALUE_MAX]), Err(WriteError::PoolFull { .. })));
    assert!(store.is_empty());
}

#[test]
fn expected_keys_beyond_the_pool_are_an_error() {
    // A tree grows key by key, and reserves nothing.
    for index in Index::ALL.into_iter().filter(|index| !index.is_ordered()) {
        for keys in [1 << 40, u64::MAX - 1, u64::MAX] {
            let options = Store::options().anonymous().size(ByteSize::mib(8)).max_size(ByteSize::mib(8));
            assert!(options.index(index).expected_keys(keys).create().is_err(), "{index:?}: {keys}");
        }
    }
}

#[test]
fn longest_times_are_kept() {
    let store = Site::new(Medium::Dram, ByteSize::mib(8)).create();
    store.put_expiring(b"put", b"1", Duration::MAX).unwrap();
    store.put(b"later", b"1").unwrap();
    assert!(store.expire(b"later", Duration::MAX).unwrap());
    let mut batch = store.batch();
    batch.put_expiring(b"batch", b"1", Duration::MAX).put(b"both", b"1").expire(b"both", Duration::MAX);
    batch.commit().unwrap();
    for key in [&b"put"[..], b"later", b"batch", b"both"] {
        assert_eq!(store.get(key).unwrap().unwrap().expires_at(), Some(u64::MAX));
    }
    assert_sound(&store);
}

/// A version of another store, whose records lie elsewhere, or of another key.
#[test]
fn foreign_version_is_a_change() {
    let [store, other] = [(); 2].map(|()| Site::new(Medium::Dram, ByteSize::mib(8)).create());
    (0..100u8).for_each(|n| other.put([n], b"1").unwrap());
    store.put(b"key", b"1").unwrap();
    let foreign = [other.version([99]).unwrap(), store.version(b"key").unwrap()];
    let write = |transaction: &mut Transaction<'_>| {
        transaction.put(b"a", b"1")?;
        transaction.put(b"b", b"1")
    };
    for key in [&b"absent"[..], &vec![b'k'; KEY_MAX + 1]] {
        for version in foreign {
            assert_eq!(store.transaction_if(&[(key.to_vec(), version)], write), Ok(None));
        }
    }
    assert_eq!(store.transaction_if(&[(b"key".to_vec(), foreign[0])], write), Ok(None));
    assert_eq!(store.len(), 1);
    assert_sound(&store);
}

#[test]
fn transaction_reads_overlong_key_as_absent() {
    for medium in MEDIA {
        let site = Site::new(medium, ByteSize::mib(32));
        let store = site.create();
        let long = vec![b'k'; KEY_MAX + 1];
        let done = store.transaction(|transaction| {
            assert!(transaction.get(&long)?.is_none());
            assert_eq!(transaction.put(&long, b""), Err(WriteError::KeyTooLong));
            transaction.put(b"a", b"1")?;
            transaction.put(b"b", b"1")
        });
        assert_eq!(done, Ok(()));
        let watched = [(long.clone(), store.version(&long).unwrap())];
        let put = |transaction: &mut Transaction<'_>| transaction.put(b"c", b"1");
        assert_eq!(store.transaction_if(&watched, put), Ok(Some(())));
        assert_eq!(contents(&store).len(), 3);
        assert_sound(&store);
        store.clear().unwrap();
        assert!(store.is_empty());
    }
}

/// The writes of one instant are one record of the log, which has at most 4 GiB.
#[test]
fn batch_too_long_for_the_log_is_refused() {
    // The batch is refused before its values are read: the memory of zeros is never made.
    let value = vec![0; 512 << 20];
    let keys: Vec<String> = (0..8).map(|nth| format!("key{nth}")).collect();
    let put = |key| Put { key, value: &value, expires_at: None };
    let puts: Vec<Put<'_>> = keys.iter().map(|key| put(key.as_bytes())).collect();
    for engine in [Engine::Wip, Engine::Tiered] {
        let directory = tempfile::tempdir().unwrap();
        let options = Store::options().engine(engine).directory(directory.path().join("store"));
        let store = options.memory(ByteSize::mib(16)).create().unwrap();
        let refused = store.put_all(&puts).unwrap_err();
        assert!(matches!(refused, WriteError::BatchTooLong), "{engine:?}: {refused}");
        assert!(matches!(store.put_all_new(&puts), Err(WriteError::BatchTooLong)), "{engine:?}");
        store.put("after", "1").unwrap();
        assert!(store.get(&keys[0]).unwrap().is_none());
        assert_eq!(store.get("after").unwrap().unwrap(), b"1");
    }
}
