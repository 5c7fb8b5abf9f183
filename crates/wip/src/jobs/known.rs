//! What is known of the jobs that were begun: which buckets have one, and which merges wait.

use crate::jobs::merging::Merging;
use crate::state::store::Store;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use terrace_disk::Lent;

/// Milliseconds without a write after which the store counts as idle.
const IDLE_MS: u64 = 10_000;

/// What is known of the jobs that were begun.
#[derive(Default)]
pub(crate) struct Known {
    /// Merges that no thread works on at the moment.
    pub(crate) waiting: VecDeque<Merging>,
    /// Buckets that have a merge or a division, and buckets that are being flushed.
    pub(crate) merging: BTreeSet<u64>,
    pub(crate) flushing: BTreeSet<u64>,
    /// Buckets with a damaged table: their tables stay as they are, for a salvage.
    pub(crate) damaged: BTreeSet<u64>,
    /// The number of the last write, and since when it has been the last, as far as known.
    quiet: (u64, u64),
    /// The room that merges have got, as long as they need it.
    pub(crate) lent: Option<Lent>,
}

impl Known {
    /// Gives the room back once no merge is under way, or one has failed in spite of it.
    pub(crate) fn end_loan(&mut self, has_failed: bool) {
        if has_failed || self.merging.is_empty() {
            self.lent = None;
        }
    }

    /// Whether a merge of the bucket may begin.
    pub(crate) fn is_free(&self, id: u64) -> bool {
        !self.merging.contains(&id) && !self.damaged.contains(&id)
    }

    /// Whether nobody has written for a while.
    pub(crate) fn is_quiet(&mut self, store: &Store) -> bool {
        let (now, written) = (store.settings.clock.now_ms(), store.visible.load(Relaxed));
        if self.quiet.0 != written || now < self.quiet.1 {
            self.quiet = (written, now);
        }
        now - self.quiet.1 >= IDLE_MS
    }
}
