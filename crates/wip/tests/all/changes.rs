//! Tests: a write that depends on what it has read sees each change that came in between, whatever
//! background work has made of it.

use crate::small::{PATH, tiny};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex};
use terrace_engine::{
    Change, Chore, Clock, Commit, Durability, Durably, Engine, OnDisk, Put, Rest, Write, WriteKind,
};
use terrace_testkit::simfs::SimFs;
use terrace_wip::{Settings, Wip};

/// A clock that does something when it is next asked.
struct Interrupting {
    now: Mutex<u64>,
    next: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Interrupting {
    fn advance(&self, ms: u64) {
        *self.now.lock().unwrap() += ms;
    }

    fn at_next(&self, what: impl FnOnce() + Send + 'static) {
        *self.next.lock().unwrap() = Some(Box::new(what));
    }
}

impl Clock for Interrupting {
    fn now_ms(&self) -> u64 {
        let next = self.next.lock().unwrap().take();
        next.into_iter().for_each(|what| what());
        *self.now.lock().unwrap()
    }
}

type Store = Arc<Wip>;

/// A store whose MemTables have so many bytes.
fn store_of(memtable_bytes: u64) -> (Store, Arc<Interrupting>) {
    let clock = Arc::new(Interrupting { now: Mutex::new(1000), next: Mutex::default() });
    let settings = Settings { clock: clock.clone(), memtable_bytes, ..tiny(Durability::Process) };
    let store = Wip::create(SimFs::new(["/data"]), Path::new(PATH), settings).unwrap();
    (Arc::new(store), clock)
}

/// A store in which a key and its removal come into one MemTable.
fn store() -> (Store, Arc<Interrupting>) {
    store_of(64 << 10)
}

/// A store with the smallest parts.
fn tiny_store() -> (Store, Arc<Interrupting>) {
    store_of(4 << 10)
}

const KEY: &[u8] = b"k";

fn put(store: &Store, key: &[u8], value: &[u8], expires_at: Option<u64>) {
    store.put(Put { key, value, expires_at }, Durably::Store).unwrap();
}

fn get(store: &Store) -> Option<Vec<u8>> {
    store.get(KEY).unwrap().map(|value| value.to_vec())
}

fn flush(store: &Store) {
    OnDisk::flush(&**store).unwrap();
}

fn compact(store: &Store) {
    store.compact(Bound::Unbounded, Bound::Unbounded).unwrap();
}

/// Something that happens between the read of a modification and its write: it removes the key.
type Between<'a> = &'a dyn Fn(&Store, &Interrupting);

/// Adds one to the key's value, as INCR does, while `between` happens. Returns what is stored.
fn add_one(store: &Store, clock: &Interrupting, between: Between<'_>) -> Option<Vec<u8>> {
    let mut is_first = true;
    let mut change = |entry: Option<terrace_engine::Entry<'_>>| {
        let value = entry.map_or(0, |entry| entry.value[0]) + 1;
        if std::mem::take(&mut is_first) {
            between(store, clock);
        }
        Change::Put { value: vec![value], expires_at: None }
    };
    store.modify(KEY, &mut change, Durably::Store).unwrap();
    get(store)
}

fn remove(store: &Store) {
    assert!(store.remove(KEY, Durably::Store).unwrap(), "it was there");
}

#[test]
fn modification_sees_removal_that_left_no_trace() {
    let flushed_away: Between<'_> = &|store, _| {
        remove(store);
        flush(store);
    };
    let merged_away: Between<'_> = &|store, _| {
        remove(store);
        flush(store);
        compact(store);
    };
    let cleared: Between<'_> = &|store, _| store.clear(Durably::Store).unwrap();
    for (nth, (is_flushed, between)) in
        [(false, flushed_away), (false, merged_away), (true, merged_away), (true, cleared)]
            .into_iter()
            .enumerate()
    {
        let (store, clock) = store();
        put(&store, KEY, &[41], None);
        if is_flushed {
            flush(&store);
        }
        assert_eq!(add_one(&store, &clock, between), Some(vec![1]), "{nth}");
    }
}

/// Writes enough for a split.
fn fill(store: &Store) {
    for number in 0..200u8 {
        put(store, &[b'a' + number % 20, number], &[1; 900], None);
    }
    flush(store);
}

fn split(store: &Store) {
    while store.step(Chore::Merge, &|| false) == Rest::More {}
    assert!(store.stats().disk.unwrap().splits > 0);
}

