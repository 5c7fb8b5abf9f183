//! Taking and returning thread slots (`format/slot.rs` says what one holds).
//!
//! A thread takes a slot when it first pins a pool. It keeps the slot until it ends; the next
//! thread of its process that needs one reuses it, with its caches. (A thread that holds more locks
//! than a slot has intents takes an extra slot: see `intents`.) When more than three quarters of
//! the slots are taken, a thread takes a slot for one pin only. When all are taken, a pin waits for
//! one.

use crate::format::slot::ThreadSlot;
use crate::reclaim::epoch::{Epochs, FULL_BARRIER, ONE_PIN, OVERFLOWED};
use crate::reclaim::last_slot::{FreeSlots, LAST, LastSlot, NONE};
use crate::sharing::fork::Forked;
use crate::sync::backoff::Backoff;
use crate::sync::lock::thread_number;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, full_barrier};

/// A slot of this thread, and where to return it. Does not keep the pool open.
struct TakenSlot {
    pool: u64,
    slot: u32,
    temporary: bool,
    free_slots: Arc<FreeSlots>,
}

struct TakenSlots(RefCell<Vec<TakenSlot>>);

impl Drop for TakenSlots {
    fn drop(&mut self) {
        // If a later thread-local destructor pins a pool, it takes a slot for one pin, which it
        // finds by `LAST` alone.
        LAST.set(NONE);
        for taken in self.0.get_mut().drain(..) {
            taken.free_slots.push(taken.slot);
        }
    }
}

thread_local! {
    static TAKEN_SLOTS: TakenSlots = const { TakenSlots(RefCell::new(Vec::new())) };
}

impl<M: MappedMedium> Epochs<M> {
    /// The flag that pins of this process's slots carry.
    pub(crate) fn barrier_flag(&self) -> u64 {
        if self.base().light_pins { 0 } else { FULL_BARRIER }
    }

    /// This thread's slot; `find` finds it if another pool was used last.
    #[inline(always)]
    pub(crate) fn own_slot(&self, find: impl FnOnce() -> LastSlot) -> &ThreadSlot {
        let mut last = LAST.get();
        if last.pool != self.base().id {
            last = find();
        }
        debug_assert!(last.pool == self.base().id && !last.at.is_null(), "the slot is of this pool");
        // SAFETY: `at` is the address of a slot of this open pool (ids are unique). The mapping
        // lasts as long as `self`, and a slot consists of words.
        unsafe { &*last.at }
    }

    /// Returns [`Forked`] in the child of a fork. Free of cost if this thread has pinned this pool
    /// before, which a child never has.
    #[inline(always)]
    pub(crate) fn check_not_forked(&self) -> Result<(), Forked> {
        if LAST.get().pool != self.base().id && self.base().is_forked_copy() { Err(Forked) } else { Ok(()) }
    }

    /// Finds a slot for this thread. While none is free, calls `recover`, which frees the slots of
    /// dead participants, and waits.
    #[cold]
    pub(crate) fn find_slot(&self, recover: &dyn Fn()) -> LastSlot {
        self.base().assert_not_forked();
        let known = TAKEN_SLOTS.try_with(|slots| {
            let slots = slots.0.try_borrow().ok()?;
            slots.iter().find(|taken| taken.pool == self.base().id).map(|taken| (taken.slot, taken.temporary))
        });
        let (slot, temporary) = match known {
            Ok(Some(known)) => known,
            _ => self.take_slot(recover),
        };
        let at = self.base().thread_slot(slot);
        if temporary {
            self.request_unpin_work(at, ONE_PIN);
        }
        self.request_unpin_work(at, self.barrier_flag());
        if at.overflow_count.load(self.medium(), Relaxed) != 0 {
            self.request_unpin_work(at, OVERFLOWED);
        }
        let last = LastSlot { pool: self.base().id, at };
        LAST.set(last);
        last
    }

    /// Takes a slot, to keep if many are free. Waits while none is free. Returns its index and
    /// whether it is temporary.
    fn take_slot(&self, recover: &dyn Fn()) -> (u32, bool) {
        let mut backoff = Backoff::new();
        loop {
            if let Some(slot) = self.free_slots.pop() {
                return (slot, !self.remember_slot(slot, false));
            }
            let slots = u64::from(self.base().layout.geometry.thread_slots);
            let scarce =
                self.are_slots_scarce(self.base().shared().slots_taken.load(self.medium(), Relaxed) + 1);
            // To keep a slot, search from the first one, so that few are ever used. For one pin,
            // begin anywhere, so that threads rarely collide.
            let from = if scarce { thread_number() % slots as u32 } else { 0 };
            let mut around = (from..slots as u32).chain(0..from);
            if let Some((slot, taken)) = around.find_map(|slot| Some((slot, self.claim_slot(slot)?))) {
                // Others may have taken slots since the check, and the last slots must not be kept.
                return (slot, !self.remember_slot(slot, !self.may_keep_slot(taken)));
            }
            recover();
            backoff.rest();
        }
    }

