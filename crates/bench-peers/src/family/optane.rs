//! The model of slow memory `optane-100`: our indexes beside the tables that their papers compare
//! with.
//!
//! By the model's own count of its waits, as in `cargo peers slow`: exact, and the same on every
//! machine. The processor's work costs nothing there, nor does the process's memory: the baselines'
//! locks, and a Rewo-Hash's Cached Table if it has one.

use super::{LevelHash, Outcome, RewoHash, TurboHash, wants};
use crate::plan::Plan;
use std::sync::Arc;
use terrace_bench::{
    Baseline, Bch, Bound, Cceh, PathHashing, Pfht, Random, Row, ScrambledZipfian, Section, Space, spread,
};
use terrace_index::{Inserted, PointIndex, Stored, U64};
use terrace_medium::{MappedMedium, Mapping, Pmem};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{Profile, Slow};

type Optane = Slow<Pmem>;

const UNIT: &str = "million operations/s, modelled";

pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let size = Size { keys: plan.records() / 10, operations: plan.records() / 100 };
    Ok(vec![turbo(plan, size)?, rewo(plan, size)?, level(plan, size)?])
}

#[derive(Clone, Copy)]
struct Size {
    /// Keys of a table.
    keys: u64,
    /// Operations that are measured together.
    operations: u64,
}

fn optane(mapping: Mapping) -> Optane {
    Slow::counted(Pmem::new(mapping), Profile::OPTANE_100)
}

/// A map of 8-byte keys, ours or a baseline. Each operation returns whether it found what it
/// should.
trait Table {
    fn medium(&self) -> Memory;
    fn load(&self) -> f64;
    fn get(&self, key: u64) -> bool;
    fn insert(&mut self, key: u64) -> bool;
    fn update(&mut self, key: u64) -> bool;
    /// An insert of an absent key, which need not search for it.
    fn add(&mut self, key: u64) -> bool;
}

/// What holds a table's memory.
enum Memory {
    InPool(Pool<Optane>),
    InSpace(Arc<Space<Optane>>),
}

impl Memory {
    fn medium(&self) -> &Optane {
        match self {
            Self::InPool(pool) => pool.medium(),
            Self::InSpace(space) => space.medium(),
        }
    }
}

struct Ours<I>(I);

impl<I: PointIndex<Medium = Optane, Kind = U64> + Stored<Medium = Optane> + 'static> Ours<I> {
    fn with_capacity(capacity: u64, keys: u64) -> Outcome<Box<dyn Table>> {
        let pool = PoolOptions::anonymous().hash_seed(1).create_on(optane(memory(keys)?))?;
        Ok(Box::new(Self(I::create(&pool, "table", capacity)?)))
    }
}

fn memory(keys: u64) -> Outcome<Mapping> {
    let bytes = ((64 << 20) + keys * 160) as usize;
    let mapping = Mapping::anonymous(bytes, bytes)?;
    mapping.advise_huge_pages();
    Ok(mapping)
}

impl<I: PointIndex<Medium = Optane, Kind = U64>> Table for Ours<I> {
    fn medium(&self) -> Memory {
        Memory::InPool(self.0.pool().clone())
    }
    fn load(&self) -> f64 {
        self.0.stats(&self.0.pool().pin()).load_factor()
    }
    fn get(&self, key: u64) -> bool {
        self.0.get(&self.0.pool().pin(), &key).is_some()
    }
    fn insert(&mut self, key: u64) -> bool {
        self.0.insert(&self.0.pool().pin(), &key, key) == Ok(Inserted::New)
    }
    fn update(&mut self, key: u64) -> bool {
        self.0.update(&self.0.pool().pin(), &key, !key).is_some()
    }
    fn add(&mut self, key: u64) -> bool {
        self.insert(key)
    }
}

struct Theirs<B>(B, Arc<Space<Optane>>);

impl<B: Baseline<Optane> + 'static> Theirs<B> {
    fn with_slots(slots: u64, keys: u64) -> Outcome<Box<dyn Table>> {
        let space = Arc::new(Space::anonymous((64 << 20) + keys * 160, optane)?);
        Ok(Box::new(Self(B::create(space.clone(), slots)?, space)))
    }
}

