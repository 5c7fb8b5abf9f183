//! Recovery of dead participants by survivors.
//!
//! A participant may die at any instruction. All its stores are visible, since caches outlive
//! processes; its next stores are missing. It leaves
//!
//! * locks that others wait for: its threads recorded an intent before they tried each (see
//!   `intents`), and the pool's own locks are at known places;
//! * thread slots: a pin, which blocks reclamation; caches of free blocks; blocks in limbo;
//! * unreachable memory: blocks allocated and not linked yet, or unlinked and not retired yet. A
//!   concurrent collection finds these (see `concurrent`); it is needed only if the dead
//!   participant was pinned.
//!
//! Any survivor recovers: a thread that has waited too long for a lock, or one that checks from
//! time to time (`Pool::recover_dead`). A lock in the dead participant's entry serializes
//! recoveries; if its holder dies, the next survivor takes it over. Each step can be repeated.
//!
//! Other threads wait meanwhile only for the locks concerned. Data under these locks needs no
//! repair: every index is consistent after a crash at any store, and the death of a process is the
//! mildest of crashes. Data that is not durable yet is marked by its *unfenced* lock. Where the
//! pool itself changes several words, in limbo queues and the superblock, recovery completes the
//! change.

use crate::base::Base;
use crate::format::slot::{INTENTS, ThreadSlot};
use crate::format::superblock;
use crate::reclaim::epoch::{DEPTH_MASK, GRACE_EPOCHS};
use crate::reclaim::last_slot::LastSlot;
use crate::sharing::participants;
use crate::sharing::peers::Peers;
use crate::sync::backoff::{Backoff, rests_in};
use crate::sync::lock::{Lock, holder_of_word, is_held_word};
use crate::sync::locked::Locked;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;
use terrace_medium::{MappedMedium, Offset, Word};

/// Rests of a wait for the collector between two checks for a stopped participant.
pub(crate) const CHECK_STOPPED_EVERY: u32 = rests_in(Duration::from_millis(128));

impl<M: MappedMedium> Peers<M> {
    /// If the holder of `lock` is dead, recovers that participant, which releases all its locks.
    #[cold]
    pub(crate) fn recover_holder(&self, lock: &Lock) {
        let base = self.base();
        // ORDER: Acquire, as before every check of a holder's liveness: this thread must also see
        // that the holder joined.
        let word = lock.0.load(base.medium(), Acquire);
        if !base.is_shared() || !is_held_word(word, base.owner) || !base.is_holder_dead(word) {
            return;
        }
        let participant = holder_of_word(word).0;
        if base.has_participant(participant) && !self.recover_participant(participant) {
            // Another thread is at it.
            return;
        }
        // The recovery has released what the dead one had noted. Among hosts this lock may be
        // none of that: its release and the end of its note are two lines of a cache, and the
        // memory may have got the second one alone. But only the holder of above was recovered: a
        // later one that has died as well may have left what the lock guards half changed.
        lock.release_word(base, word);
    }

    /// Takes one of the pool's own locks; waits while another thread holds it. Recovery knows where
    /// these are, so they need no intent.
    #[inline(always)]
    pub(crate) fn acquire<'g>(&'g self, lock: &'g Lock) -> Locked<'g, M> {
        let base = self.base();
        match lock.try_acquire_in(base) {
            Some(locked) => locked,
            None => {
                lock.wait(base, || lock.take(base).then_some(()), || self.recover_holder(lock));
                Locked::new(lock, base, None)
            }
        }
    }

