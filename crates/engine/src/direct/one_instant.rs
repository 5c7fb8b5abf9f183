//! What is told of several keys at once was so at one instant: all ways in which another's writes may fall between the looks.
//!
//! A record that expires lets the clock be asked the time, and the clock of these tests lets others write then: between two looks of one who reads.

use super::Key;
use super::store::{Direct, Settings};
use crate::engine::Each;
use crate::{Change, Clock, Commit, Durability, Durably, Engine, Put, Value, Version};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use terrace_index::{Bytes, CacheBounds, hash::Clht};
use terrace_medium::Dram;
use terrace_pool::Pool;

type Store = Direct<Dram>;
type Errand = Box<dyn FnMut(&Interrupter) + Send>;

/// Far away.
const LATE: Option<u64> = Some(1 << 40);

/// A clock that does something else first when it is asked.
#[derive(Default)]
struct Interrupter {
    now: AtomicU64,
    errand: Mutex<Option<Errand>>,
}

impl Interrupter {
    fn set(&self, errand: Option<Errand>) {
        *self.errand.lock().unwrap() = errand;
    }
}

impl Clock for Interrupter {
    fn now_ms(&self) -> u64 {
        // What it does may ask for the time itself.
        let errand = self.errand.lock().unwrap().take();
        if let Some(mut errand) = errand {
            errand(self);
            self.set(Some(errand));
        }
        self.now.load(Relaxed)
    }
}

fn open() -> (Arc<Store>, Arc<Interrupter>) {
    let clock = Arc::new(Interrupter { now: AtomicU64::new(1000), ..Interrupter::default() });
    let settings = Settings {
        expected_keys: 100,
        index_cache: CacheBounds::default(),
        verify_reads: true,
        read_only: false,
        durability: Durability::Process,
        clock: clock.clone(),
    };
    let store =
        Direct::open::<Clht<_, Bytes<Key>>>(Pool::<Dram>::anonymous(4 << 20).unwrap(), settings).unwrap();
    (Arc::new(store), clock)
}

fn put(store: &Store, key: &[u8], value: &[u8], expires_at: Option<u64>) {
    store.put(Put { key, value, expires_at }, Durably::Store).unwrap();
}

type Values = Vec<Option<Vec<u8>>>;
type Write = fn(&Store);

/// The keys whose values count, with keys between them that let the others in.
const KEYS: [&[u8]; 5] = [b"b", b"tick 0", b"a", b"tick 1", b"c"];

fn values(read: impl FnOnce(&mut Each<'_>)) -> Values {
    let mut values = Vec::new();
    read(&mut |_, entry| values.push(entry.unwrap().map(|entry| entry.value.to_vec())));
    values
}

/// What one is told who reads all keys at once.
fn snapshot(store: &Store) -> Option<Values> {
    Some(values(|each| store.snapshot_many(&KEYS, each)))
}

/// What one has read, key by key, if a commit says that it was all there at once. `order` is that in which the commit is told of the keys.
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

/// How a key stands, as a transaction that has read it knows: it must be so in the end.
fn now(store: &Store, key: &[u8]) -> Version {
    store.token(key).unwrap().into()
}

/// How a key stands, as one who has looked before knows: it must be so all along.
fn all_along(store: &Store, key: &[u8]) -> Version {
    store.version(key).unwrap()
}

/// Reads once for every way in which these writes may be done when the clock is asked for the nth time, up to `asked`.
fn all_ways(prepare: Write, writes: [Write; 4], asked: usize, read: impl Fn(&Store) -> Option<Values>) {
    let ways = (0..asked.pow(4)).map(|way| [1, 2, 3, 4].map(|nth| way / asked.pow(4 - nth) % asked));
    let mut told = 0;
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
        told += usize::from(found.is_some());
        assert!(found.iter().all(|it| states.contains(it)), "{way:?}: {found:?} is none of {states:?}");
    }
    assert!(told > 5, "{told}");
}

/// One key comes and goes, while others change.
const REMOVED: (Write, [Write; 4]) = (
    |store| [b"b", b"c"].iter().for_each(|key| put(store, *key, b"1", None)),
    [
        |store| put(store, b"a", b"1", None),
        |store| put(store, b"c", b"2", None),
        |store| put(store, b"b", b"2", None),
        |store| assert_eq!(store.remove(b"a", Durably::Store), Ok(true)),
    ],
);

/// The same, where it is there before it comes but has expired, and goes because it is said to have expired: no removal is counted.
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
fn a_snapshot_has_no_key_absent_beside_what_came_while_it_was_there() {
    for (prepare, writes) in [REMOVED, EXPIRED] {
        all_ways(prepare, writes, 8, snapshot);
    }
}

#[test]
fn nor_has_what_a_transaction_has_read() {
    for (prepare, writes) in [REMOVED, EXPIRED] {
        for order in ORDERS {
            all_ways(prepare, writes, 8, |store| transaction(store, order, now));
            all_ways(prepare, writes, 8, |store| transaction(store, order, all_along));
        }
    }
}

#[test]
fn what_expires_at_one_time_is_gone_at_one_time_where_writers_are_kept_out() {
    for start in 1000..1012 {
        let (store, clock) = open();
        let keys: [&[u8]; 3] = [b"x", b"y", b"z"];
        keys.iter().for_each(|key| put(&store, key, b"1", Some(1010)));
        clock.now.store(start, Relaxed);
        clock.set(Some(Box::new(|clock| _ = clock.now.fetch_add(1, Relaxed))));
        let guard = store.pool().pin();
        let seen = store.see_frozen(&guard, &keys);
        clock.set(None);
        clock.now.store(0, Relaxed);
        let found = values(|each| store.show(&guard, seen, each));
        assert!(found.len() == 3 && found.iter().all(|value| *value == found[0]), "{start}: {found:?}");
    }
}

/// A store of two keys with the same value, and an errand that gives both, one after the other, the next one, each time that the clock is asked from the `first` time on, `times` times.
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

/// What is told of both keys, which is the same, or an older value of the second one.
fn assert_at_one_instant(found: &Values, beside: &str) {
    let number = |nth: usize| u64::from_le_bytes(found[nth].clone().unwrap().try_into().unwrap());
    assert!(found.len() == 2 && number(0) >= number(1), "{beside}: {found:?}");
}

#[test]
fn a_snapshot_of_two_keys_is_one_of_an_instant_too() {
    for first in 0..6 {
        let (store, keys) = two_keys(first, 1);
        let found = values(|each| store.snapshot_many(&keys, each));
        assert_at_one_instant(&found, &format!("a write at {first}"));
    }
}

#[test]
fn a_snapshot_beside_one_who_never_stops_writing_keeps_him_out_and_ends() {
    // Seventeen looks at both. From then on he would wait for a snapshot that waits for him: it is one thread.
    let (store, keys) = two_keys(0, 34);
    let found = values(|each| store.snapshot_many(&keys, each));
    assert_at_one_instant(&found, "writes without end");
    let last = 34u64.to_le_bytes().to_vec();
    assert_eq!(found, [Some(last.clone()), Some(last)]);
}

#[test]
fn a_key_that_is_only_to_be_absent_may_have_come_and_gone() {
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
