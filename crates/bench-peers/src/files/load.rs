//! Loads of two stores, a slice of the records into each in turn, so that noise of the machine
//! meets both.
//!
//! A slice ends when the store rests: so what a store leaves to its threads counts for it, and does
//! not slow the other one down.

use super::Outcome;
use super::settle::settle;
use super::store::{Stored, Write};
use crate::plan::say;
use std::time::{Duration, Instant};
use terrace_bench::{KeyShape, Random, Shape};

pub(crate) const KEY_BYTES: usize = 16;
pub(crate) const VALUE_BYTES: usize = 100;
/// Bytes that a user puts with a record.
pub(crate) const RECORD_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;
/// Slices of a load.
const SLICES: u64 = 16;

/// Keys of 16 hexadecimal digits, whose order is not that of their numbers.
pub(crate) fn shape() -> Shape {
    Shape::new(KeyShape::String { bytes: KEY_BYTES }, "", VALUE_BYTES..=VALUE_BYTES)
}

/// A random value: no compression gains anything.
pub(crate) fn value(random: &mut Random) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    random.fill(&mut value);
    value
}

/// What a slice took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) records: u64,
    /// Until the last put returned.
    pub(crate) puts: Duration,
    /// Until the store rested.
    pub(crate) settled: Duration,
    /// Bytes written to tables, and with the log, since the load began.
    pub(crate) tables: u64,
    pub(crate) all: u64,
}

/// A load of one store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    pub(crate) slices: Vec<Slice>,
    /// ns of each put, if they were single.
    pub(crate) puts_ns: Option<hdrhistogram::Histogram<u64>>,
}

impl Load {
    fn sum(&self, time: impl Fn(&Slice) -> Duration) -> f64 {
        self.slices.iter().map(|slice| time(slice).as_secs_f64()).sum()
    }

    pub(crate) fn records(&self) -> u64 {
        self.slices.iter().map(|slice| slice.records).sum()
    }

    /// Thousand records a second, with the work that the puts left.
    pub(crate) fn settled_rate(&self) -> f64 {
        self.records() as f64 / self.sum(|slice| slice.settled) / 1e3
    }

    /// Thousand records a second, until the last put of a slice returned.
    pub(crate) fn put_rate(&self) -> f64 {
        self.records() as f64 / self.sum(|slice| slice.puts) / 1e3
    }

    /// Bytes that were written for each byte put, at the end.
    pub(crate) fn amplification(&self, bytes: impl Fn(&Slice) -> u64) -> f64 {
        let put = self.records() * RECORD_BYTES;
        self.slices.last().map_or(f64::NAN, |last| bytes(last) as f64 / put as f64)
    }

    /// Bytes that were written to tables for each byte put, over the million bytes put.
    pub(crate) fn growing(&self) -> Vec<(f64, f64)> {
        self.over_bytes(|slice, put| slice.tables as f64 / put)
    }

    /// Thousand records a second, with the work that they left, over the million bytes put.
    pub(crate) fn pace(&self) -> Vec<(f64, f64)> {
        self.over_bytes(|slice, _| slice.records as f64 / slice.settled.as_secs_f64() / 1e3)
    }

    fn over_bytes(&self, figure: impl Fn(&Slice, f64) -> f64) -> Vec<(f64, f64)> {
        let mut put = 0.0;
        let after = |slice: &Slice| {
            put += (slice.records * RECORD_BYTES) as f64;
            (put / 1e6, figure(slice, put))
        };
        self.slices.iter().map(after).collect()
    }
}

/// How records are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// In batches of 1,000.
    Batches,
    /// Each for itself.
    Singles,
    /// Each for itself, by two threads.
    TwoThreads,
}

impl By {
    /// Records that are made before the clock runs.
    fn piece(self) -> u64 {
        if self == Self::TwoThreads { 20_000 } else { 1000 }
    }
}

