//! Beside RocksDB: the same memory, each write survives the process, two threads.

use super::tables::{Table, Tables};
use super::work::dram;
use super::{NAME, records, runner};
use crate::files::{
    By, Load, Outcome, Pair, Place, RECORD_BYTES, Setup, Side, alternate, beside, load_both, micros, named,
    peers, rounds, run, shape,
};
use crate::plan::{Plan, say};
use std::time::Duration;
use terrace_bench::{Bound, Choice, Seen, Workload};

const RATES: Table = (
    "Beside RocksDB: records of 16 + 100 bytes, two threads, the same memory (index and a quarter of keys and values; RocksDB's block cache and write buffers), direct reads, no compression, \
     two background threads. One store works at a time. YCSB's mixes, caches warm",
    "thousand/s",
    "RocksDB",
);
const STALLS: Table =
    ("Latencies of single puts of one thread, while an empty store fills at full speed", "µs", "RocksDB");

const LOADS: [&str; 2] = ["load by single puts", "load by single puts, until both rest"];
const UNIFORM: &str = "ycsb-c, uniform";
/// Mixes, and how our throughput must be to RocksDB's.
const MIXES: [(&str, f64); 4] = [("ycsb-a", 5.0), ("ycsb-b", 6.0), ("ycsb-c", 6.0), (UNIFORM, 1.2)];
/// Percentiles of puts, and the most µs of ours.
const PUTS: [(&str, f64, Option<f64>); 3] =
    [("put, p99", 99.0, None), ("put, p99.99", 99.99, None), ("put, longest", 100.0, Some(20e3))];

fn setup(records: u64) -> Setup {
    let memory = dram(records, RECORD_BYTES, 0.25);
    Setup { memory: memory as usize, is_synced: false }
}

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    let Some(peer) = peers(plan).find(|peer| *peer == Side::RocksDb) else { return Ok(()) };
    let sides = [Side::Tiered, peer];
    let wants = |what: &str| plan.wants(NAME, &named(what, peer));
    let mut names = LOADS.into_iter().chain(MIXES.map(|(mix, _)| mix));
    if names.any(wants) {
        say(&format!("{NAME} loading ours and {}", peer.name()));
        let pair = Pair::of(place, sides, setup(records(plan)))?;
        let [ours, theirs] = load_both(pair.both(), records(plan), By::TwoThreads)?;
        let rates = [Load::put_rate, Load::settled_rate];
        for (what, rate) in LOADS.into_iter().zip(rates).filter(|(what, _)| wants(what)) {
            let row = beside(named(what, peer), rate(&ours), rate(&theirs), Some(Bound::AtLeast(5.0)));
            tables.add(RATES, row);
        }
        mixes(plan, &pair, tables)?;
    }
    if PUTS.into_iter().any(|(what, ..)| wants(what)) {
        stalls(plan, &Pair::of(place, sides, setup(records(plan)))?, tables)?;
    }
    Ok(())
}

fn mixes(plan: &Plan, pair: &Pair, tables: &mut Tables) -> Outcome<()> {
    let time = Duration::from_millis(if plan.quick { 300 } else { 4000 });
    let once = |store: usize, workload, round| {
        let seen = run(pair.both()[store], &shape(), workload, records(plan), round, time)?;
        let operations: u64 = seen.iter().map(Seen::operations).sum();
        Ok(operations as f64 / time.as_secs_f64() / 1e3)
    };
    for (mix, least) in MIXES {
        let name = named(mix, pair.peer);
        if !plan.begins(NAME, &name) {
            continue;
        }
        let workload = Workload::named(mix).unwrap_or(Workload::reads_and_updates(100, Choice::Uniform));
        (0..2).try_for_each(|side| once(side, workload, 100).map(drop))?;
        let measured = alternate(runner(plan), |side, round| once(side, workload, round))?;
        tables.add(RATES, rounds(name, measured, Some(Bound::AtLeast(least))));
    }
    Ok(())
}

fn stalls(plan: &Plan, pair: &Pair, tables: &mut Tables) -> Outcome<()> {
    say(&format!("{NAME} {}", PUTS[0].0));
    let loads = load_both(pair.both(), records(plan) / 2, By::Singles)?;
    let [Some(ours), Some(theirs)] = loads.map(|load| load.puts_ns) else { return Ok(()) };
    for (what, percentile, most) in PUTS {
        let row =
            beside(named(what, pair.peer), micros(&ours, percentile), micros(&theirs, percentile), None);
        tables.add(STALLS, most.map_or(row.clone(), |most| row.judged(Bound::AtMost(most))));
    }
    Ok(())
}
