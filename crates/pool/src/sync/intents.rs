//! Lock intents: which locks a thread of a shared pool may hold (SHIFT, sections 5.2.2 and 5.3).
//!
//! A thread records an intent in its slot before it tries a lock, and clears it once the lock is
//! free again. A recovering process finds all locks that a dead one may hold by these intents, and
//! releases those that name it as holder; see `recover`. A slot has room for 16 intents. A thread
//! that holds more locks takes an extra slot, and returns it with the last of its intents. Recovery
//! looks through all slots of a dead participant.
//!
//! The processes of one machine share its caches, so a dead process's intents are visible wherever
//! they are stored. Hosts have separate caches. Where a host's cache is lost with it, an intent is
//! persisted before the lock is tried: two lines and a fence. SHIFT pays that, too, on machines
//! without GPF.
//!
//! The paper gives each process a log of 1 KiB and chains more. Here each thread has its own two
//! lines, so that no two threads share a line.

use crate::pool::Inner;
use crate::reclaim::slots::ThreadSlot;
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_medium::MappedMedium;

/// Intents of one slot.
pub(crate) const INTENTS: usize = 16;

/// The extra slot that this thread has for intents, and the open pool that it belongs to.
#[derive(Clone, Copy, PartialEq)]
struct ExtraSlot {
    pool: u64,
    index: u32,
}

const NONE: ExtraSlot = ExtraSlot { pool: 0, index: 0 };

thread_local! {
    static EXTRA: Cell<ExtraSlot> = const { Cell::new(NONE) };
}

/// Where a thread has recorded that it may hold a lock: `| slot (32) | 0 | extra (1) | 1 | number
/// (16) |`. One word, since it moves with the lock.
pub(crate) struct Intent(NonZeroU64);

const NUMBER: u64 = 0xffff;
const IS_INTENT: u64 = 1 << 16;
/// The slot is taken for intents only.
const IN_EXTRA: u64 = 1 << 17;
const SLOT_SHIFT: u32 = 32;

impl Intent {
    /// Records an intent for the lock at `offset`, before the lock is tried.
    pub(crate) fn record<M: MappedMedium>(pool: &Inner<M>, slot: &ThreadSlot, offset: u64) -> Self {
        match Self::record_in(pool, slot, offset) {
            Some(intent) => intent,
            None => Self::record_in_extra_slot(pool, offset),
        }
    }

    /// Records it in `slot`, unless that is full.
    #[inline(always)]
    fn record_in<M: MappedMedium>(pool: &Inner<M>, slot: &ThreadSlot, offset: u64) -> Option<Self> {
        let used = slot.intents_set.load(pool.medium(), Relaxed);
        let number = used.trailing_ones();
        slot.intents.get(number as usize)?.store(pool.medium(), offset, Relaxed);
        // ORDER: Release: the offset before the bit that makes it valid. Only this thread writes
        // them; recovery reads them after its death.
        slot.intents_set.store(pool.medium().point("intent.record"), used | 1 << number, Release);
        if M::VOLATILE_CACHE && pool.is_multi_host() {
            // PERSIST: the intent, before the lock is tried. A host that crashes before the intent
            // is durable does not hold the lock; one that crashes later has recorded it. A crash
            // may persist the second line only. Then the intent names another lock, which is
            // released only if the dead holder's name is in it.
            pool.medium().point("intent.write-back");
            pool.region.write_back(&slot.intents[number as usize]);
            pool.medium().point("intent-set.write-back");
            pool.region.write_back(&slot.intents_set);
            pool.medium().point("intent.fence");
            pool.region.fence();
        }
        NonZeroU64::new(pool.index_of(slot) << SLOT_SHIFT | IS_INTENT | u64::from(number)).map(Self)
    }

