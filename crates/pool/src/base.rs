//! The base of an open pool: its memory, what lies where in it, this process, and the words that
//! all processes share. Every other part stands on it.

use crate::allocator::words::{IDLE, ROUND, Shared, UNCLEAN};
use crate::anchor::Anchor;
use crate::format::layout::{Layout, SLOT_BYTES};
use crate::format::lifetime::Start;
use crate::format::slot::ThreadSlot;
use crate::sharing::fork::{self, Forked};
use crate::sharing::liveness::Liveness;
use crate::sharing::terms::word;
use crate::sync::lock::{Lock, LockWords, Owner};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{LINE, Line, MappedMedium, Offset, Region, Word, full_barrier};

/// What every part of an open pool stands on. Owns the region, and what was found at the open;
/// knows of no unit, no pin and no recovery.
pub(crate) struct Base<M: MappedMedium> {
    /// Distinguishes this open from all others of this process, for thread-local caches.
    pub(crate) id: u64,
    pub(crate) region: Region<M>,
    pub(crate) layout: Layout,
    /// The allocator's shared words, read by every pin.
    shared: Anchor<Shared>,
    pub(crate) owner: Owner,
    pub(crate) lock_words: LockWords,
    /// Counts opens. Units with an older open sequence must be revalidated, see `revalidate`.
    pub(crate) open_seq: u32,
    pub(crate) start: Start,
    /// Tells which participants are alive; `None` if the pool is exclusive.
    pub(crate) liveness: Option<Arc<dyn Liveness>>,
    /// For each participant, the last incarnation that was found exiting; 0 for none. See `alive`.
    pub(crate) exiting: Box<[AtomicU64]>,
    /// The fork generation of the process that opened it.
    fork_generation: u64,
    /// Whether pins may leave their barrier to the thread that advances the epoch.
    pub(crate) light_pins: bool,
    /// See [`Base::is_multi_host`].
    multi_host: bool,
}

/// What an open decided about a pool, for [`Base::new`].
pub(crate) struct Grounds {
    pub(crate) owner: Owner,
    pub(crate) open_seq: u32,
    pub(crate) start: Start,
    pub(crate) light_pins: bool,
    pub(crate) liveness: Option<Arc<dyn Liveness>>,
}

impl<M: MappedMedium> Base<M> {
    pub(crate) fn new(region: Region<M>, layout: Layout, grounds: Grounds) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let Grounds { owner, open_seq, start, light_pins, liveness } = grounds;
        assert!(owner.participant < 1 << 12 && u32::from(owner.participant) < layout.geometry.participants);
        let multi_host = liveness.as_ref().is_some_and(|liveness| !liveness.has_common_kernel());
        let exiting = if liveness.is_some() { layout.geometry.participants } else { 0 };
        let shared = Anchor::new(&region, Offset::new(layout.allocator))
            .expect("every layout has its allocator's words");
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            region,
            layout,
            shared,
            owner,
            lock_words: LockWords::of(owner),
            open_seq,
            start,
            liveness,
            exiting: (0..exiting).map(|_| AtomicU64::new(0)).collect(),
            fork_generation: fork::generation(),
            light_pins,
            multi_host,
        }
    }
}

impl<M: MappedMedium> Base<M> {
    /// Threads that look for empty slabs.
    pub(crate) fn scans(&self) -> u64 {
        self.shared().scans.load(self.medium(), Relaxed)
    }

    pub(crate) fn sum(&self, base: &Word, of: impl Fn(&ThreadSlot) -> &Word) -> u64 {
        let base = base.load(self.medium(), Relaxed);
        let sum =
            self.used_slots().map(|slot| of(slot).load(self.medium(), Relaxed)).fold(base, u64::wrapping_add);
        // Read while other threads count, it may be below zero for a moment.
        if sum > u64::MAX / 2 { 0 } else { sum }
    }

    /// Whether no thread has died while it was counting bytes since the last recount.
    pub(crate) fn is_count_intact(&self) -> bool {
        let shared = self.shared();
        shared.counted.load(self.medium(), Relaxed) == shared.collection_requests.load(self.medium(), Relaxed)
    }

