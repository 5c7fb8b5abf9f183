//! YCSB's mixes on a loaded pair, by two threads.

use super::load::{shape, value};
use super::loaded::{Pair, named};
use super::store::Stored;
use super::tables::{Tables, alternate, rounds};
use super::{NAME, Outcome, records, runner};
use crate::plan::Plan;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terrace_bench::{Bound, Drive, Kind, Operations, Pace, Random, Seen, Subject, Workload, drive};

/// YCSB's core workloads, and how our throughput must be to RocksDB's.
const MIXES: [(&str, f64); 6] =
    [("ycsb-a", 1.5), ("ycsb-b", 1.0), ("ycsb-c", 1.0), ("ycsb-d", 1.0), ("ycsb-e", 1.1), ("ycsb-f", 1.0)];
const THREADS: u64 = 2;

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    MIXES.into_iter().map(|(name, _)| name)
}

pub(super) fn measure(plan: &Plan, pair: &Pair, tables: &mut Tables) -> Outcome<()> {
    // What D and E have added stays.
    let present = [Cell::new(records(plan)), Cell::new(records(plan))];
    let time = Duration::from_millis(if plan.quick { 300 } else { 2000 });
    for (mix, least) in MIXES {
        let name = named(mix, pair.peer);
        if !plan.begins(NAME, &name) {
            continue;
        }
        let workload = Workload::named(mix).ok_or("a mix is unknown")?;
        let once = |side: usize, round| {
            let seen = run(pair.both()[side], workload, present[side].get(), round, time)?;
            let inserted =
                seen.iter().filter_map(|seen| seen.kinds.get(&Kind::Insert)).map(|seen| seen.len());
            // Threads take turns, so below this number no record is missing.
            present[side].set(present[side].get() + inserted.min().unwrap_or(0) * THREADS);
            let operations: u64 = seen.iter().map(Seen::operations).sum();
            Ok(operations as f64 / time.as_secs_f64() / 1e3)
        };
        let measured = alternate(runner(plan), once)?;
        tables.reads.rows.push(rounds(name, measured, Some(Bound::AtLeast(least))));
    }
    Ok(())
}

/// A thread's operations.
struct Work<'s> {
    store: &'s dyn Stored,
    random: Random,
}

impl Subject for Work<'_> {
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn read(&mut self, key: &[u8]) -> Outcome<bool> {
        self.store.get(key, &mut |value| _ = std::hint::black_box(value[0]))
    }

    /// Puts a random value: those of the shape are similar to each other.
    fn write(&mut self, key: &[u8], _: &[u8]) -> Outcome<()> {
        self.store.put(key, &value(&mut self.random))
    }

    fn read_modify_write(&mut self, key: &[u8], value: &[u8]) -> Outcome<bool> {
        let found = self.read(key)?;
        self.write(key, value)?;
        Ok(found)
    }

    fn scan(&mut self, key: &[u8], records: u32) -> Outcome<()> {
        let mut all = 0;
        self.store.range(key, true, records as usize, &mut |key, value| {
            all += key.len() + usize::from(value[0]);
        })?;
        std::hint::black_box(all);
        Ok(())
    }
}

/// What each thread has seen.
fn run(
    store: &dyn Stored,
    workload: Workload,
    records: u64,
    round: u64,
    time: Duration,
) -> Outcome<Vec<Seen>> {
    let stop = AtomicBool::new(false);
    let work = &|thread| {
        let operations = Operations::new(workload, records, thread, THREADS, round);
        thread_work(store, operations, Pace::Closed, &stop)
    };
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        std::thread::sleep(time);
        stop.store(true, Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect::<Vec<_>>()
    });
    let all: Vec<Seen> = all.into_iter().collect::<Outcome<_>>()?;
    match all.iter().map(|seen| seen.missed).sum::<u64>() {
        0 => Ok(all),
        missed => Err(format!("{missed} records of {} were lost", workload.name).into()),
    }
}

/// The operations of one thread, until it is told to stop.
pub(super) fn thread_work(
    store: &dyn Stored,
    operations: Operations,
    pace: Pace,
    stop: &AtomicBool,
) -> Outcome<Seen> {
    let how = Drive { pace, operations: None, time: None, tick: Duration::from_millis(200) };
    // Any values will do.
    let mut work =
        Work { store, random: Random::new(operations.clone().next().map_or(1, |first| first.record)) };
    drive(&mut work, operations, &shape(), how, Instant::now(), stop)
}
