//! Thread slots: what each running thread owns in the pool.
//!
//! ```text
//!   line 0     | owner lock | pin | intents set | overflow count |
//!              | chunk | chunk entries | small bytes | large bytes |
//!   line 1     | queue lock | oldest | newest | retired | drained | freed | chunk bytes | chunks |
//!   line 2     | counters 0 to 7, for the layers above |
//!   lines 3..  | cache of class 0 | cache of class 1 | ... two words each | overflow | intents |
//! ```
//! A thread takes a slot when it first pins a pool. It keeps the slot until it ends; the next
//! thread of its process that needs one reuses it, with its caches. (A thread that holds more locks
//! than a slot has intents takes an extra slot: see `intents`.) When more than three quarters of
//! the slots are taken, a thread takes a slot for one pin only. When all are taken, a pin waits for
//! one.

use crate::allocator::classes::CLASSES_MAX;
use crate::format::layout::SLOT_BYTES;
use crate::pool::Inner;
use crate::reclaim::epoch::{FULL_BARRIER, ONE_PIN, OVERFLOWED};
use crate::sharing::fork::Forked;
use crate::sync::backoff::Backoff;
use crate::sync::intents::INTENTS;
use crate::sync::lock::{Lock, thread_number};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use terrace_medium::{MappedMedium, Offset, Persistent, Word, full_barrier};

/// Free blocks of one class that a slot owns.
#[repr(C)]
pub(crate) struct BlockCache {
    /// Start of its slab plus the number of the bitmap word that `free` is a part of; 0 without a
    /// slab.
    pub(crate) place: Word,
    /// Blocks of that bitmap word that the slot may hand out.
    pub(crate) free: Word,
}

/// A thread slot. Only its thread writes the words marked "owner".
#[repr(C, align(64))]
pub(crate) struct ThreadSlot {
    /// Held by the owner of the slot.
    pub(crate) owner_lock: Lock,
    /// The epoch in which the owner is pinned, and its number of guards (see `epoch`). Owner.
    pub(crate) pin: Word,
    /// Which of `intents` are valid, a bit each. Owner.
    pub(crate) intents_set: Word,
    /// Number of entries in `overflow`. Owner.
    pub(crate) overflow_count: Word,
    /// The open limbo chunk, to which the owner adds what it retires. Owner.
    pub(crate) chunk: Word,
    /// Number of entries in that chunk. Owner.
    pub(crate) chunk_entries: Word,
    /// Bytes of blocks that the owner has taken, less those it freed. Owner.
    pub(crate) small_bytes: Word,
    /// The same for extents. Owner.
    pub(crate) large_bytes: Word,

    /// Protects the queue of full chunks.
    pub(crate) queue_lock: Lock,
    pub(crate) oldest: Word,
    pub(crate) newest: Word,
    /// Bytes ever retired. Owner.
    pub(crate) retired: Word,
    /// Bytes that have left limbo. Protected by the queue lock.
    pub(crate) drained: Word,
    /// Bytes ever freed by the owner. Owner.
    pub(crate) freed: Word,
    /// Bytes retired to the open chunk. Owner.
    pub(crate) chunk_bytes: Word,
    /// Number of limbo chunks that the owner has filled. Owner.
    pub(crate) chunks: Word,

    pub(crate) counters: [Word; 8],
    pub(crate) caches: [BlockCache; CLASSES_MAX],
    /// Blocks retired while no limbo chunk could be allocated: offsets and bytes. Owner.
    pub(crate) overflow: [[Word; 2]; 20],
    /// In a shared pool, the offsets of locks that the owner holds or tries: see `intents`. Owner.
    pub(crate) intents: [Word; INTENTS],
}

const _: () = assert!(size_of::<ThreadSlot>() as u64 == SLOT_BYTES);

// SAFETY: words and locks only, 256 of them, without padding (the assertion above).
unsafe impl Persistent for ThreadSlot {}

/// Slots of an open pool that ended threads of this process left. They stay owned by the process,
/// and the next thread reuses one.
#[derive(Default)]
pub(crate) struct FreeSlots(Mutex<Vec<u32>>);

impl FreeSlots {
    fn push(&self, slot: u32) {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(slot);
    }
    pub(crate) fn pop(&self) -> Option<u32> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop()
    }
}

/// This thread's slot in the pool that it used last.
#[derive(Clone, Copy)]
pub(crate) struct LastSlot {
    pub(crate) pool: u64,
    /// The slot's address while that pool is open, so that a pin need not compute it.
    at: *const ThreadSlot,
}