    /// As [`Peers::acquire`], but returns `None` once `should_stop` returns true during the wait.
    pub(crate) fn acquire_until<'g>(
        &'g self,
        lock: &'g Lock,
        should_stop: &dyn Fn() -> bool,
    ) -> Option<Locked<'g, M>> {
        lock.acquire_until(self.base(), &|| {
            if should_stop() {
                return true;
            }
            self.recover_holder(lock);
            false
        })
    }

    /// Takes any free thread slot, for intents.
    pub(crate) fn claim_extra_slot(&self) -> u32 {
        self.epochs().claim_extra_slot(&|| _ = self.recover_all_dead())
    }

    /// Finds a slot for this thread, which has none in this pool or used another pool last. Waits
    /// while none is free.
    #[cold]
    pub(crate) fn find_slot(&self) -> LastSlot {
        self.epochs().find_slot(&|| _ = self.recover_all_dead())
    }

    /// Waits while another thread collects. Returns whether one did and has ended; not if the
    /// collector may be waiting for a stopped participant.
    pub(crate) fn wait_for_collector(&self) -> bool {
        let (mut turn, mut backoff) = (0u32, Backoff::new());
        while self.base().is_unclean() && self.base().shared().collector.is_held_in(self.base()) {
            turn = turn.wrapping_add(1);
            if backoff.rest()
                && turn.is_multiple_of(CHECK_STOPPED_EVERY)
                && self.base().has_stopped_participant()
            {
                return false;
            }
        }
        turn > 0
    }

    /// Waits until all threads that are pinned now have been unpinned; `None` if `should_stop`
    /// returns true before that.
    #[must_use = "if it stopped, they may still be pinned"]
    pub(crate) fn wait_grace_period(&self, should_stop: &dyn Fn() -> bool) -> Option<()> {
        let until = self.epochs().epoch() + GRACE_EPOCHS;
        let (mut epoch, mut backoff) = (self.epochs().epoch(), Backoff::new());
        while epoch < until {
            let now = self.epochs().try_advance();
            if now == epoch && backoff.rest() {
                if should_stop() {
                    return None;
                }
                self.recover_all_dead();
            }
            epoch = now;
        }
        Some(())
    }

    /// Recovers all dead participants, and returns how many this call recovered.
    pub(crate) fn recover_all_dead(&self) -> u32 {
        if !self.base().is_shared() {
            return 0;
        }
        (0..self.base().layout.geometry.participants).filter(|&index| self.recover_if_dead(index)).count()
            as u32
    }

    fn recover_if_dead(&self, index: u32) -> bool {
        match participants::holder_of(&self.base().region, &self.base().layout, index) {
            Some(incarnation) if self.base().is_dead(index, incarnation) => self.recover_participant(index),
            _ => false,
        }
    }

    /// Recovers the dead incarnations of entry `index`. Returns whether this call did it.
    pub(crate) fn recover_participant(&self, index: u32) -> bool {
        if !self.base().has_participant(index) {
            return false;
        }
        let lock = participants::recovery(&self.base().region, &self.base().layout, index);
        match lock.try_acquire_in(self.base()) {
            Some(locked) => std::mem::forget(locked),
            None if lock.take_over_if_dead(self.base()) => {}
            None => return false,
        }
        let _allowed = self.allow_stores();
        self.release_locks_of_dead();
        for slot in 0..self.base().layout.geometry.thread_slots {
            self.recover_slot(slot);
        }
        self.recount_taken_slots();
        self.base().release_watches_of_dead();
        let holder = participants::holder_of(&self.base().region, &self.base().layout, index);
        if let Some(incarnation) = holder.filter(|&incarnation| self.base().is_dead(index, incarnation)) {
            participants::release(&self.base().region, &self.base().layout, index, incarnation);
        }
        // It may have changed keys and died before notifying their watches.
        self.base().notify_all();
        lock.release_in(self.base());
        true
    }

    /// Calls `each` for every lock that `slot` has an intent for.
    fn for_each_intent(&self, slot: &ThreadSlot, each: impl Fn(&Lock)) {
        let intents_set = slot.intents_set.load(self.medium(), Acquire);
        for at in (0..INTENTS).filter(|at| intents_set >> at & 1 == 1) {
            let offset = slot.intents[at].load(self.medium(), Relaxed);
            if let Some(word) = self.base().region.get(Offset::<Word>::new(offset)) {
                each(Lock::of(word));
            }
        }
    }

    /// Releases the pool's own locks that dead participants hold.
    fn release_locks_of_dead(&self) {
        let collector = &self.base().shared().collector;
        if collector.take_over_if_dead(self.base()) {
            // The dead collector may have been about to free blocks that are unknown now.
            self.base().request_collection();
            collector.release_in(self.base());
        }
        let superblock = self.base().superblock_lock();
        if superblock.take_over_if_dead(self.base()) {
            self.base().repair_superblock();
            superblock.release_in(self.base());
        }
        [self.base().roots_lock(), self.base().opening_lock(), &self.base().shared().vacate]
            .iter()
            .for_each(|lock| lock.release_if_dead(self.base()));
        for slot in self.base().used_slots() {
            if slot.queue_lock.take_over_if_dead(self.base()) {
                self.limbo.repair_queue(slot);
                slot.queue_lock.release_in(self.base());
            }
        }
    }

    /// Recovers the thread slot `index` if its owner is dead.
    fn recover_slot(&self, index: u32) {
        let slot = self.base().thread_slot(index);
        if !slot.owner_lock.take_over_if_dead(self.base()) {
            return;
        }
        self.for_each_intent(slot, |lock| lock.release_if_dead(self.base()));
        slot.intents_set.store(self.medium().point("intent.clear-all"), 0, Relaxed);
        if slot.pin.load(self.medium(), Relaxed) & DEPTH_MASK != 0 {
            // It died in the middle of an operation: there may be unreachable memory.
            self.base().request_collection();
        }
        self.limbo.drain_slot(slot, &|lock| self.recover_holder(lock));
        self.epochs().clear_pin(slot, 0);
        slot.owner_lock.release_in(self.base());
    }

    /// Recounts the taken slots: a thread can die between taking a slot and counting it. (While
    /// others take and leave slots, this count is approximate, too: see `may_keep_slot`.)
    fn recount_taken_slots(&self) {
        let count = self.epochs().count_taken_slots();
        self.base().shared().slots_taken.store(self.medium().point("slot.count"), count, Relaxed);
    }
}

impl<M: MappedMedium> Base<M> {
    /// Repairs the superblock after a process died while updating it: copies the newer intact copy
    /// over the other and makes the memory it announces available. (Its hints were stored earlier.)
    /// The caller has the superblock's lock; if it dies, too, the next holder does the same.
    pub(crate) fn repair_superblock(&self) {
        // At least one copy is intact at any time. If neither can be read, the pool is damaged in
        // another way, and a check reports it.
        let Ok(found) = superblock::load(&self.region) else { return };
        let size = found.superblock.size;
        // PERSIST: the copy that may be torn, first. The other is durable before that, and then
        // written again with its own content. (If the file cannot be synced, the next store of the
        // superblock returns the error.)
        let _ = found.superblock.store(&self.region, 1 - found.copy);
        self.set_size(size);
        self.announce_memory();
    }
}

#[cfg(test)]
#[path = "tests/recover.rs"]
mod tests;
