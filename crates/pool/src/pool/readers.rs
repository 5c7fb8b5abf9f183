//! Waiting for readers: pinned threads that hold up what was retired.

use crate::pool::Pool;
use crate::reclaim::epoch::GRACE_EPOCHS;
use crate::sync::backoff::{Backoff, rests_in};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace_medium::MappedMedium;

/// Rests between two checks for dead participants.
pub(crate) const RECOVER_EVERY: u32 = rests_in(Duration::from_millis(16));

/// The readers of a pool, for a thread that waits until they have been unpinned. It pins the pool
/// itself meanwhile, since it frees what they held up.
pub(crate) struct Readers<'p, M: MappedMedium>(pub(crate) &'p Pool<M>);

impl<M: MappedMedium> Readers<'_, M> {
    /// Waits until the threads that are pinned now have been unpinned, and frees what they held up,
    /// as long as the wait budget lasts. Threads that hold slabs while they look for empty ones are
    /// pinned, too.
    pub(crate) fn wait_for_blocking(&self) {
        let began = self.0.0.epochs().epoch();
        let holds_nothing_up = || self.0.0.base().waiting_bytes() == 0 && self.0.0.base().scans() == 0;
        self.wait_until(|now| now > began + GRACE_EPOCHS || holds_nothing_up());
    }

    /// Advances the epoch and frees what is past its grace period, until `is_over` returns true for
    /// the epoch. Returns whether it did within the wait budget.
    pub(crate) fn wait_until(&self, is_over: impl Fn(u64) -> bool) -> bool {
        if self.0.pin().depth() > 1 {
            // It would wait for this thread itself.
            self.drain();
            return false;
        }
        let mut backoff = Backoff::new();
        for turn in 1..=self.0.0.limbo().wait_budget() {
            let epoch = self.0.0.epochs().epoch();
            let now = self.drain();
            if is_over(now) {
                return true;
            }
            if now == epoch && backoff.rest() && turn.is_multiple_of(RECOVER_EVERY) {
                self.0.0.peers.recover_all_dead();
            }
        }
        self.0.0.limbo().held_up_at.store(self.0.0.epochs().epoch(), Relaxed);
        false
    }

    /// Advances the epoch if no pin holds it up, and frees what is past its grace period. Returns
    /// the epoch.
    pub(crate) fn drain(&self) -> u64 {
        let guard = self.0.pin();
        self.0.0.limbo().queue_chunk(guard.thread_slot(), &|lock| self.0.0.peers.recover_holder(lock));
        let now = self.0.0.epochs().try_advance();
        self.0.0.limbo().drain_all(guard.thread_slot());
        now
    }
}
