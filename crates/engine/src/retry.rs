//! Background work that has failed is tried again, and the more often it has failed, the later.
//!
//! What fails once may fail for long: on a full disk, a merge writes until no room is left, and
//! then gives up what it has written. Work counts as done only as a whole, so a part of it that has
//! succeeded is no reason to try again soon.

use crate::{Rest, WriteError};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Milliseconds until the first attempt after a failure, and until any later one at most.
const FIRST_MS: u64 = 200;
const LAST_MS: u64 = 30_000;

/// What has become of the last attempt of one kind of work.
#[derive(Default)]
pub struct Retry(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Failures since the store was opened.
    failures: u64,
    last: Option<Failed>,
}

struct Failed {
    /// Failures since the last success.
    times: u32,
    at_ms: u64,
    error: WriteError,
}

impl Failed {
    /// Milliseconds until the next attempt.
    fn pause(&self) -> u64 {
        // No bit is lost by that.
        (FIRST_MS << (self.times - 1).min(16)).min(LAST_MS)
    }
}

impl Retry {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a failure at this time.
    pub fn fail(&self, now_ms: u64, error: &WriteError) {
        let mut known = self.known();
        known.failures += 1;
        let times = known.last.as_ref().map_or(1, |last| last.times.saturating_add(1));
        known.last = Some(Failed { times, at_ms: now_ms, error: error.clone() });
    }

    /// Notes that work was done, or that there is none.
    pub fn succeed(&self) {
        self.known().last = None;
    }

    /// The error of the last attempt if it is too early for another one.
    pub fn too_early(&self, now_ms: u64) -> Option<WriteError> {
        let known = self.known();
        let last = known.last.as_ref()?;
        // A clock that was set back is no reason to wait.
        let waits = now_ms.checked_sub(last.at_ms).is_some_and(|passed| passed < last.pause());
        waits.then(|| last.error.clone())
    }

    /// The error of the last attempt, if it has failed.
    pub fn error(&self) -> Option<WriteError> {
        self.known().last.as_ref().map(|last| last.error.clone())
    }

    /// Makes an attempt, unless the last one has failed a moment ago.
    pub fn attempt(
        &self,
        now_ms: u64,
        job: impl FnOnce() -> Result<Rest, WriteError>,
    ) -> Result<Rest, WriteError> {
        if self.too_early(now_ms).is_some() {
            return Ok(Rest::Idle);
        }
        job().inspect(|_| self.succeed()).inspect_err(|error| self.fail(now_ms, error))
    }

    /// Failures since the store was opened.
    pub fn failures(&self) -> u64 {
        self.known().failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_and_end_with_success() {
        let (retry, error) = (Retry::default(), WriteError::ReadOnly);
        let mut now = 1000;
        assert!(retry.too_early(now).is_none());
        for pause in [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            retry.fail(now, &error);
            assert!(retry.too_early(now).is_some() && retry.too_early(now + pause - 1).is_some());
            assert!(retry.too_early(now - 1).is_none(), "the clock was set back");
            now += pause;
            assert!(retry.too_early(now).is_none(), "{pause}");
        }
        (0..200).for_each(|_| retry.fail(now, &error));
        assert!(retry.too_early(now + 29_999).is_some() && retry.too_early(now + 30_000).is_none());
        retry.succeed();
        assert!(retry.too_early(now).is_none() && retry.error().is_none());
        retry.fail(now, &error);
        assert!(retry.too_early(now + 199).is_some() && retry.too_early(now + 200).is_none());
        assert_eq!(retry.failures(), 211);
    }
}
