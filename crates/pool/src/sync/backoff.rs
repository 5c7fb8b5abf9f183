//! Waiting for another thread that does not signal when it is done.
//!
//! First a thread spins, since most waits end sooner than a yield takes. Then it yields a few
//! times. After that it sleeps, each time longer. With more threads than cores, the thread being
//! waited for can be runnable but unscheduled for over a second, and busy pollers would keep it off
//! the CPU.

use std::cell::Cell;
use std::time::Duration;

/// Turns of a spin loop before a yield.
const SPINS: u32 = 100;
/// Yields before the first sleep.
const YIELDS: u32 = 4;
/// The first sleep. Each further one is twice as long, up to the longest.
const SHORTEST: Duration = Duration::from_micros(50);
/// The longest sleep, and so the delay until the death of a lock holder is noticed. A check takes
/// 35 µs, so a wait uses 7% of a processor.
const LONGEST: Duration = Duration::from_micros(500);

/// About how many rests take this long.
pub(crate) const fn rests_in(time: Duration) -> u32 {
    (time.as_micros() / LONGEST.as_micros()) as u32
}

/// One wait: check the condition, and if it does not hold, call [`Backoff::spin`] or
/// [`Backoff::rest`] and check again.
#[derive(Default)]
pub struct Backoff {
    spins: u32,
    rests: u32,
}

impl Backoff {
    /// Starts a wait.
    pub fn new() -> Self {
        Self::default()
    }

    /// A turn of a wait with a cheap condition. Returns whether it slept: that is longer than an
    /// undisturbed holder needs, so the caller should check whether the holder died.
    #[inline]
    pub fn spin(&mut self) -> bool {
        self.spins = self.spins.wrapping_add(1);
        if !self.spins.is_multiple_of(SPINS) {
            std::hint::spin_loop();
            return false;
        }
        self.rest()
    }

    /// A turn of a wait with a slow condition. Returns whether it slept.
    #[cold]
    pub fn rest(&mut self) -> bool {
        let sleeps = self.rests.checked_sub(YIELDS);
        self.rests = self.rests.saturating_add(1);
        match (INSTEAD.get(), sleeps) {
            (Some(instead), _) => instead(),
            (None, None) => std::thread::yield_now(),
            (None, Some(sleeps)) => sleep(length(sleeps)),
        }
        sleeps.is_some()
    }
}

thread_local! {
    static INSTEAD: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Makes this thread call `instead` where it would yield or sleep: for tests that choose the next
/// thread.
#[doc(hidden)]
pub fn rest_with(instead: fn()) {
    INSTEAD.set(Some(instead));
}

/// The length of the sleep after this many others.
fn length(sleeps: u32) -> Duration {
    LONGEST.min(SHORTEST * (1 << sleeps.min(8)))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the awaited thread does not notify, since that would cost more than polling"
)]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
#[path = "tests/backoff.rs"]
mod tests;
