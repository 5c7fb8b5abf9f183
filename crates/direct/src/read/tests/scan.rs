//! Tests of `scan`.

use super::*;
use crate::Direct;
use crate::Kind;
use crate::tests::fixtures::{self, CountingClock, Store, count_clock_reads, settings, store};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use terrace_engine::Pooled;
use terrace_engine::WriteError;
use terrace_engine::{Durably, Engine};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::{PointIndex, Stored};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::TappedShm;

/// Keys of one chain of the index. A scan visits a chain to its end.
const CHAIN: usize = 32;

#[test]
fn scan_visits_each_record_once_in_steps() {
    let (store, _) = store();
    (0..5000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", None));
    for at_least in [1, 100, PIECE, 3 * PIECE + 1, 10_000] {
        let (mut cursor, mut visited) = (Cursor::START, BTreeMap::new());
        loop {
            let before = visited.len();
            let mut visit = |key: &[u8], _: Entry<'_>| *visited.entry(key.to_vec()).or_insert(0) += 1;
            cursor = store.scan(&cursor, at_least, &mut visit).unwrap();
            let more = visited.len() - before;
            assert!(more < at_least + CHAIN && (cursor.is_end() || more >= at_least), "{more}");
            if cursor.is_end() {
                break;
            }
        }
        assert!(visited.len() == 5000 && visited.values().all(|&times| times == 1));
    }
}

/// The keys that a full scan visits, and how many records it skips.
fn scan_all(store: &Store, at_least: usize) -> (BTreeSet<Vec<u8>>, u64) {
    let (mut cursor, mut keys, mut skipped) = (Cursor::START, BTreeSet::new(), 0);
    loop {
        cursor = match store.scan(&cursor, at_least, &mut |key, _| _ = keys.insert(key.to_vec())) {
            Ok(next) => next,
            Err(ReadError::Skipped { records, next, .. }) => {
                skipped += records;
                next
            }
            Err(error) => panic!("{error}"),
        };
        if cursor.is_end() {
            return (keys, skipped);
        }
    }
}

#[test]
fn scan_skips_and_counts_damaged_records() {
    let (store, _) = store();
    (0..3000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", None));
    let damaged = [7u32, 8, 2000].map(|n| store.record_offset(&n.to_le_bytes()));
    damaged.iter().for_each(|place| store.damage(place + 8));
    for at_least in [1, 100, PIECE + 1, usize::MAX] {
        let (keys, skipped) = scan_all(&store, at_least);
        assert_eq!((keys.len(), skipped), (2997, 3), "{at_least}");
    }
    assert_eq!(store.stats().damaged_records_skipped, 4 * 3);
    let error = store.scan(&Cursor::START, usize::MAX, &mut |_, _| {}).unwrap_err();
    let ReadError::Skipped { records: 3, ref place, next: Cursor::END, .. } = error else {
        panic!("{error:?}")
    };
    assert!(damaged.contains(&place.offset()) && error.to_string().starts_with("3 records were skipped"));
    assert_eq!(store.random_key().unwrap().map(|key| key.len()), Some(4));
}

#[test]
fn scan_of_ordered_store_continues_behind_keys() {
    let (store, _) = fixtures::ordered_store();
    (0..3000u32).for_each(|n| store.put_entry(&n.to_be_bytes(), b"value", None));
    for at_least in [1, 100, PIECE + 1] {
        let (mut cursor, mut keys) = (Cursor::START, Vec::new());
        while !cursor.is_end() {
            assert_eq!(cursor.key(), keys.last().map(Vec::as_slice));
            cursor = store.scan(&cursor, at_least, &mut |key, _| keys.push(key.to_vec())).unwrap();
        }
        assert!(keys.into_iter().eq((0..3000u32).map(|n| n.to_be_bytes().to_vec())), "{at_least}");
    }
    let found: BTreeSet<_> = (0..100).map(|_| store.random_key().unwrap()).collect();
    assert!(found.len() > 50 && !found.contains(&None));
    let foreign = Cursor::from_number(5).unwrap();
    assert_eq!(store.scan(&foreign, 1, &mut |_, _| {}), Err(ReadError::InvalidCursor));
    assert_eq!(store.scan(&Cursor::END, 1, &mut |_, _| {}), Ok(Cursor::END));
    store.clear(Durably::Store).unwrap();
    assert_eq!((store.len().get(), store.random_key()), (0, Ok(None)));
}

#[test]
fn random_key_fails_where_only_damaged_records_are_left() {
    let (store, _) = store();
    [b"a", b"b"].iter().for_each(|key| store.put_entry(*key, b"value", None));
    store.damage(store.record_offset(b"a") + 8);
    (0..50).for_each(|_| assert_eq!(store.random_key(), Ok(Some(b"b".to_vec()))));
    store.damage(store.record_offset(b"b") + 8);
    (0..50).for_each(|_| assert!(matches!(store.random_key(), Err(ReadError::Corrupt { .. }))));
}

#[test]
fn clear_removes_damaged_records_with_readable_key() {
    let (store, _) = store();
    (0..100u32).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", None));
    // A stamp, and a shape.
    store.damage(store.record_offset(&7u32.to_le_bytes()) + 8);
    store.clear(Durably::Store).unwrap();
    assert_eq!(store.len().get(), 0);
    (0..100u32).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", None));
    store.damage(store.record_offset(&7u32.to_le_bytes()));
    assert!(matches!(store.clear(Durably::Store), Err(WriteError::Corrupt { .. })));
    assert_eq!(store.len().get(), 1);
}

#[test]
fn clear_removes_expiring_and_batch_records() {
    let (store, _) = store();
    for round in 0..3 {
        (0..3000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", (n % 2 == 0).then_some(5000)));
        let writes = [b"a", b"b"].map(|key| terrace_engine::Write {
            key,
            what: terrace_engine::WriteKind::Put { value: &[7; 9000], expires_at: None },
        });
        assert_eq!(store.commit(&writes, &[], Durably::Store), Ok(terrace_engine::Commit::Done));
        store.clear(Durably::Store).unwrap();
        assert_eq!((store.len().get(), store.get(b"a")), (0, Ok(None)), "{round}");
        assert_eq!((store.stats().data_bytes, store.stats().expiring), (0, 0));
    }
    let memory = store.memory();
    assert_eq!((memory.garbage, memory.used), (0, memory.reachable));
}

#[test]
fn clear_reads_each_piece_once() {
    let pool: Pool<TappedShm> = PoolOptions::anonymous().size(16 << 20).hash_seed(5).create().unwrap();
    let store = crate::tests::fixtures::open::<TappedShm>(pool.clone(), settings()).unwrap();
    (0..2000u32).for_each(|n| {
        store
            .put(
                terrace_engine::Put { key: &n.to_le_bytes(), value: b"value", expires_at: None },
                Durably::Store,
            )
            .unwrap()
    });
    let (counts, ()) = pool.medium().during(|| store.clear(Durably::Store).unwrap());
    assert!(counts.loads < 2000 * 60, "{counts:?}");
}

#[test]
fn random_key_finds_live_key_among_expired() {
    const KEYS: u64 = 1000;
    let clock = Arc::new(CountingClock::default());
    let settings = crate::Settings { clock: clock.clone(), ..settings() };
    let pool = PoolOptions::anonymous().size(4 << 20).hash_seed(5).create().unwrap();
    let store = fixtures::open(pool, settings).unwrap();
    assert_eq!(store.random_key(), Ok(None));
    (0..KEYS).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", Some(5)));
    // A search goes from a position to the end, then from the beginning to that position, and
    // removes what it meets.
    let looks = count_clock_reads(&clock, || assert_eq!(store.random_key(), Ok(None)));
    assert!((KEYS..2 * KEYS + CHAIN as u64).contains(&looks), "{looks}");
    assert_eq!((store.len().get(), store.stats().expired), (0, KEYS));
    (0..KEYS).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", Some(5)));

    store.put_entry(b"there", b"value", None);
    (0..50).for_each(|_| assert_eq!(store.random_key(), Ok(Some(b"there".to_vec()))));
    store.put_entry(b"too", b"value", Some(5000));
    let found: std::collections::BTreeSet<_> = (0..100).map(|_| store.random_key().unwrap()).collect();
    assert_eq!(found.len(), 2);
}

/// What a search for a random key costs among expired keys: a few accesses for each, once.
fn search_among_expired<I>(what: &str)
where
    I: PointIndex<Medium = TappedShm, Kind = Kind> + Stored<Medium = TappedShm> + 'static,
{
    const KEYS: u32 = 20_000;
    let pool: Pool<TappedShm> = PoolOptions::anonymous().size(16 << 20).hash_seed(5).create().unwrap();
    let clock = Arc::new(terrace_engine::ManualClock::at(1000));
    let settings = crate::Settings { clock: clock.clone(), expected_keys: u64::from(KEYS), ..settings() };
    let store = Direct::open::<I>(pool.clone(), settings).unwrap();
    let put = |n: u32, expires_at| {
        let put = terrace_engine::Put { key: &n.to_le_bytes(), value: b"value", expires_at };
        store.put(put, Durably::Store).unwrap();
    };
    (0..KEYS).for_each(|n| put(n, Some(2000)));
    put(KEYS, None);
    clock.advance(1000);
    let (mut searches, mut most) = (0, 0);
    while store.len().get() > 1 {
        let (counts, key) = pool.medium().during(|| store.random_key());
        assert_eq!(key, Ok(Some(KEYS.to_le_bytes().to_vec())));
        (searches, most) = (searches + 1, most.max(counts.loads));
        assert!(searches < 1000, "{what}: {} keys are left", store.len().get());
    }
    assert!(most < u64::from(KEYS) * 200, "{what}: {most} loads");
}

#[test]
fn random_key_among_expired_costs_little_with_clht() {
    search_among_expired::<Clht<_, Kind>>("clht");
}

#[test]
fn random_key_among_expired_costs_little_with_turbo() {
    search_among_expired::<Turbo<_, Kind>>("turbo");
}

#[test]
fn random_key_among_expired_costs_little_with_rewo() {
    search_among_expired::<Rewo<_, Kind>>("rewo");
}

#[test]
fn random_key_among_expired_costs_little_with_level() {
    search_among_expired::<Level<_, Kind>>("level");
}
