//! Waiting for another thread that will not say when it is done.
//!
//! At first a thread keeps its processor: most waits are over before it could be given away. Then it gives it to whoever else is ready, a few times. After that it sleeps, each time longer: with more threads
//! than processors whoever is waited for may be ready and have none, for more than a second where the scheduler deals in long slices, and those who ask all the time keep it from one.

use std::cell::Cell;
use std::time::Duration;

/// Turns of a spin loop before the processor is given away.
const SPINS: u32 = 100;
/// Times that it is given away.
const YIELDS: u32 = 4;
/// The first sleep; each is twice the one before, up to the longest.
const SHORTEST: Duration = Duration::from_micros(50);
/// So late it is seen that who held a lock has died. To ask takes 35 µs, so a wait has 7% of a processor.
const LONGEST: Duration = Duration::from_micros(500);

/// About how many rests take so long.
pub(crate) const fn rests_in(time: Duration) -> u32 {
    (time.as_micros() / LONGEST.as_micros()) as u32
}

/// One wait: ask, and if it is not over, [`Backoff::spin`] or [`Backoff::rest`], and ask again.
#[derive(Default)]
pub struct Backoff {
    spins: u32,
    rests: u32,
}

impl Backoff {
    /// A wait that begins now.
    pub fn new() -> Self {
        Self::default()
    }

    /// A turn of a wait in which asking costs next to nothing. Returns whether it slept: that is longer than anybody needs who is not held up, so it is time to ask whether somebody has died.
    #[inline]
    pub fn spin(&mut self) -> bool {
        self.spins = self.spins.wrapping_add(1);
        if !self.spins.is_multiple_of(SPINS) {
            std::hint::spin_loop();
            return false;
        }
        self.rest()
    }

    /// A turn of a wait in which asking takes a while. Returns whether it slept.
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

/// From now on this thread does `instead` where it would give its processor away or sleep: for tests that say whose turn it is.
#[doc(hidden)]
pub fn rest_with(instead: fn()) {
    INSTEAD.set(Some(instead));
}

/// How long the nap is that follows so many.
fn length(sleeps: u32) -> Duration {
    LONGEST.min(SHORTEST * (1 << sleeps.min(8)))
}

#[allow(clippy::disallowed_methods, reason = "who is waited for tells nobody, or its way would cost more")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_spins_then_yields_then_sleeps() {
        let mut backoff = Backoff::new();
        assert_eq!((1..).find(|_| backoff.spin()), Some((YIELDS + 1) * SPINS));
        assert_eq!((1..).find(|_| backoff.spin()), Some(SPINS));
        let mut backoff = Backoff::new();
        let slept: Vec<bool> = (0..8).map(|_| backoff.rest()).collect();
        assert_eq!(slept, [false, false, false, false, true, true, true, true]);
    }

    #[test]
    fn sleeps_double_up_to_the_longest() {
        let lengths = [0, 1, 2, 3, 4, u32::MAX].map(|sleeps| length(sleeps).as_micros());
        assert_eq!(lengths, [50, 100, 200, 400, 500, 500]);
    }

    #[test]
    fn sleeping_thread_uses_no_processor() {
        // Times that this thread has waited for something, as the kernel counts them.
        let waits = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        let before = waits();
        // One nap may be over before it has begun, where the machine stands still for as long.
        assert!((0..100).any(|_| (sleep(LONGEST), waits() > before).1));
    }

    #[test]
    fn another_rest_takes_the_place_of_both() {
        thread_local!(static RESTS: Cell<u32> = const { Cell::new(0) });
        rest_with(|| RESTS.set(RESTS.get() + 1));
        let mut backoff = Backoff::new();
        assert_eq!((0..YIELDS + 3).filter(|_| backoff.rest()).count(), 3);
        assert_eq!(RESTS.get(), YIELDS + 3);
    }
}
