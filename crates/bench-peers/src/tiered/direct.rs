//! All in DRAM, beside the direct engine with its records in a pool.

use super::tables::{Table, Tables};
use super::work::{VALUE_BYTES, get, load, operations, rate, shape};
use super::{NAME, runner};
use crate::files::{Outcome, Place, Setup, Side, Stored, alternate, rounds};
use crate::plan::Plan;
use std::cell::Cell;
use terrace::{ByteSize, Index, Store};
use terrace_bench::{Bound, Choice, Random, Workload};

const TABLE: Table = Table::beside(
    "All in DRAM: one thread, a million records, 4 GiB of DRAM, beside the direct engine with a pool in /dev/shm; writes survive the process on both sides, ours by its log on the disk",
    "thousand/s",
    &["direct"],
);
const MEMORY: usize = 4 << 30;
const INDEXES: [Index; 2] = [Index::Turbo, Index::Clht];
const LINES: [(&str, f64); 4] =
    [("get, uniform", 0.9), ("get, zipf", 0.9), ("update in place, uniform", 1.5), ("insert", 1.0)];

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    let records = if plan.quick { 100_000 } else { 1_000_000 };
    for index in INDEXES {
        let name = |what: &str| format!("{what}: direct with {}", index.name());
        if !LINES.iter().any(|(what, _)| plan.wants(NAME, &name(what))) {
            continue;
        }
        let (ours, theirs) = (place.fresh()?, Place::in_memory().fresh()?);
        let setup = Setup { memory: MEMORY, is_synced: false };
        let options = Store::options().path(theirs.path().join("pool")).index(index);
        let direct = options.size(ByteSize::mib(2048)).create()?;
        let stores: [Box<dyn Stored>; 2] =
            [Side::Tiered.open(&ours.path().join("store"), setup)?, Box::new(direct)];
        stores.iter().try_for_each(|store| load(&**store, VALUE_BYTES, 0..records))?;
        let side = Sides { stores, records, added: [Cell::new(records), Cell::new(records)] };
        for (what, least) in LINES {
            if !plan.begins(NAME, &name(what)) {
                continue;
            }
            (0..2).try_for_each(|nth| side.once(nth, what, 100).map(drop))?;
            let measured = alternate(runner(plan), |nth, round| side.once(nth, what, round))?;
            tables.add(TABLE, rounds(name(what), measured, Some(Bound::AtLeast(least))));
        }
    }
    Ok(())
}

struct Sides {
    stores: [Box<dyn Stored>; 2],
    records: u64,
    /// The numbers that inserts go on from.
    added: [Cell<u64>; 2],
}

impl Sides {
    fn once(&self, nth: usize, what: &str, seed: u64) -> Outcome<f64> {
        let (store, mut random) = (&*self.stores[nth], Random::new(seed));
        let mut value = [0; VALUE_BYTES];
        let mut put = |key: &[u8]| {
            random.fill(&mut value);
            store.put(key, &value)
        };
        let skewed = Choice::Skewed(terrace_bench::Zipfian::THETA);
        let on = |choice| operations(Workload::reads_and_updates(100, choice), self.records, seed);
        match what {
            "get, uniform" => rate(&mut on(Choice::Uniform), self.records, |key| get(store, key)),
            "get, zipf" => rate(&mut on(skewed), self.records, |key| get(store, key)),
            "insert" => self.insert(nth, &mut put),
            _ => rate(&mut on(Choice::Uniform), self.records, put),
        }
    }

    fn insert(&self, nth: usize, put: &mut dyn FnMut(&[u8]) -> Outcome<()>) -> Outcome<f64> {
        let count = self.records / 4;
        let first = self.added[nth].replace(self.added[nth].get() + count);
        let shape = shape(VALUE_BYTES);
        let keys: Vec<Vec<u8>> = (first..first + count)
            .map(|number| {
                let mut key = Vec::new();
                shape.key(number, &mut key);
                key
            })
            .collect();
        let start = std::time::Instant::now();
        keys.iter().try_for_each(|key| put(key))?;
        Ok(count as f64 / start.elapsed().as_secs_f64() / 1e3)
    }
}
