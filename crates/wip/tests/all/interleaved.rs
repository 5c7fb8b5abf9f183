//! Tests: operations of the disk engine that are suspended wherever other threads may come between,
//! while others and background work go on, beside a map.
//!
//! One thread does everything, so a seed gives the same history each time. Where an operation hands
//! control out (a change decides, the clock is asked, a table is created), others run within it.

use crate::small::{Draws, PATH, tiny};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use terrace_engine::{
    Change, Chore, Clock, Commit, Cursor, Durability, Durably, Engine, OnDisk, Put, Rest, Write, WriteKind,
};
use terrace_testkit::simfs::{CallKind, Faulty, SimFs};
use terrace_wip::{Settings, Wip};

/// Operations within operations.
const DEPTH: u32 = 3;
const KEYS: u64 = 160;
/// Every so many keys is one of the few that half of all operations are about.
const RARE: u64 = 20;

/// What a key has, and since which change.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    entry: Option<(Vec<u8>, Option<u64>)>,
    changed: u64,
}

/// A store beside a map.
struct Actor {
    store: OnceLock<Arc<Wip>>,
    now: AtomicU64,
    draws: Mutex<Draws>,
    model: Mutex<BTreeMap<Vec<u8>, Known>>,
    changes: AtomicU64,
    depth: AtomicU32,
    /// Whether others may come between when the clock is next asked.
    is_clock_next: AtomicBool,
    /// Whether an operation that waits for background work may run: not within that.
    may_wait: AtomicBool,
    /// How often others came between, by the place.
    between: [AtomicU64; 3],
}

struct ClockOf(Weak<Actor>);

impl Clock for ClockOf {
    fn now_ms(&self) -> u64 {
        let Some(actor) = self.0.upgrade() else { return 0 };
        let now = actor.now.load(Relaxed);
        if actor.is_clock_next.swap(false, Relaxed) {
            actor.others(1);
        }
        // Time stands still within the operation.
        now
    }
}

impl Actor {
    fn new(seed: u64) -> (SimFs, Arc<Self>) {
        let actor = Arc::new(Self {
            store: OnceLock::new(),
            now: AtomicU64::new(1000),
            draws: Mutex::new(Draws(seed)),
            model: Mutex::default(),
            changes: AtomicU64::new(0),
            depth: AtomicU32::new(0),
            is_clock_next: AtomicBool::new(false),
            may_wait: AtomicBool::new(true),
            between: Default::default(),
        });
        let (disk, weak) = (SimFs::new(["/data"]), Arc::downgrade(&actor));
        let files = Faulty::watched(disk.clone(), move |call| {
            let is_table = call.path.extension().is_some_and(|end| end == "table");
            if call.kind == CallKind::Name && is_table {
                let Some(actor) = weak.upgrade() else { return };
                // The job that creates it has not ended.
                let may_wait = actor.may_wait.swap(false, Relaxed);
                actor.others(2);
                actor.may_wait.store(may_wait, Relaxed);
            }
        });
        let store = Wip::create(files, Path::new(PATH), actor.settings()).unwrap();
        assert!(actor.store.set(Arc::new(store)).is_ok());
        (disk, actor)
    }

    fn settings(self: &Arc<Self>) -> Settings {
        let clock = Arc::new(ClockOf(Arc::downgrade(self)));
        Settings { clock, memtable_bytes: 8 << 10, memory: 16 << 20, ..tiny(Durability::Process) }
    }

    fn store(&self) -> &Wip {
        self.store.get().expect("a store")
    }

    fn roll(&self, below: u64) -> u64 {
        self.draws.lock().unwrap().roll(below)
    }