    /// Remembers this thread's slot. Returns whether the thread keeps it: not if it is temporary or
    /// the thread is ending.
    fn remember_slot(&self, slot: u32, temporary: bool) -> bool {
        let remembered = TAKEN_SLOTS.try_with(|slots| {
            let Ok(mut slots) = slots.0.try_borrow_mut() else { return false };
            // Drop the entries of closed pools: only they have no other reference to their list.
            slots.retain(|taken| Arc::strong_count(&taken.free_slots) > 1);
            slots.push(TakenSlot {
                pool: self.base().id,
                slot,
                temporary,
                free_slots: self.free_slots.clone(),
            });
            true
        });
        matches!(remembered, Ok(true)) && !temporary
    }

    /// Whether more than 3/4 of the slots are taken. A thread then holds its slot for one pin only,
    /// so that a late thread need not wait until another exits. At least one slot is never kept.
    fn are_slots_scarce(&self, taken: u64) -> bool {
        taken * 4 > u64::from(self.base().layout.geometry.thread_slots) * 3
    }

    /// Whether this thread may keep the slot that it has just taken, given the counter's value.
    /// After participants die the counter may be wrong. If then all slots were kept, a late thread
    /// would wait forever, so a shared pool counts the slots themselves.
    fn may_keep_slot(&self, taken: u64) -> bool {
        // ORDER: SeqCst: of two threads that take slots concurrently, at least one counts the
        // other's.
        full_barrier(self.medium().point("slot.barrier"));
        let is_full = self.are_slots_scarce(taken)
            || (self.base().is_shared() && self.are_slots_scarce(self.count_taken_slots()));
        !is_full
    }

    /// Counts the taken slots by their locks.
    pub(crate) fn count_taken_slots(&self) -> u64 {
        self.base().used_slots().filter(|slot| slot.owner_lock.is_held_in(self.base())).count() as u64
    }

    /// Takes any free slot.
    ///
    /// # Panics
    /// If all are taken. Waiting could deadlock: this thread may hold a lock that the slots' owners
    /// wait for.
    pub(crate) fn claim_extra_slot(&self, recover: &dyn Fn()) -> u32 {
        let slots = self.base().layout.geometry.thread_slots;
        let free = || (0..slots).find(|&index| self.claim_slot(index).is_some());
        let of_dead = || {
            recover();
            free()
        };
        free().or_else(of_dead).unwrap_or_else(|| panic!("the pool's {slots} thread slots are all taken"))
    }

    /// Takes a slot if it is free, and returns the new number of taken slots.
    fn claim_slot(&self, index: u32) -> Option<u64> {
        std::mem::forget(self.base().thread_slot(index).owner_lock.try_acquire_in(self.base())?);
        let taken =
            self.base().shared().slots_taken.fetch_add(self.medium().point("slot.claim"), 1, Relaxed) + 1;
        // ORDER: Relaxed: comes before the barrier after setting the pin (see `set_pin`) and the
        // one in `may_keep_slot`. A thread that misses this slot after its own barrier was first.
        // Orders nothing of the slot's content.
        self.base().shared().slots_used.fetch_max(self.medium(), u64::from(index) + 1, Relaxed);
        Some(taken)
    }

    /// Returns a slot that was taken for one pin. Its caches stay for the next owner.
    #[cold]
    pub(crate) fn return_slot(&self, slot: &ThreadSlot) {
        // ORDER: Release, as for the clearing that it replaces: a thread that finds this value sees
        // all that was done under the pin.
        self.clear_pin(slot, 0);
        LAST.set(NONE);
        let _ = TAKEN_SLOTS.try_with(|slots| {
            if let Ok(mut slots) = slots.0.try_borrow_mut() {
                slots.retain(|taken| taken.pool != self.base().id);
            }
        });
        self.base().release_slot(self.base().index_of(slot) as u32);
    }

    /// Calls `each` for every used slot that no thread owns. No thread can take it during the call.
    pub(crate) fn for_each_idle_slot(&self, mut each: impl FnMut(&ThreadSlot)) {
        while let Some(slot) = self.free_slots.pop() {
            self.base().release_slot(slot);
        }
        // ORDER: Relaxed: taking a slot's lock acquires its content; slots not visible yet are
        // skipped.
        let used = self.base().shared().slots_used.load(self.medium(), Relaxed) as u32;
        for index in 0..used.min(self.base().layout.geometry.thread_slots) {
            if self.claim_slot(index).is_some() {
                each(self.base().thread_slot(index));
                self.base().release_slot(index);
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/slots.rs"]
mod tests;
