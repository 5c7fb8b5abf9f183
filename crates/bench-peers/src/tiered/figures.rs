//! What the paper of HeterMM varies: skew (figure 11), value sizes (13), the read cache (14), the
//! log (15) and DRAM (16); and latencies (10). Ours alone, two threads.

use super::tables::{Table, Tables};
use super::work::{dram, load, shape, tier, user_bytes};
use super::{NAME, records};
use crate::files::{Outcome, Place, THREADS, micros, run, settle};
use crate::plan::{Plan, say};
use std::time::Duration;
use terrace::{ByteSize, Durability, Engine, Store};
use terrace_bench::{Choice, Row, Seen, Workload, Zipfian};

const OTHERS: &[&str] = &["95% gets", "gets alone"];
const HALF: &str = "half gets";

const fn table(title: &'static str, unit: &'static str) -> Table {
    Table { title, unit, ours: HALF, others: OTHERS }
}

const LATENCY: Table = table("Figure 10: latencies of all operations", "µs");
const SKEW: Table = table("Figure 11: skew of the choice of keys", "thousand/s");
const VALUES: Table = table("Figure 13: bytes of values; DRAM for a quarter of each", "thousand/s");
const CACHE: Table = table("Figure 14: hits in DRAM; hits in copies", "share");
const LOG: Table = table("Figure 15: the log", "thousand/s");
const DRAM: Table = table("Figure 16: DRAM beside the index, in parts of keys and values", "thousand/s");

/// Gets of 100 operations.
const MIXES: [u8; 3] = [50, 95, 100];
const SKEWS: [f64; 4] = [0.5, 0.8, 1.2, 1.5];
const SIZES: [usize; 4] = [32, 128, 256, 512];
const SHARES: [f64; 3] = [0.125, 0.5, 1.0];

/// A store, and what is asked of it.
#[derive(Clone, Copy)]
struct Case {
    theta: f64,
    value: usize,
    share: f64,
    durability: Durability,
}

const USUAL: Case = Case { theta: Zipfian::THETA, value: 64, share: 0.25, durability: Durability::Process };

/// What a mix has shown.
struct Cell {
    rate: f64,
    hits: f64,
    copies: f64,
    /// The median, p99 and p99.9 of all operations in µs.
    latencies: [f64; 3],
}

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    if !plan.wants(NAME, "figures") {
        return Ok(());
    }
    let usual = cells(plan, place, USUAL)?;
    for (nth, what) in ["p50", "p99", "p99.9"].into_iter().enumerate() {
        add(tables, LATENCY, what, [0, 1, 2].map(|mix| usual[mix].latencies[nth]));
    }
    add(tables, CACHE, "hits", [0, 1, 2].map(|mix| usual[mix].hits));
    add(tables, CACHE, "hits in copies", [0, 1, 2].map(|mix| usual[mix].copies));
    let mut vary = |table, name: String, case| -> Outcome<()> {
        let cells = cells(plan, place, case)?;
        add(tables, table, &name, [0, 1, 2].map(|mix| cells[mix].rate));
        Ok(())
    };
    for theta in SKEWS {
        vary(SKEW, format!("zipf {theta}"), Case { theta, ..USUAL })?;
    }
    for value in SIZES {
        vary(VALUES, format!("{value} bytes"), Case { value, ..USUAL })?;
    }
    vary(LOG, "no log".into(), Case { durability: Durability::None, ..USUAL })?;
    for share in SHARES {
        vary(DRAM, format!("{share}"), Case { share, ..USUAL })?;
    }
    let rates = [0, 1, 2].map(|mix| usual[mix].rate);
    let names = ["zipf 0.99", "64 bytes", "log", "0.25"];
    for (table, name) in [SKEW, VALUES, LOG, DRAM].into_iter().zip(names) {
        add(tables, table, name, rates);
    }
    Ok(())
}

fn add(tables: &mut Tables, table: Table, name: &str, [half, most, all]: [f64; 3]) {
    say(&format!("  {}, {name}: {half:.2} | {most:.2} | {all:.2}", table.title));
    tables.add(table, Row { ours: Some(half), peers: vec![Some(most), Some(all)], ..Row::new(name) });
}

/// The mixes on a store of a tenth of the suite's records.
fn cells(plan: &Plan, place: &Place, case: Case) -> Outcome<[Cell; 3]> {
    let (directory, records) = (place.fresh()?, (records(plan) / 10).max(400_000));
    let memory = dram(records, user_bytes(case.value), case.share);
    let options = Store::options().directory(directory.path().join("store")).engine(Engine::Tiered);
    let store = options.memory(ByteSize::bytes(memory)).durability(case.durability).create()?;
    load(&store, case.value, 0..records)?;
    settle();
    let time = Duration::from_millis(if plan.quick { 200 } else { 1500 });
    let cell = |reads| {
        once(&store, case, reads, records, time)?;
        once(&store, case, reads, records, time)
    };
    let [half, most, all] = MIXES.map(cell);
    Ok([half?, most?, all?])
}

fn once(store: &Store, case: Case, reads: u8, records: u64, time: Duration) -> Outcome<Cell> {
    let before = tier(store)?;
    let workload = Workload::reads_and_updates(reads, Choice::Skewed(case.theta));
    let each = run(store, &shape(case.value), workload, records, u64::from(reads), time)?;
    assert_eq!(each.len() as u64, THREADS, "a thread each");
    let mut seen = Seen::default();
    each.into_iter().for_each(|one| seen.add(one));
    let after = tier(store)?;
    let hits = (after.hits - before.hits) as f64;
    let looks = hits + (after.cold_reads - before.cold_reads) as f64;
    let mut all = crate::files::histogram();
    seen.kinds.values().for_each(|kind| all += kind);
    Ok(Cell {
        rate: seen.operations() as f64 / time.as_secs_f64() / 1e3,
        hits: hits / looks,
        copies: (after.copy_hits - before.copy_hits) as f64 / looks,
        latencies: [50.0, 99.0, 99.9].map(|percentile| micros(&all, percentile)),
    })
}
