//! The longest that a single read or write takes while a table grows under both.

use super::{ClhtHash, LevelHash, Outcome, RewoHash, TurboHash, add, wants};
use crate::ours::Ours;
use crate::plan::Plan;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use terrace_bench::{Bound, Random, Row, Section, run_on, spread};
use terrace_index::{PointIndex, Stored, U64};
use terrace_medium::Dram;

/// Of a TurboHash shard, in µs.
const TURBO_MOST: f64 = 1000.0;

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let keys = plan.records();
    let title = format!(
        "The longest single operations on DRAM while a table grows from {} keys to {keys}: a thread that inserts and a thread that gets at the same time, each operation timed. \"Nothing\" is \
         what the machine itself does to two threads that only read the clock",
        keys / 64
    );
    let mut section = Section::new(&title, "µs", &["p99.99", "p50"]).ours_named("longest");
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

/// Nanoseconds of each operation: of the writer and of the reader.
type Latencies = [Vec<u32>; 2];

fn of<I: PointIndex<Medium = Dram, Kind = U64> + Stored<Medium = Dram>>(keys: u64) -> Latencies {
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

/// Lets one thread write the numbers from `first` up to `keys` while another reads random ones below `first`.
fn measured(first: u64, keys: u64, write: impl Fn(u64) + Sync, read: impl Fn(u64) + Sync) -> Latencies {
    let is_over = AtomicBool::new(false);
    // Touched before, so that no page fault is timed.
    let touched = |len: u64| vec![u32::MAX; len as usize];
    let (_, mut both) = run_on(2, |thread| {
        let mut noted = touched(keys - first);
        match thread {
            0 => {
                noted.iter_mut().zip(first..).for_each(|(ns, n)| *ns = timed(|| write(n)));
                is_over.store(true, Relaxed);
                noted
            }
            _ => {
                let (mut random, mut reads) = (Random::new(9), 0);
                while !is_over.load(Relaxed) {
                    let n = random.below(first);
                    let (ns, at) = (timed(|| read(n)), reads % noted.len());
                    // Once round, the longer one of two is kept: so the longest is, and what is shorter counts for more than it is.
                    noted[at] = if reads < noted.len() { ns } else { ns.max(noted[at]) };
                    reads += 1;
                }
                noted.truncate(reads);
                noted
            }
        }
    });
    let reader = both.pop().unwrap_or_default();
    [both.pop().unwrap_or_default(), reader]
}

fn timed(operation: impl FnOnce()) -> u32 {
    let began = Instant::now();
    operation();
    began.elapsed().as_nanos().try_into().unwrap_or(u32::MAX)
}

fn rows(name: &str, latencies: Latencies, most: Option<f64>) -> [Row; 2] {
    let mut whose = ["writer", "reader"].into_iter();
    latencies.map(|mut ns| {
        ns.sort_unstable();
        let at = |share: f64| Some(f64::from(*ns.get((ns.len() as f64 * share) as usize)?) / 1000.0);
        let longest = ns.last().map(|&ns| f64::from(ns) / 1000.0);
        let name = format!("{name}, {}", whose.next().unwrap_or_default());
        let row = Row { ours: longest, peers: vec![at(0.9999), at(0.5)], ..Row::new(name) };
        match most {
            Some(most) => row.judged(Bound::AtMost(most)),
            None => row,
        }
    })
}
