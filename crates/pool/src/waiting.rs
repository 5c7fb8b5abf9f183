//! Who of this process waits for a lock, so that others give way.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Threads of this process that sleep because somebody has a lock that they want, in whichever pool.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// One of them, until it is dropped.
pub(crate) struct Waiting;

impl Waiting {
    pub(crate) fn begin() -> Self {
        // ORDER: Relaxed, here and below: it decides nothing but who has a processor next.
        WAITING.fetch_add(1, Relaxed);
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Relaxed);
    }
}

/// If a thread of this process waits for a lock, gives whoever is ready this processor: that thread, which wakes up to look again, or one of the process that has the lock, which may be dying. For who
/// computes for long in the background, once in less than a millisecond: else those wait until the kernel's turn is over, 4 ms. (Lower priority would do the same at all times, and hold up the epoch for long.)
pub(crate) fn yield_to_waiters() {
    if WAITING.load(Relaxed) > 0 {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small::exclusive_pool;
    use terrace_medium::Dram;

    #[test]
    fn sleeping_lock_waiter_is_counted_until_it_acquires() {
        let pool = exclusive_pool::<Dram>();
        let lock = &pool.0.shared().collector;
        let held = lock.acquire_in(&pool.0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(lock.acquire_in(&pool.0)));
            while WAITING.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
            drop(held);
            waits.join().unwrap();
        });
        // Other tests may wait meanwhile, and not for ever.
        while WAITING.load(Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
}
