//! What each command was asked for, and what it took: INFO's sections commandstats, latencystats
//! and errorstats.
//!
//! Each event loop has a set of counters that only its thread writes, with plain loads and stores,
//! so that no two threads contend for a line. Readers add up all sets. CONFIG RESETSTAT remembers
//! the sums of its time, and they are subtracted from then on.
//!
//! Commands that are quick are timed once in [`SAMPLE`] calls, the first one included; the others
//! always.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    command::{Command, Run, flag, table},
    net::{BOUNDS, precise_ns},
};

/// One call of a quick command in so many is timed.
const SAMPLE: u64 = 64;

/// Buckets of a command's latencies: those up to each of [`BOUNDS`], and one above.
const BUCKETS: usize = BOUNDS.len() + 1;

/// Codes that error replies begin with. Any other counts as the first.
pub(crate) const ERROR_CODES: [&str; 7] =
    ["ERR", "EXECABORT", "NOAUTH", "NOPROTO", "OOM", "READONLY", "WRONGPASS"];

/// The counters that one thread writes.
pub(crate) struct Counters {
    commands: Box<[Slot]>,
    errors: [AtomicU64; ERROR_CODES.len()],
}

/// One command's counters. A line of its own for what each call writes.
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
    // ORDER: Relaxed: counters to look at.
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            commands: (0..table::numbers()).map(|_| Slot::default()).collect(),
            errors: Default::default(),
        }
    }
}

impl Counters {
    /// Counts one call, and says when it began if it is to be timed. `place` is as in
    /// [`State::last_command`](crate::session::State).
    pub(crate) fn begin(&self, place: usize, command: &Command) -> Option<u64> {
        let slot = &self.commands[table::number(place)];
        // ORDER: Relaxed: only this thread writes it.
        let calls = slot.calls.load(Relaxed);
        add(&slot.calls, 1);
        (calls.is_multiple_of(SAMPLE) || !is_quick(command)).then(precise_ns)
    }

    /// Notes the end of a call.
    pub(crate) fn end(&self, place: usize, began: Option<u64>, failed: bool) {
        let slot = &self.commands[table::number(place)];
        if let Some(began) = began {
            slot.took(1, precise_ns().saturating_sub(began));
        }
        if failed {
            add(&slot.failed, 1);
        }
    }

    /// When commands that run together begin, of which the first is at `place`, if they are to be
    /// timed.
    pub(crate) fn begin_together(&self, place: usize, count: usize) -> Option<u64> {
        // ORDER: Relaxed: only this thread writes it.
        let calls = self.commands[table::number(place)].calls.load(Relaxed);
        let is_sampled = calls.is_multiple_of(SAMPLE) || calls % SAMPLE + count as u64 > SAMPLE;
        is_sampled.then(precise_ns)
    }

    /// Counts commands that ran together, each with an equal share of the time.
    pub(crate) fn end_together(&self, places: &[usize], began: Option<u64>) {
        let took = began.map(|began| precise_ns().saturating_sub(began) / (places.len() as u64).max(1));
        for run in places.chunk_by(|one, other| one == other) {
            let (slot, count) = (&self.commands[table::number(run[0])], run.len() as u64);
            add(&slot.calls, count);
            if let Some(ns) = took {
                slot.took(count, ns);
            }
        }
    }

    /// Counts a call that failed, beside [`Counters::end_together`].
    pub(crate) fn failed(&self, place: usize) {
        add(&self.commands[table::number(place)].failed, 1);
    }

    /// Counts a command that was refused before it ran.
    pub(crate) fn rejected(&self, place: usize) {
        add(&self.commands[table::number(place)].rejected, 1);
    }

    /// Counts an error reply by its code.
    pub(crate) fn error(&self, message: &[u8]) {
        let code = message.split(|byte| *byte == b' ').next().unwrap_or_default();
        let nth = ERROR_CODES.iter().position(|known| known.as_bytes() == code).unwrap_or(0);
        add(&self.errors[nth], 1);
    }

    fn read(&self) -> Sums {
        // ORDER: Relaxed, all: counters to look at.
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let sum = |slot: &Slot| Sum {
            calls: read(&slot.calls),
            timed: read(&slot.timed),
            timed_ns: read(&slot.timed_ns),
            failed: read(&slot.failed),
            rejected: read(&slot.rejected),
            latencies: slot.latencies.each_ref().map(read),
        };
        Sums { commands: self.commands.iter().map(sum).collect(), errors: self.errors.each_ref().map(read) }
    }
}

impl Slot {
    fn took(&self, calls: u64, ns: u64) {
        add(&self.timed, calls);
        add(&self.timed_ns, calls * ns);
        add(&self.latencies[BOUNDS.partition_point(|&bound| bound < ns)], calls);
    }
}

/// Whether a call may take less time than reading the clock twice.
fn is_quick(command: &Command) -> bool {
    matches!(command.run, Run::Read(_)) || command.as_put.is_some() || command.has(flag::FAST)
}