    #[cold]
    fn record_in_extra_slot<M: MappedMedium>(pool: &Inner<M>, offset: u64) -> Self {
        let extra = EXTRA.get();
        let known = (extra.pool == pool.id).then(|| pool.thread_slot(extra.index));
        let intent = known.and_then(|slot| Self::record_in(pool, slot, offset)).unwrap_or_else(|| {
            // The previous extra slot, if any, stays this thread's until its intents are cleared.
            let index = pool.claim_extra_slot();
            EXTRA.set(ExtraSlot { pool: pool.id, index });
            let intent = Self::record_in(pool, pool.thread_slot(index), offset);
            intent.expect("a free slot has no intents")
        });
        Self(intent.0 | IN_EXTRA)
    }

    /// Clears the intent: the lock is free, or held by another thread. (Not inlined: only shared
    /// pools need it, and dropping a lock of an exclusive pool stays short.)
    #[inline(never)]
    pub(crate) fn clear<M: MappedMedium>(&self, pool: &Inner<M>) {
        let intent = self.0.get();
        let index = (intent >> SLOT_SHIFT) as u32;
        let intents_set = &pool.thread_slot(index).intents_set;
        let left = intents_set.load(pool.medium(), Relaxed) & !(1 << (intent & NUMBER));
        // ORDER: Release: after the lock was released.
        intents_set.store(pool.medium(), left, Release);
        if intent & IN_EXTRA != 0 && left == 0 {
            Self::return_extra_slot(pool, index);
        }
    }

    #[cold]
    fn return_extra_slot<M: MappedMedium>(pool: &Inner<M>, index: u32) {
        if EXTRA.get() == (ExtraSlot { pool: pool.id, index }) {
            EXTRA.set(NONE);
        }
        pool.release_slot(index);
    }
}

#[cfg(test)]
mod tests {
    use super::{INTENTS, Intent};
    use crate::tests::fixtures::participants;
    use crate::{Geometry, Lock, Locked, Pool};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering::Relaxed;
    use terrace_medium::{Offset, Shm, Word};

    const SLOTS: usize = 4;

    fn shared() -> (tempfile::TempDir, [Pool<Shm>; 2]) {
        participants(Geometry { thread_slots: SLOTS as u32, ..Geometry::tiny() })
    }

    /// Returns the offset of `count` free locks.
    fn locks(pool: &Pool<Shm>, count: usize) -> u64 {
        let at = pool.pin().alloc(8 * count).unwrap().fenced_later().into_offset();
        (0..count).for_each(|n| {
            pool.region().at(Offset::<Word>::new(at + 8 * n as u64)).store(pool.medium(), 0, Relaxed)
        });
        at
    }

    fn lock(pool: &Pool<Shm>, at: u64, n: usize) -> &Lock {
        pool.region().at(Offset::new(at + 8 * n as u64))
    }

    #[test]
    fn survivor_releases_all_locks_of_the_dead() {
        for count in [INTENTS, INTENTS + 1, 3 * INTENTS] {
            let (_directory, [dead, survivor]) = shared();
            let at = locks(&dead, count);
            let guard = dead.pin();
            (0..count).for_each(|n| std::mem::forget(lock(&dead, at, n).acquire(&guard)));
            std::mem::forget(guard);
            dead.abandon();
            assert_eq!(survivor.recover_dead(), 1);
            let held = (0..count).filter(|&n| lock(&survivor, at, n).is_held(&survivor)).count();
            assert_eq!((held, survivor.0.count_taken_slots()), (0, 0), "of {count}");
        }
    }

    fn intents_set(pool: &Pool<Shm>) -> usize {
        pool.0
            .used_slots()
            .map(|slot| slot.intents_set.load(pool.medium(), Relaxed).count_ones() as usize)
            .sum()
    }

