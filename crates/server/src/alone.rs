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

/// The runs of one transaction.
pub(crate) struct Runs<'a> {
    alone: &'a Alone,
    clock: fn() -> u64,
    began_ms: u64,
    runs: u32,
    is_alone: bool,
}

impl<'a> Runs<'a> {
    /// No run yet. With `at_once`, the first one is alone already.
    pub(crate) fn new(alone: &'a Alone, clock: fn() -> u64, at_once: bool) -> Runs<'a> {
        Runs { alone, clock, began_ms: 0, runs: if at_once { RUNS_MOST } else { 0 }, is_alone: false }
    }

    /// Begins a run. Returns whether it may go on: not if it has to be alone, and another one is.
    pub(crate) fn begin(&mut self) -> bool {
        self.runs += 1;
        match self.runs {
            1 => return true,
            2 => self.began_ms = (self.clock)(),
            _ => {}
        }
        // A first run alone has no beginning: it is due by the number of runs.
        let is_due = || self.runs > RUNS_MOST || (self.clock)().saturating_sub(self.began_ms) > LONG_MS;
        if self.is_alone || !is_due() {
            return true;
        }
        let now_ms = (self.clock)().max(1);
        // ORDER: Acquire, Relaxed: pairs with the Release of `drop`, so that the writes of the one
        // before are seen.
        self.is_alone = self.alone.0.compare_exchange(0, now_ms, Acquire, Relaxed).is_ok();
        self.is_alone
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
        let mut first = Runs::new(&alone, || 7, false);
        for _ in 0..RUNS_MOST {
            assert!(first.begin());
            assert_eq!(alone.since(), None);
        }
        assert!(first.begin());
        assert_eq!(alone.since(), Some(7));
        let mut second = Runs::new(&alone, || 9, true);
        assert!(!second.begin());
        drop(first);
        assert_eq!(alone.since(), None);
        assert!(second.begin() && second.begin());
        assert_eq!(alone.since(), Some(9));
        drop(second);
        assert_eq!(alone.since(), None);
    }
}