impl<B: Baseline<Optane>> Table for Theirs<B> {
    fn medium(&self) -> Memory {
        Memory::InSpace(self.1.clone())
    }
    fn load(&self) -> f64 {
        self.0.keys() as f64 / self.0.slots() as f64
    }
    fn get(&self, key: u64) -> bool {
        self.0.get(key).is_some()
    }
    fn insert(&mut self, key: u64) -> bool {
        self.0.insert(key, key) == Ok(true)
    }
    fn update(&mut self, key: u64) -> bool {
        self.0.update(key, !key)
    }
    fn add(&mut self, key: u64) -> bool {
        self.0.add(key, key).is_ok()
    }
}

type Step<'a> = &'a mut dyn FnMut(&mut dyn Table, u64) -> bool;

/// Does `step` with each of the numbers. Returns million operations a second, by the modelled
/// waits.
fn rate(table: &mut dyn Table, numbers: std::ops::Range<u64>, step: Step<'_>) -> f64 {
    let (memory, operations) = (table.medium(), numbers.end - numbers.start);
    let all = || numbers.for_each(|n| assert!(step(table, n), "operation {n} did not do what it should"));
    let (_, waited_ns, ()) = memory.medium().during(all);
    per_second(operations, waited_ns)
}

/// Inserts from key number `first` on until the load is reached or the table refuses a key (a small
/// table does so earlier). Returns the next key number and million inserts a second.
fn fill(table: &mut dyn Table, first: u64, load: f64, step: Step<'_>) -> (u64, f64) {
    const PIECE: u64 = 64;
    let memory = table.medium();
    let mut next = first;
    let (_, waited_ns, ()) = memory.medium().during(|| {
        while table.load() < load {
            let taken = (next..next + PIECE).take_while(|&n| step(table, spread(n))).count() as u64;
            next += taken;
            if taken < PIECE {
                break;
            }
        }
    });
    (next, per_second(next - first, waited_ns))
}

/// Millions a second. A table that the modelled cache holds does not wait; then this assumes one
/// ns.
fn per_second(operations: u64, waited_ns: u64) -> f64 {
    operations as f64 * 1000.0 / waited_ns.max(1) as f64
}

fn row(name: &str, figures: &[f64]) -> Row {
    let peers = figures[1..].iter().copied().map(Some).collect();
    Row { ours: Some(figures[0]), peers, ..Row::new(name) }
}

fn turbo(plan: &Plan, size: Size) -> Outcome<Section> {
    let title = format!(
        "TurboHash beside CCEH on optane-100, one thread: tables for a tenth of {} keys grow until they hold them all; then gets of random ones",
        size.keys
    );
    let mut section = Section::new(&title, UNIT, &["CCEH"]).ours_named("Turbo");
    if !wants(plan, "optane: Turbo, CCEH") {
        return Ok(section);
    }
    let mut tables = [
        Ours::<TurboHash<Optane>>::with_capacity(size.keys / 10, size.keys)?,
        Theirs::<Cceh<Optane>>::with_slots(size.keys / 10, size.keys)?,
    ];
    let mut measured = |name, numbers: std::ops::Range<u64>, step: Step<'_>| {
        let rates = tables.each_mut().map(|table| rate(&mut **table, numbers.clone(), step));
        section.rows.push(row(name, &rates).against(0, Bound::AtLeast(2.0)));
    };
    let mut random = Random::new(5);
    measured("insert, growing tenfold", 0..size.keys, &mut |table, n| table.insert(spread(n)));
    measured("get", 0..size.operations, &mut |table, _| table.get(spread(random.below(size.keys))));
    let absent = size.keys..size.keys + size.operations;
    measured("get absent", absent, &mut |table, n| !table.get(spread(n)));
    measured("update", 0..size.operations, &mut |table, _| table.update(spread(random.below(size.keys))));
    let fullness = tables.map(|table| format!("{:.2}", table.load()));
    if let Some(row) = section.rows.first_mut() {
        row.note = Some(format!("load factors at the end: {}", fullness.join(" and ")));
    }
    Ok(section)
}

