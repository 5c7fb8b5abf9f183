//! How fast background work may read and write: a token bucket without a clock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const NANOS: i128 = 1_000_000_000;

/// A number of bytes a second that several threads share.
///
/// A caller takes its bytes at once and is told how long to wait before it goes on: a debt, which
/// the next caller waits for too. After a time of rest, `burst` bytes go without waiting.
pub struct Rate(Mutex<Bucket>);

struct Bucket {
    /// `None` if unlimited.
    bytes_per_second: Option<u64>,
    burst: u64,
    /// Billionths of bytes that may be taken without waiting; negative while there is a debt.
    tokens: i128,
    /// When that was so.
    at: Duration,
}

impl Bucket {
    fn full(&self) -> i128 {
        i128::from(self.burst) * NANOS
    }
}

impl Rate {
    /// A rate of `bytes_per_second`, of which `burst` bytes may come at once.
    ///
    /// # Panics
    /// If the rate is 0.
    pub fn new(bytes_per_second: u64, burst: u64) -> Self {
        let rate = Self::unlimited();
        rate.set(Some(bytes_per_second), burst);
        rate
    }

    /// No limit, until one is set.
    pub fn unlimited() -> Self {
        let bucket = Bucket { bytes_per_second: None, burst: 0, tokens: 0, at: Duration::ZERO };
        Self(Mutex::new(bucket))
    }

    /// Changes the rate, `None` being no limit, and the burst. A debt stays as many bytes.
    ///
    /// # Panics
    /// If the rate is 0: nothing would ever go on.
    pub fn set(&self, bytes_per_second: Option<u64>, burst: u64) {
        assert_ne!(bytes_per_second, Some(0), "a rate of 0 bytes a second");
        let mut bucket = self.bucket();
        let was_unlimited = bucket.bytes_per_second.is_none();
        (bucket.bytes_per_second, bucket.burst) = (bytes_per_second, burst);
        if was_unlimited {
            bucket.tokens = bucket.full();
        }
    }

    /// Takes `bytes` at the time `now`, which callers measure from any fixed moment on. Returns how
    /// long to wait before going on.
    pub fn grant(&self, bytes: u64, now: Duration) -> Duration {
        let mut bucket = self.bucket();
        // Another caller may have come with a later time.
        let elapsed = now.saturating_sub(bucket.at).as_nanos() as i128;
        bucket.at = bucket.at.max(now);
        let Some(rate) = bucket.bytes_per_second else { return Duration::ZERO };
        let filled = bucket.tokens.saturating_add(elapsed.saturating_mul(rate.into()));
        let tokens = filled.min(bucket.full());
        bucket.tokens = tokens.saturating_sub(i128::from(bytes) * NANOS);
        let debt = bucket.tokens.min(0).unsigned_abs();
        Duration::from_nanos(u64::try_from(debt.div_ceil(rate.into())).unwrap_or(u64::MAX))
    }

    fn bucket(&self) -> std::sync::MutexGuard<'_, Bucket> {
        // Its numbers are in order even where a thread has panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "tests/rate.rs"]
mod tests;
