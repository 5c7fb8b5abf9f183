//! Calls, errors and latencies by command: INFO's sections commandstats, latencystats and
//! errorstats.
//!
//! Each thread that executes commands has its own set of counters. Only that thread writes them,
//! with plain loads and stores, so threads never contend for a line. Readers add up all sets.
//! CONFIG RESETSTAT stores the current sums as a baseline, which is subtracted from then on.
//!
//! Of quick commands, one call in [`SAMPLE`] is timed, including the first; of others, every call.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::BOUNDS;
use crate::state::{clock::precise_ns, databases::Turn};

/// The number of a command or subcommand: they are numbered from 0 on, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) usize);

/// One in this many calls of a quick command is timed.
const SAMPLE: u64 = 64;

/// Buckets of a command's latency histogram: one up to each of [`BOUNDS`], and one above.
const BUCKETS: usize = BOUNDS.len() + 1;

/// Codes of error replies of commands.
const ERROR_CODES: [&str; 16] = [
    "ERR",
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "EXECABORT",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPROTO",
    "NOSCRIPT",
    "NOTBUSY",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
];

/// The counters of one thread.
pub(crate) struct Counters {
    commands: Box<[Slot]>,
    errors: [AtomicU64; ERROR_CODES.len()],
    /// Errors of other codes, which scripts make.
    others: Mutex<BTreeMap<Vec<u8>, u64>>,
    /// The thread holds it while it executes a command.
    pub(crate) turn: Arc<Turn>,
}

/// One command's counters. The frequently written ones share a line.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    calls: AtomicU64,
    timed: AtomicU64,
    timed_ns: AtomicU64,
    failed: AtomicU64,
    rejected: AtomicU64,
    latencies: [AtomicU64; BUCKETS],
}