    /// Bytes in limbo.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let waiting_bytes = self.used_slots().map(|slot| {
            let drained = slot.drained.load(self.medium(), Relaxed);
            slot.retired.load(self.medium(), Relaxed).wrapping_sub(drained)
        });
        // A block that one slot retired may be drained from the queue of another. So only the sum
        // is meaningful, and not to the byte while other threads run.
        u64::try_from(waiting_bytes.fold(0, u64::wrapping_add).cast_signed()).unwrap_or(0)
    }

    /// Bytes that have been freed since the pool was opened.
    pub(crate) fn total_freed(&self) -> u64 {
        self.used_slots().map(|slot| slot.freed.load(self.medium(), Relaxed)).sum()
    }

    #[inline(always)]
    pub(crate) fn medium(&self) -> &M {
        self.region.medium()
    }

    #[inline(always)]
    pub(crate) fn word_at(&self, offset: u64) -> &Word {
        self.region.at(Offset::new(offset))
    }

    /// Whether blocks left before this open have yet to be collected.
    #[inline(always)]
    pub(crate) fn is_unclean(&self) -> bool {
        // ORDER: Acquire: pairs with the end of the sweep.
        self.shared().phase.load(self.medium().point("phase.is-unclean"), Acquire) == UNCLEAN
    }

    /// Whether a collection is running or to come whose sweep must not take blocks retired now for
    /// garbage.
    #[inline(always)]
    pub(crate) fn is_marking(&self) -> bool {
        // ORDER: Acquire: pairs with the end of the sweep.
        self.shared().phase.load(self.medium().point("phase.is-marking"), Acquire) != IDLE
    }

    /// The round of the running concurrent collection, or 0: a thread that owns or lists a slab
    /// writes it into the upper half of the slab's `link`.
    #[inline(always)]
    pub(crate) fn round(&self) -> u64 {
        // ORDER: the collection begins with a barrier in every running thread and waits for all
        // pinned ones: see `concurrent`.
        self.shared().phase.load(self.medium(), Relaxed) & ROUND
    }

    /// Counts something that a sound pool and sound callers never do.
    #[cold]
    pub(crate) fn count_fault(&self) {
        self.shared().faults.fetch_add(self.medium(), 1, Relaxed);
    }

    /// Announces new memory: threads that searched in vain search again.
    pub(crate) fn announce_memory(&self) {
        // ORDER: Relaxed, as all accesses of it: a hint. The memory itself becomes visible by the
        // pool's size.
        self.shared().fruitless.store(self.medium(), 0, Relaxed);
    }

    /// Zeroes lines, except for the words in `kept`. Does not write to lines that are zero.
    pub(crate) fn zero(&self, from: u64, bytes: u64, kept: &[&Word]) {
        debug_assert!(from.is_multiple_of(64) && bytes.is_multiple_of(64), "whole lines");
        for at in (from..from + bytes).step_by(64) {
            if self.is_zero(at) {
                continue;
            }
            for word in &self.region.at::<Line>(Offset::new(at)).0 {
                let is_kept = kept.iter().any(|&kept| std::ptr::eq(kept, word));
                if !is_kept && word.load(self.medium(), Relaxed) != 0 {
                    word.store(self.medium(), 0, Relaxed);
                }
            }
        }
    }

    /// Whether the line at `at` is zero. No other thread sees the pool.
    fn is_zero(&self, at: u64) -> bool {
        // SAFETY: nothing writes there meanwhile: this thread does not, and no other sees the pool.
        let line = unsafe { self.region.bytes(at, LINE) };
        line.is_some_and(|line| line.iter().fold(0, |all, &byte| all | byte) == 0)
    }

    /// Requests a collection, since a thread died that was pinned or was collecting: it may have
    /// left unreachable blocks. Called before its pin is cleared, so that the request is not lost
    /// if the caller dies, too. The caller flushes and drains the dead thread's slot while pinned.
    pub(crate) fn request_collection(&self) {
        // ORDER: Release: a thread that sees the request sees the bytes counted as lost before.
        // (Clearing a pin and releasing a lock are Release themselves, and come later.)
        self.shared().collection_requests.fetch_add(self.medium().point("collection.request"), 1, Release);
    }

    /// Whether a requested collection has not completed.
    pub(crate) fn is_collection_pending(&self) -> bool {
        let shared = self.shared();
        // ORDER: Acquire: a thread that learns that all has been collected may use the memory, and
        // knows the request. The other is Relaxed: a collector loads it anew.
        shared.collected.load(self.medium().point("collection.is-pending"), Acquire)
            != shared.collection_requests.load(self.medium(), Relaxed)
    }

    pub(crate) fn needs_collection(&self) -> bool {
        self.is_marking() || self.is_collection_pending()
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: the region lives as long as `self`, which holds it.
        unsafe { self.shared.get() }
    }

    #[inline(always)]
    pub(crate) fn shared_word(&self, index: usize) -> &Word {
        &self.region.at::<Line>(Offset::new(self.layout.shared)).0[index]
    }

    /// Whether the participants run under different kernels. Then the cache of a host may be lost
    /// with it.
    #[inline(always)]
    pub(crate) fn is_multi_host(&self) -> bool {
        self.multi_host
    }

    /// Whether it was opened by the process that forked this one.
    pub(crate) fn is_forked_copy(&self) -> bool {
        self.fork_generation != fork::generation()
    }

    /// Whether other processes may have the pool open too.
    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        self.liveness.is_some()
    }

    pub(crate) fn superblock_lock(&self) -> &Lock {
        Lock::of(self.shared_word(word::SUPERBLOCK))
    }

    pub(crate) fn opening_lock(&self) -> &Lock {
        Lock::of(self.shared_word(word::OPENING))
    }

    pub(crate) fn roots_lock(&self) -> &Lock {
        Lock::of(self.shared_word(word::ROOTS))
    }

    /// Bytes of the pool, a multiple of the page.
    #[inline(always)]
    pub(crate) fn size(&self) -> u64 {
        // ORDER: Acquire: pairs with `set_size`. A thread that sees the size also sees a mapping of
        // that length.
        self.shared_word(word::SIZE).load(self.region.medium(), Acquire)
    }

    /// Announces that the pool is about to have `size` bytes, or, after a refusal, only its old
    /// size. Comes before the check that all participants have addresses for them. The caller holds
    /// the superblock's lock.
    pub(crate) fn claim_size(&self, size: u64) {
        // ORDER: see `check_addresses`.
        self.shared_word(word::CLAIMED).store(self.medium(), size, Release);
        full_barrier(self.medium());
    }

    /// Announces to all participants that the pool has `size` bytes. The superblock says so
    /// already, durably.
    pub(crate) fn set_size(&self, size: u64) {
        self.claim_size(size);
        // ORDER: Release: pairs with `size`.
        self.shared_word(word::SIZE).store(self.region.medium().point("pool.size"), size, Release);
    }

    /// Leaks a block. The next collection finds it: after the next open, or soon if the pool is
    /// shared.
    pub(crate) fn leak(&self, bytes: u64) {
        self.shared().lost.fetch_add(self.medium(), bytes, Relaxed);
        if self.is_shared() {
            self.request_collection();
        }
    }

    #[inline(always)]
    pub(crate) fn thread_slot(&self, index: u32) -> &ThreadSlot {
        self.region.at(Offset::new(self.layout.thread_slot(index)))
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

    /// Panics in the child of a fork: slots and locks are the parent's.
    pub(crate) fn assert_not_forked(&self) {
        assert!(!self.is_forked_copy(), "{Forked}");
    }

    pub(crate) fn release_slot(&self, index: u32) {
        self.shared().slots_taken.fetch_sub(self.medium(), 1, Relaxed);
        self.thread_slot(index).owner_lock.release_in(self);
    }
}
