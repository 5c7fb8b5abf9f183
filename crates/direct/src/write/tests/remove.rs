//! Tests of `remove`.

use crate::tests::fixtures::{Store, settings, store};
use crate::{Direct, Key};
use std::ops::Bound::{self, Unbounded};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::Pooled;
use terrace_engine::{Direction, Durably, Engine, KEY_MAX, Ordered, WriteError};
use terrace_index::ordered::{Art, BwTree, Hot, Masstree, SpTree};
use terrace_index::{Bytes, RangeIndex, Stored};
use terrace_medium::Dram;
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

const ALIKE: [u8; 24] = [b'k'; 24];

/// A store of 100 keys of which those from 40 to 59 now read as keys before all others.
fn store_with_keys_out_of_order<I>() -> Store
where
    I: RangeIndex<Medium = Dram, Kind = Bytes<Key>> + Stored<Medium = Dram> + 'static,
{
    let store = Direct::open_ordered::<I>(Pool::anonymous(16 << 20).unwrap(), settings()).unwrap();
    let key = |n: u64| [&ALIKE[..], &n.to_be_bytes()].concat();
    (0..100).for_each(|n| store.put_entry(&key(n), b"value", None));
    let records: Vec<u64> = (40..60).map(|n| store.record_offset(&key(n))).collect();
    for record in records {
        let words = (0..8).map(|nth| store.raw(record + 8 * nth));
        let is_of_key = |word: u64| word.to_ne_bytes() == ALIKE[..8];
        let mut of_key = words.filter(|word| is_of_key(word.load(store.pool().medium(), Relaxed)));
        of_key.next().expect("a word of the key").store(store.pool().medium(), 0, Relaxed);
    }
    store
}

/// Clears such a store twice: it says that it is empty only if it is. Returns how many are left.
fn left_by_clear<I>() -> u64
where
    I: RangeIndex<Medium = Dram, Kind = Bytes<Key>> + Stored<Medium = Dram> + 'static,
{
    let store = store_with_keys_out_of_order::<I>();
    for _ in 0..2 {
        let (cleared, left, name) = (store.clear(Durably::Store), store.len().get(), I::NAME);
        let is_right =
            if left == 0 { cleared.is_ok() } else { matches!(cleared, Err(WriteError::Corrupt { .. })) };
        assert!(is_right, "{name}: {cleared:?} with {left} left");
    }
    store.len().get()
}

#[test]
fn clear_ends_where_keys_are_out_of_order() {
    assert_eq!(left_by_clear::<Art<Dram, Bytes<Key>>>(), 20);
    assert!(left_by_clear::<Masstree<Dram, Bytes<Key>>>() >= 20);
    assert!(left_by_clear::<BwTree<Dram, Bytes<Key>>>() >= 20);
    assert!(left_by_clear::<SpTree<Dram, Bytes<Key>>>() >= 20);
    // The changed bytes decide no way in this tree.
    assert_eq!(left_by_clear::<Hot<Dram, Bytes<Key>>>(), 0);
}

/// Asserts that a range from the first key on fails, or has as many keys as the store had.
fn assert_range_is_whole_or_fails<I>()
where
    I: RangeIndex<Medium = Dram, Kind = Bytes<Key>> + Stored<Medium = Dram> + 'static,
{
    for direction in [Direction::Forward, Direction::Backward] {
        let store = store_with_keys_out_of_order::<I>();
        let mut range = store.range(Bound::Included(&ALIKE), Unbounded, direction).unwrap();
        let mut seen = 0;
        let visited = range.visit(1000, &mut |_, _| {
            seen += 1;
            ControlFlow::Continue(())
        });
        assert!(visited.is_err() || seen == 100, "{} {direction:?}: {seen} of 100 keys", I::NAME);
    }
}

/// The keys of twenty records have changed into some before the range.
#[test]
fn range_tells_of_records_whose_keys_have_left_it() {
    assert_range_is_whole_or_fails::<Art<Dram, Bytes<Key>>>();
    assert_range_is_whole_or_fails::<Masstree<Dram, Bytes<Key>>>();
    assert_range_is_whole_or_fails::<BwTree<Dram, Bytes<Key>>>();
    assert_range_is_whole_or_fails::<Hot<Dram, Bytes<Key>>>();
    assert_range_is_whole_or_fails::<SpTree<Dram, Bytes<Key>>>();
}

/// A record whose key has changed into another that is in its order, too.
#[test]
fn removal_reports_a_record_that_its_key_does_not_find() {
    type Remove = fn(&Store) -> Result<(), WriteError>;
    let removals: [Remove; 2] = [
        |store| store.clear(Durably::Store),
        |store| store.remove_range(Unbounded, Unbounded, u64::MAX, Durably::Store).map(drop),
    ];
    for remove in removals {
        let pool = Pool::anonymous(16 << 20).unwrap();
        let store = Direct::open_ordered::<Art<Dram, Bytes<Key>>>(pool, settings()).unwrap();
        let key = |end: u8| [&ALIKE[..16], &[end; 8]].concat();
        [b'a', b'k', b'z'].iter().for_each(|end| store.put_entry(&key(*end), b"value", None));
        let record = store.record_offset(&ALIKE);
        let words = (0..8).map(|nth| store.raw(record + 8 * nth));
        let medium = store.pool().medium();
        let word = words.filter(|word| word.load(medium, Relaxed).to_ne_bytes() == ALIKE[..8]).last();
        word.expect("a word of the key").store(medium, u64::from_ne_bytes([b'm'; 8]), Relaxed);
        let removed = remove(&store);
        assert!(matches!(removed, Err(WriteError::Corrupt { .. })), "{removed:?}");
        assert_eq!(store.len().get(), 1);
    }
}
