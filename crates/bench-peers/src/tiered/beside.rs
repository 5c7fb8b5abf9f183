//! Beside RocksDB: the same memory, each write survives the process, two threads.

use super::tables::{Table, Tables};
use super::work::{dram, operations};
use super::{NAME, records, runner};
use crate::files::{
    By, Load, Outcome, Pair, Place, RECORD_BYTES, Setup, Side, Stored, alternate, beside, load_both, micros,
    named, peers, rounds, run, shape, thread_work,
};
use crate::plan::{Plan, say};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use terrace_bench::{Bound, Choice, Kind, Pace, Seen, Workload};

const RATES: Table = Table::beside(
    "Beside RocksDB: records of 16 + 100 bytes, two threads, the same memory (index and a quarter of keys and values; RocksDB's block cache and write buffers), direct reads, no compression, \
     two background threads. One store works at a time. YCSB's mixes, caches warm",
    "thousand/s",
    &["RocksDB"],
);
const STALLS: Table = Table::beside(
    "Latencies of single puts of one thread, while an empty store fills at full speed",
    "µs",
    &["RocksDB"],
);

const GETS: Table = Table::beside("Latencies of gets, loaded stores", "µs", &["RocksDB"]);

const LOADS: [&str; 2] = ["load by single puts", "load by single puts, until both rest"];
const UNIFORM: &str = "ycsb-c, uniform";
/// Mixes, and how our throughput must be to RocksDB's.
const MIXES: [(&str, f64); 4] = [("ycsb-a", 5.0), ("ycsb-b", 6.0), ("ycsb-c", 6.0), (UNIFORM, 1.2)];
/// Percentiles of puts, and the most µs of ours.
const PUTS: [(&str, f64, Option<f64>); 3] =
    [("put, p99", 99.0, None), ("put, p99.99", 99.99, None), ("put, longest", 100.0, Some(20e3))];

/// Percentiles of gets of records in DRAM, and the most µs of ours.
const HOT: [(&str, f64, Option<f64>); 2] = [
    ("get of a hot key beside uniform puts, p99", 99.0, None),
    ("get of a hot key beside uniform puts, p99.99", 99.99, Some(1e3)),
];

fn setup(records: u64) -> Setup {
    let memory = dram(records, RECORD_BYTES, 0.25);
    Setup { memory: memory as usize, is_synced: false }
}

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    let Some(peer) = peers(plan).find(|peer| *peer == Side::RocksDb) else { return Ok(()) };
    let sides = [Side::Tiered, peer];
    let wants = |what: &str| plan.wants(NAME, &named(what, peer));
    let names = LOADS.into_iter().chain(MIXES.map(|(mix, _)| mix));
    let mut names = names.chain(HOT.map(|(what, ..)| what));
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
        hot_gets(plan, &pair, tables)?;
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

/// Gets of a hundredth of the records while another thread puts all, which reads and flushes.
fn hot_gets(plan: &Plan, pair: &Pair, tables: &mut Tables) -> Outcome<()> {
    if !HOT.iter().any(|(what, ..)| plan.begins(NAME, &named(what, pair.peer))) {
        return Ok(());
    }
    let time = Duration::from_millis(if plan.quick { 500 } else { 10_000 });
    let seen = pair.both().map(|store| gets_beside_puts(store, records(plan), time));
    let [ours, theirs] = seen;
    let (ours, theirs) = (ours?, theirs?);
    for (what, percentile, most) in HOT {
        let row =
            beside(named(what, pair.peer), micros(&ours, percentile), micros(&theirs, percentile), None);
        tables.add(GETS, most.map_or(row.clone(), |most| row.judged(Bound::AtMost(most))));
    }
    Ok(())
}

fn gets_beside_puts(store: &dyn Stored, records: u64, time: Duration) -> Outcome<Histogram<u64>> {
    let work = |reads, records, stop: &AtomicBool| {
        let workload = Workload::reads_and_updates(reads, Choice::Uniform);
        thread_work(store, &shape(), operations(workload, records, 3), Pace::Closed, stop)
    };
    let hot = records / 100;
    // They come into DRAM first.
    let warm = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| work(100, hot, &warm));
        std::thread::sleep(time / 5);
        warm.store(true, Relaxed);
        reader.join().expect("a thread panicked")
    })?;
    let stop = AtomicBool::new(false);
    let (seen, written) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| work(100, hot, &stop));
        let writer = scope.spawn(|| work(0, records, &stop));
        std::thread::sleep(time);
        stop.store(true, Relaxed);
        (reader.join().expect("a thread panicked"), writer.join().expect("a thread panicked"))
    });
    written?;
    seen?.kinds.remove(&Kind::Read).ok_or_else(|| "no get ended".into())
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