fn rewo(plan: &Plan, size: Size) -> Outcome<Section> {
    let title = format!(
        "Rewo-Hash beside Level hashing on optane-100, one thread, both at a load of 0.8, tables for {} keys; zipf: exponent 0.99, as in the paper. Each as a pool makes it by default",
        size.keys
    );
    let mut section = Section::new(&title, UNIT, &["Level"]).ours_named("Rewo");
    if !wants(plan, "optane: Rewo, Level") {
        return Ok(section);
    }
    let mut tables = [
        Ours::<RewoHash<Optane>>::with_capacity(size.keys, 2 * size.keys)?,
        Ours::<LevelHash<Optane>>::with_capacity(size.keys, 2 * size.keys)?,
    ];
    let filled =
        tables.each_mut().map(|table| fill(&mut **table, 0, 0.8, &mut |table, key| table.insert(key)).0);
    let keys = filled[0].min(filled[1]);
    let zipf = ScrambledZipfian::new(keys);
    let mut random = Random::new(5);
    let mut measured = |name, first: u64, least: Option<f64>, step: Step<'_>| {
        let rates = tables.each_mut().map(|table| rate(&mut **table, first..first + size.operations, step));
        let row = row(name, &rates);
        section.rows.push(match least {
            Some(least) => row.against(0, Bound::AtLeast(least)),
            None => row,
        });
    };
    measured("get, zipf", 0, Some(1.57), &mut |table, _| table.get(spread(zipf.next(&mut random))));
    let mut random = Random::new(6);
    measured("get, uniform", 0, None, &mut |table, _| table.get(spread(random.below(keys))));
    measured("get absent", 1 << 40, None, &mut |table, n| !table.get(spread(n)));
    measured("update, zipf", 0, Some(1.04), &mut |table, _| table.update(spread(zipf.next(&mut random))));
    measured("insert", 1 << 41, Some(1.04), &mut |table, n| table.insert(spread(n)));
    Ok(section)
}

const FROM: f64 = 0.8;
const TO: f64 = 0.9;

fn level(plan: &Plan, size: Size) -> Outcome<Section> {
    let title = format!(
        "Level hashing beside the tables that its paper measures on optane-100, one thread: tables for {} keys, of 128-byte buckets of 7 pairs (path hashing: of cells). Theirs \
         look for a key before they add it, as ours does, but in the rows that say so, as in the paper",
        size.keys
    );
    let columns = [Pfht::<Optane>::NAME, PathHashing::<Optane>::NAME, Bch::<Optane>::NAME];
    let mut section = Section::new(&title, UNIT, &columns).ours_named("Level");
    if !wants(plan, "optane: Level, PFHT, path hashing") {
        return Ok(section);
    }
    for (what, step) in [
        ("", (|table, key| table.insert(key)) as fn(&mut dyn Table, u64) -> bool),
        (", theirs without looking", |table, key| table.add(key)),
    ] {
        let mut tables = [
            Ours::<LevelHash<Optane>>::with_capacity(size.keys, 2 * size.keys)?,
            Theirs::<Pfht<Optane>>::with_slots(size.keys, 2 * size.keys)?,
            Theirs::<PathHashing<Optane>>::with_slots(size.keys, 2 * size.keys)?,
            Theirs::<Bch<Optane>>::with_slots(size.keys, 2 * size.keys)?,
        ];
        let mut to = |next: [u64; 4], load| {
            let mut nth = 0;
            tables.each_mut().map(|table| {
                nth += 1;
                fill(&mut **table, next[nth - 1], load, &mut |table, key| step(table, key))
            })
        };
        let low = to([0; 4], FROM);
        let high = to(low.map(|filled| filled.0), TO);
        let name = |range: &str| format!("insert, load {range}{what}");
        section.rows.push(row(&name("0 to 0.8"), &low.map(|filled| filled.1)));
        let full = row(&name("0.8 to 0.9"), &high.map(|filled| filled.1));
        if what.is_empty() {
            for (nth, peer) in columns.iter().enumerate().take(2) {
                let name = format!("{}: {peer}", full.name);
                section.rows.push(Row { name, ..full.clone() }.against(nth, Bound::AtLeast(1.4)));
            }
        } else {
            section.rows.push(full);
        }
        if what.is_empty() {
            let mut random = Random::new(5);
            let there = high.map(|filled| filled.0).into_iter().min().unwrap_or(1);
            let mut gets = |name, numbers: std::ops::Range<u64>, step: Step<'_>| {
                let rates = tables.each_mut().map(|table| rate(&mut **table, numbers.clone(), step));
                section.rows.push(row(name, &rates));
            };
            gets("get, load 0.9", 0..size.operations, &mut |table, _| table.get(spread(random.below(there))));
            let absent = 1 << 40..(1 << 40) + size.operations;
            gets("get absent, load 0.9", absent, &mut |table, n| !table.get(spread(n)));
        }
    }
    Ok(section)
}
