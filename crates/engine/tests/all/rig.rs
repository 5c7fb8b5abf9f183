//! A store beside a map, through background work in any order, restarts, and power failures of a
//! simulated disk.

use crate::contents::{Model, contents};
use crate::place::{Disk, Place};
use crate::small::{Draws, PATH};
use crate::subject::Subject;
use crate::tiny::run_aside;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use terrace_engine::{Direction, Durability, Durably, Engine, ManualClock, Put, Rest, Write, WriteKind};

/// A store beside a map.
pub(crate) struct Rig<S: Subject, P: Place = Disk> {
    place: P,
    clock: Arc<ManualClock>,
    durability: Durability,
    store: Option<Arc<S::Store>>,
    draws: Draws,
    model: Model,
    /// The model after each write since the last one that is known to be durable.
    since: Vec<Model>,
    /// Whether the thread must not wait for cold reads, but makes them aside.
    must_not_wait: bool,
}

impl<S: Subject, P: Place> Rig<S, P> {
    pub(crate) fn new(seed: u64, durability: Durability) -> Self {
        let (place, clock) = (P::new(), Arc::new(ManualClock::at(1000)));
        let store = S::create(place.files(), PATH, S::small(durability, &clock)).unwrap();
        let (store, draws) = (Some(Arc::new(store)), Draws(seed));
        let (model, since) = (Model::new(), vec![Model::new()]);
        Self { place, clock, durability, store, draws, model, since, must_not_wait: false }
    }

    pub(crate) fn store(&self) -> &S::Store {
        self.store.as_deref().expect("an open store")
    }

    /// Runs an operation, which waits for cold reads only if the thread may.
    fn run<T>(&self, mut operation: impl FnMut(&S::Store) -> T) -> T {
        match self.must_not_wait {
            true => run_aside(|| operation(self.store())),
            false => operation(self.store()),
        }
    }

    fn open(&mut self) {
        let opened = S::open(self.place.files(), PATH, S::small(self.durability, &self.clock));
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
                self.run(|store| store.put(put, Durably::Store)).unwrap();
                self.model.insert(key, (value, expires_at));
            }
            12..16 => {
                let key = self.key();
                let was_there = self.run(|store| store.remove(&key, Durably::Store)).unwrap();
                assert_eq!(was_there, self.model.remove(&key).is_some());
            }
            16 => {
                let key = self.key();
                self.run(|store| store.delete(&key, Durably::Store)).unwrap();
                self.model.remove(&key);
            }
            17 if self.store().ordered().is_some() => {
                let (from, at_most) = (self.key(), self.draws.roll(10));
                let ordered = self.store().ordered().expect("asked above");
                let removed =
                    ordered.remove_range(Bound::Included(&from), Bound::Unbounded, at_most, Durably::Store);
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
                self.run(|store| store.clear(Durably::Store)).unwrap();
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
        self.run(|store| store.commit(&writes, &[], Durably::Store)).unwrap();
        for (key, value) in batch {
            match value {
                Some(value) => _ = self.model.insert(key, (value, None)),
                None => _ = self.model.remove(&key),
            }
        }
    }

    pub(crate) fn work(&mut self) {
        let store = self.store.as_deref().expect("an open store");
        S::disturb(store, &mut self.draws);
        let chores = S::CHORES;
        let chore = chores[self.draws.roll(chores.len() as u64) as usize];
        let most = 1 + self.draws.roll(20);
        for _ in 0..most {
            if self.store().step(chore, &|| false) == Rest::Idle {
                return;
            }
        }
    }

    pub(crate) fn contents(&self) -> Model {
        contents(self.store()).expect("a sound store")
    }

    fn check(&mut self) {
        let (found, model) = (self.contents(), &self.model);
        let lost: Vec<_> = model.iter().filter(|(key, entry)| found.get(*key) != Some(entry)).collect();
        let extra: Vec<_> = found.keys().filter(|key| !model.contains_key(*key)).collect();
        assert!(found == *model, "the store differs from the map: {lost:.2?} differ, {extra:?} are too many");
        let key = self.key();
        let get = |store: &S::Store| {
            store.get(&key).map(|found| found.map(|value| (value.to_vec(), value.expires_at())))
        };
        let found = self.run(get).unwrap();
        assert_eq!(found.as_ref(), self.model.get(&key), "{key:?}");
        if self.store().len().is_exact() {
            assert_eq!(self.store().len().get(), self.model.len() as u64);
        }
        let (from, to) = (self.key(), self.key());
        let Some(ordered) = self.store().ordered() else { return };
        let ends = (Bound::Excluded(&from[..]), Bound::Included(&to[..]));
        let mut range = ordered.range(ends.0, ends.1, Direction::Backward).unwrap();
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

    pub(crate) fn restart(&mut self) {
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
        self.place.crash(self.draws.0);
        self.open();
        let found = self.contents();
        if P::KEEPS_ALL {
            self.since.drain(..self.since.len() - 1);
        }
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

/// Writes, works, restarts and loses power in any order.
pub(crate) fn try_history<S: Subject>(seed: u64, durability: Durability) {
    run_history(Rig::<S, Disk>::new(seed, durability));
}

/// The same, on a thread that must not wait for cold reads.
pub(crate) fn try_history_aside<S: Subject>(seed: u64, durability: Durability) {
    run_history(Rig::<S, Disk> { must_not_wait: true, ..Rig::new(seed, durability) });
}

/// The same in another place.
pub(crate) fn try_history_in<S: Subject, P: Place>(seed: u64, durability: Durability) {
    run_history(Rig::<S, P>::new(seed, durability));
}

fn run_history<S: Subject, P: Place>(mut rig: Rig<S, P>) {
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
