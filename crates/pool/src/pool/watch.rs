//! Key watches: notify a thread of changes to keys with a prefix, in any process, without polling.
//!
//! ```text
//! word 0      lock of the watch's owner
//!      1      counts changes; the owner sleeps on its lower half
//!      2      whether a thread sleeps (bit 32) | length of the prefix in bytes (31 to 0)
//!      3..8   the prefix, padded with zeros
//! ```
//!
//! A thread that has changed a key loads one word with a bit for each watch, mostly 0. A watch only
//! counts changes to keys with its prefix; its owner then reads the keys itself. So nothing is
//! queued, nothing overflows, and a long sleep delays no other thread.
//!
//! No change is missed. The owner sets its watch's bit before it first reads the keys that it waits
//! for, and then every running thread executes a barrier (see `barrier`). So a change that did not
//! see the watch is visible to the owner's reads. If a process dies between a change and its
//! notification, its recovery notifies all watches. A process that is stopped there notifies when
//! it continues.

use crate::pool::Pool;
use crate::sharing::fork::Forked;
use crate::sharing::watches::WatchRecord;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};
use terrace_medium::{MappedMedium, full_barrier};

/// Bytes of a prefix that are compared.
const PREFIX_BYTES: usize = 40;
const SLEEPS: u64 = 1 << 32;
/// Polling interval on a host without a common kernel.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Reports changes to keys with a prefix. Created by [`Pool::watch`]; keeps the pool open.
pub struct Watch<M: MappedMedium> {
    pool: Pool<M>,
    index: u32,
    /// The count at the last check.
    seen: u32,
}

/// No watch could be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchError {
    /// All watches of the pool, this number, are in use.
    TooMany(u32),
    /// The pool was opened by the process that forked this one.
    Forked,
}

impl std::fmt::Display for WatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooMany(count) => write!(
                f,
                "the pool's {count} key watches are all in use, by all processes together; one with a shorter prefix can replace several"
            ),
            Self::Forked => Forked.fmt(f),
        }
    }
}

impl std::error::Error for WatchError {}

impl<M: MappedMedium> Pool<M> {
    /// A watch for the keys with this prefix. At most 40 bytes of it are compared: a longer one is
    /// cut, and matches more keys.
    pub fn watch(&self, prefix: &[u8]) -> Result<Watch<M>, WatchError> {
        let inner = &*self.0;
        if inner.base().is_forked_copy() {
            return Err(WatchError::Forked);
        }
        let count = self.layout().watch_count();
        let is_mine = |&index: &u32| match inner.base().watch(index).owner.try_acquire_in(inner.base()) {
            Some(locked) => {
                std::mem::forget(locked);
                true
            }
            None => false,
        };
        let free = || (0..count).find(is_mine);
        let of_dead = || {
            inner.peers.recover_all_dead();
            free()
        };
        let index = free().or_else(of_dead).ok_or(WatchError::TooMany(count))?;
        let line = inner.base().watch(index);
        let prefix = &prefix[..prefix.len().min(PREFIX_BYTES)];
        let mut bytes = [0; PREFIX_BYTES];
        bytes[..prefix.len()].copy_from_slice(prefix);
        for (word, piece) in line.prefix.iter().zip(bytes.as_chunks().0) {
            word.store(self.medium(), u64::from_le_bytes(*piece), Relaxed);
        }
        line.about.store(self.medium(), prefix.len() as u64, Relaxed);
        let seen = line.changes.load(self.medium(), Acquire) as u32;
        // ORDER: Release: a thread that sees the bit sees the prefix. The barrier: see above.
        inner.base().shared().watches_set.fetch_or(self.medium().point("watch.make"), 1 << index, Release);
        inner.base().barrier_to_pins();
        Ok(Watch { pool: self.clone(), index, seen })
    }

    /// Notifies the watches of `key` that it has changed. The change must be visible and durable.
    #[inline(always)]
    pub fn notify_watches(&self, key: &[u8]) {
        let watches_set = self.0.base().watches_set();
        if watches_set != 0 {
            self.0.base().notify_watches_of(watches_set, |line| line.is_of(self.medium(), key));
        }
    }
}

impl<M: MappedMedium> Watch<M> {
    /// Whether a change was reported since the last call or the last [`Watch::wait`]. Never waits.
    pub fn has_changed(&mut self) -> bool {
        let now = self.line().changes.load(self.pool.medium(), Acquire) as u32;
        std::mem::replace(&mut self.seen, now) != now
    }

    /// Waits for a change since the last call, for at most `time`. Returns whether there was one.
    #[allow(clippy::disallowed_methods, reason = "the caller specifies the time to wait")]
    pub fn wait(&mut self, time: Duration) -> bool {
        let end = Instant::now().checked_add(time);
        loop {
            if self.has_changed() {
                return true;
            }
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            self.sleep(left);
        }
    }

    /// Sleeps for at most `time`; for less if no common kernel delivers wake-ups from other hosts.
    fn sleep(&self, time: Duration) {
        let time = if self.pool.0.base().is_multi_host() { time.min(LOOK_AGAIN) } else { time };
        let (line, medium) = (self.line(), self.pool.medium());
        let about = line.about.load(medium, Relaxed);
        line.about.store(medium, about | SLEEPS, Relaxed);
        // ORDER: see `WatchRecord::notify`. The kernel compares the count again.
        full_barrier(medium);
        line.changes.sleep_while(self.seen, time);
        line.about.store(medium, about, Relaxed);
    }

    fn line(&self) -> &WatchRecord {
        self.pool.0.base().assert_not_forked();
        self.pool.0.base().watch(self.index)
    }
}

impl<M: MappedMedium> Drop for Watch<M> {
    fn drop(&mut self) {
        if !self.pool.0.base().is_forked_copy() {
            self.pool.0.base().end_watch(self.index);
        }
    }
}

#[cfg(test)]
#[path = "tests/watch.rs"]
mod tests;
