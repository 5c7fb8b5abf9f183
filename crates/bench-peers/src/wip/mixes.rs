//! YCSB's mixes on a loaded pair, by two threads.

use super::tables::Tables;
use super::{NAME, records, runner};
use crate::files::{Outcome, Pair, THREADS, alternate, named, rounds, run, shape};
use crate::plan::Plan;
use std::cell::Cell;
use std::time::Duration;
use terrace_bench::{Bound, Kind, Seen, Workload};

/// YCSB's core workloads, and how our throughput must be to RocksDB's.
const MIXES: [(&str, f64); 6] =
    [("ycsb-a", 1.5), ("ycsb-b", 1.0), ("ycsb-c", 1.0), ("ycsb-d", 1.0), ("ycsb-e", 1.1), ("ycsb-f", 1.0)];

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
            let seen = run(pair.both()[side], &shape(), workload, present[side].get(), round, time)?;
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
