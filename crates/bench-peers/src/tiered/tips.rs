//! TIPS on a model of Optane, by the model's own count of time: exact, and the same on every
//! machine.

use super::NAME;
use super::tables::{Table, Tables};
use crate::files::{Outcome, Place};
use crate::plan::{Plan, say};
use std::sync::Arc;
use terrace_bench::{
    Choice, Converted, Kind, Operations, Row, Space, SpaceFull, Tips, TipsSizes, Workload, spread,
};
use terrace_index::hash::{Clht, Turbo};
use terrace_index::{Decision, Deferred, Fencing, PointIndex, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Mapping, Pmem};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{Profile, Slow, TappedPmem};

const TABLE: Table = Table {
    title: "TIPS on a model of Optane, counted: a million records of 8 + 64 bytes (or as the row says), one thread, all keys in its table in DRAM, replays of 4,096 entries counted in",
    unit: "modelled ns",
    ours: "half gets",
    others: &["95% gets", "gets alone"],
};
const WRITES: Table = Table {
    title: "Writes to persistent memory a put of TIPS, and fences: value, entry and tail of the log, undo log, memory log, index",
    unit: "lines or fences",
    ours: "half gets",
    others: &["95% gets"],
};
const MIXES: [u8; 3] = [50, 95, 100];
const LOGGED: u64 = 4096;

/// Persistent memory, and DRAM, as the model has them.
type Slowed = TappedPmem;
type Near = Slow<Dram>;

fn slowed(mapping: Mapping) -> Slowed {
    TappedPmem::over_slow(Slow::counted(Pmem::new(mapping), Profile::OPTANE_100))
}

pub(super) fn measure(plan: &Plan, _: &Place, tables: &mut Tables) -> Outcome<()> {
    if !plan.wants(NAME, "tips") {
        return Ok(());
    }
    let records = if plan.quick { 50_000 } else { 1_000_000 };
    each::<Clht<Slowed, U64>>("CLHT", records, tables)?;
    each::<Turbo<Slowed, U64>>("TurboHash", records, tables)
}

fn each<I>(name: &str, records: u64, tables: &mut Tables) -> Outcome<()>
where
    I: PointIndex<Medium = Slowed, Kind = U64> + Stored<Medium = Slowed>,
{
    let skews = [0.5, 0.99, 1.5].map(|theta| (theta, 64));
    for (theta, value) in skews.into_iter().chain([32, 128, 256, 512].map(|value| (0.99, value))) {
        let row = format!("{name}, zipf {theta}, {value} bytes");
        say(&format!("{NAME} tips {row}"));
        let mut store = Store::<I>::filled(records, value)?;
        let [half, most, all] = MIXES.map(|reads| store.costs(reads, theta, records));
        let (half, most, all) = (half?, most?, all?);
        let cells = vec![Some(most.ns), Some(all.ns)];
        tables.add(TABLE, Row { ours: Some(half.ns), peers: cells, ..Row::new(row.clone()) });
        for (what, figure) in [("lines", 0), ("fences", 1)] {
            let cells = vec![Some(most.writes[figure])];
            let name = format!("{row}, {what}");
            tables.add(WRITES, Row { ours: Some(half.writes[figure]), peers: cells, ..Row::new(name) });
        }
    }
    Ok(())
}

/// An index in a pool of its own.
struct Indexed<I>(I);

impl<I: PointIndex<Medium = Slowed, Kind = U64>> Converted for Indexed<I> {
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&self.0.pool().pin(), &key)
    }

    fn change_all(&self, changes: &[(u64, Option<u64>)]) -> Result<(), SpaceFull> {
        let (guard, mut deferred) = (self.0.pool().pin(), Deferred::default());
        for (key, word) in changes {
            let set = |_| Decision::Set(*word);
            self.0.change(&guard, key, Fencing::Deferred(&mut deferred), set).map_err(|_| SpaceFull)?;
        }
        self.0.persist_deferred(&guard, deferred);
        Ok(())
    }
}

/// A store of TIPS, and its memory.
struct Store<I> {
    tips: Tips<Near, Slowed, Indexed<I>>,
    near: Arc<Space<Near>>,
    far: Arc<Space<Slowed>>,
    pool: Pool<Slowed>,
    value: Vec<u64>,
}

/// What an operation costs, and a put.
struct Cost {
    ns: f64,
    /// Lines written back, and fences.
    writes: [f64; 2],
}

impl<I> Store<I>
where
    I: PointIndex<Medium = Slowed, Kind = U64> + Stored<Medium = Slowed>,
{
    fn filled(records: u64, value: u64) -> Outcome<Self> {
        let bytes = (64 << 20) + records as usize * 160;
        let mapping = Mapping::anonymous(bytes, bytes)?;
        let pool = PoolOptions::anonymous().hash_seed(1).create_on(slowed(mapping))?;
        let index = Indexed(I::create(&pool, "index", records)?);
        let near = Space::anonymous((64 << 20) + records * 64, |mapping| {
            Slow::counted(Dram::new(mapping), Profile::DRAM)
        })?;
        let far = Space::anonymous((64 << 20) + (records + 2 * LOGGED) * value.next_multiple_of(64), slowed)?;
        let (near, far) = (Arc::new(near), Arc::new(far));
        let sizes = TipsSizes { value_words: value as usize / 8, cached: records, logged: LOGGED };
        let tips = Tips::create(near.clone(), far.clone(), index, sizes)?;
        let mut store = Self { tips, near, far, pool, value: vec![7; value as usize / 8] };
        (0..records).try_for_each(|record| store.tips.put(spread(record), &store.value))?;
        Ok(store)
    }

    /// What as many operations as a tenth of the records cost, after as many.
    fn costs(&mut self, reads: u8, theta: f64, records: u64) -> Outcome<Cost> {
        let workload = Workload::reads_and_updates(reads, Choice::Skewed(theta));
        let operations = Operations::new(workload, records, 0, 1, 1);
        let count = records / 10;
        self.run(operations.clone().take(count as usize))?;
        let (near, far, pool) = (self.near.clone(), self.far.clone(), self.pool.clone());
        let (far, pool) = (far.medium(), pool.medium());
        let work = || self.run(operations.skip(count as usize).take(count as usize));
        let (counts, (more, (ns, puts))) = far.during(|| {
            pool.during(|| {
                let (_, a, (_, b, (_, c, puts))) =
                    near.medium().during(|| far.slow().during(|| pool.slow().during(work)));
                (a + b + c, puts)
            })
        });
        let puts = puts?.max(1) as f64;
        let writes = [counts.write_backs + more.write_backs, counts.fences + more.fences];
        Ok(Cost { ns: ns as f64 / count as f64, writes: writes.map(|writes| writes as f64 / puts) })
    }

    /// Returns the number of puts.
    fn run(&mut self, operations: impl Iterator<Item = terrace_bench::Operation>) -> Outcome<u64> {
        let mut puts = 0;
        for operation in operations {
            let key = spread(operation.record);
            if operation.kind == Kind::Read {
                if !self.tips.get(key, &mut |word| _ = std::hint::black_box(word)) {
                    return Err("a store has lost a key".into());
                }
            } else {
                self.tips.put(key, &self.value)?;
                puts += 1;
            }
        }
        Ok(puts)
    }
}
