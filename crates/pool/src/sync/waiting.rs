//! Threads of this process that wait for a lock, so that long-running threads yield to them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Threads of this process that sleep because another thread holds a lock that they want, in any
/// pool.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Counts this thread as waiting, until it is dropped.
pub(crate) struct Waiting;

impl Waiting {
    pub(crate) fn begin() -> Self {
        // ORDER: Relaxed, here and below: it only decides which thread gets a processor next.
        WAITING.fetch_add(1, Relaxed);
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Relaxed);
    }
}

/// If a thread of this process waits for a lock, yields this processor: to that thread, which wakes
/// up to check again, or to one of the process that holds the lock, which may be dying. For long
/// computations in the background, about once a millisecond: otherwise waiters sleep until the
/// kernel's time slice ends, 4 ms. (A lower priority would have the same effect at all times, and
/// hold up the epoch for long.)
pub(crate) fn yield_to_waiters() {
    if WAITING.load(Relaxed) > 0 {
        std::thread::yield_now();
    }
}

#[cfg(test)]
#[path = "tests/waiting.rs"]
mod tests;
