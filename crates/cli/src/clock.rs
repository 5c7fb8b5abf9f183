//! The clock of the program; only this module reads it and sleeps.
#![allow(
    clippy::disallowed_methods,
    reason = "the program reads the clock, so that the crates below need not"
)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Unix milliseconds, for expiry.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The current instant, to measure a duration from.
pub(crate) fn start() -> Instant {
    Instant::now()
}

/// Sleeps.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
