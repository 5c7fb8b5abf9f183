//! The longest time of a single read or write while a table grows.
//!
//! By the clock, and by the thread's own time on a processor. The clock also counts time in which
//! the scheduler runs another thread, which no index can influence.

use super::{ClhtHash, LevelHash, Outcome, RewoHash, TurboHash, add, wants};
use crate::ours::Ours;
use crate::plan::Plan;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use terrace_bench::{Bound, Random, Row, Section, run_on, spread};
use terrace_index::{PointIndex, Stored, U64};
use terrace_medium::Dram;

/// The limit for a TurboHash shard, in µs of the thread's own time.
const TURBO_MOST: f64 = 1000.0;

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let keys = plan.records();
    let title = format!(
        "The longest single operations on DRAM while a table grows from {} keys to {keys}: a thread that inserts and a thread that gets at the same time, each operation timed, by the clock and, \
         where that says more than {} µs, by the time that its thread was on a processor. \"Nothing\" is what the machine itself does to two threads that only read the clock",
        keys / 64,
        LONG_NS / 1000
    );
    let columns = ["longest by the clock", "p99.99", "p50"];
    let mut section = Section::new(&title, "µs", &columns).ours_named("longest, of its own time");
    if wants(plan, "pauses: nothing") {
        let nothing = || black_box(());
        section.rows.extend(rows("nothing", measured(keys / 64, keys, |_| nothing(), |_| nothing()), None));
    }
    if wants(plan, "pauses: Turbo") {
        section.rows.extend(rows("Turbo", of::<TurboHash<Dram>>(keys), Some(TURBO_MOST)));
    }
    if wants(plan, "pauses: CLHT") {
        section.rows.extend(rows("CLHT", of::<ClhtHash<Dram>>(keys), None));
    }
    if wants(plan, "pauses: Level") {
        section.rows.extend(rows("Level", of::<LevelHash<Dram>>(keys), None));
    }
    if wants(plan, "pauses: Rewo") {
        section.rows.extend(rows("Rewo", of::<RewoHash<Dram>>(keys), None));
    }
    Ok(section)
}

/// A thread's nanoseconds for each operation by the clock, and the longest by its own time.
#[derive(Default)]
struct Latencies {
    by_clock: Vec<u32>,
    longest_own: u64,
}

fn of<I: PointIndex<Medium = Dram, Kind = U64> + Stored<Medium = Dram>>(keys: u64) -> [Latencies; 2] {
    let first = keys / 64;
    let map = Ours::<Dram, I>::new(first, keys);
    (0..first).for_each(|n| add(&map.index, spread(n), n));
    let index = &map.index;
    measured(
        first,
        keys,
        |n| add(index, spread(n), n),
        |n| assert_eq!(index.get(&index.pool().pin(), &spread(n)), Some(n), "a key was lost"),
    )
}

/// One thread writes the numbers from `first` up to `keys` while another reads random ones below
/// `first`.
fn measured(first: u64, keys: u64, write: impl Fn(u64) + Sync, read: impl Fn(u64) + Sync) -> [Latencies; 2] {
    let is_over = AtomicBool::new(false);
    // Touched before, so that no page fault is timed.
    let touched = |len: u64| vec![u32::MAX; len as usize];
    let (_, mut both) = run_on(2, |thread| {
        let (mut samples, mut watch) = (touched(keys - first), Stopwatch::new());
        match thread {
            0 => {
                samples.iter_mut().zip(first..).for_each(|(ns, n)| *ns = watch.timed(|| write(n)));
                is_over.store(true, Relaxed);
            }
            _ => {
                let (mut random, mut reads) = (Random::new(9), 0);
                while !is_over.load(Relaxed) {
                    let n = random.below(first);
                    let (ns, at) = (watch.timed(|| read(n)), reads % samples.len());
                    // After the first lap, the longer of two times is kept: so the longest is kept,
                    // and shorter ones count for more than they are.
                    samples[at] = if reads < samples.len() { ns } else { ns.max(samples[at]) };
                    reads += 1;
                }
                samples.truncate(reads);
            }
        }
        Latencies { by_clock: samples, longest_own: watch.longest_own }
    });
    let reader = both.pop().unwrap_or_default();
    [both.pop().unwrap_or_default(), reader]
}

/// An operation that takes longer by the clock is also checked by its thread's own time.
const LONG_NS: u32 = 20_000;
/// The thread's own time is read once in so many operations: it is a system call.
const READ_EVERY: u32 = 16;

/// Times the operations of one thread.
struct Stopwatch {
    own: Timespec,
    since: u32,
    /// In nanoseconds. Operations that are not longer by the clock are not considered.
    longest_own: u64,
}

impl Stopwatch {
    fn new() -> Self {
        Self { own: own_time(), since: 0, longest_own: 0 }
    }

    /// Runs `operation` and returns its nanoseconds by the clock.
    fn timed(&mut self, operation: impl FnOnce()) -> u32 {
        if self.since == READ_EVERY {
            (self.own, self.since) = (own_time(), 0);
        }
        self.since += 1;
        let began = Instant::now();
        operation();
        let ns = began.elapsed().as_nanos().try_into().unwrap_or(u32::MAX);
        if ns > LONG_NS {
            let now = own_time();
            // Includes the few short operations since the last reading, so it overestimates.
            let own = (now.tv_sec - self.own.tv_sec) * 1_000_000_000 + now.tv_nsec - self.own.tv_nsec;
            self.longest_own = self.longest_own.max(own.cast_unsigned().min(u64::from(ns)));
            (self.own, self.since) = (now, 0);
        }
        ns
    }
}

/// How long this thread has run on a processor.
fn own_time() -> Timespec {
    clock_gettime(ClockId::ThreadCPUTime)
}

fn rows(name: &str, latencies: [Latencies; 2], most: Option<f64>) -> [Row; 2] {
    let mut whose = ["writer", "reader"].into_iter();
    latencies.map(|Latencies { by_clock: mut ns, longest_own }| {
        ns.sort_unstable();
        let at = |share: f64| Some(f64::from(*ns.get((ns.len() as f64 * share) as usize)?) / 1000.0);
        let longest = ns.last().map(|&ns| f64::from(ns) / 1000.0);
        let name = format!("{name}, {}", whose.next().unwrap_or_default());
        let own = Some(longest_own as f64 / 1000.0);
        let row = Row { ours: own, peers: vec![longest, at(0.9999), at(0.5)], ..Row::new(name) };
        match most {
            Some(most) => row.judged(Bound::AtMost(most)),
            None => row,
        }
    })
}
