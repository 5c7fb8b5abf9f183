//! The watches in the pool, as all participants see them: notifying, and ending those of dead ones.
//!
//! ```text
//! word 0      lock of the watch's owner
//!      1      counts changes; the owner sleeps on its lower half
//!      2      whether a thread sleeps (bit 32) | length of the prefix in bytes (31 to 0)
//!      3..8   the prefix, padded with zeros
//! ```

use crate::base::Base;
use crate::reclaim::barrier;
use crate::sync::lock::Lock;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use terrace_medium::{MappedMedium, Offset, Persistent, Word, full_barrier};

/// Bytes of a prefix that are compared.
pub(crate) const PREFIX_BYTES: usize = 40;
pub(crate) const SLEEPS: u64 = 1 << 32;

/// A watch in the pool. Only its owner stores to it, except for the count.
#[repr(C, align(64))]
pub(crate) struct WatchRecord {
    pub(crate) owner: Lock,
    pub(crate) changes: Word,
    pub(crate) about: Word,
    pub(crate) prefix: [Word; PREFIX_BYTES / 8],
}

// SAFETY: words and a lock, eight in all; no padding.
unsafe impl Persistent for WatchRecord {}

impl WatchRecord {
    /// Whether the watch matches `key`. (While it changes owners the answer is meaningless, and
    /// does no harm.)
    pub(crate) fn is_of<M: MappedMedium>(&self, medium: &M, key: &[u8]) -> bool {
        let mut bytes = [0; PREFIX_BYTES];
        for (piece, word) in bytes.as_chunks_mut().0.iter_mut().zip(&self.prefix) {
            *piece = word.load(medium, Relaxed).to_le_bytes();
        }
        let len = self.about.load(medium, Relaxed) as u32 as usize;
        key.starts_with(&bytes[..len.min(PREFIX_BYTES)])
    }

    fn notify<M: MappedMedium>(&self, medium: &M) {
        // ORDER: either the owner sees the count before it sleeps, or this thread sees that it
        // sleeps.
        self.changes.fetch_add(medium, 1, SeqCst);
        full_barrier(medium);
        if self.about.load(medium, Relaxed) & SLEEPS != 0 {
            self.changes.wake_all();
        }
    }
}

impl<M: MappedMedium> Base<M> {
    pub(crate) fn watch(&self, index: u32) -> &WatchRecord {
        self.region.at(Offset::new(self.layout.watch(index)))
    }

    /// The word with a bit for each watch.
    #[inline(always)]
    pub(crate) fn watches_set(&self) -> u64 {
        // ORDER: between the change and this load, as in `Epochs::set_pin`: a watch that is not
        // seen here sees the change.
        if self.light_pins {
            barrier::light();
        } else {
            full_barrier(self.medium());
        }
        // The load itself is Relaxed. If this thread's barrier is the later of the two, it sees the
        // watch and all of its words; otherwise the watch's owner sees the change.
        self.shared().watches_set.load(self.medium(), Relaxed)
    }

    #[cold]
    pub(crate) fn notify_watches_of(&self, watches_set: u64, is_notified: impl Fn(&WatchRecord) -> bool) {
        let indices = (0..self.layout.watch_count()).filter(|index| watches_set >> index & 1 == 1);
        indices
            .map(|index| self.watch(index))
            .filter(|line| is_notified(line))
            .for_each(|line| line.notify(self.medium()));
    }

    /// Notifies all watches.
    pub(crate) fn notify_all(&self) {
        self.notify_watches_of(self.watches_set(), |_| true);
    }

    /// Releases the watches of dead participants.
    pub(crate) fn release_watches_of_dead(&self) {
        for index in 0..self.layout.watch_count() {
            let line = self.watch(index);
            if line.owner.take_over_if_dead(self) {
                self.end_watch(index);
            }
        }
    }

    /// Releases a watch of this process.
    pub(crate) fn end_watch(&self, index: u32) {
        self.shared().watches_set.fetch_and(self.medium().point("watch.end"), !(1 << index), Release);
        self.watch(index).owner.release_in(self);
    }
}
