//! Tests: several keys are read as of one instant, for all ways in which other writes may fall
//! between the reads.
//!
//! A read of an expiring record reads the clock, and the clock of these tests makes other writes
//! then: between two reads of a snapshot.

use crate::{Direct, Key, Settings};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use terrace_engine::EntryCallback;
use terrace_engine::{Change, Clock, Commit, Durably, Engine, Put, Value, Version};
use terrace_index::{Bytes, hash::Clht};
use terrace_medium::Dram;
use terrace_pool::Pool;

type Store = Direct<Dram>;
type Hook = Box<dyn FnMut(&Interrupter) + Send>;

/// Expires far in the future.
const LATE: Option<u64> = Some(1 << 40);

/// A clock that calls a hook before it is read.
#[derive(Default)]
struct Interrupter {
    now: AtomicU64,
    hook: Mutex<Option<Hook>>,
}

impl Interrupter {
    fn set(&self, hook: Option<Hook>) {
        *self.hook.lock().unwrap() = hook;
    }
}

impl Clock for Interrupter {
    fn now_ms(&self) -> u64 {
        // The hook may read the clock itself.
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook(self);
            self.set(Some(hook));
        }
        self.now.load(Relaxed)
    }
}

fn open() -> (Arc<Store>, Arc<Interrupter>) {
    let clock = Arc::new(Interrupter { now: AtomicU64::new(1000), ..Interrupter::default() });
    let settings = Settings { clock: clock.clone(), ..crate::tests::fixtures::settings() };
    let store =
        Direct::open::<Clht<_, Bytes<Key>>>(Pool::<Dram>::anonymous(4 << 20).unwrap(), settings).unwrap();
    (Arc::new(store), clock)
}

fn put(store: &Store, key: &[u8], value: &[u8], expires_at: Option<u64>) {
    store.put(Put { key, value, expires_at }, Durably::Store).unwrap();
}

type Values = Vec<Option<Vec<u8>>>;
type Write = fn(&Store);

/// The keys whose values count. The keys between them expire, so that their reads call the hook.
const KEYS: [&[u8]; 5] = [b"b", b"tick 0", b"a", b"tick 1", b"c"];

