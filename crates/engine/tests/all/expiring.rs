//! Tests: a key that is replaced while a reader looks at its expired entry is never absent.

use crate::place::{Disk, Place};
use crate::small::PATH;
use crate::subject::{OfTiered, OfWip, Subject};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use terrace_direct::{Direct, Key, Settings};
use terrace_engine::{Change, Clock, Durability, Durably, Engine, ManualClock, Put};
use terrace_index::hash::Clht;
use terrace_index::{Bytes, CacheBounds};
use terrace_medium::Shm;
use terrace_pool::{Pool, PoolOptions};

const KEY: &[u8] = b"key";
const EXPIRES: u64 = 2000;

/// A clock that stands just before the expiry. The first time that it is read while it is armed, a
/// writer replaces the key by an entry without expiry, and then the expiry passes.
#[derive(Default)]
struct Replacing {
    store: OnceLock<Arc<dyn Engine>>,
    is_armed: AtomicBool,
    has_passed: AtomicBool,
}

impl Clock for Replacing {
    fn now_ms(&self) -> u64 {
        if self.is_armed.swap(false, Relaxed) {
            self.store
                .get()
                .unwrap()
                .put(Put { key: KEY, value: b"new", expires_at: None }, Durably::Store)
                .unwrap();
            self.has_passed.store(true, Relaxed);
        }
        if self.has_passed.load(Relaxed) { EXPIRES + 1 } else { EXPIRES - 1 }
    }
}

/// What `read` sees of a key that is replaced just before it expires, while `read` runs.
fn seen<T>(clock: &Arc<Replacing>, store: &Arc<dyn Engine>, read: impl Fn(&dyn Engine) -> T) -> T {
    clock.has_passed.store(false, Relaxed);
    store.put(Put { key: KEY, value: b"old", expires_at: Some(EXPIRES) }, Durably::Store).unwrap();
    let _ = clock.store.set(Arc::clone(store));
    clock.is_armed.store(true, Relaxed);
    let seen = read(&**store);
    clock.is_armed.store(false, Relaxed);
    seen
}

fn check(clock: &Arc<Replacing>, store: Arc<dyn Engine>) {
    let present = seen(clock, &store, |store| store.get(KEY).unwrap().map(|value| value.to_vec()));
    assert!(present.is_some(), "get");
    let present = seen(clock, &store, |store| {
        let mut present = false;
        store.get_many(&[KEY], &mut |_, entry| present = entry.unwrap().is_some());
        present
    });
    assert!(present, "get_many");
}

/// A store in a pool, with this clock.
fn in_a_pool(clock: Arc<dyn Clock>) -> Direct<Shm> {
    let settings = Settings {
        expected_keys: 1000,
        index_cache: CacheBounds::default(),
        index_dram: Some(0),
        verify_reads: true,
        read_only: false,
        durability: Durability::Process,
        clock,
    };
    let pool: Pool<Shm> = PoolOptions::anonymous().size(16 << 20).create().unwrap();
    Direct::open::<Clht<_, Bytes<Key>>>(pool, settings).unwrap()
}

#[test]
fn replaced_key_is_present_in_a_pool() {
    let clock = Arc::new(Replacing::default());
    check(&clock, Arc::new(in_a_pool(clock.clone())));
}

#[test]
fn replaced_key_is_present_on_a_disk() {
    let clock = Arc::new(Replacing::default());
    let mut settings = OfWip::small(Durability::Process, &Arc::new(ManualClock::at(0)));
    settings.clock = clock.clone();
    let store: Arc<dyn Engine> = Arc::new(OfWip::create(Disk::new().files(), PATH, settings).unwrap());
    check(&clock, Arc::clone(&store));
    // A decision not to write is a read, too.
    let seen = seen(&clock, &store, |store| {
        let mut entries = Vec::new();
        let mut keep = |entry: Option<terrace_engine::Entry<'_>>| {
            entries.push(entry.is_some());
            Change::Keep
        };
        store.modify(KEY, &mut keep, Durably::Store).unwrap();
        entries
    });
    assert_eq!(seen.last(), Some(&true));
}

#[test]
fn replaced_key_is_present_on_tiers() {
    let clock = Arc::new(Replacing::default());
    let mut settings = OfTiered::small(Durability::Process, &Arc::new(ManualClock::at(0)));
    settings.clock = clock.clone();
    check(&clock, Arc::new(OfTiered::create(Disk::new().files(), PATH, settings).unwrap()));
}

/// A clock by which the expiry passes after so many looks.
#[derive(Default)]
struct Passing {
    looks: std::sync::atomic::AtomicU64,
}

impl Clock for Passing {
    fn now_ms(&self) -> u64 {
        let left = self.looks.fetch_update(Relaxed, Relaxed, |looks| Some(looks.saturating_sub(1))).unwrap();
        if left > 0 { EXPIRES - 1 } else { EXPIRES + 1 }
    }
}

/// A commit that takes the expiry from a key, and writes another one, does both or neither,
/// whenever the expiry passes meanwhile.
fn persists_or_not(clock: &Arc<Passing>, store: &dyn Engine) {
    use terrace_engine::{Commit, Write, WriteKind};
    let mut wrong = Vec::new();
    for others in [&[][..], &[&b"other"[..]]] {
        for looks in 0..12 {
            clock.looks.store(1000, Relaxed);
            store.delete(b"other", Durably::Store).unwrap();
            store.put(Put { key: KEY, value: b"old", expires_at: Some(EXPIRES) }, Durably::Store).unwrap();
            let version = store.version(KEY).unwrap();
            let mut writes = vec![Write { key: KEY, what: WriteKind::Expire(None) }];
            let put = |key| Write { key, what: WriteKind::Put { value: b"x", expires_at: None } };
            writes.extend(others.iter().map(|key| put(*key)));
            clock.looks.store(looks, Relaxed);
            let done = store.commit(&writes, &[(KEY, version)], Durably::Store).unwrap();
            clock.looks.store(0, Relaxed);
            let is_there = store.get(KEY).unwrap().is_some();
            let other = store.get(b"other").unwrap().is_some();
            if is_there != (done == Commit::Done) {
                wrong.push(format!("looks {looks}: {done:?}, key there: {is_there}, other there: {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn commit_persists_or_not_in_a_pool() {
    let clock = Arc::new(Passing::default());
    persists_or_not(&clock, &in_a_pool(clock.clone()));
}

#[test]
fn commit_persists_or_not_on_a_disk() {
    let clock = Arc::new(Passing::default());
    let mut settings = OfWip::small(Durability::Process, &Arc::new(ManualClock::at(0)));
    settings.clock = clock.clone();
    persists_or_not(&clock, &OfWip::create(Disk::new().files(), PATH, settings).unwrap());
}

#[test]
fn commit_persists_or_not_on_tiers() {
    let clock = Arc::new(Passing::default());
    let mut settings = OfTiered::small(Durability::Process, &Arc::new(ManualClock::at(0)));
    settings.clock = clock.clone();
    persists_or_not(&clock, &OfTiered::create(Disk::new().files(), PATH, settings).unwrap());
}
