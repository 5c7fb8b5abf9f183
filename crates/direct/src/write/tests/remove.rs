//! Tests of `remove`.

use crate::tests::fixtures::{settings, store};
use terrace_engine::Pooled;
use terrace_engine::{Durably, Engine, KEY_MAX};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::TappedShm;

#[test]
fn remove_all_counts_each_live_key_once() {
    let (store, clock) = store();
    let keys: Vec<[u8; 4]> = (0..100u32).map(u32::to_le_bytes).collect();
    keys.iter()
        .enumerate()
        .for_each(|(nth, key)| store.put_entry(key, &[7; 3000], (nth < 10).then_some(1500)));
    clock.advance(1000);
    let long = vec![7; KEY_MAX + 1];
    let mut named: Vec<&[u8]> = keys[..60].iter().map(|key| &key[..]).collect();
    named.extend([&b"absent"[..], &long, &keys[20], &keys[20]]);
    assert_eq!(store.remove_all(&named, Durably::Store), Ok(50));
    assert_eq!(
        (store.len().get(), store.remove_all(&named, Durably::Store), store.len().get()),
        (40, Ok(0), 40)
    );
    assert_eq!(
        (store.remove_all(&[], Durably::Store), store.remove_all(&[&keys[60], &keys[60]], Durably::Store)),
        (Ok(0), Ok(1))
    );
    let memory = store.memory();
    assert_eq!((memory.garbage, memory.used - memory.reachable), (0, 0));
    assert!(store.check(&mut |_, _| {}).is_sound());
    store.stop("a test".into());
    assert!(
        store.remove_all(&[], Durably::Store).is_err() && store.remove_all(&named, Durably::Store).is_err()
    );
}

/// Accesses to the pool for a removal of `keys` keys from a store that has twice as many.
fn accesses(keys: u32) -> u64 {
    let pool: Pool<TappedShm> = PoolOptions::anonymous().size(64 << 20).hash_seed(5).create().unwrap();
    let settings = crate::Settings { expected_keys: 40_000, ..settings() };
    let store = crate::tests::fixtures::open::<TappedShm>(pool.clone(), settings).unwrap();
    let names: Vec<[u8; 4]> = (0..2 * keys).map(u32::to_le_bytes).collect();
    names.iter().for_each(|key| {
        store.put(terrace_engine::Put { key, value: b"value", expires_at: None }, Durably::Store).unwrap()
    });
    let named: Vec<&[u8]> = names.iter().step_by(2).map(|key| &key[..]).collect();
    let (counts, removed) = pool.medium().during(|| store.remove_all(&named, Durably::Store).unwrap());
    assert_eq!(removed, u64::from(keys));
    counts.loads + counts.stores
}

#[test]
fn remove_all_costs_the_same_for_each_key() {
    let [few, many] = [1000, 16_000].map(|keys| accesses(keys) / u64::from(keys));
    assert!(many <= few + few / 4, "{few} accesses a key of 1,000 and {many} of 16,000");
}
