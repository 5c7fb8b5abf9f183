//! Tests: the disk engine beside a map, through background work in any order, restarts, and power
//! failures of a simulated disk.

use crate::wip_script::contents;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use terrace_engine::wip::{Settings, Wip};
use terrace_engine::{
    Chore, Direction, Durability, Durably, Engine, ManualClock, Ordered, Put, Rest, Write, WriteKind,
};
use terrace_testkit::simfs::SimFs;

pub(crate) type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

pub(crate) const PATH: &str = "/data/store";

/// Random numbers.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// A store with tiny parts, so that a short history has flushes, merges and splits.
pub(crate) fn settings(durability: Durability, clock: &Arc<ManualClock>) -> Settings {
    let mut settings = Settings::with_memory(1 << 20, Arc::clone(clock) as Arc<_>, 12_345);
    settings.memtable_bytes = 16 << 10;
    settings.compress = false;
    settings.fanout = 3;
    settings.split_into = 3;
    settings.segment_bytes = 16 << 10;
    settings.log_bytes = 64 << 10;
    settings.durability = durability;
    settings
}

struct Rig {
    files: SimFs,
    clock: Arc<ManualClock>,
    durability: Durability,
    store: Option<Arc<Wip<SimFs>>>,
    draws: Draws,
    model: Model,
    /// The model after each write since the last one that is known to be durable.
    since: Vec<Model>,
}

impl Rig {
    fn new(seed: u64, durability: Durability) -> Self {
        let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
        let store = Wip::create(files.clone(), Path::new(PATH), settings(durability, &clock)).unwrap();
        let (store, draws) = (Some(Arc::new(store)), Draws(seed));
        Self { files, clock, durability, store, draws, model: Model::new(), since: vec![Model::new()] }
    }

    fn store(&self) -> &Wip<SimFs> {
        self.store.as_deref().expect("an open store")
    }