impl Default for Slot {
    fn default() -> Self {
        Slot {
            calls: AtomicU64::new(0),
            timed: AtomicU64::new(0),
            timed_ns: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            latencies: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

/// Adds to a counter that only this thread writes.
fn add(counter: &AtomicU64, n: u64) {
    // ORDER: Relaxed: a statistic.
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Counters {
    /// Counters of so many commands.
    fn of(commands: usize) -> Counters {
        Counters {
            commands: (0..commands).map(|_| Slot::default()).collect(),
            errors: Default::default(),
            others: Mutex::default(),
            turn: Arc::default(),
        }
    }

    /// Counts one call. Returns the start time if the call is timed. `is_quick`: the call may take
    /// less time than two readings of the clock.
    pub(crate) fn begin(&self, number: Number, is_quick: bool) -> Option<u64> {
        let slot = &self.commands[number.0];
        // ORDER: Relaxed: only this thread writes it.
        let calls = slot.calls.load(Relaxed);
        add(&slot.calls, 1);
        (calls.is_multiple_of(SAMPLE) || !is_quick).then(precise_ns)
    }

    /// Records the end of a call.
    pub(crate) fn end(&self, number: Number, began: Option<u64>, failed: bool) {
        let slot = &self.commands[number.0];
        if let Some(began) = began {
            slot.record_latency(1, precise_ns().saturating_sub(began));
        }
        if failed {
            add(&slot.failed, 1);
        }
    }

    /// Takes back a call that has begun.
    pub(crate) fn cancel(&self, number: Number) {
        add(&self.commands[number.0].calls, u64::MAX);
    }

    /// Takes back a call that has begun, and was refused though only the call could tell.
    pub(crate) fn reject(&self, number: Number) {
        self.cancel(number);
        self.record_rejection(number);
    }

    /// The start time of a group of commands, if it is timed. `first` is that of the first command.
    pub(crate) fn begin_group(&self, first: Number, count: usize) -> Option<u64> {
        // ORDER: Relaxed: only this thread writes it.
        let calls = self.commands[first.0].calls.load(Relaxed);
        let is_sampled = calls.is_multiple_of(SAMPLE) || calls % SAMPLE + count as u64 > SAMPLE;
        is_sampled.then(precise_ns)
    }

    /// Counts a group of this many commands, each with an equal share of the time. `runs`: how
    /// often the same command comes in a row.
    pub(crate) fn end_group(
        &self,
        commands: usize,
        runs: impl Iterator<Item = (Number, usize)>,
        began: Option<u64>,
    ) {
        let ns_each = began.map(|began| precise_ns().saturating_sub(began) / (commands as u64).max(1));
        for (number, count) in runs {
            let (slot, count) = (&self.commands[number.0], count as u64);
            add(&slot.calls, count);
            if let Some(ns) = ns_each {
                slot.record_latency(count, ns);
            }
        }
    }

    /// Counts a failed call of a group, in addition to [`Counters::end_group`].
    pub(crate) fn record_failure(&self, number: Number) {
        add(&self.commands[number.0].failed, 1);
    }

    /// Counts a command that was rejected before it ran.
    pub(crate) fn record_rejection(&self, number: Number) {
        add(&self.commands[number.0].rejected, 1);
    }

    /// Counts an error reply by its code.
    pub(crate) fn record_error(&self, message: &[u8]) {
        self.record_errors(code_of(message), 1);
    }

    /// Counts error replies with a code.
    pub(crate) fn record_errors(&self, code: &[u8], count: u64) {
        if let Some(nth) = ERROR_CODES.iter().position(|known| known.as_bytes() == code) {
            return add(&self.errors[nth], count);
        }
        // Scripts may make up any number of codes.
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = others.len() >= OTHERS;
        match others.get_mut(code) {
            Some(known) => *known += count,
            None if is_full => add(&self.errors[0], count),
            None => _ = others.insert(code.to_vec(), count),
        }
    }

    fn read(&self) -> Sums {
        // ORDER: Relaxed, all: statistics.
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let sum = |slot: &Slot| Sum {
            calls: read(&slot.calls),
            timed: read(&slot.timed),
            timed_ns: read(&slot.timed_ns),
            failed: read(&slot.failed),
            rejected: read(&slot.rejected),
            latencies: slot.latencies.each_ref().map(read),
        };
        let known = ERROR_CODES.iter().map(|code| code.as_bytes().to_vec());
        let mut errors: BTreeMap<_, _> = known.zip(self.errors.iter().map(read)).collect();
        errors.extend(self.others.lock().unwrap_or_else(PoisonError::into_inner).clone());
        Sums { commands: self.commands.iter().map(sum).collect(), errors }
    }
}

/// Codes that a thread counts besides [`ERROR_CODES`]. Any further one counts as ERR.
const OTHERS: usize = 128;

/// The code of an error: its first word, if it has one that Redis takes for it.
pub(crate) fn code_of(message: &[u8]) -> &[u8] {
    const LONGEST: usize = 30;
    let end = message.iter().take(LONGEST + 1).position(|byte| *byte == b' ').unwrap_or(0);
    let code = &message[..end];
    if !code.is_empty() && code.iter().all(u8::is_ascii_graphic) { code } else { ERROR_CODES[0].as_bytes() }
}

impl Slot {
    fn record_latency(&self, calls: u64, ns: u64) {
        add(&self.timed, calls);
        add(&self.timed_ns, calls * ns);
        add(&self.latencies[BOUNDS.partition_point(|&bound| bound < ns)], calls);
    }
}

/// The counters of all threads together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// By [`Number`]; empty before there is a set of counters.
    pub(crate) commands: Vec<Sum>,
    /// Error replies by their code.
    pub(crate) errors: BTreeMap<Vec<u8>, u64>,
}

/// One command's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) calls: u64,
    timed: u64,
    timed_ns: u64,
    pub(crate) failed: u64,
    pub(crate) rejected: u64,
    latencies: [u64; BUCKETS],
}

impl Sum {
    const ZERO: Sum =
        Sum { calls: 0, timed: 0, timed_ns: 0, failed: 0, rejected: 0, latencies: [0; BUCKETS] };

    fn combine(&mut self, other: &Sum, each: fn(u64, u64) -> u64) {
        for (one, other) in [
            (&mut self.calls, other.calls),
            (&mut self.timed, other.timed),
            (&mut self.timed_ns, other.timed_ns),
            (&mut self.failed, other.failed),
            (&mut self.rejected, other.rejected),
        ] {
            *one = each(*one, other);
        }
        for (one, other) in self.latencies.iter_mut().zip(other.latencies) {
            *one = each(*one, other);
        }
    }

    /// Average time of the timed calls, in microseconds.
    pub(crate) fn usec_per_call(&self) -> f64 {
        if self.timed == 0 { 0.0 } else { self.timed_ns as f64 / self.timed as f64 / 1000.0 }
    }

    /// Estimated time of all calls, in microseconds.
    pub(crate) fn usec(&self) -> u64 {
        (self.usec_per_call() * self.calls as f64) as u64
    }

    /// The latency in microseconds that this percentage of the calls stays within, to the precision
    /// of a bucket. `None` if no call was timed.
    pub(crate) fn percentile_usec(&self, percent: f64) -> Option<f64> {
        let all: u64 = self.latencies.iter().sum();
        let wanted = (all as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.latencies.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        let bound = BOUNDS.get(bucket).or(BOUNDS.last())?;
        Some(*bound as f64 / 1000.0)
    }
}

impl Sums {
    fn combine(mut self, other: &Sums, each: fn(u64, u64) -> u64) -> Sums {
        let both = [self.commands.len(), other.commands.len()];
        debug_assert!(both[0] == both[1] || both.contains(&0), "all sets count the same commands");
        self.commands.resize(both[0].max(both[1]), Sum::ZERO);
        self.commands.iter_mut().zip(&other.commands).for_each(|(one, other)| one.combine(other, each));
        for (code, other) in &other.errors {
            let one = self.errors.entry(code.clone()).or_default();
            *one = each(*one, *other);
        }
        self
    }
}

/// All sets of counters of one server.
#[derive(Default)]
pub(crate) struct CommandStats(Mutex<Sets>);

#[derive(Default)]
struct Sets {
    live: Vec<Arc<Counters>>,
    /// Sums of the sets that were removed.
    removed: Sums,
    /// Sums at the last CONFIG RESETSTAT.
    baseline: Sums,
}

impl CommandStats {
    /// Adds a set of counters of so many commands for one thread.
    pub(crate) fn add_set(&self, commands: usize) -> Arc<Counters> {
        let counters = Arc::new(Counters::of(commands));
        self.lock().live.push(Arc::clone(&counters));
        counters
    }

    /// Removes a set. Its counts are kept.
    pub(crate) fn remove_set(&self, counters: &Arc<Counters>) {
        let mut sets = self.lock();
        let before = sets.live.len();
        sets.live.retain(|set| !Arc::ptr_eq(set, counters));
        if sets.live.len() < before {
            let removed = std::mem::take(&mut sets.removed);
            sets.removed = removed.combine(&counters.read(), u64::wrapping_add);
        }
    }

    /// The turns of all threads that execute commands.
    pub(crate) fn turns(&self) -> Vec<Arc<Turn>> {
        self.lock().live.iter().map(|set| Arc::clone(&set.turn)).collect()
    }

    /// Sums since the start or CONFIG RESETSTAT.
    pub(crate) fn read(&self) -> Sums {
        let sets = self.lock();
        sets.sums().combine(&sets.baseline, u64::wrapping_sub)
    }

    /// CONFIG RESETSTAT: starts again from zero.
    pub(crate) fn reset(&self) {
        let mut sets = self.lock();
        sets.baseline = sets.sums();
    }

    /// Calls of all commands since the start; CONFIG RESETSTAT does not change it.
    pub(crate) fn calls(&self) -> u64 {
        // ORDER: Relaxed: statistics.
        let calls = |set: &Counters| set.commands.iter().map(|slot| slot.calls.load(Relaxed)).sum::<u64>();
        let sets = self.lock();
        let removed: u64 = sets.removed.commands.iter().map(|sum| sum.calls).sum();
        sets.live.iter().map(|set| calls(set)).fold(removed, u64::wrapping_add)
    }

    fn lock(&self) -> MutexGuard<'_, Sets> {
        // Sets are added and sums replaced whole, so a panic elsewhere leaves no partial change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sets {
    fn sums(&self) -> Sums {
        self.live.iter().fold(self.removed.clone(), |sums, set| sums.combine(&set.read(), u64::wrapping_add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of commands, and one of them.
    const COMMANDS: usize = 3;
    const GET: Number = Number(1);

    #[test]
    fn removed_set_keeps_its_counts() {
        let stats = CommandStats::default();
        let (one, other) = (stats.add_set(COMMANDS), stats.add_set(COMMANDS));
        one.end_group(2, [(GET, 2)].into_iter(), None);
        other.record_rejection(GET);
        other.record_error(b"NOAUTH no");
        other.record_error(b"SURPRISE it is");
        stats.remove_set(&one);
        stats.remove_set(&one);
        let sums = stats.read();
        let sum = &sums.commands[GET.0];
        assert_eq!((sum.calls, sum.rejected, sum.usec()), (2, 1, 0));
        let counted: Vec<_> = sums.errors.iter().filter(|(_, count)| **count > 0).collect();
        assert_eq!(counted, [(&b"NOAUTH".to_vec(), &1), (&b"SURPRISE".to_vec(), &1)]);
        assert_eq!(stats.calls(), 2);
        stats.reset();
        assert!(stats.read().errors.values().all(|count| *count == 0));
        assert_eq!(stats.read().commands, [Sum::ZERO; COMMANDS]);
        other.end_group(1, [(GET, 1)].into_iter(), None);
        assert_eq!(stats.read().commands[GET.0].calls, 1);
    }

    #[test]
    fn codes_of_errors_are_those_of_redis() {
        for (message, code) in [
            ("MY_ERR x", "MY_ERR"),
            ("MYERR", "ERR"),
            ("", "ERR"),
            (" x", "ERR"),
            ("A\rB x", "ERR"),
            ("ACODEOFTHIRTYBYTESISCOUNTEDXXX x", "ACODEOFTHIRTYBYTESISCOUNTEDXXX"),
            ("ACODEOFMORETHANTHIRTYBYTESISNOT x", "ERR"),
        ] {
            assert_eq!(String::from_utf8_lossy(code_of(message.as_bytes())), code, "{message}");
        }
    }

    #[test]
    fn codes_beyond_a_limit_count_as_err() {
        let stats = CommandStats::default();
        let set = stats.add_set(COMMANDS);
        (0..OTHERS + 5).for_each(|nth| set.record_error(format!("CODE{nth} x").as_bytes()));
        let errors = stats.read().errors;
        assert_eq!((errors.len(), errors[&b"ERR"[..]]), (ERROR_CODES.len() + OTHERS, 5));
    }

    #[test]
    fn percentiles_use_timed_calls() {
        let slot = Slot::default();
        slot.record_latency(98, 1000);
        slot.record_latency(1, 100_000);
        slot.record_latency(1, u64::MAX / 4);
        let mut sum = Sum::ZERO;
        sum.latencies = slot.latencies.each_ref().map(|count| count.load(Relaxed));
        let [p50, p99, p100] = [50.0, 99.0, 100.0].map(|percent| sum.percentile_usec(percent).unwrap());
        assert!(
            (1.0..2.0).contains(&p50) && (100.0..200.0).contains(&p99) && p100 > 1e6,
            "{p50} {p99} {p100}"
        );
        assert_eq!(Sum::ZERO.percentile_usec(50.0), None);
    }

    #[test]
    fn quick_calls_are_sampled_and_scaled() {
        let stats = CommandStats::default();
        let counters = stats.add_set(COMMANDS);
        let timed = (0..2 * SAMPLE).filter(|_| {
            let began = counters.begin(GET, true);
            counters.end(GET, began.map(|_| 0), false);
            began.is_some()
        });
        assert_eq!(timed.count(), 2);
        let sum = stats.read().commands[GET.0];
        assert_eq!((sum.calls, sum.timed), (2 * SAMPLE, 2));
        assert_eq!(sum.usec(), (sum.usec_per_call() * 128.0) as u64);
        assert!((0..3).all(|_| counters.begin(Number(0), false).is_some()));
    }
}
