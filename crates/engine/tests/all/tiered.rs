//! Tests: the tiered engine beside a map, through background work in any order, restarts, and power
//! failures of a simulated disk.

use crate::wip::{Draws, Model, PATH};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use terrace_engine::tiered::{Kind, Settings, Shares, Tiered, TieredError};
use terrace_engine::{
    Chore, Cursor, Durability, Durably, Engine, ManualClock, OnDisk, Put, ReadError, Rest, Write, WriteKind,
};
use terrace_index::hash::Turbo;
use terrace_medium::Dram;
use terrace_pool::Pool;
use terrace_testkit::simfs::SimFs;

pub(crate) type Store = Tiered<SimFs, Dram>;

/// A store with tiny parts, so that a short history has blocks that are sealed and rewritten.
pub(crate) fn settings(durability: Durability, clock: &Arc<ManualClock>) -> Settings {
    let mut settings = Settings::with_dram(1 << 20, Arc::clone(clock) as Arc<_>, 12_345);
    settings.shares = Shares { page_bytes: 4 << 10, block_pages: 4, seats: 2 };
    settings.stripes = 16;
    settings.segment_bytes = 16 << 10;
    settings.log_bytes = 64 << 10;
    settings.durability = durability;
    settings
}

pub(crate) fn pools() -> terrace_engine::tiered::MakePool<Dram> {
    Box::new(|| Pool::anonymous(1 << 20))
}

pub(crate) fn create(files: &SimFs, settings: Settings) -> Store {
    Tiered::create::<Turbo<Dram, Kind>>(files.clone(), Path::new(PATH), settings, pools()).unwrap()
}

pub(crate) fn open(files: &SimFs, settings: Settings) -> Result<Store, TieredError> {
    Tiered::open::<Turbo<Dram, Kind>>(files.clone(), Path::new(PATH), settings, pools())
}

/// All entries of a store.
fn contents(store: &Store) -> Result<Model, ReadError> {
    let (mut found, mut cursor) = (Model::new(), Cursor::START);
    while !cursor.is_end() {
        cursor = store.scan(&cursor, 50, &mut |key, entry| {
            found.insert(key.to_vec(), (entry.value.to_vec(), entry.expires_at));
        })?;
    }
    Ok(found)
}

struct Rig {
    files: SimFs,
    clock: Arc<ManualClock>,
    durability: Durability,
    store: Option<Arc<Store>>,
    draws: Draws,
    model: Model,
    /// The model after each write since the last one that is known to be durable.
    since: Vec<Model>,
}

impl Rig {
    fn new(seed: u64, durability: Durability) -> Self {
        let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
        let store = create(&files, settings(durability, &clock));
        let (store, draws) = (Some(Arc::new(store)), Draws(seed));
        Self { files, clock, durability, store, draws, model: Model::new(), since: vec![Model::new()] }
    }

    fn store(&self) -> &Store {
        self.store.as_deref().expect("an open store")
    }

    fn open(&mut self) {
        let opened = open(&self.files, settings(self.durability, &self.clock));
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
            16..18 => {
                let key = self.key();
                self.store().delete(&key, Durably::Store).unwrap();
                self.model.remove(&key);
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
        match self.draws.roll(8) {
            0 => OnDisk::flush(self.store()).unwrap(),
            1 => self.store().evict(),
            2 => OnDisk::compact(self.store(), Bound::Unbounded, Bound::Unbounded).unwrap(),
            _ => {}
        }
        let chores = [Chore::Flush, Chore::Merge, Chore::Log, Chore::Maintain, Chore::Sweep];
        let chore = chores[self.draws.roll(5) as usize];
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
        let (found, model) = (self.contents(), &self.model);
        let lost: Vec<_> = model.iter().filter(|(key, entry)| found.get(*key) != Some(entry)).collect();
        let extra: Vec<_> = found.keys().filter(|key| !model.contains_key(*key)).collect();
        assert!(found == *model, "the store differs from the map: {lost:.2?} differ, {extra:?} are too many");
        let key = self.key();
        let found = self.store().get(&key).unwrap().map(|value| (value.to_vec(), value.expires_at()));
        assert_eq!(found.as_ref(), self.model.get(&key), "{key:?}");
        assert_eq!(self.store().len().get(), self.model.len() as u64);
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

/// A store has numbers for some thousand blocks: each round begins one, and ends the one before.
#[test]
fn numbers_of_blocks_come_back() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    let all = (Bound::Unbounded, Bound::Unbounded);
    for round in 0..5000u32 {
        let value = round.to_le_bytes();
        store.put(Put { key: b"key", value: &value, expires_at: None }, Durably::Later).unwrap();
        store.put(Put { key: &value, value: b"", expires_at: None }, Durably::Later).unwrap();
        OnDisk::flush(&store).unwrap();
        if round % 4 == 0 {
            store.evict();
        }
        if round >= 3 {
            store.delete(&(round - 3).to_le_bytes(), Durably::Store).unwrap();
        }
        if round % 50 == 0 {
            OnDisk::compact(&store, all.0, all.1).unwrap();
        }
        assert_eq!(*store.get(b"key").unwrap().unwrap(), value, "{round}");
    }
    assert_eq!(store.len().get(), 4);
    drop(store);
    let store = open(&files, settings(Durability::Process, &clock)).unwrap();
    assert_eq!(*store.get(b"key").unwrap().unwrap(), 4999u32.to_le_bytes());
    assert_eq!(store.len().get(), 4);
}
