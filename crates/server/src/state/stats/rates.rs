//! Operations and bytes per second over the last two seconds: INFO's `instantaneous_*`.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Totals at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Milliseconds on the monotonic clock.
    pub(crate) at_ms: u64,
    pub(crate) commands: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// The totals of the last seconds, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<VecDeque<Totals>>);

/// Rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PerSecond {
    pub(crate) commands: u64,
    pub(crate) bytes_in: f64,
    pub(crate) bytes_out: f64,
}

/// Number of totals kept. At four a second, eight span nearly two seconds.
const KEPT: usize = 8;

impl Rates {
    /// Records the totals, a few times a second.
    pub(crate) fn record(&self, now: Totals) {
        let mut kept = self.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(now);
    }

    /// CONFIG RESETSTAT: starts again.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// The rates between the oldest and the newest totals kept.
    pub(crate) fn per_second(&self) -> PerSecond {
        let kept = self.lock();
        let (Some(first), Some(last)) = (kept.front(), kept.back()) else { return PerSecond::default() };
        let seconds = last.at_ms.saturating_sub(first.at_ms) as f64 / 1000.0;
        if seconds <= 0.0 {
            return PerSecond::default();
        }
        let rate = |last: u64, first: u64| last.saturating_sub(first) as f64 / seconds;
        PerSecond {
            commands: rate(last.commands, first.commands) as u64,
            bytes_in: rate(last.bytes_in, first.bytes_in),
            bytes_out: rate(last.bytes_out, first.bytes_out),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Totals>> {
        // Pushes and pops are complete or not done: a panic elsewhere leaves no inconsistent state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_span_the_kept_totals() {
        let rates = Rates::default();
        assert_eq!(rates.per_second(), PerSecond::default());
        for tick in 0..20 {
            let (at_ms, commands) = (tick * 250, tick * tick);
            rates.record(Totals { at_ms, commands, bytes_in: tick * 1000, bytes_out: 0 });
        }
        // From tick 12 to tick 19.
        let expected = ((19 * 19 - 12 * 12) as f64 / 1.75) as u64;
        assert_eq!(rates.per_second(), PerSecond { commands: expected, bytes_in: 4000.0, bytes_out: 0.0 });
        rates.clear();
        rates.record(Totals { at_ms: 9000, ..Totals::default() });
        assert_eq!(rates.per_second(), PerSecond::default());
    }
}
