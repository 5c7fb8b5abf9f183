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
//! time to time ([`Pool::recover_dead`]). A lock in the dead participant's entry serializes
//! recoveries; if its holder dies, the next survivor takes it over. Each step can be repeated.
//!
//! Other threads wait meanwhile only for the locks concerned. Data under these locks needs no
//! repair: every index is consistent after a crash at any store, and the death of a process is the
//! mildest of crashes. Data that is not durable yet is marked by its *unfenced* lock. Where the
//! pool itself changes several words, in limbo queues and the superblock, recovery completes the
//! change.

use crate::pool::{Inner, Pool};
use crate::reclaim::epoch::DEPTH_MASK;
use crate::reclaim::slots::ThreadSlot;
use crate::sharing::liveness::Liveness;
use crate::sharing::participants;
use crate::sync::intents::INTENTS;
use crate::sync::lock::{Lock, holder_of_word};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::{MappedMedium, Offset, Word};

impl<M: MappedMedium> Pool<M> {
    /// Recovers dead participants while others run. Returns their number. For a thread that checks
    /// from time to time. Does nothing in an exclusive pool.
    pub fn recover_dead(&self) -> u32 {
        self.0.recover_all_dead()
    }

    /// The number of taken entries in the participant table. For tests.
    #[doc(hidden)]
    pub fn participants_taken(&self) -> u32 {
        let is_taken = |&index: &u32| participants::holder_of(self.region(), self.layout(), index).is_some();
        (0..self.layout().geometry.participants).filter(is_taken).count() as u32
    }
}

impl<M: MappedMedium> Inner<M> {
    /// Recovers all dead participants, and returns how many this call recovered.
    pub(crate) fn recover_all_dead(&self) -> u32 {
        if !self.is_shared() {
            return 0;
        }
        (0..self.layout.geometry.participants).filter(|&index| self.recover_if_dead(index)).count() as u32
    }

    /// Whether the participant that a held lock word names is dead.
    #[cold]
    pub(crate) fn is_holder_dead(&self, word: u64) -> bool {
        let (participant, incarnation) = holder_of_word(word);
        self.is_dead(participant, incarnation)
    }

    /// Whether there is a dead participant that has not been recovered yet.
    #[cold]
    pub(crate) fn has_dead_participant(&self) -> bool {
        let holder = |index| participants::holder_of(&self.region, &self.layout, index);
        let is_dead = |index| holder(index).is_some_and(|incarnation| self.is_dead(index, incarnation));
        self.is_shared() && (0..self.layout.geometry.participants).any(is_dead)
    }

    fn is_dead(&self, participant: u32, incarnation: u32) -> bool {
        let Some(liveness) = &self.liveness else { return false };
        if !self.has_participant(participant) {
            return true;
        }
        if (participant, incarnation) == (u32::from(self.owner.participant), self.owner.incarnation) {
            return false;
        }
        // Check liveness first: a process claims its liveness before it takes the entry. So an
        // entry that changes hands now is not mistaken for dead.
        let is_alive = participant == u32::from(self.owner.participant)
            || liveness.is_alive(participant) && !self.is_exiting(&**liveness, participant, incarnation);
        !is_alive || participants::holder_of(&self.region, &self.layout, participant) != Some(incarnation)
    }

    /// Whether a participant that still has its liveness will store nothing any more. Once true it
    /// stays true: later the kernel may not be able to tell for a while, and a recovery must not
    /// stop halfway.
    fn is_exiting(&self, liveness: &dyn Liveness, participant: u32, incarnation: u32) -> bool {
        let (region, layout) = (&self.region, &self.layout);
        let found = &self.exiting[participant as usize];
        let key = || participants::incarnation_key(region, layout, participant, incarnation);
        if found.load(Relaxed) == key() {
            return true;
        }
        let is_exiting = liveness.is_exiting(participant, participants::pid_of(region, layout, participant));
        if is_exiting {
            found.store(key(), Relaxed);
        }
        is_exiting
    }

