//! The system clock, for entries that expire.

use rustix::time::{ClockId, clock_gettime};
use terrace_engine::Clock;

/// The wall clock with the precision of the kernel's tick (1 to 4 ms): read without a system call,
/// in a few nanoseconds.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        (now.tv_sec.max(0) as u64) * 1000 + now.tv_nsec as u64 / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "the machine's clock is what is asked for")]
    #[test]
    fn system_clock_shows_unix_milliseconds() {
        let since =
            |time: std::time::SystemTime| time.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let before = since(std::time::SystemTime::now());
        let shown = u128::from(SystemClock.now_ms());
        let after = since(std::time::SystemTime::now());
        // The kernel's coarse clock may be a tick behind.
        assert!((before.saturating_sub(20)..=after).contains(&shown), "{before} {shown} {after}");
    }
}
