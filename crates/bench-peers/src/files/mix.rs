//! Mixes of operations on a store, by two threads.

use super::Outcome;
use super::store::Stored;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terrace_bench::{Drive, Operations, Pace, Random, Seen, Shape, Subject, Workload, drive};

/// Threads of a mix.
pub(crate) const THREADS: u64 = 2;

/// A thread's operations.
struct Work<'s> {
    store: &'s dyn Stored,
    random: Random,
    value: Vec<u8>,
}

impl Subject for Work<'_> {
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn read(&mut self, key: &[u8]) -> Outcome<bool> {
        self.store.get(key, &mut |value| _ = std::hint::black_box(value[0]))
    }

    /// Puts a random value: those of the shape are similar to each other.
    fn write(&mut self, key: &[u8], _: &[u8]) -> Outcome<()> {
        self.random.fill(&mut self.value);
        self.store.put(key, &self.value)
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

/// Runs a workload, and returns what each thread has seen.
pub(crate) fn run(
    store: &dyn Stored,
    shape: &Shape,
    workload: Workload,
    records: u64,
    round: u64,
    time: Duration,
) -> Outcome<Vec<Seen>> {
    let stop = AtomicBool::new(false);
    let work = &|thread| {
        let operations = Operations::new(workload, records, thread, THREADS, round);
        thread_work(store, shape, operations, Pace::Closed, &stop)
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
pub(crate) fn thread_work(
    store: &dyn Stored,
    shape: &Shape,
    operations: Operations,
    pace: Pace,
    stop: &AtomicBool,
) -> Outcome<Seen> {
    let how = Drive { pace, operations: None, time: None, tick: Duration::from_millis(200) };
    // Any values will do.
    let random = Random::new(operations.clone().next().map_or(1, |first| first.record));
    let mut work = Work { store, random, value: vec![0; shape.mean_value_bytes() as usize] };
    drive(&mut work, operations, shape, how, Instant::now(), stop)
}
