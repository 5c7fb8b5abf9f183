//! What lacked room on the tier is not tried again before there is more.
//!
//! An attempt takes long: a block is written until no room is left, a segment is allocated. In a
//! full store each write would make one, and all writers would wait for all of them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use terrace_engine::WriteError;

/// Milliseconds after which one attempt is made though nothing was freed: it may need less by then.
const PAUSE_MS: u64 = 200;

/// What the last attempt of one kind has lacked.
#[derive(Default)]
pub(crate) struct Shortage {
    /// Whether there is something: a hint, so that writes take no lock.
    is_short: AtomicBool,
    last: Mutex<Option<Lacked>>,
}

struct Lacked {
    error: WriteError,
    /// Free bytes of the tier after the attempt, and its time.
    free: u64,
    at_ms: u64,
}

impl Shortage {
    /// Notes an attempt that lacked room, which has left so many bytes free.
    pub(crate) fn note(&self, error: &WriteError, free: u64, now_ms: u64) {
        let lacked = Lacked { error: error.clone(), free, at_ms: now_ms };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(lacked);
        // ORDER: Relaxed: a thread that misses it makes one attempt more.
        self.is_short.store(true, Relaxed);
    }

    /// The error that another attempt would meet now, as far as known. `free` tells the free bytes.
    #[inline(always)]
    pub(crate) fn error(
        &self,
        free: impl FnOnce() -> Option<u64>,
        now_ms: impl FnOnce() -> u64,
    ) -> Option<WriteError> {
        if self.is_short.load(Relaxed) { self.last_error(free, now_ms()) } else { None }
    }

    #[cold]
    fn last_error(&self, free: impl FnOnce() -> Option<u64>, now_ms: u64) -> Option<WriteError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let lacked = last.as_ref()?;
        // A clock that was set back is no reason to wait.
        let is_recent = now_ms.checked_sub(lacked.at_ms).is_some_and(|passed| passed < PAUSE_MS);
        if is_recent && free().is_some_and(|free| free <= lacked.free) {
            return Some(lacked.error.clone());
        }
        *last = None;
        self.is_short.store(false, Relaxed);
        None
    }

    /// Notes that there is room.
    pub(crate) fn forget(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.is_short.store(false, Relaxed);
    }
}