const NONE: LastSlot = LastSlot { pool: 0, at: std::ptr::null() };

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
    static LAST: Cell<LastSlot> = const { Cell::new(NONE) };
    static TAKEN_SLOTS: TakenSlots = const { TakenSlots(RefCell::new(Vec::new())) };
}

/// Forgets the slot in the child of a fork: it is the parent's.
pub(crate) fn forget_slot() {
    let _ = LAST.try_with(|last| last.set(NONE));
}

impl<M: MappedMedium> Inner<M> {
    #[inline(always)]
    pub(crate) fn thread_slot(&self, index: u32) -> &ThreadSlot {
        self.region.at(Offset::new(self.layout.thread_slot(index)))
    }

    /// The flag that pins of this process's slots carry.
    pub(crate) fn barrier_flag(&self) -> u64 {
        if self.light_pins { 0 } else { FULL_BARRIER }
    }

    /// The index of a slot.
    #[inline(always)]
    pub(crate) fn index_of(&self, slot: &ThreadSlot) -> u64 {
        (self.region.offset_of(slot).raw() - self.layout.thread_slot(0)) / SLOT_BYTES
    }

    /// All slots that have been taken since the pool was opened.
    pub(crate) fn used_slots(&self) -> impl Iterator<Item = &ThreadSlot> {
        // ORDER: Relaxed: see `claim_slot`.
        let used = self.shared().slots_used.load(self.medium(), Relaxed);
        (0..self.layout.geometry.thread_slots.min(used as u32)).map(|index| self.thread_slot(index))
    }

    /// This thread's slot.
    #[inline(always)]
    pub(crate) fn own_slot(&self) -> &ThreadSlot {
        let mut last = LAST.get();
        if last.pool != self.id {
            last = self.find_slot();
        }
        // SAFETY: `at` is the address of a slot of this open pool (ids are unique). The mapping
        // lasts as long as `self`, and a slot consists of words.
        unsafe { &*last.at }
    }

    /// Panics in the child of a fork: slots and locks are the parent's.
    pub(crate) fn assert_not_forked(&self) {
        assert!(!self.is_forked_copy(), "{Forked}");
    }

    /// Returns [`Forked`] in the child of a fork. Free of cost if this thread has pinned this pool
    /// before, which a child never has.
    #[inline(always)]
    pub(crate) fn check_not_forked(&self) -> Result<(), Forked> {
        if LAST.get().pool != self.id && self.is_forked_copy() { Err(Forked) } else { Ok(()) }
    }

    #[cold]
    fn find_slot(&self) -> LastSlot {
        self.assert_not_forked();
        let known = TAKEN_SLOTS.try_with(|slots| {
            let slots = slots.0.try_borrow().ok()?;
            slots.iter().find(|taken| taken.pool == self.id).map(|taken| (taken.slot, taken.temporary))
        });
        let (slot, temporary) = match known {
            Ok(Some(known)) => known,
            _ => self.take_slot(),
        };
        let at = self.thread_slot(slot);
        if temporary {
            self.request_unpin_work(at, ONE_PIN);
        }
        self.request_unpin_work(at, self.barrier_flag());
        if at.overflow_count.load(self.medium(), Relaxed) != 0 {
            self.request_unpin_work(at, OVERFLOWED);
        }
        let last = LastSlot { pool: self.id, at };
        LAST.set(last);
        last
    }