    fn model(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Known>> {
        self.model.lock().unwrap()
    }

    fn key(&self) -> Vec<u8> {
        let number = if self.roll(2) == 0 { self.roll(KEYS) } else { self.roll(KEYS / RARE) * RARE };
        format!("key {number:03}").into_bytes()
    }

    fn value(&self) -> Vec<u8> {
        let len = [1, 20, 300, 8000][self.roll(4) as usize];
        vec![self.roll(256) as u8; len]
    }

    fn expiry(&self) -> Option<u64> {
        (self.roll(3) == 0).then(|| self.now.load(Relaxed) + 1 + self.roll(5000))
    }

    fn known(&self, key: &[u8]) -> Known {
        self.model().get(key).cloned().unwrap_or_default()
    }

    /// What readers see of it now.
    fn live(&self, known: &Known) -> Option<(Vec<u8>, Option<u64>)> {
        let now = self.now.load(Relaxed);
        known.entry.clone().filter(|(_, expires_at)| expires_at.is_none_or(|at| at > now))
    }

    fn change(&self, key: &[u8], entry: Option<(Vec<u8>, Option<u64>)>) {
        let changed = 1 + self.changes.fetch_add(1, Relaxed);
        self.model().insert(key.to_vec(), Known { entry, changed });
    }

    /// Lets others come between.
    fn others(&self, place: usize) {
        if self.depth.load(Relaxed) >= DEPTH || self.store.get().is_none() {
            return;
        }
        self.depth.fetch_add(1, Relaxed);
        let clock_next = self.is_clock_next.swap(false, Relaxed);
        for _ in 0..self.roll(4) {
            self.between[place].fetch_add(1, Relaxed);
            self.act();
        }
        self.is_clock_next.store(clock_next, Relaxed);
        self.depth.fetch_sub(1, Relaxed);
    }

    fn act(&self) {
        let may_wait = self.may_wait.load(Relaxed);
        match self.roll(40) {
            0..6 => self.put(),
            6..10 => self.remove(),
            10..14 => self.commit(),
            14..20 => self.modify(),
            20..25 => _ = self.store().step(Chore::Flush, &|| false),
            25..30 => _ = self.store().step(Chore::Merge, &|| false),
            30 => _ = self.store().step(Chore::Log, &|| false),
            31 if self.roll(6) == 0 => {
                self.store().clear(Durably::Store).unwrap();
                let keys: Vec<_> = self.model().keys().cloned().collect();
                keys.iter().for_each(|key| self.change(key, None));
            }
            32..35 if may_wait => OnDisk::flush(self.store()).unwrap(),
            35..38 if may_wait => {
                let (from, to) = (self.key(), self.key());
                let ends = if from <= to { (from, to) } else { (to, from) };
                self.store().compact(Bound::Included(&ends.0), Bound::Included(&ends.1)).unwrap();
            }
            38 => _ = self.now.fetch_add(self.roll(1000), Relaxed),
            39 if self.roll(4) == 0 => {
                // Most goes, so that small buckets are left.
                let is_large =
                    |known: &Known| known.entry.as_ref().is_some_and(|(value, _)| value.len() > 300);
                let model = self.model().clone();
                for (key, known) in model {
                    if is_large(&known) || self.roll(4) > 0 {
                        self.delete(&key);
                    }
                }
                // Nobody writes for a while: garbage goes, and neighbours are joined.
                for _ in 0..15 {
                    self.now.fetch_add(1000, Relaxed);
                    for chore in [Chore::Flush, Chore::Merge] {
                        let mut left = 30;
                        while left > 0 && self.store().step(chore, &|| false) == Rest::More {
                            left -= 1;
                        }
                    }
                }
            }
            _ => self.get(),
        }
    }

    fn get(&self) {
        let key = self.key();
        let found = self.store().get(&key).unwrap().map(|value| (value.to_vec(), value.expires_at()));
        assert_eq!(found, self.live(&self.known(&key)), "{key:?}");
    }

    fn put(&self) {
        let (key, value, expires_at) = (self.key(), self.value(), self.expiry());
        self.store().put(Put { key: &key, value: &value, expires_at }, Durably::Store).unwrap();
        self.change(&key, Some((value, expires_at)));
    }

    fn delete(&self, key: &[u8]) {
        self.store().delete(key, Durably::Store).unwrap();
        self.change(key, None);
    }

    fn remove(&self) {
        let key = self.key();
        let before = self.live(&self.known(&key));
        self.is_clock_next.store(true, Relaxed);
        let was_there = self.store().remove(&key, Durably::Store).unwrap();
        self.is_clock_next.store(false, Relaxed);
        let known = self.known(&key);
        match was_there {
            // It may have expired since it was read.
            true => assert!(known.entry.is_some(), "{key:?} was removed twice"),
            // At one of these instants it was not there.
            false => assert!(before.is_none() || self.live(&known).is_none(), "{key:?} is there"),
        }
        if was_there {
            self.change(&key, None);
        }
    }

    fn modify(&self) {
        let key = self.key();
        let mut seen = None;
        let made = match self.roll(5) {
            0 => None,
            _ => Some((self.value(), self.expiry())),
        };
        let mut change = |entry: Option<terrace_engine::Entry<'_>>| {
            seen = entry.map(|entry| (entry.value.to_vec(), entry.expires_at));
            self.others(0);
            match made.clone() {
                Some((value, expires_at)) => Change::Put { value, expires_at },
                None => Change::Remove,
            }
        };
        self.store().modify(&key, &mut change, Durably::Store).unwrap();
        let known = self.known(&key);
        let is_write = made.is_some() || seen.is_some();
        if is_write {
            match seen {
                Some(_) => assert_eq!(seen, known.entry, "{key:?} has changed since"),
                None => assert_eq!(self.live(&known), None, "{key:?} was added since"),
            }
            self.change(&key, made);
        }
    }