fn values(read: impl FnOnce(&mut EntryCallback<'_>)) -> Values {
    let mut values = Vec::new();
    read(&mut |_, entry| values.push(entry.unwrap().map(|entry| entry.value.to_vec())));
    values
}

/// The result of a snapshot of all keys.
fn snapshot(store: &Store) -> Option<Values> {
    Some(values(|each| store.snapshot_many(&KEYS, each)))
}

/// The values read key by key, if a commit confirms that all were present at one instant. The
/// commit gets the keys in the order `order`.
fn transaction(store: &Store, order: [usize; 5], expected: fn(&Store, &[u8]) -> Version) -> Option<Values> {
    let (mut read, mut versions) = (Vec::new(), Vec::new());
    for key in KEYS {
        let version = expected(store, key);
        let value = store.get(key).unwrap();
        let token = value.as_ref().map(Value::token);
        read.push(value.map(|value| value.to_vec()));
        if token != version.token() {
            return None;
        }
        versions.push((key, version));
    }
    match store.commit(&[], &order.map(|nth| versions[nth]), Durably::Store).unwrap() {
        Commit::Done => Some(read),
        Commit::Changed(_) => None,
    }
}

const ORDERS: [[usize; 5]; 3] = [[0, 1, 2, 3, 4], [2, 1, 0, 3, 4], [4, 3, 2, 1, 0]];

/// A version that must hold at the commit only.
fn now(store: &Store, key: &[u8]) -> Version {
    store.token(key).unwrap().into()
}

/// A version, read before, that must have held all along.
fn all_along(store: &Store, key: &[u8]) -> Version {
    store.version(key).unwrap()
}

/// Reads once for every way in which these writes may be made at one of the first `asked` reads of
/// the clock.
fn all_ways(prepare: Write, writes: [Write; 4], asked: usize, read: impl Fn(&Store) -> Option<Values>) {
    let ways = (0..asked.pow(4)).map(|way| [1, 2, 3, 4].map(|nth| way / asked.pow(4 - nth) % asked));
    let mut confirmed = 0;
    for way in ways.filter(|way| way.is_sorted()) {
        let (store, clock) = open();
        KEYS.iter().filter(|key| key.starts_with(b"tick")).for_each(|key| put(&store, key, b"", LATE));
        prepare(&store);
        let state = |store: &Store| values(|each| store.get_many(&KEYS, each));
        let states = Arc::new(Mutex::new(vec![state(&store)]));
        let (others, seen, mut done, mut now) = (store.clone(), states.clone(), 0, 0);
        clock.set(Some(Box::new(move |_| {
            while way.get(done) == Some(&now) {
                writes[done](&others);
                seen.lock().unwrap().push(state(&others));
                done += 1;
            }
            now += 1;
        })));
        let found = read(&store);
        clock.set(None);
        let states = states.lock().unwrap();
        confirmed += usize::from(found.is_some());
        assert!(found.iter().all(|it| states.contains(it)), "{way:?}: {found:?} is none of {states:?}");
    }
    assert!(confirmed > 5, "{confirmed}");
}

/// One key is added and removed, while others change.
const REMOVED: (Write, [Write; 4]) = (
    |store| [b"b", b"c"].iter().for_each(|key| put(store, *key, b"1", None)),
    [
        |store| put(store, b"a", b"1", None),
        |store| put(store, b"c", b"2", None),
        |store| put(store, b"b", b"2", None),
        |store| assert_eq!(store.remove(b"a", Durably::Store), Ok(true)),
    ],
);

/// The same, but the key has expired before, and is removed by an expiry in the past: no removal is
/// counted.
const EXPIRED: (Write, [Write; 4]) = (
    |store| {
        [b"b", b"c"].iter().for_each(|key| put(store, *key, b"1", None));
        put(store, b"a", b"0", Some(1));
    },
    [
        |store| put(store, b"a", b"1", None),
        |store| put(store, b"c", b"2", None),
        |store| put(store, b"b", b"2", None),
        |store| store.modify(b"a", &mut |_| Change::Expire(Some(1)), Durably::Store).unwrap(),
    ],
);

#[test]
fn snapshot_is_of_one_instant() {
    for (prepare, writes) in [REMOVED, EXPIRED] {
        all_ways(prepare, writes, 8, snapshot);
    }
}

#[test]
fn transaction_reads_are_of_one_instant() {
    for (prepare, writes) in [REMOVED, EXPIRED] {
        for order in ORDERS {
            all_ways(prepare, writes, 8, |store| transaction(store, order, now));
            all_ways(prepare, writes, 8, |store| transaction(store, order, all_along));
        }
    }
}

#[test]
fn snapshot_with_writers_stopped_uses_one_time() {
    for start in 1000..1012 {
        let (store, clock) = open();
        let keys: [&[u8]; 3] = [b"x", b"y", b"z"];
        keys.iter().for_each(|key| put(&store, key, b"1", Some(1010)));
        clock.now.store(start, Relaxed);
        clock.set(Some(Box::new(|clock| _ = clock.now.fetch_add(1, Relaxed))));
        let guard = store.pool().pin();
        let seen = store.batches().snapshot_with_writers_stopped(&guard, &keys);
        clock.set(None);
        clock.now.store(0, Relaxed);
        let found = values(|each| store.reads().report(&guard, seen, each));
        assert!(found.len() == 3 && found.iter().all(|value| *value == found[0]), "{start}: {found:?}");
    }
}

/// A store of two keys with the same value. A hook gives both their next value, one after the
/// other, at `times` reads of the clock from read `first` on.
fn two_keys(first: u64, times: u64) -> (Arc<Store>, [&'static [u8]; 2]) {
    let keys: [&[u8]; 2] = [b"first", b"second"];
    let (store, clock) = open();
    keys.iter().for_each(|key| put(&store, key, &0u64.to_le_bytes(), LATE));
    let (others, mut asked) = (store.clone(), 0u64);
    clock.set(Some(Box::new(move |_| {
        if (first..first + times).contains(&asked) {
            keys.iter().for_each(|key| put(&others, key, &(asked + 1).to_le_bytes(), LATE));
        }
        asked += 1;
    })));
    (store, keys)
}

/// Asserts that both values are the same, or that of the second key is older.
fn assert_at_one_instant(found: &Values, what: &str) {
    let number = |nth: usize| u64::from_le_bytes(found[nth].clone().unwrap().try_into().unwrap());
    assert!(found.len() == 2 && number(0) >= number(1), "{what}: {found:?}");
}

#[test]
fn snapshot_of_two_keys_is_of_one_instant() {
    for first in 0..6 {
        let (store, keys) = two_keys(first, 1);
        let found = values(|each| store.snapshot_many(&keys, each));
        assert_at_one_instant(&found, &format!("a write at {first}"));
    }
}

#[test]
fn snapshot_ends_despite_endless_writes() {
    // 34 writes interrupt 17 reads of both keys. A later write would deadlock: it would wait for
    // the snapshot, which runs on the same thread.
    let (store, keys) = two_keys(0, 34);
    let found = values(|each| store.snapshot_many(&keys, each));
    assert_at_one_instant(&found, "writes without end");
    let last = 34u64.to_le_bytes().to_vec();
    assert_eq!(found, [Some(last.clone()), Some(last)]);
}

#[test]
fn mere_absence_allows_earlier_changes() {
    let (store, clock) = open();
    put(&store, b"tick", b"", LATE);
    let (others, mut asked) = (store.clone(), 0);
    let expected = [(&b"tick"[..], store.version(b"tick").unwrap()), (b"a", None.into())];
    clock.set(Some(Box::new(move |_| {
        if asked == 0 {
            put(&others, b"a", b"", None);
            assert_eq!(others.remove(b"a", Durably::Store), Ok(true));
        }
        asked += 1;
    })));
    assert_eq!(store.commit(&[], &expected, Durably::Store), Ok(Commit::Done));
    clock.set(None);
    put(&store, b"a", b"", None);
    assert_eq!(store.commit(&[], &expected, Durably::Store), Ok(Commit::Changed(1)));
}
