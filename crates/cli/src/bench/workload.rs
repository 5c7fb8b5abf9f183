//! What the measurement does to the store.

use std::{
    io::Write,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

use hdrhistogram::Histogram;
use terrace::{Put, Store};
use terrace_bench::{Random, ScrambledZipfian};

use crate::{
    args::{BenchOptions, Distribution},
    clock,
    failure::Failure,
};

/// The keys: `terrace-bench:` and the number in 16 hexadecimal digits, then `.` up to the length.
pub(super) struct Keys {
    count: u64,
    length: usize,
    value: Vec<u8>,
}

/// Before every key, so that no one's own is touched.
const PREFIX: &str = "terrace-bench:";

impl Keys {
    pub(super) fn new(options: &BenchOptions) -> Keys {
        let mut value = vec![0; usize::try_from(options.value_bytes).unwrap_or(0)];
        Random::new(1).fill(&mut value);
        Keys { count: options.records, length: usize::try_from(options.key_bytes).unwrap_or(0), value }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn write(&self, nth: u64, key: &mut Vec<u8>) {
        key.clear();
        // Writing to memory does not fail.
        let _ = write!(key, "{PREFIX}{nth:016x}");
        key.resize(self.length.max(key.len()), b'.');
    }
}

/// Puts the records `share`.
pub(super) fn fill(store: &Store, keys: &Keys, share: Range<u64>) -> Result<(), Failure> {
    const TOGETHER: usize = 64;
    let mut names = vec![Vec::new(); TOGETHER];
    let numbers: Vec<u64> = share.collect();
    for chunk in numbers.chunks(TOGETHER) {
        for (name, &nth) in names.iter_mut().zip(chunk) {
            keys.write(nth, name);
        }
        let names = names[..chunk.len()].iter();
        let puts: Vec<Put<'_>> = names.map(|key| Put { key, value: &keys.value, expires_at: None }).collect();
        store.put_many(&puts).into_iter().collect::<Result<(), _>>().map_err(Failure::new)?;
    }
    Ok(())
}

/// One thread's part.
pub(super) struct Worker<'a> {
    store: &'a Store,
    keys: &'a Keys,
    reads: u64,
    zipf: Option<ScrambledZipfian>,
    random: Random,
    operations: Option<u64>,
    done: Done,
}

/// What a thread has done: latencies in ns.
pub(super) struct Done {
    pub(super) reads: Histogram<u64>,
    pub(super) writes: Histogram<u64>,
    pub(super) missed: u64,
}

/// The longest latency told exactly, ns; longer ones count as this.
const LONGEST: u64 = 60_000_000_000;

pub(super) fn histogram() -> Histogram<u64> {
    // Constant bounds that the library takes.
    #[allow(clippy::expect_used, reason = "the arguments are constants within the documented bounds")]
    Histogram::new_with_bounds(1, LONGEST, 3).expect("constant bounds")
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        store: &'a Store,
        keys: &'a Keys,
        options: &BenchOptions,
        nth: u64,
        of: u64,
    ) -> Worker<'a> {
        let zipf =
            (options.distribution == Distribution::Zipf).then(|| ScrambledZipfian::new(options.records));
        let share = |all: u64| all * (nth + 1) / of - all * nth / of;
        let done = Done { reads: histogram(), writes: histogram(), missed: 0 };
        Worker {
            store,
            keys,
            reads: u64::from(options.reads),
            zipf,
            random: Random::new(nth + 1),
            operations: options.operations.map(share),
            done,
        }
    }

    /// Works until told to stop, or until its operations are done.
    pub(super) fn run(mut self, stop: &AtomicBool) -> Result<Done, Failure> {
        let mut key = Vec::new();
        let mut left = self.operations.unwrap_or(u64::MAX);
        // ORDER: Relaxed: an operation more or less does not matter.
        while left > 0 && !stop.load(Ordering::Relaxed) {
            left -= 1;
            let nth = match &self.zipf {
                Some(zipf) => zipf.next(&mut self.random),
                None => self.random.below(self.keys.count),
            };
            self.keys.write(nth, &mut key);
            let read = self.random.below(100) < self.reads;
            let before = clock::start();
            self.operate(&key, read)?;
            let took = u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if read { &mut self.done.reads } else { &mut self.done.writes }.saturating_record(took.max(1));
        }
        Ok(self.done)
    }

    fn operate(&mut self, key: &[u8], read: bool) -> Result<(), Failure> {
        if !read {
            return self.store.put(key, &self.keys.value).map_err(Failure::new);
        }
        match self.store.get(key).map_err(Failure::new)? {
            // Look at the value, as whoever asked for it would.
            Some(value) => drop(std::hint::black_box(value.first().copied())),
            None => self.done.missed += 1,
        }
        Ok(())
    }
}