/// The counters of all threads together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sums {
    /// By [`table::number`].
    pub(crate) commands: Vec<Sum>,
    /// By [`ERROR_CODES`].
    pub(crate) errors: [u64; ERROR_CODES.len()],
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

    fn with(&mut self, other: &Sum, each: fn(u64, u64) -> u64) {
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

    /// Microseconds of a call on average, by the calls that were timed.
    pub(crate) fn usec_per_call(&self) -> f64 {
        if self.timed == 0 { 0.0 } else { self.timed_ns as f64 / self.timed as f64 / 1000.0 }
    }

    /// Microseconds of all calls.
    pub(crate) fn usec(&self) -> u64 {
        (self.usec_per_call() * self.calls as f64) as u64
    }

    /// The latency in microseconds that a share of the calls stays within, up to the width of a
    /// bucket; `None` if no call was timed.
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
    fn zero() -> Sums {
        Sums { commands: vec![Sum::ZERO; table::numbers()], errors: [0; ERROR_CODES.len()] }
    }

    fn with(mut self, other: &Sums, each: fn(u64, u64) -> u64) -> Sums {
        self.commands.iter_mut().zip(&other.commands).for_each(|(one, other)| one.with(other, each));
        self.errors.iter_mut().zip(other.errors).for_each(|(one, other)| *one = each(*one, other));
        self
    }
}

/// All sets of counters of one server.
pub(crate) struct CommandStats(Mutex<Sets>);

struct Sets {
    live: Vec<Arc<Counters>>,
    /// What those had counted that are gone.
    left: Sums,
    /// What all had counted at the last CONFIG RESETSTAT.
    forgotten: Sums,
}

impl Default for CommandStats {
    fn default() -> Self {
        CommandStats(Mutex::new(Sets { live: Vec::new(), left: Sums::zero(), forgotten: Sums::zero() }))
    }
}

impl CommandStats {
    /// A new set, for one thread to write.
    pub(crate) fn enter(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.lock().live.push(Arc::clone(&counters));
        counters
    }

    /// Gives a set back. What it has counted stays.
    pub(crate) fn leave(&self, counters: &Arc<Counters>) {
        let mut sets = self.lock();
        let before = sets.live.len();
        sets.live.retain(|set| !Arc::ptr_eq(set, counters));
        if sets.live.len() < before {
            let left = std::mem::replace(&mut sets.left, Sums::zero());
            sets.left = left.with(&counters.read(), u64::wrapping_add);
        }
    }

    /// What was counted since the start or CONFIG RESETSTAT.
    pub(crate) fn read(&self) -> Sums {
        let sets = self.lock();
        sets.sums().with(&sets.forgotten, u64::wrapping_sub)
    }

    /// CONFIG RESETSTAT: begins to count at zero.
    pub(crate) fn forget(&self) {
        let mut sets = self.lock();
        sets.forgotten = sets.sums();
    }

    /// Calls of all commands since the start, whatever was forgotten.
    pub(crate) fn calls(&self) -> u64 {
        // ORDER: Relaxed: counters to look at.
        let calls = |set: &Counters| set.commands.iter().map(|slot| slot.calls.load(Relaxed)).sum::<u64>();
        let sets = self.lock();
        let left: u64 = sets.left.commands.iter().map(|sum| sum.calls).sum();
        sets.live.iter().map(|set| calls(set)).fold(left, u64::wrapping_add)
    }

    fn lock(&self) -> MutexGuard<'_, Sets> {
        // A set more or less and a sum replaced whole: a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sets {
    fn sums(&self) -> Sums {
        self.live.iter().fold(self.left.clone(), |sums, set| sums.with(&set.read(), u64::wrapping_add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get() -> usize {
        table::position(b"get").unwrap()
    }

    #[test]
    fn counters_of_a_set_that_left_stay() {
        let stats = CommandStats::default();
        let (one, other) = (stats.enter(), stats.enter());
        one.end_together(&[get(), get()], None);
        other.rejected(get());
        other.error(b"NOAUTH no");
        other.error(b"SURPRISE");
        stats.leave(&one);
        stats.leave(&one);
        let sums = stats.read();
        let sum = &sums.commands[table::number(get())];
        assert_eq!((sum.calls, sum.rejected, sum.usec()), (2, 1, 0));
        assert_eq!(sums.errors, [1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(stats.calls(), 2);
        stats.forget();
        assert_eq!(stats.read(), Sums::zero());
        other.end_together(&[get()], None);
        assert_eq!(stats.read().commands[table::number(get())].calls, 1);
    }

    #[test]
    fn percentiles_come_from_the_timed_calls() {
        let slot = Slot::default();
        slot.took(98, 1000);
        slot.took(1, 100_000);
        slot.took(1, u64::MAX / 4);
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
        let (stats, place) = (CommandStats::default(), get());
        let counters = stats.enter();
        let timed = (0..2 * SAMPLE).filter(|_| {
            let began = counters.begin(place, table::TABLE[place]);
            counters.end(place, began.map(|_| 0), false);
            began.is_some()
        });
        assert_eq!(timed.count(), 2);
        let sum = stats.read().commands[table::number(place)];
        assert_eq!((sum.calls, sum.timed), (2 * SAMPLE, 2));
        assert_eq!(sum.usec(), (sum.usec_per_call() * 128.0) as u64);
        let keys = table::position(b"keys").unwrap();
        assert!((0..3).all(|_| counters.begin(keys, table::TABLE[keys]).is_some()));
    }
}
