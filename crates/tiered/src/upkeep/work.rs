//! What all work beside the writes has in common: its locks, and what it lacked.

use crate::journal::Journal;
use crate::read::Reads;
use crate::records::Records;
use crate::shortage::Shortage;
use crate::tier::files::Tier;
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_engine::Retry;

/// Work beside the writes. It owns the locks of the thread that flushes and of the one that
/// reorganises, and what either lacked; reads and records stand below, and writes above.
pub(crate) struct Upkeep {
    pub(crate) reads: Reads,
    /// Held by the thread that flushes, and by the one that reorganises.
    pub(super) flushing: Mutex<()>,
    pub(super) reorganising: Mutex<()>,
    /// What has become of the background's flushes, and of its rewrites.
    pub(crate) flushes: Retry,
    pub(crate) rewrites: Retry,
    /// What the last flush lacked, and the last rewrite for a removal.
    pub(super) unsealed: Shortage,
    pub(super) unreclaimed: Shortage,
}

impl Upkeep {
    pub(crate) fn new(reads: Reads) -> Self {
        Self {
            reads,
            flushing: Mutex::default(),
            reorganising: Mutex::default(),
            flushes: Retry::default(),
            rewrites: Retry::default(),
            unsealed: Shortage::default(),
            unreclaimed: Shortage::default(),
        }
    }

    #[inline(always)]
    pub(crate) fn records(&self) -> &Records {
        &self.reads.records
    }

    #[inline(always)]
    pub(crate) fn journal(&self) -> &Journal {
        &self.reads.records.journal
    }

    #[inline(always)]
    pub(crate) fn tier(&self) -> &Tier {
        &self.reads.records.journal.tier
    }

    /// Keeps blocks from going to the tier.
    pub(crate) fn stop_flushes(&self) -> MutexGuard<'_, ()> {
        self.flushing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps blocks on the tier as they are.
    pub(crate) fn stop_rewrites(&self) -> MutexGuard<'_, ()> {
        self.reorganising.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the pauses of background work that lacked room, where there is so much now that it does
    /// not lack it.
    pub(crate) fn look_for_room(&self) {
        let now = self.journal().settings.clock.now_ms();
        let lacks_room = |work: &Retry| work.too_early(now).is_some_and(|error| error.lacks_room());
        if lacks_room(&self.flushes) || lacks_room(&self.rewrites) {
            let block = self.records().memory().pages.block_bytes();
            if self.tier().files.free_bytes(self.tier().path()).is_ok_and(|free| free > block + block / 4) {
                self.forget_shortage();
            }
        }
    }

    /// Forgets what background work and flushes lacked: there is room now.
    pub(crate) fn forget_shortage(&self) {
        self.flushes.succeed();
        self.rewrites.succeed();
        self.unsealed.forget();
        self.unreclaimed.forget();
        self.journal().forget_shortage();
    }
}
