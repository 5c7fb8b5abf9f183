//! Reads while another thread writes at a steady rate, an open loop.

use super::tables::Tables;
use super::{NAME, SETUP, records};
use crate::files::{
    By, Outcome, Pair, Place, Side, Stored, beside, load_both, micros, named, settle, shape, thread_work,
};
use crate::plan::{Plan, say};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use terrace_bench::{Bound, Choice, Kind, Operations, Pace, Seen, Workload, median};

/// Which records are read, and which are written.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    reads: Choice,
    writes: Choice,
}

const UNIFORM: Load = Load { name: "uniform", reads: Choice::Uniform, writes: Choice::Uniform };
const ZIPFIAN: Load = Load { name: "zipfian", reads: Choice::Zipfian, writes: Choice::Zipfian };
/// Reads of a few buckets, writes to all.
const APART: Load =
    Load { name: "reads zipfian, writes uniform", reads: Choice::Zipfian, writes: Choice::Uniform };

/// Figures of the reads, and the bound on their ratio.
const FIGURES: [(&str, Bound); 3] = [
    ("reads beside writes", Bound::AtLeast(1.3)),
    ("reads beside writes, p99", Bound::AtMost(0.7)),
    ("reads beside writes, p99.9", Bound::AtMost(0.5)),
];
const AWARE: &str = "reads beside writes, aware of reads";

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.into_iter().map(|(name, _)| name)
}

/// Reads beside writes at 30% of what our store can take, on a loaded pair.
pub(super) fn measure(plan: &Plan, pair: &Pair, tables: &mut Tables) -> Outcome<()> {
    if !names().any(|what| plan.begins(NAME, &named(what, pair.peer))) {
        return Ok(());
    }
    let rate = most_writes(plan, pair.both()[0])? * 0.3;
    for load in [UNIFORM, ZIPFIAN] {
        let figures = in_turn(plan, pair, load, rate)?;
        for ((what, bound), [ours, theirs]) in FIGURES.into_iter().zip(figures) {
            let name = named(&format!("{what}, {}, {:.0} thousand puts/s", load.name, rate / 1e3), pair.peer);
            let row = beside(name, ours, theirs, Some(bound));
            let table = if what.contains(", p") { &mut tables.latencies } else { &mut tables.reads };
            table.rows.push(row);
        }
    }
    Ok(())
}

/// Our store beside itself with merges that do not regard reads.
pub(super) fn awareness(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    if !plan.begins(NAME, AWARE) {
        return Ok(());
    }
    let pair = Pair::of(place, [Side::Ours, Side::Unaware], SETUP)?;
    say(&format!("{NAME} loading two stores of ours"));
    load_both(pair.both(), records(plan), By::Batches)?;
    let rate = most_writes(plan, pair.both()[0])? * 0.3;
    let [rates, ..] = in_turn(plan, &pair, APART, rate)?;
    let name = named(AWARE, Side::Unaware);
    tables.reads.rows.push(beside(name, rates[0], rates[1], Some(Bound::AtLeast(1.3))));
    Ok(())
}

fn time(plan: &Plan) -> Duration {
    Duration::from_millis(if plan.quick { 500 } else { 6000 })
}

/// Puts a second of one writer that waits for nothing, with the work that they leave.
fn most_writes(plan: &Plan, store: &dyn Stored) -> Outcome<f64> {
    settle();
    let time = time(plan) / 2;
    let seen = write_for(plan, store, time)?;
    let more = settle();
    Ok(seen.operations() as f64 / (time + more).as_secs_f64())
}

fn write_for(plan: &Plan, store: &dyn Stored, time: Duration) -> Outcome<Seen> {
    let stop = &AtomicBool::new(false);
    let writes = Operations::new(Workload::reads_and_updates(0, Choice::Uniform), records(plan), 0, 1, 5);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || thread_work(store, &shape(), writes, Pace::Closed, stop));
        std::thread::sleep(time);
        stop.store(true, Relaxed);
        writer.join().expect("the writer panicked")
    })
}

/// Thousand reads a second, p99 and p99.9 in µs, of both stores; medians of rounds.
fn in_turn(plan: &Plan, pair: &Pair, load: Load, rate: f64) -> Outcome<[[f64; 2]; 3]> {
    let mut all = [[vec![], vec![]], [vec![], vec![]], [vec![], vec![]]];
    for round in 0..if plan.quick { 1 } else { 3 } {
        for side in [round % 2, (round + 1) % 2] {
            let figures = once(plan, pair.both()[side], load, rate, round as u64)?;
            settle();
            figures.into_iter().zip(&mut all).for_each(|(figure, all)| all[side].push(figure));
        }
    }
    Ok(all.map(|figure| figure.map(|side| median(&side))))
}

fn once(plan: &Plan, store: &dyn Stored, load: Load, rate: f64, round: u64) -> Outcome<[f64; 3]> {
    let stop = &AtomicBool::new(false);
    let (records, time) = (records(plan), time(plan));
    let operations = |reads, choice, seed| {
        Operations::new(Workload::reads_and_updates(reads, choice), records, 0, 1, seed)
    };
    let (writes, reads) = (operations(0, load.writes, round), operations(100, load.reads, round + 100));
    let pace = Pace::of(Some(rate), 0, 1);
    let (written, seen) = std::thread::scope(|scope| {
        let writer = scope.spawn(move || thread_work(store, &shape(), writes, pace, stop));
        let reader = scope.spawn(move || thread_work(store, &shape(), reads, Pace::Closed, stop));
        std::thread::sleep(time);
        stop.store(true, Relaxed);
        (writer.join().expect("the writer panicked"), reader.join().expect("the reader panicked"))
    });
    let (written, seen) = (written?, seen?);
    let kept = written.operations() as f64 / (rate * time.as_secs_f64());
    if kept < 0.9 {
        say(&format!("{NAME} a store took {:.0}% of the writes only", kept * 100.0));
    }
    let latencies = seen.kinds.get(&Kind::Read).ok_or("no read ended")?;
    let rate = seen.operations() as f64 / time.as_secs_f64() / 1e3;
    Ok([rate, micros(latencies, 99.0), micros(latencies, 99.9)])
}
