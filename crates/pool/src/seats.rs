//! Seats: what a running thread has for itself, in the pool.
//!
//! ```text
//!   line 0     | claim | announced | noted locks | spilled | page | page count | small | large |
//!   line 1     | limbo lock | oldest page | newest page | retired | drained | freed | page bytes | 0 |
//!   line 2     | counters 0 to 7 for whoever is above |
//!   lines 3..  | cache of class 0 | cache of class 1 | ... two words each | spills | notes |
//! ```
//! A thread takes a seat when it first pins a pool, keeps it, and leaves it behind when it ends; the next thread of its process that needs one
//! goes on with it, caches and all. (One that holds more locks than its seat has notes for takes another beside it: see `notes`.) When more than three quarters of the seats are taken, a thread takes a seat for one pin only. When all are taken,
//! a pin waits for one.

use crate::backoff::Backoff;
use crate::classes::CLASSES_MAX;
use crate::epoch::{FULL_BARRIER, ONE_PIN, OVERFLOWED};
use crate::fork::Forked;
use crate::layout::SLOT_BYTES;
use crate::lock::{Lock, thread_number};
use crate::notes::INTENTS;
use crate::pool::Inner;
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use terrace_medium::{MappedMedium, Offset, Persistent, Word, full_barrier};

/// Free blocks of one class that a seat has to itself.
#[repr(C)]
pub(crate) struct BlockCache {
    /// Where its slab begins, plus the number of the bitmap word that `free` belongs to; 0 without a slab.
    pub(crate) place: Word,
    /// Blocks of that word that are the seat's to hand out.
    pub(crate) free: Word,
}

/// A seat. Words marked "owner" are written by its thread only.
#[repr(C, align(64))]
pub(crate) struct ThreadSlot {
    /// Held by whoever has the seat.
    pub(crate) owner_lock: Lock,
    /// The epoch in which the owner is pinned, and how often (see `epoch`). Owner.
    pub(crate) pin: Word,
    /// Which of `intents` count, a bit each. Owner.
    pub(crate) intents_set: Word,
    /// Entries of `overflow`. Owner.
    pub(crate) overflow_count: Word,
    /// The page that the owner writes what it retires to. Owner.
    pub(crate) chunk: Word,
    /// Entries of that page. Owner.
    pub(crate) chunk_entries: Word,
    /// Bytes of blocks taken less those freed, by the owner. Owner.
    pub(crate) small_bytes: Word,
    /// The same of extents. Owner.
    pub(crate) large_bytes: Word,

    /// Protects the queue of full pages.
    pub(crate) queue_lock: Lock,
    pub(crate) oldest: Word,
    pub(crate) newest: Word,
    /// Bytes ever retired. Owner.
    pub(crate) retired: Word,
    /// Bytes that have come out of limbo. Under the lock.
    pub(crate) drained: Word,
    /// Bytes ever freed by the owner. Owner.
    pub(crate) freed: Word,
    /// Bytes retired to the open page. Owner.
    pub(crate) chunk_bytes: Word,
    /// Pages of limbo that the owner has filled. Owner.
    pub(crate) chunks: Word,

    pub(crate) counters: [Word; 8],
    pub(crate) caches: [BlockCache; CLASSES_MAX],
    /// Blocks that were retired when there was no memory to note it: offsets and bytes. Owner.
    pub(crate) overflow: [[Word; 2]; 20],
    /// In a shared pool, where the locks lie that the owner holds or tries: see `notes`. Owner.
    pub(crate) intents: [Word; INTENTS],
}

const _: () = assert!(size_of::<ThreadSlot>() as u64 == SLOT_BYTES);

// SAFETY: words and locks only, 256 of them, without padding (the assertion above).
unsafe impl Persistent for ThreadSlot {}

/// Seats of one open pool that threads of this process left behind. They stay claimed, and the next thread goes on with one.
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

/// The seat that this thread has in the pool that it used last.
#[derive(Clone, Copy)]
pub(crate) struct LastSlot {
    pub(crate) pool: u64,
    /// Where the seat lies while that opening of the pool lasts, so that a pin need not work it out.
    at: *const ThreadSlot,
}

const NONE: LastSlot = LastSlot { pool: 0, at: std::ptr::null() };

/// A seat of this thread, and where to leave it. The pool itself is not kept open by it.
struct TakenSlot {
    pool: u64,
    slot: u32,
    temporary: bool,
    free_slots: Arc<FreeSlots>,
}

