//! The clocks of the event loops.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Unix milliseconds, for expiry.
pub(crate) fn unix_ms() -> u64 {
    millis(clock_gettime(ClockId::Realtime))
}

/// Milliseconds on a monotonic clock that is cheap and exact to a few milliseconds: for timeouts.
pub(crate) fn coarse_ms() -> u64 {
    millis(clock_gettime(ClockId::MonotonicCoarse))
}

/// Nanoseconds on a monotonic clock: for latencies.
pub(crate) fn precise_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    unsigned(time.tv_sec) * 1_000_000_000 + unsigned(time.tv_nsec)
}

fn millis(time: Timespec) -> u64 {
    unsigned(time.tv_sec) * 1000 + unsigned(time.tv_nsec) / 1_000_000
}

fn unsigned(part: i64) -> u64 {
    u64::try_from(part).unwrap_or(0)
}
