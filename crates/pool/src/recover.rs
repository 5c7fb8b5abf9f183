//! What a participant leaves that died while others go on, and how a survivor takes it back.
//!
//! A participant may die at any instruction. All that it had stored is there, for caches outlive processes; what it meant to store next is missing. It leaves
//!
//! * locks, which others wait for: its threads have noted each before they tried it (see `lock`), and the pool's own lie at known places;
//! * seats: a pinned epoch, which holds up what others give back; caches of free blocks; blocks in limbo;
//! * memory that nobody knows any more: blocks that were taken and not linked yet, or unlinked and not yet given back. These are found by a collection that runs
//!   beside everybody's work (see `doubt`), and only if the dead one was inside the pool at all.
//!
//! Any survivor recovers: one that has waited too long for a lock, or one that looks around from time to time ([`Pool::recover_dead`]). A lock in the dead one's
//! slot keeps two from doing it together; one that dies over it is found by the next. Each step can be done over.
//!
//! Nobody else waits meanwhile, but for the locks concerned. What a lock protects needs no repair: every index keeps itself such that a crash after any
//! store leaves it whole, and the death of a process is the mildest of crashes. What is not durable yet under the lock is said by its *unfenced* note.

use crate::epoch::DEPTH;
use crate::lock::{Lock, NOTES, holder_in};
use crate::participants;
use crate::pool::{Inner, Pool};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::{MappedMedium, Offset, Word};

impl<M: MappedMedium> Pool<M> {
    /// Takes back what participants have left that died while others went on. Returns how many there were. For a thread that looks around from time
    /// to time; in a pool that is not shared there is nothing to look for.
    pub fn recover_dead(&self) -> u32 {
        self.0.recover_all()
    }
}

impl<M: MappedMedium> Inner<M> {
    /// Recovers after everyone who is dead.
    pub(crate) fn recover_all(&self) -> u32 {
        if !self.is_shared() {
            return 0;
        }
        (0..self.layout.geometry.participants).filter(|&index| self.recover_if_dead(index)).count() as u32
    }

    /// Whether the participant is dead that a held lock word names.
    #[cold]
    pub(crate) fn is_dead_holder(&self, word: u64) -> bool {
        let (participant, incarnation) = holder_in(word);
        self.is_dead(participant, incarnation)
    }

    fn is_dead(&self, participant: u32, incarnation: u32) -> bool {
        let Some(liveness) = &self.liveness else { return false };
        if participant >= self.layout.geometry.participants {
            return true;
        }
        if (participant, incarnation) == (u32::from(self.owner.participant), self.owner.incarnation) {
            return false;
        }
        // Asked first: a slot is taken only by who is alive already, so one that changes hands now is not taken for dead.
        let is_alive = participant == u32::from(self.owner.participant) || liveness.is_alive(participant);
        !is_alive || participants::holder_of(&self.region, &self.layout, participant) != Some(incarnation)
    }

    fn recover_if_dead(&self, index: u32) -> bool {
        match participants::holder_of(&self.region, &self.layout, index) {
            Some(incarnation) if self.is_dead(index, incarnation) => self.recover(index),
            _ => false,
        }
    }

    /// Takes back what the dead incarnations of slot `index` have left. Returns whether this call did it.
    pub(crate) fn recover(&self, index: u32) -> bool {
        if index >= self.layout.geometry.participants {
            return false;
        }
        let lock = participants::recovery(&self.region, &self.layout, index);
        match lock.try_acquire_in(self) {
            Some(locked) => std::mem::forget(locked),
            None if lock.take_from_dead(self) => {}
            None => return false,
        }
        let _allowed = self.allow_stores();
        self.free_locks_of_dead();
        for seat in 0..self.layout.geometry.seats {
            self.recover_seat(seat);
        }
        self.count_taken_seats();
        self.free_watches_of_dead();
        let holder = participants::holder_of(&self.region, &self.layout, index);
        if let Some(incarnation) = holder.filter(|&incarnation| self.is_dead(index, incarnation)) {
            participants::release(&self.region, &self.layout, index, incarnation);
        }
        // It may have changed something and not said so any more.
        self.tell_all();
        lock.free_in(self);
        true
    }

    /// Frees the pool's own locks, as far as dead ones hold them.
    fn free_locks_of_dead(&self) {
        let collector = &self.shared().collector;
        if collector.take_from_dead(self) {
            // What it was about to free when it died, nobody knows.
            self.doubt();
            collector.free_in(self);
        }
        [self.superblock_lock(), self.roots_lock(), self.opening_lock()]
            .iter()
            .for_each(|lock| lock.free_of_dead(self));
        for seat in self.used_seats() {
            if seat.limbo.take_from_dead(self) {
                self.mend_queue(seat);
                seat.limbo.free_in(self);
            }
        }
    }

    /// Takes back the seat with number `index`, if someone dead has it.
    fn recover_seat(&self, index: u32) {
        let seat = self.seat(index);
        if !seat.claim.take_from_dead(self) {
            return;
        }
        let noted = seat.noted.load(self.medium(), Acquire);
        for at in (0..NOTES).filter(|at| noted >> at & 1 == 1) {
            let offset = seat.notes[at].load(self.medium(), Relaxed);
            if let Some(word) = self.region.get(Offset::<Word>::new(offset)) {
                Lock::of(word).free_of_dead(self);
            }
        }
        seat.noted.store(self.medium(), 0, Relaxed);
        if seat.announced.load(self.medium(), Relaxed) & DEPTH != 0 {
            // It was in the middle of something: there may be memory that nobody knows.
            self.doubt();
        }
        // Whoever collects waits for all that is pinned, and so for this: the seat is ours, and announces us.
        self.announce(seat, self.barrier_flag() | 1);
        self.note_spilled(seat);
        self.close_page(seat);
        self.empty_caches(seat);
        self.withdraw(seat, 0);
        seat.claim.free_in(self);
    }

    /// Seats are counted in passing, and a thread can die between a seat and its count.
    fn count_taken_seats(&self) {
        let taken = self.used_seats().filter(|seat| seat.claim.is_held_in(self)).count();
        self.shared().seats_taken.store(self.medium(), taken as u64, Relaxed);
    }
}
