//! The system clock, for entries that expire.

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::time::Duration;
use terrace_engine::Clock;

/// The wall clock, exact to the millisecond. Whether an expiry has come is read from the time of
/// the last tick of the kernel, in a few nanoseconds, unless that is close to the expiry.
pub struct SystemClock;

/// How far the time of the kernel's last tick may be behind, in milliseconds: a tick is 10 at most,
/// and a busy machine may be late for some.
const BEHIND_MOST: u64 = 50;

thread_local! {
    /// What [`SystemClock`] shows to this thread; 0: the time.
    static STOPPED: Cell<u64> = const { Cell::new(0) };
}

/// Does `body` at one instant: nothing expires meanwhile as far as this thread sees, and what has
/// expired by `now_ms` (unix milliseconds) is gone. For a transaction that decides by the time:
/// within its closure, so that its commit is judged by the time of the commit, and a closure that
/// runs again has a later instant. It concerns all stores whose clock is the system's.
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

/// The time `after` from `now_ms`, in unix milliseconds.
pub(crate) fn later(now_ms: u64, after: Duration) -> u64 {
    now_ms.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
}

/// The time.
fn now(clock: ClockId) -> u64 {
    #[cfg(test)]
    tests::READS.set(tests::READS.get() + u32::from(clock == ClockId::Realtime));
    let now = clock_gettime(clock);
    (now.tv_sec.max(0) as u64) * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Whether `at` has come, by a time that may be behind and, only if that does not tell, the exact
/// one.
fn has_come(at: u64, coarse: u64, exact: impl FnOnce() -> u64) -> bool {
    at <= coarse || at - coarse <= BEHIND_MOST && at <= exact()
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        match STOPPED.get() {
            0 => now(ClockId::Realtime),
            stopped => stopped,
        }
    }

    fn coarse_ms(&self) -> u64 {
        now(ClockId::RealtimeCoarse)
    }

    fn has_come(&self, at: u64) -> bool {
        match STOPPED.get() {
            0 => has_come(at, self.coarse_ms(), || self.now_ms()),
            stopped => at <= stopped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PutOptions, Store};

    thread_local! {
        /// How often this thread has read the exact time.
        pub(super) static READS: Cell<u32> = const { Cell::new(0) };
    }

    #[allow(clippy::disallowed_methods, reason = "the machine's clock is what is asked for")]
    #[test]
    fn system_clock_shows_unix_milliseconds() {
        let since =
            |time: std::time::SystemTime| time.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let before = since(std::time::SystemTime::now());
        let shown = u128::from(SystemClock.now_ms());
        let after = since(std::time::SystemTime::now());
        assert!((before..=after).contains(&shown), "{before} {shown} {after}");
    }

    #[test]
    fn expiry_is_judged_by_the_exact_time_where_it_is_near() {
        for (at, coarse, exact, come, reads) in [
            (1000, 1000, 1004, true, 0),
            (1, 1000, 1004, true, 0),
            (1001, 1000, 1004, true, 1),
            (1004, 1000, 1004, true, 1),
            (1005, 1000, 1004, false, 1),
            (1050, 1000, 1049, false, 1),
            (1051, 1000, 1051, false, 0),
            (u64::MAX, 1000, 1004, false, 0),
        ] {
            let mut read = 0;
            let has_come = has_come(at, coarse, || {
                read += 1;
                exact
            });
            assert_eq!((has_come, read), (come, reads), "{at} at {coarse} or {exact}");
        }
    }

    #[test]
    fn keys_without_a_near_expiry_need_no_exact_time() {
        let store = Store::options().anonymous().create().unwrap();
        store.put(b"stays", b"1").unwrap();
        for (key, at) in [(&b"far"[..], SystemClock.now_ms() + 60_000), (b"gone", 1)] {
            store.put_with(key, b"1", PutOptions::new().expires_at(Some(at))).unwrap();
        }
        let before = READS.get();
        for _ in 0..100 {
            assert!(store.contains(b"stays").unwrap() && store.get(b"far").unwrap().is_some());
            assert!(!store.contains(b"gone").unwrap());
        }
        assert_eq!(READS.get(), before);
    }

    #[test]
    fn stopped_instant_removes_nothing_that_others_see() {
        let store = Store::options().anonymous().create().unwrap();
        let at = SystemClock.now_ms() + 600_000;
        for key in 0..100_u8 {
            store.put_with([key], b"1", PutOptions::new().expires_at(Some(at))).unwrap();
        }
        assert_eq!(at_instant(at, || store.random_key().unwrap()), None);
        assert_eq!(store.keys().count(), 100);
    }

    /// The kernel's last tick was before the expiry for most of these.
    #[test]
    fn key_is_gone_at_its_expiry() {
        let store = Store::options().anonymous().create().unwrap();
        for _ in 0..1000 {
            let at = SystemClock.now_ms();
            store.put_with(b"key", b"1", PutOptions::new().expires_at(Some(at))).unwrap();
            assert!(!store.contains(b"key").unwrap());
            assert_eq!(store.remove(b"key"), Ok(false));
        }
    }
}