#[test]
fn modification_sees_removal_that_a_split_passed_on() {
    let (store, clock) = tiny_store();
    fill(&store);
    put(&store, KEY, &[41], None);
    let between: Between<'_> = &|store, _| {
        remove(store);
        flush(store);
        split(store);
        compact(store);
    };
    assert_eq!(add_one(&store, &clock, between), Some(vec![1]));
}

#[test]
fn modification_sees_removal_that_a_join_passed_on() {
    let (store, clock) = tiny_store();
    fill(&store);
    split(&store);
    for number in 1..200u8 {
        store.delete(&[b'a' + number % 20, number], Durably::Store).unwrap();
    }
    compact(&store);
    put(&store, KEY, &[41], None);
    let between: Between<'_> = &|store, clock| {
        remove(store);
        flush(store);
        compact(store);
        for _ in 0..60 {
            while store.step(Chore::Merge, &|| false) == Rest::More {}
            clock.advance(1000);
        }
        assert!(store.stats().disk.unwrap().joins > 0);
    };
    assert_eq!(add_one(&store, &clock, between), Some(vec![1]));
}

/// The parent of a split still has the key in memory, but the removal is in a table of the child.
#[test]
fn modification_sees_removal_flushed_before_its_parent() {
    let (store, clock) = store_of(32 << 10);
    let disk = || store.stats().disk.unwrap();
    let mut number = 0u8;
    while disk().splits == 0 {
        put(&store, &[b'a' + number % 20, number], &[1; 3000], None);
        flush(&store);
        // All that the parent has in memory.
        put(&store, KEY, &[41], None);
        let _ = store.step(Chore::Merge, &|| false);
        number += 1;
    }
    let between: Between<'_> = &|store, _| {
        remove(store);
        // The child's MemTable is frozen, and is larger than the parent's.
        (0..12u8).for_each(|number| put(store, &[b'k', 0, number], &[1; 3000], None));
        let memory = disk().memtable_bytes;
        assert_eq!(store.step(Chore::Flush, &|| false), Rest::More);
        assert!(memory - disk().memtable_bytes > 16 << 10, "the child's is flushed");
    };
    assert_eq!(add_one(&store, &clock, between), Some(vec![1]));
}

/// Removes the key when the clock is next asked, and lets a flush drop all that is left of it.
fn remove_at_next(store: &Store, clock: &Interrupting) {
    let store = Arc::clone(store);
    clock.at_next(move || {
        remove(&store);
        flush(&store);
    });
}

#[test]
fn key_is_removed_once_though_a_flush_comes_between() {
    let (store, clock) = store();
    put(&store, KEY, &[41], Some(1 << 40));
    remove_at_next(&store, &clock);
    assert!(!store.remove(KEY, Durably::Store).unwrap());
    put(&store, KEY, &[41], Some(1 << 40));
    remove_at_next(&store, &clock);
    assert_eq!(store.remove_all(&[KEY], Durably::Store).unwrap(), 0);
}

#[test]
fn commit_sees_removal_that_left_no_trace() {
    let (store, clock) = store();
    put(&store, KEY, &[41], Some(1 << 40));
    let version = store.version(KEY).unwrap();
    remove_at_next(&store, &clock);
    let writes = [Write { key: KEY, what: WriteKind::Put { value: &[42], expires_at: None } }];
    let done = store.commit(&writes, &[(KEY, version)], Durably::Store).unwrap();
    assert_eq!((done, get(&store)), (Commit::Changed(0), None));
    // An expiry is for the entry that there is.
    put(&store, KEY, &[41], Some(1 << 40));
    remove_at_next(&store, &clock);
    let expire = [Write { key: KEY, what: WriteKind::Expire(None) }];
    store.commit(&expire, &[], Durably::Store).unwrap();
    assert_eq!(get(&store), None);
}

#[test]
fn key_that_came_and_expired_fails_absence() {
    let (store, clock) = store();
    let absent = store.version(KEY).unwrap();
    let writes = [Write { key: KEY, what: WriteKind::Put { value: &[42], expires_at: None } }];
    put(&store, KEY, &[41], Some(2000));
    clock.advance(5000);
    flush(&store);
    let done = store.commit(&writes, &[(KEY, absent)], Durably::Store).unwrap();
    assert_eq!((done, get(&store)), (Commit::Changed(0), None));
    let absent = store.version(KEY).unwrap();
    let done = store.commit(&writes, &[(KEY, absent)], Durably::Store).unwrap();
    assert_eq!((done, get(&store)), (Commit::Done, Some(vec![42])));
}