/// Puts the records below `records`, in an order that is not that of their keys.
pub(crate) fn load_both(stores: [&dyn Stored; 2], records: u64, by: By) -> Outcome<[Load; 2]> {
    let mut loads = [Load::default(), Load::default()];
    let counts = [Counts::of(stores[0]), Counts::of(stores[1])];
    settle();
    for nth in 0..SLICES {
        let slice = nth * records / SLICES..(nth + 1) * records / SLICES;
        // Each slice begins with another side.
        for side in [(nth % 2) as usize, (nth as usize + 1) % 2] {
            let load = &mut loads[side];
            let done = load_slice(stores[side], slice.clone(), by, load)?;
            let written = counts[side].written(stores[side], load.slices.last(), done.kernel);
            load.slices.push(Slice { tables: written.0, all: written.1, ..done.slice });
        }
    }
    say("  loaded");
    Ok(loads)
}

struct Done {
    slice: Slice,
    /// Bytes that the kernel counted.
    kernel: u64,
}

fn load_slice(store: &dyn Stored, numbers: std::ops::Range<u64>, by: By, load: &mut Load) -> Outcome<Done> {
    let (shape, mut random) = (shape(), Random::new(numbers.start + 1));
    let (records, before) = (numbers.end - numbers.start, kernel_written());
    let mut puts = Duration::ZERO;
    for first in numbers.clone().step_by(by.piece() as usize) {
        let pairs: Vec<(Vec<u8>, [u8; VALUE_BYTES])> = (first..numbers.end.min(first + by.piece()))
            .map(|number| {
                let mut key = Vec::new();
                shape.key(number, &mut key);
                (key, value(&mut random))
            })
            .collect();
        let start = Instant::now();
        match by {
            By::Batches => store.write(&batch(&pairs))?,
            By::Singles => put_each(store, &pairs, load)?,
            By::TwoThreads => put_by_two(store, &pairs)?,
        }
        puts += start.elapsed();
    }
    let settled = puts + settle();
    let slice = Slice { records, puts, settled, ..Slice::default() };
    Ok(Done { slice, kernel: kernel_written() - before })
}

/// Puts of all pairs.
pub(crate) fn batch(pairs: &[(Vec<u8>, [u8; VALUE_BYTES])]) -> Vec<Write<'_>> {
    pairs.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect()
}

fn put_each(store: &dyn Stored, pairs: &[(Vec<u8>, [u8; VALUE_BYTES])], load: &mut Load) -> Outcome<()> {
    let seen = load.puts_ns.get_or_insert_with(super::latency::histogram);
    let mut began = Instant::now();
    for (key, value) in pairs {
        store.put(key, value)?;
        let ended = Instant::now();
        seen.saturating_record((ended - began).as_nanos() as u64);
        began = ended;
    }
    Ok(())
}

fn put_by_two(store: &dyn Stored, pairs: &[(Vec<u8>, [u8; VALUE_BYTES])]) -> Outcome<()> {
    let put = |pairs: &[(Vec<u8>, [u8; VALUE_BYTES])]| {
        pairs.iter().try_for_each(|(key, value)| store.put(key, value))
    };
    let (mine, others) = pairs.split_at(pairs.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| put(others));
        put(mine).and(other.join().expect("a thread panicked"))
    })
}

/// What a store had counted when its load began.
struct Counts {
    tables: Option<u64>,
    log: u64,
}

impl Counts {
    fn of(store: &dyn Stored) -> Self {
        let figures = store.figures();
        Self { tables: figures.tables_written, log: figures.log_written }
    }

    /// Bytes written to tables and in all, since then. A store that does not count them has what
    /// the kernel counted, the log included.
    fn written(&self, store: &dyn Stored, before: Option<&Slice>, kernel: u64) -> (u64, u64) {
        let figures = store.figures();
        match figures.tables_written.zip(self.tables) {
            Some((now, then)) => (now - then, now - then + figures.log_written - self.log),
            None => {
                let all = before.map_or(0, |slice| slice.all) + kernel;
                (all, all)
            }
        }
    }
}

/// Bytes that this process has made the kernel write to disks.
fn kernel_written() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}
