//! `cargo peers wip-answers`: the answers of the store beside those of another store, over random
//! operations. It fails at the first answer that differs.
//!
//! Ours has 4 MiB of memory, so that it flushes, merges and splits on the way.

use super::SETUP;
use super::tables::Tables;
use crate::files::{Outcome, Place, Setup, Side, Stored, Write, alone, peers};
use crate::plan::{Plan, say};
use tempfile::TempDir;
use terrace_bench::{Bound, Random, Section, spread};

/// The least memory that ours takes.
const LEAST: Setup = Setup { memory: 4 << 20, is_synced: false };
/// Keys, so many that their records fill a bucket of that memory more than once.
const KEYS: u64 = 400_000;
const VALUE_MAX: u64 = 600;
/// Operations between two reopens.
const REOPEN_EVERY: u64 = 100_000;

pub(crate) fn sections(plan: &Plan) -> Result<Vec<Section>, Box<dyn std::error::Error>> {
    compare_all(plan).map_err(|error| -> Box<dyn std::error::Error> { error })
}

fn compare_all(plan: &Plan) -> Outcome<Vec<Section>> {
    let (place, mut tables) = (Place::of(plan)?, Tables::new(plan));
    let operations = plan.records.unwrap_or(if plan.quick { 20_000 } else { 1_000_000 });
    let peer = peers(plan).next().ok_or("this program was built without any peer")?;
    say(&format!("wip-answers {}", peer.name()));
    let mut answers = Answers::new(&place, peer)?;
    for nth in 0..operations {
        answers.step().map_err(|error| format!("operation {nth}, {}: {error}", peer.name()))?;
        if (nth + 1) % REOPEN_EVERY == 0 {
            answers.reopen()?;
        }
    }
    answers.compare_whole()?;
    let name = format!("operations with the same answers as {}", peer.name());
    tables.answers.rows.push(alone(name, operations as f64, None));
    // Without splits it would have shown less than it says.
    let bound = (!plan.quick && plan.records.is_none()).then_some(Bound::AtLeast(1.0));
    tables.answers.rows.push(alone("splits of ours meanwhile".into(), answers.splits() as f64, bound));
    Ok(tables.sections())
}

/// Both stores, and what comes next.
struct Answers {
    peer: Side,
    directories: [TempDir; 2],
    stores: Option<[Box<dyn Stored>; 2]>,
    random: Random,
    /// Splits before the last reopen.
    splits: u64,
}

fn open(peer: Side, directories: &[TempDir; 2]) -> Outcome<[Box<dyn Stored>; 2]> {
    let path = |nth: usize| directories[nth].path().join("store");
    Ok([Side::Ours.open(&path(0), LEAST)?, peer.open(&path(1), SETUP)?])
}

/// What both have answered must be the same.
fn same<T: PartialEq>(what: &str, [ours, theirs]: [T; 2]) -> Outcome<T> {
    if ours == theirs { Ok(ours) } else { Err(format!("{what}: the answers differ").into()) }
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

impl Answers {
    fn new(place: &Place, peer: Side) -> Outcome<Self> {
        let directories = [place.fresh()?, place.fresh()?];
        let stores = Some(open(peer, &directories)?);
        Ok(Self { peer, directories, stores, random: Random::new(2_718), splits: 0 })
    }

    /// Closes both, and opens them again.
    fn reopen(&mut self) -> Outcome<()> {
        self.splits = self.splits();
        self.stores = None;
        self.stores = Some(open(self.peer, &self.directories)?);
        Ok(())
    }

    fn stores(&self) -> [&dyn Stored; 2] {
        let stores = self.stores.as_ref().expect("both are open between operations");
        [&*stores[0], &*stores[1]]
    }

    /// Buckets that ours has split.
    fn splits(&self) -> u64 {
        self.splits + self.stores()[0].figures().splits
    }

    fn key(&mut self) -> Vec<u8> {
        // Neighbours in the order of the keys are often drawn together.
        let number = self.random.below(KEYS);
        format!("{:08x}", spread(number) >> 32).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let mut value = vec![0; self.random.below(VALUE_MAX + 1) as usize];
        self.random.fill(&mut value);
        value
    }

    fn both<T>(&self, answer: impl Fn(&dyn Stored) -> Outcome<T>) -> Outcome<[T; 2]> {
        let [ours, theirs] = self.stores();
        Ok([answer(ours)?, answer(theirs)?])
    }

    /// One random operation on both.
    fn step(&mut self) -> Outcome<()> {
        match self.random.below(100) {
            0..40 => {
                let (key, value) = (self.key(), self.value());
                self.both(|store| store.put(&key, &value)).map(drop)
            }
            40..50 => {
                let key = self.key();
                self.both(|store| store.delete(&key)).map(drop)
            }
            50..55 => self.batch(),
            55..85 => {
                let key = self.key();
                same("get", self.both(|store| value_of(store, &key))?).map(drop)
            }
            85..90 => {
                // No key of this length was put.
                let key = [&self.key()[..], b"x"].concat();
                same("get of an absent key", self.both(|store| value_of(store, &key))?).map(drop)
            }
            90..97 => self.range(),
            _ => self.snapshot(),
        }
    }

    fn batch(&mut self) -> Outcome<()> {
        let steps: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..1 + self.random.below(20))
            .map(|_| {
                let is_put = self.random.below(3) > 0;
                (self.key(), is_put.then(|| self.value()))
            })
            .collect();
        let batch: Vec<Write<'_>> = steps.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
        self.both(|store| store.write(&batch)).map(drop)
    }

    fn range(&mut self) -> Outcome<()> {
        let (from, most) = (self.key(), 1 + self.random.below(60) as usize);
        let is_forward = self.random.below(2) == 0;
        let what = if is_forward { "range forward" } else { "range backward" };
        same(what, self.both(|store| entries(store, &from, is_forward, most))?).map(drop)
    }

    fn snapshot(&mut self) -> Outcome<()> {
        let keys: Vec<Vec<u8>> = (0..8).map(|_| self.key()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        same("snapshot", self.both(|store| store.snapshot(&keys))?).map(drop)
    }

    /// Every entry of both, both ways.
    fn compare_whole(&self) -> Outcome<()> {
        for (is_forward, from) in [(true, &b""[..]), (false, b"~")] {
            same("all entries", self.both(|store| entries(store, from, is_forward, usize::MAX))?)?;
        }
        Ok(())
    }
}

fn value_of(store: &dyn Stored, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
    let mut found = None;
    let is_there = store.get(key, &mut |value| found = Some(value.to_vec()))?;
    assert_eq!(is_there, found.is_some(), "a value is visited if there is one");
    Ok(found)
}

fn entries(store: &dyn Stored, from: &[u8], is_forward: bool, most: usize) -> Outcome<Entries> {
    let mut all = Vec::new();
    store.range(from, is_forward, most, &mut |key, value| all.push((key.to_vec(), value.to_vec())))?;
    Ok(all)
}
