//! Reads of a loaded pair.

use super::tables::Tables;
use super::{NAME, records, runner};
use crate::files::{Outcome, Pair, Side, Stored, alone, alternate, named, rounds, shape};
use crate::plan::Plan;
use std::hint::black_box;
use std::time::Instant;
use terrace_bench::{Bound, Random};

pub(super) const NAMES: [&str; 3] = ["get", "get absent", "range of 50"];

/// Entries of a range.
pub(super) const RANGED: usize = 50;
/// Keys are drawn before the clock runs.
const DRAWN: usize = 1000;

#[derive(Clone, Copy)]
enum Work {
    Get,
    Absent,
    Range,
}

pub(super) fn measure(plan: &Plan, pair: &Pair, tables: &mut Tables) -> Outcome<()> {
    let lines = NAMES.into_iter().zip([Work::Get, Work::Absent, Work::Range]).zip([50_000, 500_000, 10_000]);
    for ((what, work), operations) in lines {
        let name = named(what, pair.peer);
        if !plan.begins(NAME, &name) {
            continue;
        }
        let (operations, records) = (if plan.quick { operations / 10 } else { operations }, records(plan));
        // Caches are warm.
        for store in pair.both() {
            rate(store, work, records, operations, 1)?;
        }
        let before = pair.stores[0].figures().blocks_read;
        let once = |side: usize, round| rate(pair.both()[side], work, records, operations, round + 2);
        let measured = alternate(runner(plan), once)?;
        let all = operations as f64 * measured.figures[0].len() as f64;
        let bound = (pair.peer == Side::RocksDb).then_some(Bound::AtLeast(1.0));
        tables.reads.rows.push(rounds(name, measured, bound));
        let after = pair.stores[0].figures().blocks_read;
        let is_counted = tables.counts.rows.iter().any(|row| row.name == what);
        if let (false, Some((before, after)), Some(most)) = (is_counted, before.zip(after), most_blocks(work))
        {
            let row = alone(what.to_owned(), (after - before) as f64 / all, Some(Bound::AtMost(most)));
            tables.counts.rows.push(row);
        }
    }
    Ok(())
}

/// The most blocks that an operation reads.
fn most_blocks(work: Work) -> Option<f64> {
    match work {
        Work::Get => Some(1.02),
        Work::Absent => Some(0.01),
        Work::Range => None,
    }
}

/// Thousand operations a second, on random records.
fn rate(store: &dyn Stored, work: Work, records: u64, operations: usize, seed: u64) -> Outcome<f64> {
    let (shape, mut random, mut seconds) = (shape(), Random::new(seed), 0.0);
    let first = if matches!(work, Work::Absent) { records } else { 0 };
    for _ in 0..operations / DRAWN {
        let keys: Vec<Vec<u8>> = (0..DRAWN)
            .map(|_| {
                let mut key = Vec::new();
                shape.key(first + random.below(records), &mut key);
                key
            })
            .collect();
        let start = Instant::now();
        for key in &keys {
            once(store, work, key)?;
        }
        seconds += start.elapsed().as_secs_f64();
    }
    Ok((operations / DRAWN * DRAWN) as f64 / seconds / 1e3)
}

fn once(store: &dyn Stored, work: Work, key: &[u8]) -> Outcome<()> {
    let mut all = 0;
    let is_right = match work {
        Work::Get => store.get(key, &mut |value| all += usize::from(value[0]))?,
        Work::Absent => !store.get(key, &mut |_| ())?,
        Work::Range => {
            store.range(key, true, RANGED, &mut |key, value| all += key.len() + usize::from(value[0]))?;
            // A range from one of the last keys is shorter.
            all > 0
        }
    };
    black_box(all);
    if is_right { Ok(()) } else { Err("a store has lost a key, or made one up".into()) }
}