    fn open(&mut self) {
        let opened = Wip::open(self.files.clone(), Path::new(PATH), settings(self.durability, &self.clock));
        self.store =
            Some(Arc::new(opened.unwrap_or_else(|error| panic!("the store does not open: {error}"))));
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.draws.roll(600);
        match number % 7 {
            0 => Vec::from([b'k'; 40])[..(number % 40) as usize].to_vec(),
            1 => number.to_le_bytes().to_vec(),
            _ => format!("key {number:04}").into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.draws.roll(60) {
            0 => 20_000,
            1..10 => 600,
            len => len,
        };
        vec![self.draws.roll(256) as u8; len as usize]
    }

    /// Notes that the model has changed.
    fn wrote(&mut self) {
        if self.durability == Durability::Power {
            self.since.clear();
        }
        self.since.push(self.model.clone());
    }

    fn write(&mut self) {
        match self.draws.roll(20) {
            0..12 => {
                let (key, value) = (self.key(), self.value());
                let expires_at = (self.draws.roll(9) == 0).then_some(1_000_000 + self.draws.roll(9));
                let put = Put { key: &key, value: &value, expires_at };
                self.store().put(put, Durably::Store).unwrap();
                self.model.insert(key, (value, expires_at));
            }
            12..16 => {
                let key = self.key();
                let was_there = self.store().remove(&key, Durably::Store).unwrap();
                assert_eq!(was_there, self.model.remove(&key).is_some());
            }
            16 => {
                let key = self.key();
                self.store().delete(&key, Durably::Store).unwrap();
                self.model.remove(&key);
            }
            17 => {
                let (from, at_most) = (self.key(), self.draws.roll(10));
                let removed = self.store().remove_range(
                    Bound::Included(&from),
                    Bound::Unbounded,
                    at_most,
                    Durably::Store,
                );
                let keys: Vec<_> = self.model.range(from..).map(|(key, _)| key.clone()).collect();
                let gone = keys.len().min(at_most as usize);
                assert_eq!(
                    removed.unwrap(),
                    (gone as u64, keys.get(gone).map(|key| key.clone().into_boxed_slice()))
                );
                // Each for itself: a crash may keep some.
                for key in &keys[..gone] {
                    self.model.remove(key);
                    self.since.push(self.model.clone());
                }
            }
            18 if self.draws.roll(10) == 0 => {
                self.store().clear(Durably::Store).unwrap();
                self.model.clear();
                self.since.clear();
            }
            _ => self.write_batch(),
        }
        self.wrote();
    }

    fn write_batch(&mut self) {
        let batch: BTreeMap<Vec<u8>, Option<Vec<u8>>> = (0..self.draws.roll(20))
            .map(|_| (self.key(), (self.draws.roll(4) > 0).then(|| self.value())))
            .collect();
        let writes: Vec<Write<'_>> = batch
            .iter()
            .map(|(key, value)| {
                let put = |value| WriteKind::Put { value, expires_at: None };
                Write { key, what: value.as_deref().map_or(WriteKind::Remove, put) }
            })
            .collect();
        self.store().commit(&writes, &[], Durably::Store).unwrap();
        for (key, value) in batch {
            match value {
                Some(value) => _ = self.model.insert(key, (value, None)),
                None => _ = self.model.remove(&key),
            }
        }
    }

    fn work(&mut self) {
        let chore = [Chore::Flush, Chore::Merge, Chore::Log][self.draws.roll(3) as usize];
        let most = 1 + self.draws.roll(20);
        for _ in 0..most {
            if self.store().step(chore, &|| false) == Rest::Idle {
                return;
            }
        }
    }

    fn contents(&self) -> Model {
        contents(self.store()).expect("a sound store")
    }

    fn check(&mut self) {
        assert!(self.contents() == self.model, "the store differs from the map");
        let key = self.key();
        let found = self.store().get(&key).unwrap().map(|value| (value.to_vec(), value.expires_at()));
        assert_eq!(found.as_ref(), self.model.get(&key), "{key:?}");
        let (from, to) = (self.key(), self.key());
        let ends = (Bound::Excluded(&from[..]), Bound::Included(&to[..]));
        let mut range = self.store().range(ends.0, ends.1, Direction::Backward).unwrap();
        let mut keys = Vec::new();
        while range
            .visit(7, &mut |key, _| {
                keys.push(key.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap()
        {}
        let within = |key: &Vec<u8>| *key > from && *key <= to;
        let expected: Vec<_> = self.model.keys().filter(|key| within(key)).rev().cloned().collect();
        assert_eq!(keys, expected);
    }

    fn restart(&mut self) {
        let store = self.store.take().expect("an open store");
        match self.draws.roll(2) {
            0 => store.close().unwrap(),
            _ => drop(store),
        }
        self.open();
    }

    /// Power fails. What was promised must be there, and nothing that never was.
    fn fail_power(&mut self) {
        self.store = None;
        self.files.crash(self.draws.0);
        self.open();
        let found = self.contents();
        let kept = self.since.iter().position(|model| *model == found);
        let Some(_) = kept else {
            let last = self.since.last().expect("a state");
            let differs = last.iter().find(|(key, entry)| found.get(*key) != Some(entry)).map(|(key, _)| key);
            panic!(
                "{} states, none is what is left: {} keys for {}, {differs:?}",
                self.since.len(),
                found.len(),
                last.len()
            );
        };
        self.model = found;
        self.since = vec![self.model.clone()];
    }
}

fn try_history(seed: u64, durability: Durability) {
    let mut rig = Rig::new(seed, durability);
    let turns = 300 + rig.draws.roll(500);
    for turn in 0..turns {
        match rig.draws.roll(100) {
            0 => rig.restart(),
            1 => rig.fail_power(),
            2..5 => rig.check(),
            5..30 => rig.work(),
            _ => rig.write(),
        }
        assert!(turn < turns);
    }
    rig.check();
    rig.restart();
    rig.check();
    let report = rig.store().check(&mut |_, _| {});
    assert!(report.is_sound(), "{:?}", report.findings);
}

#[test]
fn histories_with_power_failures_match_a_map() {
    (0..30).for_each(|seed| try_history(seed, Durability::Power));
}

#[test]
fn histories_without_syncs_keep_a_prefix() {
    (100..130).for_each(|seed| try_history(seed, Durability::Process));
}

#[test]
fn data_larger_than_memory_is_split_into_buckets() {
    let mut rig = Rig::new(7, Durability::Process);
    for number in 0..40_000u64 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        rig.store()
            .put(Put { key: &key, value: &[number as u8; 100], expires_at: None }, Durably::Later)
            .unwrap();
        if number % 50 == 0 {
            rig.work();
        }
    }
    while rig.store().step(Chore::Flush, &|| false) == Rest::More {}
    while rig.store().step(Chore::Merge, &|| false) == Rest::More {}
    let disk = rig.store().stats().disk.unwrap();
    assert!(disk.buckets > 8 && disk.splits > 0, "{disk:?}");
    let user = 40_000 * 108;
    // L_max + N / (N - 1), and the formats' own bytes.
    let written = disk.table_bytes_written as f64 / user as f64;
    assert!(written < 4.5 + 0.5, "{written}");
    for number in 0..40_000u64 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let value = rig.store().get(&key).unwrap().expect("a key that was put");
        assert_eq!(*value, [number as u8; 100]);
    }
    rig.restart();
    assert_eq!(rig.contents().len(), 40_000);
}

/// A batch fills a MemTable's chunks, and its last, short value would still fit into the full one.
#[test]
fn batch_longer_than_a_memtable_survives_a_kill() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let settings = settings(Durability::Process, &clock);
    let store = Wip::create(files.clone(), Path::new(PATH), settings.clone()).unwrap();
    let long = vec![7; 20 << 10];
    let keys: Vec<[u8; 4]> = (0..80u32).map(u32::to_be_bytes).collect();
    let value = |nth: usize| if nth.is_multiple_of(79) { &b"short"[..] } else { &long };
    let puts: Vec<Put<'_>> =
        (0..keys.len()).map(|nth| Put { key: &keys[nth], value: value(nth), expires_at: None }).collect();
    store.put_many(&puts, Durably::Store).into_iter().for_each(|done| done.unwrap());
    let _ = store.step(Chore::Flush, &|| false);
    drop(store);
    let store = Wip::open(files, Path::new(PATH), settings).unwrap();
    for (nth, key) in keys.iter().enumerate() {
        let found = store.get(key).unwrap();
        assert!(found.is_some_and(|found| *found == *value(nth)), "{nth}");
    }
}
