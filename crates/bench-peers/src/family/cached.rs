//! Rewo-Hash with and without its Cached Table.
//!
//! The cached table lies in DRAM, so its cost and its gain must be timed on a medium that makes
//! threads wait. `optane-100` waits as long as its model says; time that passes meanwhile,
//! including the model's own work, counts towards the wait. Time in the cached table is this
//! machine's DRAM and nothing more.

use super::{NAME, Outcome, RewoHash, add, wants};
use crate::ours::Ours;
use crate::plan::Plan;
use std::time::Instant;
use terrace_bench::{Measure, Random, Row, ScrambledZipfian, Section, median, spread};
use terrace_index::{CacheBounds, PointIndex, Stored};
use terrace_medium::{MappedMedium, Mapping, Pmem};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{Profile, Slow};

type Optane = Slow<Pmem>;

/// Bytes of cache for each key, enough for a slot each: seven in 128 bytes, unevenly full.
const BYTES_A_KEY: u64 = 32;
/// Operations whose mean is one figure. The median of many such figures counts, so losing the
/// processor now and then does not matter.
const BATCH: u64 = 500;

#[derive(Clone, Copy)]
enum Work {
    Get,
    GetAbsent,
    Update,
}

const WORKS: [(&str, Work); 3] =
    [("get", Work::Get), ("get absent", Work::GetAbsent), ("update", Work::Update)];

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let keys = plan.records() / 10;
    let title = format!(
        "Rewo-Hash with a cached table in DRAM beside the same without: {keys} keys, one thread, by the clock; zipf: exponent 0.99. The larger cache has room for all keys, the smaller for an \
         eighth of them. On optane-100 threads wait as the model says, but in the cache, which is this machine's DRAM"
    );
    let columns = ["off", "on, an eighth"];
    let mut section = Section::new(&title, "million operations/s", &columns).ours_named("on, all keys");
    rows::<Optane>(plan, "optane-100", keys, &mut section.rows, || {
        let bytes = ((64 << 20) + keys * 160) as usize;
        let mapping = Mapping::anonymous(bytes, bytes)?;
        let medium = Slow::over(Pmem::new(mapping), Profile::OPTANE_100);
        Ok(PoolOptions::anonymous().hash_seed(1).create_on(medium)?)
    })?;
    rows::<Pmem>(plan, "Pmem", keys, &mut section.rows, || {
        Ok(Ours::<Pmem, RewoHash<Pmem>>::new(0, keys).index.pool().clone())
    })?;
    Ok(section)
}

fn rows<M: MappedMedium>(
    plan: &Plan,
    medium: &str,
    keys: u64,
    rows: &mut Vec<Row>,
    pool: impl Fn() -> Outcome<Pool<M>>,
) -> Outcome<()> {
    let name = |what: &str, law: &str| format!("cached: {medium}, {what}, {law}");
    let all = WORKS.map(|(what, _)| ["zipf", "uniform"].map(|law| name(what, law)));
    if !all.as_flattened().iter().any(|name| plan.wants(NAME, name)) {
        return Ok(());
    }
    let table = |bytes: u64| -> Outcome<RewoHash<M>> {
        let table = RewoHash::create(&pool()?, "cached", keys)?;
        let table = table.with_cache(CacheBounds { min: bytes, max: bytes });
        (0..keys).for_each(|n| add(&table, spread(n), n));
        Ok(table)
    };
    let tables = [table(BYTES_A_KEY * keys)?, table(0)?, table(BYTES_A_KEY * keys / 8)?];
    for (what, work) in WORKS {
        for law in ["zipf", "uniform"] {
            let name = name(what, law);
            if wants(plan, &name) {
                let zipf = (law == "zipf").then(|| ScrambledZipfian::new(keys));
                let mut sides = tables.each_ref().map(|table| side(table, work, keys, zipf.as_ref()));
                rows.push(Row::from_measured(name, plan.runner().row(&mut sides)));
            }
        }
    }
    Ok(())
}

/// Each call does a tenth as many operations as there are keys. Twice as many come before the
/// first, to fill the cache.
fn side<'t, M: MappedMedium>(
    table: &'t RewoHash<M>,
    work: Work,
    keys: u64,
    zipf: Option<&'t ScrambledZipfian>,
) -> Measure<'t> {
    let mut random = Random::new(5);
    let mut step = move || {
        let n = match zipf {
            Some(zipf) => zipf.next(&mut random),
            None => random.below(keys),
        };
        let guard = table.pool().pin();
        let found = match work {
            Work::Get => table.get(&guard, &spread(n)) == Some(n),
            Work::GetAbsent => table.get(&guard, &spread(n + keys)).is_none(),
            Work::Update => table.update(&guard, &spread(n), n) == Some(n),
        };
        assert!(found, "operation on key {n} did not find what it should");
    };
    let mut is_first = true;
    Box::new(move || {
        if std::mem::take(&mut is_first) {
            (0..2 * keys).for_each(|_| step());
        }
        let batch = |_| {
            let began = Instant::now();
            (0..BATCH).for_each(|_| step());
            BATCH as f64 * 1000.0 / began.elapsed().as_nanos() as f64
        };
        median(&(0..(keys / 10 / BATCH).max(1)).map(batch).collect::<Vec<_>>())
    })
}