    /// Takes a slot, to keep if many are free. Waits while none is free. Returns its index and
    /// whether it is temporary.
    fn take_slot(&self) -> (u32, bool) {
        let mut backoff = Backoff::new();
        loop {
            if let Some(slot) = self.memory.free_slots.pop() {
                return (slot, !self.remember_slot(slot, false));
            }
            let slots = u64::from(self.layout.geometry.thread_slots);
            let scarce = self.are_slots_scarce(self.shared().slots_taken.load(self.medium(), Relaxed) + 1);
            // To keep a slot, search from the first one, so that few are ever used. For one pin,
            // begin anywhere, so that threads rarely collide.
            let from = if scarce { thread_number() % slots as u32 } else { 0 };
            let mut around = (from..slots as u32).chain(0..from);
            if let Some((slot, taken)) = around.find_map(|slot| Some((slot, self.claim_slot(slot)?))) {
                // Others may have taken slots since the check, and the last slots must not be kept.
                return (slot, !self.remember_slot(slot, !self.may_keep_slot(taken)));
            }
            self.recover_all_dead();
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
                pool: self.id,
                slot,
                temporary,
                free_slots: self.memory.free_slots.clone(),
            });
            true
        });
        matches!(remembered, Ok(true)) && !temporary
    }

    /// Whether more than 3/4 of the slots are taken. A thread then holds its slot for one pin only,
    /// so that a late thread need not wait until another exits. At least one slot is never kept.
    fn are_slots_scarce(&self, taken: u64) -> bool {
        taken * 4 > u64::from(self.layout.geometry.thread_slots) * 3
    }

    /// Whether this thread may keep the slot that it has just taken, given the counter's value.
    /// After participants die the counter may be wrong. If then all slots were kept, a late thread
    /// would wait forever, so a shared pool counts the slots themselves.
    fn may_keep_slot(&self, taken: u64) -> bool {
        // ORDER: SeqCst: of two threads that take slots concurrently, at least one counts the
        // other's.
        full_barrier(self.medium().point("slot.barrier"));
        let is_full = self.are_slots_scarce(taken)
            || (self.is_shared() && self.are_slots_scarce(self.count_taken_slots()));
        !is_full
    }

    /// Counts the taken slots by their locks.
    pub(crate) fn count_taken_slots(&self) -> u64 {
        self.used_slots().filter(|slot| slot.owner_lock.is_held_in(self)).count() as u64
    }

    /// Takes any free slot.
    ///
    /// # Panics
    /// If all are taken. Waiting could deadlock: this thread may hold a lock that the slots' owners
    /// wait for.
    pub(crate) fn claim_extra_slot(&self) -> u32 {
        let slots = self.layout.geometry.thread_slots;
        let free = || (0..slots).find(|&index| self.claim_slot(index).is_some());
        let of_dead = || {
            self.recover_all_dead();
            free()
        };
        free().or_else(of_dead).unwrap_or_else(|| panic!("the pool's {slots} thread slots are all taken"))
    }

    /// Takes a slot if it is free, and returns the new number of taken slots.
    fn claim_slot(&self, index: u32) -> Option<u64> {
        std::mem::forget(self.thread_slot(index).owner_lock.try_acquire_in(self)?);
        let taken = self.shared().slots_taken.fetch_add(self.medium().point("slot.claim"), 1, Relaxed) + 1;
        // ORDER: Relaxed: comes before the barrier after setting the pin (see `set_pin`) and the
        // one in `may_keep_slot`. A thread that misses this slot after its own barrier was first.
        // Orders nothing of the slot's content.
        self.shared().slots_used.fetch_max(self.medium(), u64::from(index) + 1, Relaxed);
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
                slots.retain(|taken| taken.pool != self.id);
            }
        });
        self.release_slot(self.index_of(slot) as u32);
    }

    pub(crate) fn release_slot(&self, index: u32) {
        self.shared().slots_taken.fetch_sub(self.medium(), 1, Relaxed);
        self.thread_slot(index).owner_lock.release_in(self);
    }

    /// Returns all slots of this process, none of whose threads is pinned or will pin the pool
    /// again.
    pub(crate) fn release_slots(&self) {
        while self.memory.free_slots.pop().is_some() {}
        let own = (u32::from(self.owner.participant), self.owner.incarnation);
        for index in 0..self.layout.geometry.thread_slots {
            let slot = self.thread_slot(index);
            if slot.owner_lock.holder(self) == Some(own) {
                self.drain_slot(slot);
                self.clear_pin(slot, 0);
                self.release_slot(index);
            }
        }
    }

    /// Moves everything that others can use out of a slot. The slot belongs to this participant, no
    /// thread uses it, and it stays pinned.
    pub(crate) fn drain_slot(&self, slot: &ThreadSlot) {
        // A collector waits for all pins, and so for this one. Without it, a slab that is out of
        // the cache but still owned would be taken for an orphan. If this participant dies
        // meanwhile, the pin requests a collection.
        self.set_pin(slot, self.barrier_flag() | 1);
        self.move_overflow_to_chunks(slot);
        self.queue_chunk(slot);
        self.drain_caches(slot);
    }

    /// Calls `each` for every used slot that no thread owns. No thread can take it during the call.
    pub(crate) fn for_each_idle_slot(&self, mut each: impl FnMut(&ThreadSlot)) {
        while let Some(slot) = self.memory.free_slots.pop() {
            self.release_slot(slot);
        }
        // ORDER: Relaxed: taking a slot's lock acquires its content; slots not visible yet are
        // skipped.
        let used = self.shared().slots_used.load(self.medium(), Relaxed) as u32;
        for index in 0..used.min(self.layout.geometry.thread_slots) {
            if self.claim_slot(index).is_some() {
                each(self.thread_slot(index));
                self.release_slot(index);
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/slots.rs"]
mod tests;
