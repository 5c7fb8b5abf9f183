//! The source of time, given by the caller that opens the store.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tells the time. Asked once per record that expires, never for other records.
pub trait Clock: Send + Sync {
    /// Unix time in milliseconds, exact.
    fn now_ms(&self) -> u64;

    /// Unix time in milliseconds, or what it was a few milliseconds ago, if that is cheaper to
    /// tell; for a thread at a stopped instant, too. What it says has expired is removed.
    fn coarse_ms(&self) -> u64 {
        self.now_ms()
    }

    /// Whether the time `at` has come, exact to the millisecond. A clock that tells the coarse time
    /// for less needs the exact one only near `at`.
    fn has_come(&self, at: u64) -> bool {
        at <= self.now_ms()
    }
}

/// A clock that is stopped: it changes only when it is set.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `ms`.
    pub fn at(ms: u64) -> Self {
        Self(AtomicU64::new(ms))
    }

    /// Advances the clock by `ms`.
    pub fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now_ms(&self) -> u64 {
        (**self).now_ms()
    }

    fn coarse_ms(&self) -> u64 {
        (**self).coarse_ms()
    }

    fn has_come(&self, at: u64) -> bool {
        (**self).has_come(at)
    }
}
