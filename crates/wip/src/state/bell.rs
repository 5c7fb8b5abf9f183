//! The bell: threads that wait for work or for room, and how they are woken.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counts announcements, and wakes the threads that wait for one. It owns a lock that is held for
/// no other.
#[derive(Default)]
pub(crate) struct Bell {
    announced: Mutex<u64>,
    changed: Condvar,
}

impl Bell {
    /// Wakes the threads that wait for work or for room.
    pub(crate) fn ring(&self) {
        *self.announced.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits for an announcement, for `time` at most.
    pub(crate) fn wait(&self, time: Duration) {
        let announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *announced;
        let _ = self.changed.wait_timeout_while(announced, time, |announced| *announced == before);
    }
}