    #[test]
    fn extra_slot_is_returned_with_its_last_intent() {
        let (_directory, [pool, other]) = shared();
        let (at, at_other) = (locks(&pool, 3 * INTENTS), locks(&other, 1));
        let (guard, guard_of_other) = (pool.pin(), other.pin());
        for (first, count) in
            [(0, INTENTS + 3), (5, 2 * INTENTS), (17, 3 * INTENTS), (31, 3 * INTENTS), (0, INTENTS + 1)]
        {
            let mut held: Vec<Option<Locked<'_, Shm>>> =
                (0..count).map(|n| Some(lock(&pool, at, n).acquire(&guard))).collect();
            drop(lock(&other, at_other, 0).acquire(&guard_of_other));
            let slots = count.div_ceil(INTENTS) as u64;
            assert_eq!(
                pool.0.count_taken_slots(),
                1 + slots,
                "one of this thread in each pool, and the extra ones"
            );
            for left in (0..count).rev() {
                drop(held[(first + 5 * left) % count].take());
                assert_eq!(intents_set(&pool), left, "from {first} on, of {count}");
            }
            assert_eq!(pool.0.count_taken_slots(), 2, "from {first} on, of {count}");
        }
    }

    #[test]
    fn lock_without_extra_slot_panics_and_releases_others() {
        let (_directory, [pool, _other]) = shared();
        let room = SLOTS * INTENTS;
        let at = locks(&pool, room + 1);
        let guard = pool.pin();
        let held: Vec<_> = (0..room).map(|n| lock(&pool, at, n).acquire(&guard)).collect();
        let refused = catch_unwind(AssertUnwindSafe(|| drop(lock(&pool, at, room).try_acquire(&guard))));
        let message = refused.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*message, "the pool's 4 thread slots are all taken");
        drop(held);
        assert!((0..=room).all(|n| !lock(&pool, at, n).is_held(&pool)));
        assert_eq!(pool.0.count_taken_slots(), 1);
        drop(lock(&pool, at, room).acquire(&guard));
    }

    #[test]
    fn lock_tried_by_the_dead_stays_with_its_live_holder() {
        let (_directory, [dead, survivor]) = shared();
        let at = locks(&survivor, 2);
        let guard = survivor.pin();
        let held = lock(&survivor, at, 0).acquire(&guard);
        let guard_of_dead = dead.pin();
        drop(lock(&dead, at, 1).acquire(&guard_of_dead));
        // It dies after recording the intent, before it reads the lock. The other lock it holds.
        Intent::record(&dead.0, guard_of_dead.thread_slot(), at);
        std::mem::forget(lock(&dead, at, 1).acquire(&guard_of_dead));
        std::mem::forget(guard_of_dead);
        dead.abandon();
        assert_eq!(survivor.recover_dead(), 1);
        let own = (u32::from(survivor.owner().participant), survivor.owner().incarnation);
        let holders = [0, 1].map(|n| lock(&survivor, at, n).holder(&survivor.0));
        assert_eq!((holders, intents_set(&survivor)), ([Some(own), None], 1));
        drop(held);
        assert_eq!((lock(&survivor, at, 0).is_held(&survivor), intents_set(&survivor)), (false, 0));
    }

    #[test]
    fn failed_try_leaves_no_intent() {
        let (_directory, [pool, other]) = shared();
        let at = locks(&pool, 1);
        let (guard, guard_of_other) = (pool.pin(), other.pin());
        let held = lock(&pool, at, 0).acquire(&guard);
        assert!(lock(&other, at, 0).try_acquire(&guard_of_other).is_none());
        assert_eq!(intents_set(&pool), 1, "the holder's");
        drop(held);
        assert_eq!(intents_set(&pool), 0);
    }

    #[test]
    fn exclusive_pool_records_no_intents() {
        let pool = Pool::<Shm>::anonymous(1 << 20).unwrap();
        let at = locks(&pool, 2 * INTENTS);
        let guard = pool.pin();
        let held: Vec<_> = (0..2 * INTENTS).map(|n| lock(&pool, at, n).acquire(&guard)).collect();
        assert_eq!((intents_set(&pool), pool.0.count_taken_slots()), (0, 1));
        drop(held);
    }
}
