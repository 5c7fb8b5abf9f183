//! The system clock, for entries that expire.

use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};
use terrace_engine::Clock;

/// The wall clock with the precision of the kernel's tick (1 to 4 ms): read without a system call,
/// in a few nanoseconds.
pub struct SystemClock;

thread_local! {
    /// What [`SystemClock`] shows to this thread; 0: the time.
    static STOPPED: Cell<u64> = const { Cell::new(0) };
}

/// Does `body` at one instant: nothing expires meanwhile as far as this thread sees, and what has
/// expired by `now_ms` (unix milliseconds) is gone. For a transaction that decides by the time. It
/// concerns all stores whose clock is the system's.
///
/// ```
/// let store = terrace::Store::options().anonymous().create()?;
/// let at = terrace::Clock::now_ms(&terrace::SystemClock) + 60_000;
/// store.put_with(b"key", b"value", terrace::PutOptions::new().expires_at(Some(at)))?;
/// assert!(terrace::at_instant(at - 1, || store.contains(b"key"))?);
/// assert!(!terrace::at_instant(at, || store.contains(b"key"))?);
/// assert!(store.contains(b"key")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn at_instant<R>(now_ms: u64, body: impl FnOnce() -> R) -> R {
    struct GoOn(u64);
    impl Drop for GoOn {
        fn drop(&mut self) {
            STOPPED.set(self.0);
        }
    }
    let _then = GoOn(STOPPED.replace(now_ms.max(1)));
    body()
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let stopped = STOPPED.get();
        if stopped != 0 {
            return stopped;
        }
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
