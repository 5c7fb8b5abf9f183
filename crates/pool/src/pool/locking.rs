//! Locks of the layers above: taken under a guard, with an intent that recovery finds.

use crate::format::slot::ThreadSlot;
use crate::pool::Pool;
use crate::pool::guard::Guard;
use crate::sharing::peers::Peers;
use crate::sync::intents::Intent;
use crate::sync::lock::{Lock, UNFENCED, is_held_word, unfenced_word};
use crate::sync::locked::Locked;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_medium::MappedMedium;

impl Lock {
    /// Takes the lock; waits while another thread holds it. The lock is not reentrant.
    #[inline(always)]
    pub fn acquire<'g, M: MappedMedium>(&'g self, guard: &'g Guard<'_, M>) -> Locked<'g, M> {
        // `wait` returns only the intent, which fits a register. A `Locked` returned by a function
        // that is not inlined would always live in memory.
        let intent = match self.try_take(guard) {
            Some(intent) => intent,
            None => self.wait_for_take(guard),
        };
        Locked::new(self, guard.peers().base(), intent)
    }

    #[cold]
    fn wait_for_take<M: MappedMedium>(&self, guard: &Guard<'_, M>) -> Option<Intent> {
        let peers = guard.peers();
        self.wait(peers.base(), || self.try_take(guard), || peers.recover_holder(self))
    }

    /// Takes the lock if it is free.
    ///
    /// # Panics
    /// If the pool is shared, this thread holds 16 locks, and all thread slots of the pool are
    /// taken.
    #[inline(always)]
    pub fn try_acquire<'g, M: MappedMedium>(&'g self, guard: &'g Guard<'_, M>) -> Option<Locked<'g, M>> {
        self.try_take(guard).map(|intent| Locked::new(self, guard.peers().base(), intent))
    }

    /// As [`Lock::try_acquire`], but returns the intent.
    #[inline(always)]
    fn try_take<M: MappedMedium>(&self, guard: &Guard<'_, M>) -> Option<Option<Intent>> {
        let peers = guard.peers();
        let base = peers.base();
        let intent =
            if base.is_shared() { Some(self.record_intent(peers, guard.thread_slot())?) } else { None };
        if !self.take(base) {
            intent.inspect(|intent| intent.clear(base));
            return None;
        }
        Some(intent)
    }

    /// Records that this thread tries the lock, unless it is held.
    #[inline(never)]
    fn record_intent<M: MappedMedium>(&self, peers: &Peers<M>, slot: &ThreadSlot) -> Option<Intent> {
        let base = peers.base();
        let is_held = is_held_word(self.0.load(base.medium(), Relaxed), base.owner);
        (!is_held).then(|| {
            let offset = base.region.offset_of(self).raw();
            Intent::record(base, slot, offset, || peers.claim_extra_slot())
        })
    }

    /// Takes the lock for this process until it closes the pool, unless another live process holds
    /// it. Returns whether this process holds it. Such a lock elects one of several processes for a
    /// task; no thread waits for it.
    pub fn hold_for_process<M: MappedMedium>(&self, pool: &Pool<M>) -> bool {
        let base = pool.0.base();
        if self.0.load(base.medium(), Relaxed) & !UNFENCED == base.lock_words.held {
            return true;
        }
        match self.try_acquire_in(base) {
            Some(locked) => {
                std::mem::forget(locked);
                true
            }
            None => base.is_shared() && self.take_over_if_dead(base),
        }
    }

    /// If the lock's holder is dead, recovers that participant, which releases all its locks. For a
    /// caller that does not wait for the lock.
    pub fn recover_if_dead<M: MappedMedium>(&self, guard: &Guard<'_, M>) {
        guard.peers().recover_holder(self);
    }

    /// Whether a thread or process holds it in the pool's current generation.
    pub fn is_held<M: MappedMedium>(&self, pool: &Pool<M>) -> bool {
        self.is_held_in(pool.0.base())
    }

    /// Confirms after a fence: clears the mark that this thread left with
    /// [`Locked::release_unfenced`]. Does nothing if another thread has taken the lock since; that
    /// thread then persists the data itself.
    pub fn confirm<M: MappedMedium>(&self, guard: &Guard<'_, M>) {
        let base = guard.peers().base();
        let free = base.lock_words.free;
        // ORDER: Release: a thread that finds the lock confirmed also finds what was fenced. After
        // a failure another thread has taken the lock.
        let _ = self.0.compare_exchange(
            base.medium().point("lock.confirm"),
            unfenced_word(base.owner),
            free,
            Release,
            Relaxed,
        );
    }
}
