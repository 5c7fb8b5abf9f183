//! A transaction that other writes have made run again several times runs *alone*: meanwhile no
//! connection of this server begins a write. So it commits, however long it is.
//!
//! Nothing but its progress depends on that: what it has read is validated all the same. Writes
//! that have begun, and those of other processes that share the pool, may repeat it once more.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Runs after which a transaction runs alone.
const RUNS_MOST: u32 = 8;
/// Time after which it does, if it had to run again at all.
const LONG_MS: u64 = 50;

/// Whether a transaction runs alone. In cache lines of its own: each write reads it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Alone(AtomicU64);

impl Alone {
    /// Unix milliseconds at which the transaction began to run alone that does so now.
    pub(crate) fn since(&self) -> Option<u64> {
        // ORDER: Relaxed: advice only.
        Some(self.0.load(Relaxed)).filter(|since| *since != 0)
    }
}

/// The runs of one transaction. Each is at an instant of its own: a run that commits late is judged
/// by the time of its commit, and what has expired meanwhile is gone for the next one.
pub(crate) struct Runs<'a> {
    alone: &'a Alone,
    clock: fn() -> u64,
    /// The instant of the first run, unix milliseconds.
    first_ms: u64,
    began_ms: u64,
    runs: u32,
    is_alone: bool,
}

impl<'a> Runs<'a> {
    /// No run yet; the first one is at `first_ms`. With `at_once`, it is alone already.
    pub(crate) fn new(alone: &'a Alone, clock: fn() -> u64, first_ms: u64, at_once: bool) -> Runs<'a> {
        let runs = if at_once { RUNS_MOST } else { 0 };
        Runs { alone, clock, first_ms, began_ms: 0, runs, is_alone: false }
    }

    /// Begins a run, and returns its instant; `None` if it has to be alone, and another one is.
    pub(crate) fn begin(&mut self) -> Option<u64> {
        self.runs += 1;
        if self.runs == 1 {
            return Some(self.first_ms);
        }
        let now_ms = (self.clock)().max(1);
        if self.runs == 2 {
            self.began_ms = now_ms;
        }
        // A first run alone has no beginning: it is due by the number of runs.
        let is_due = self.runs > RUNS_MOST || now_ms.saturating_sub(self.began_ms) > LONG_MS;
        if self.is_alone || !is_due {
            return Some(now_ms);
        }
        // ORDER: Acquire, Relaxed: pairs with the Release of `drop`, so that the writes of the one
        // before are seen.
        self.is_alone = self.alone.0.compare_exchange(0, now_ms, Acquire, Relaxed).is_ok();
        self.is_alone.then_some(now_ms)
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        if self.is_alone {
            // ORDER: Release: pairs with the Acquire of `begin`.
            self.alone.0.store(0, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_runs_alone_after_conflicts() {
        let alone = Alone::default();
        let mut first = Runs::new(&alone, || 7, 5, false);
        for nth in 0..RUNS_MOST {
            assert_eq!(first.begin(), Some(if nth == 0 { 5 } else { 7 }));
            assert_eq!(alone.since(), None);
        }
        assert_eq!(first.begin(), Some(7));
        assert_eq!(alone.since(), Some(7));
        let mut second = Runs::new(&alone, || 9, 8, true);
        assert_eq!(second.begin(), None);
        drop(first);
        assert_eq!(alone.since(), None);
        assert_eq!((second.begin(), second.begin()), (Some(9), Some(9)));
        assert_eq!(alone.since(), Some(9));
        drop(second);
        assert_eq!(alone.since(), None);
    }
}