struct TakenSlots(RefCell<Vec<TakenSlot>>);

impl Drop for TakenSlots {
    fn drop(&mut self) {
        // Guards that other thread-locals make after this take seats for one pin, and find them by `LAST` alone.
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

/// In the child of a fork: the seats are the parent's.
pub(crate) fn forget_slot() {
    let _ = LAST.try_with(|last| last.set(NONE));
}

impl<M: MappedMedium> Inner<M> {
    #[inline(always)]
    pub(crate) fn thread_slot(&self, index: u32) -> &ThreadSlot {
        self.region.at(Offset::new(self.layout.thread_slot(index)))
    }

    /// What the announcements of this process's seats carry besides.
    pub(crate) fn barrier_flag(&self) -> u64 {
        if self.light_pins { 0 } else { FULL_BARRIER }
    }

    /// The number of a seat.
    #[inline(always)]
    pub(crate) fn index_of(&self, slot: &ThreadSlot) -> u64 {
        (self.region.offset_of(slot).raw() - self.layout.thread_slot(0)) / SLOT_BYTES
    }

    /// Every seat that has been taken since the pool was opened.
    pub(crate) fn used_slots(&self) -> impl Iterator<Item = &ThreadSlot> {
        // ORDER: Relaxed: see `claim_slot`.
        let used = self.shared().slots_used.load(self.medium(), Relaxed);
        (0..self.layout.geometry.thread_slots.min(used as u32)).map(|index| self.thread_slot(index))
    }

    /// This thread's seat.
    #[inline(always)]
    pub(crate) fn own_slot(&self) -> &ThreadSlot {
        let mut last = LAST.get();
        if last.pool != self.id {
            last = self.find_slot();
        }
        // SAFETY: `at` is the address of a seat of this opening of the pool (no two have the same id), which lasts as long as `self`; a seat is made of
        // words.
        unsafe { &*last.at }
    }

    /// Refuses to go on in the child of a fork: seats and locks are the parent's.
    pub(crate) fn assert_not_forked(&self) {
        assert!(!self.is_forked_copy(), "{Forked}");
    }

    /// [`Forked`], in the child of a fork. Costs nothing where this thread has been inside before, as it has not in a child.
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

    /// Takes a seat: to keep, if many are free. Waits while none is.
    fn take_slot(&self) -> (u32, bool) {
        let mut backoff = Backoff::new();
        loop {
            if let Some(slot) = self.memory.free_slots.pop() {
                return (slot, !self.remember_slot(slot, false));
            }
            let slots = u64::from(self.layout.geometry.thread_slots);
            let scarce = self.are_slots_scarce(self.shared().slots_taken.load(self.medium(), Relaxed) + 1);
            // Who keeps a seat takes the first, so that few are ever used; who does not begins anywhere, so that few meet.
            let from = if scarce { thread_number() % slots as u32 } else { 0 };
            let mut around = (from..slots as u32).chain(0..from);
            if let Some((slot, taken)) = around.find_map(|slot| Some((slot, self.claim_slot(slot)?))) {
                // Others may have taken seats since it was looked: the last ones must not be kept.
                return (slot, !self.remember_slot(slot, !self.may_keep_slot(taken)));
            }
            self.recover_all_dead();
            backoff.rest();
        }
    }

    /// Takes note of this thread's seat. Returns whether the seat is kept: not if it is temporary or the thread is ending.
    fn remember_slot(&self, slot: u32, temporary: bool) -> bool {
        let remembered = TAKEN_SLOTS.try_with(|slots| {
            let Ok(mut slots) = slots.0.try_borrow_mut() else { return false };
            // Pools that are closed: nobody else holds their list.
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

    /// Whether so many seats are taken that who takes the last of them is not to keep it. At least one is never kept, however few there are: or who
    /// came late would wait until a thread ends.
    fn are_slots_scarce(&self, taken: u64) -> bool {
        taken * 4 > u64::from(self.layout.geometry.thread_slots) * 3
    }

    /// Whether this thread may keep the seat that it has just taken, when `taken` are said to be taken. Where participants die the count may be wrong, and if all seats
    /// were kept, who comes late would wait for ever: so they are counted.
    fn may_keep_slot(&self, taken: u64) -> bool {
        // ORDER: SeqCst: of two threads that take seats at once, one counts the other's.
        full_barrier(self.medium().point("slot.barrier"));
        let is_full = self.are_slots_scarce(taken)
            || (self.is_shared() && self.are_slots_scarce(self.count_taken_slots()));
        !is_full
    }

    /// How many seats are taken, by the seats.
    pub(crate) fn count_taken_slots(&self) -> u64 {
        self.used_slots().filter(|slot| slot.owner_lock.is_held_in(self)).count() as u64
    }

    /// Takes a seat that nobody has, whichever.
    ///
    /// # Panics
    /// If all are taken: whoever waits for one here may hold what the others wait for.
    pub(crate) fn claim_extra_slot(&self) -> u32 {
        let slots = self.layout.geometry.thread_slots;
        let free = || (0..slots).find(|&index| self.claim_slot(index).is_some());
        let of_dead = || {
            self.recover_all_dead();
            free()
        };
        free().or_else(of_dead).unwrap_or_else(|| panic!("the pool's {slots} seats are all taken"))
    }

    /// Takes a seat if nobody has it, and returns how many are taken now.
    fn claim_slot(&self, index: u32) -> Option<u64> {
        std::mem::forget(self.thread_slot(index).owner_lock.try_acquire_in(self)?);
        let taken = self.shared().slots_taken.fetch_add(self.medium().point("slot.claim"), 1, Relaxed) + 1;
        // ORDER: Relaxed: before the barrier behind the announcement (see `set_pin`) and that in `may_keep_slot`: who looks behind its own barrier and misses this seat was first.
        // It says nothing about what is in the seat.
        self.shared().slots_used.fetch_max(self.medium(), u64::from(index) + 1, Relaxed);
        Some(taken)
    }

    /// Gives back a seat that was taken for one pin. Its caches stay for whoever takes it next.
    #[cold]
    pub(crate) fn return_slot(&self, slot: &ThreadSlot) {
        // ORDER: Release, as the withdrawal whose place it takes: who finds this one has all that was done under the pin.
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

    /// Gives back all seats of this process, none of whose threads is inside the pool or will be again.
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

    /// Leaves in a seat nothing that is of use to others. The seat is this participant's, none of its threads sits in it, and it stays announced.
    pub(crate) fn drain_slot(&self, slot: &ThreadSlot) {
        // Whoever collects waits for all that is pinned, and so for this: a slab that is in a cache no more and owned still would be taken for nobody's. And if this
        // participant dies in the middle of it, that raises a doubt.
        self.set_pin(slot, self.barrier_flag() | 1);
        self.move_overflow_to_chunks(slot);
        self.queue_chunk(slot);
        self.drain_caches(slot);
    }

    /// Calls `each` on every used seat that no thread is sitting in; nobody sits down in it meanwhile.
    pub(crate) fn for_each_idle_slot(&self, mut each: impl FnMut(&ThreadSlot)) {
        while let Some(slot) = self.memory.free_slots.pop() {
            self.release_slot(slot);
        }
        // ORDER: Relaxed: each seat is acquired by its claim; one that is not seen yet is left out.
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
mod tests {
    use super::*;
    use crate::epoch::DEPTH_MASK;
    use crate::lock::set_thread_number;
    use crate::small::participants;
    use crate::{Geometry, Pool, PoolOptions};
    use std::sync::mpsc;
    use terrace_medium::{Dram, Shm};

    fn pool(slots: u32) -> Pool<Dram> {
        Pool::anonymous_with(1 << 20, Geometry { thread_slots: slots, ..Geometry::tiny() }).unwrap()
    }

    /// Participants of one pool.
    fn shared<const N: usize>(slots: u32) -> (tempfile::TempDir, [Pool<Shm>; N]) {
        participants(Geometry { thread_slots: slots, ..Geometry::tiny() })
    }

    /// What a thread says that has gone when this returns.
    fn in_thread<R: Send>(run: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    /// Has `each` run in so many threads, one after the other, and then `run` while all of them are there still. When this returns they have gone.
    fn with_threads<R>(threads: usize, each: impl Fn() + Sync, run: impl FnOnce() -> R) -> R {
        std::thread::scope(|scope| {
            // They end when these go, by a panic, too.
            let (mut stay, mut there) = (Vec::new(), Vec::new());
            for _ in 0..threads {
                let (go, wait) = mpsc::channel::<()>();
                let (report, done) = mpsc::channel();
                let each = &each;
                there.push(scope.spawn(move || {
                    each();
                    report.send(()).unwrap();
                    let _ = wait.recv();
                }));
                done.recv().unwrap();
                stay.push(go);
            }
            let result = run();
            drop(stay);
            // A scope alone does not wait for what threads do last, which is to leave their seats.
            there.into_iter().for_each(|thread| thread.join().unwrap());
            result
        })
    }

    #[test]
    fn slot_index_follows_position() {
        let pool = pool(7);
        assert!((0..7).all(|index| pool.0.index_of(pool.0.thread_slot(index)) == u64::from(index)));
    }

    #[test]
    fn next_thread_takes_slot_and_caches_of_an_ended_one() {
        let pool = pool(8);
        let unit_of = |offset: u64| pool.0.unit_at(offset).unwrap();
        let units: Vec<u64> = (0..20)
            .map(|_| in_thread(|| unit_of(pool.pin().alloc(64).unwrap().fenced_later().into_offset())))
            .collect();
        assert_eq!((pool.0.count_taken_slots(), pool.0.used_slots().count()), (1, 1));
        assert!(units.iter().all(|&unit| unit == units[0]), "all from one slab: {units:?}");
        // Two at a time need two.
        with_threads(
            1,
            || drop(pool.pin()),
            || {
                drop(pool.pin());
                assert_eq!((pool.0.count_taken_slots(), pool.0.used_slots().count()), (2, 2));
            },
        );
    }

    #[test]
    fn thread_has_one_slot_per_pool() {
        let pools = [pool(8), pool(8), pool(8)];
        for _ in 0..3 {
            for pool in &pools {
                assert_eq!(pool.try_pin().unwrap().slot_index(), 0);
                assert_eq!(pool.0.count_taken_slots(), 1);
            }
        }
        // Another one comes into each, too.
        in_thread(|| pools.iter().for_each(|pool| assert_eq!(pool.try_pin().unwrap().slot_index(), 1)));
    }

    #[test]
    fn a_thread_forgets_the_pools_that_are_closed_and_no_other() {
        in_thread(|| {
            let kept = pool(8);
            drop(kept.pin());
            for _ in 0..20 {
                drop(pool(8).pin());
            }
            assert!(TAKEN_SLOTS.with(|slots| slots.0.borrow().len()) <= 2);
            drop(kept.pin());
            assert_eq!(kept.0.count_taken_slots(), 1);
        });
    }

    #[test]
    fn at_most_three_quarters_of_slots_are_kept() {
        for (slots, kept) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 3), (7, 5), (8, 6), (9, 6)] {
            let pool = pool(slots);
            for threads in 0..=slots as usize {
                let taken = with_threads(threads, || drop(pool.pin()), || pool.0.count_taken_slots());
                assert_eq!(taken, kept.min(threads as u64), "of {slots}, by {threads} threads");
                assert_eq!(pool.0.shared().slots_taken.load(pool.medium(), Relaxed), taken);
                // Those that they leave are nobody's for the next round.
                pool.0.for_each_idle_slot(|_| ());
                assert_eq!(pool.0.count_taken_slots(), 0, "of {slots}, by {threads} threads");
            }
        }
    }

    #[test]
    fn kept_slots_are_limited_across_participants() {
        for (slots, kept) in [(4, 3), (8, 6)] {
            let (_directory, [one, two]) = shared::<2>(slots);
            let taken = with_threads(
                slots as usize / 2,
                || drop(one.pin()),
                || with_threads(slots as usize / 2, || drop(two.pin()), || one.0.count_taken_slots()),
            );
            assert_eq!(taken, kept, "of {slots}");
        }
    }

    #[test]
    fn temporary_slot_is_free_after_the_pin() {
        let (small, large) = (pool(1), pool(8));
        let slot = large.pin().slot_index();
        for _ in 0..3 {
            let guard = small.pin();
            assert_eq!((small.0.count_taken_slots(), guard.slot_index()), (1, 0));
            let inner = small.pin();
            drop(guard);
            assert_eq!((small.0.count_taken_slots(), inner.depth()), (1, 1));
            drop(inner);
            assert_eq!(small.0.count_taken_slots(), 0);
            // What this thread has in another pool it has still.
            assert_eq!((large.pin().slot_index(), large.0.count_taken_slots()), (slot, 1));
            in_thread(|| assert_eq!(small.pin().slot_index(), 0));
        }
    }

    #[test]
    fn temporary_slots_are_searched_from_the_thread_number() {
        let pool = pool(16);
        with_threads(
            12,
            || drop(pool.pin()),
            || {
                assert_eq!((pool.0.count_taken_slots(), pool.0.used_slots().count()), (12, 12));
                let slot_of = |number| {
                    in_thread(|| {
                        set_thread_number(number);
                        pool.pin().slot_index()
                    })
                };
                // From there on, and around.
                let slots = [(12, 12), (14, 14), (15, 15), (16 + 13, 13), (16, 12), (16 + 5, 12)];
                for (number, slot) in slots {
                    assert_eq!(slot_of(number), slot, "number {number}");
                }
            },
        );
    }

    #[test]
    fn where_pins_are_not_light_each_has_its_barrier() {
        let options = |slots| {
            PoolOptions::anonymous()
                .size(1 << 20)
                .geometry(Geometry { thread_slots: slots, ..Geometry::tiny() })
        };
        // In a seat that is kept, and in one that is not.
        for slots in [8, 1] {
            let heavy = options(slots).reproducible().create::<Dram>().unwrap();
            let usual = options(slots).create::<Dram>().unwrap();
            assert!(!heavy.0.light_pins);
            for pool in [&heavy, &usual] {
                for _ in 0..2 {
                    let guard = pool.pin();
                    let pin_word = guard.thread_slot().pin.load(pool.medium(), Relaxed);
                    assert_eq!((pin_word & FULL_BARRIER == 0, pin_word & DEPTH_MASK), (pool.0.light_pins, 1));
                }
            }
        }
    }

    #[test]
    fn next_thread_in_slot_retires_overflow_entries() {
        let pool = pool(8);
        in_thread(|| {
            let guard = pool.pin();
            let block = guard.alloc(64).unwrap().fenced_later().into_offset();
            pool.0.push_overflow(guard.thread_slot(), block, 64);
            // It ends before there was memory to note it elsewhere.
            let slot = guard.thread_slot();
            std::mem::forget(guard);
            pool.0.clear_pin(slot, 0);
        });
        let overflow_and_entries = |pool: &Pool<Dram>| {
            let slot = pool.0.thread_slot(0);
            (
                slot.overflow_count.load(pool.medium(), Relaxed),
                slot.chunk_entries.load(pool.medium(), Relaxed),
            )
        };
        assert_eq!(overflow_and_entries(&pool), (1, 0));
        drop(pool.pin());
        assert_eq!(overflow_and_entries(&pool), (0, 1), "noted on a page");
        pool.reclaim_blocking();
        assert_eq!((pool.space().waiting_bytes, pool.space().used_by_blocks), (0, 0));
    }

    #[test]
    fn retirements_of_ended_threads_are_reclaimed() {
        let pool = pool(8);
        with_threads(
            3,
            || {
                let guard = pool.pin();
                guard.retire(guard.alloc(64).unwrap().fenced_later().into_offset(), 64);
            },
            || (),
        );
        assert_eq!(pool.space().waiting_bytes, 3 * 64);
        pool.reclaim_blocking();
        assert_eq!((pool.space().waiting_bytes, pool.space().used_by_blocks), (0, 0));
    }

    #[test]
    fn close_releases_only_own_slots() {
        let (_directory, [leaver, other]) = shared::<2>(8);
        let kept = [&leaver, &other].map(|pool| pool.pin().alloc(64).unwrap().fenced_later().into_offset());
        let guard = other.pin();
        let slot = guard.slot_index();
        // Two of the leaver's, one of them left by its thread, and one of the other's.
        in_thread(|| drop(leaver.pin()));
        assert_eq!(other.0.count_taken_slots(), 3);
        leaver.close().unwrap();
        assert_eq!((other.0.count_taken_slots(), guard.depth()), (1, 1));
        let holder = other.0.thread_slot(slot as u32).owner_lock.holder(&other.0);
        assert_eq!(holder, Some((u32::from(other.owner().participant), other.owner().incarnation)));
        assert_eq!(other.0.shared().slots_taken.load(other.medium(), Relaxed), 1);
        kept.iter().for_each(|&offset| guard.free(offset, 64));
        drop(guard);
        assert_eq!((other.faults(), other.verify_memory()), (0, vec![]));
    }

    #[test]
    fn extra_slot_is_any_free_one_or_panics() {
        let pool = pool(4);
        let guard = pool.pin();
        let mut taken = vec![guard.slot_index() as u32];
        taken.extend([(); 3].map(|()| pool.0.claim_extra_slot()));
        taken.sort();
        assert_eq!((taken, pool.0.count_taken_slots()), (vec![0, 1, 2, 3], 4));
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.0.claim_extra_slot()));
        assert!(refused.is_err());
        pool.0.release_slot(2);
        assert_eq!(pool.0.claim_extra_slot(), 2);
    }
}