    fn recover_if_dead(&self, index: u32) -> bool {
        match participants::holder_of(&self.region, &self.layout, index) {
            Some(incarnation) if self.is_dead(index, incarnation) => self.recover_participant(index),
            _ => false,
        }
    }

    /// Whether the table has an entry `index`. A damaged lock may name another one.
    pub(crate) fn has_participant(&self, index: u32) -> bool {
        index < self.layout.geometry.participants
    }

    /// Recovers the dead incarnations of entry `index`. Returns whether this call did it.
    pub(crate) fn recover_participant(&self, index: u32) -> bool {
        if !self.has_participant(index) {
            return false;
        }
        let lock = participants::recovery(&self.region, &self.layout, index);
        match lock.try_acquire_in(self) {
            Some(locked) => std::mem::forget(locked),
            None if lock.take_over_if_dead(self) => {}
            None => return false,
        }
        let _allowed = self.allow_stores();
        self.release_locks_of_dead();
        for slot in 0..self.layout.geometry.thread_slots {
            self.recover_slot(slot);
        }
        self.recount_taken_slots();
        self.release_watches_of_dead();
        let holder = participants::holder_of(&self.region, &self.layout, index);
        if let Some(incarnation) = holder.filter(|&incarnation| self.is_dead(index, incarnation)) {
            participants::release(&self.region, &self.layout, index, incarnation);
        }
        // It may have changed keys and died before notifying their watches.
        self.notify_all();
        lock.release_in(self);
        true
    }

    /// Calls `each` for every lock that `slot` has an intent for.
    fn for_each_intent(&self, slot: &ThreadSlot, each: impl Fn(&Lock)) {
        let intents_set = slot.intents_set.load(self.medium(), Acquire);
        for at in (0..INTENTS).filter(|at| intents_set >> at & 1 == 1) {
            let offset = slot.intents[at].load(self.medium(), Relaxed);
            if let Some(word) = self.region.get(Offset::<Word>::new(offset)) {
                each(Lock::of(word));
            }
        }
    }

    /// Releases the pool's own locks that dead participants hold.
    fn release_locks_of_dead(&self) {
        let collector = &self.shared().collector;
        if collector.take_over_if_dead(self) {
            // The dead collector may have been about to free blocks that are unknown now.
            self.request_collection();
            collector.release_in(self);
        }
        let superblock = self.superblock_lock();
        if superblock.take_over_if_dead(self) {
            self.repair_superblock();
            superblock.release_in(self);
        }
        [self.roots_lock(), self.opening_lock(), &self.shared().vacate]
            .iter()
            .for_each(|lock| lock.release_if_dead(self));
        for slot in self.used_slots() {
            if slot.queue_lock.take_over_if_dead(self) {
                self.repair_queue(slot);
                slot.queue_lock.release_in(self);
            }
        }
    }

    /// Recovers the thread slot `index` if its owner is dead.
    fn recover_slot(&self, index: u32) {
        let slot = self.thread_slot(index);
        if !slot.owner_lock.take_over_if_dead(self) {
            return;
        }
        self.for_each_intent(slot, |lock| lock.release_if_dead(self));
        slot.intents_set.store(self.medium().point("intent.clear-all"), 0, Relaxed);
        if slot.pin.load(self.medium(), Relaxed) & DEPTH_MASK != 0 {
            // It died in the middle of an operation: there may be unreachable memory.
            self.request_collection();
        }
        self.drain_slot(slot);
        self.clear_pin(slot, 0);
        slot.owner_lock.release_in(self);
    }

    /// Recounts the taken slots: a thread can die between taking a slot and counting it. (While
    /// others take and leave slots, this count is approximate, too: see `may_keep_slot`.)
    fn recount_taken_slots(&self) {
        let count = self.count_taken_slots();
        self.shared().slots_taken.store(self.medium().point("slot.count"), count, Relaxed);
    }
}

#[cfg(test)]
#[path = "tests/recover.rs"]
mod tests;