    /// A commit that expects a key as it was before others came between.
    fn commit(&self) {
        let (key, other) = (self.key(), self.key());
        let (before, version) = (self.known(&key), self.store().version(&key).unwrap());
        assert_eq!(version.token().is_some(), self.live(&before).is_some(), "{key:?}");
        if self.roll(2) == 0 {
            self.others(0);
        }
        let value = self.value();
        let put = WriteKind::Put { value: &value, expires_at: None };
        let what = if self.roll(4) == 0 { WriteKind::Remove } else { put };
        let mut writes = vec![Write { key: &key, what }];
        writes.extend((other != key).then_some(Write { key: &other, what: put }));
        self.is_clock_next.store(true, Relaxed);
        let done = self.store().commit(&writes, &[(&key, version)], Durably::Store).unwrap();
        self.is_clock_next.store(false, Relaxed);
        let now = self.known(&key);
        if done == Commit::Done {
            assert_eq!(now.changed, before.changed, "{key:?} has changed since");
            let entry = matches!(what, WriteKind::Put { .. }).then(|| (value.clone(), None));
            self.change(&key, entry);
            if other != key {
                self.change(&other, Some((value, None)));
            }
        } else if version.token().is_some() {
            assert!(now.changed != before.changed || self.live(&now).is_none(), "{key:?} is as before");
        }
    }

    fn check(&self, store: &impl Engine) {
        let (mut found, mut cursor) = (BTreeMap::new(), Cursor::START);
        while !cursor.is_end() {
            let mut each = |key: &[u8], entry: terrace_engine::Entry<'_>| {
                found.insert(key.to_vec(), (entry.value.to_vec(), entry.expires_at));
            };
            cursor = store.scan(&cursor, 50, &mut each).unwrap();
        }
        let model = self.model().clone();
        let expected: BTreeMap<_, _> =
            model.iter().filter_map(|(key, known)| Some((key.clone(), self.live(known)?))).collect();
        let differs = expected.iter().find(|(key, entry)| found.get(*key) != Some(entry));
        assert!(differs.is_none() && found.len() == expected.len(), "{differs:?}");
    }
}

#[test]
fn interleaved_operations_match_a_map() {
    let mut sums = [0; 3];
    let (mut splits, mut joins, mut merges) = (0, 0, 0);
    for seed in 0..60 {
        let (disk, actor) = Actor::new(seed);
        for turn in 0..400 {
            actor.act();
            if turn % 20 == 0 {
                actor.check(actor.store());
            }
        }
        let stats = actor.store().stats().disk.unwrap();
        (splits, joins, merges) = (splits + stats.splits, joins + stats.joins, merges + stats.compactions);
        (0..3).for_each(|place| sums[place] += actor.between[place].load(Relaxed));
        actor.check(actor.store());
        // A killed process, and a new one.
        let after = disk.fork();
        let store = Wip::open(after, Path::new(PATH), actor.settings()).unwrap();
        actor.check(&store);
        assert!(store.check(&mut |_, _| {}).is_sound());
    }
    assert!(splits > 10 && joins > 0 && merges > 500, "{splits} splits, {joins} joins, {merges} merges");
    assert!(sums.iter().all(|&sum| sum > 1000), "{sums:?}");
}
