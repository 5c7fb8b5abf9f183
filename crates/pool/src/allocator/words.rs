//! Shared words of the allocator, and the allocator's part of an open pool.
//!
//! ```text
//!   line 0     | epoch | watches set | 0 ...                                     read by every pin
//!   line 1     | phase | collector's lock | slots used | slots taken | reserve   read mostly
//!   line 2     | slab hint | extent hint | slab units | fruitless |
//!              | small base | large base | lost | faults |
//!   lines 3..  | list of class 0 | list of class 1 | ... 32 bytes each: head | emptied | kept | 0
//!   line 47    | collection requests | collected | counted | collections | sweeping     see gc
//!              | vacate | vacated | window |                   see `compact`
//!   line 48    | scans |
//! ```
//! Of these, `reserve` and `slab hint` are persisted while the pool is open, and survive an unclean
//! open together with `extent hint`. The others start from zero then.

use crate::allocator::classes::{CLASSES_MAX, Classes};
use crate::allocator::zones::Zones;
use crate::format::layout::{ALLOCATOR_BYTES, Layout};
use crate::pool::{Inner, Start};
use crate::reclaim::slots::FreeSlots;
use crate::sync::lock::Lock;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{LINE, Line, MappedMedium, Offset, Persistent, Word};

/// The head of a class's list of slabs with free blocks; it has half a line to itself.
#[repr(C)]
pub(crate) struct ListHead {
    pub(crate) head: Word,
    /// How many slabs of the list have lost their last block since the last scan of the list. Some
    /// may have blocks again.
    pub(crate) emptied: Word,
    /// Slabs that were in the list at that scan and stayed there.
    pub(crate) kept: Word,
    _apart: Word,
}

/// The allocator's shared words.
#[repr(C, align(64))]
pub(crate) struct Shared {
    /// The global epoch.
    pub(crate) epoch: Word,
    /// A bit for each key watch in use: see `watch`. Every change reads it, so it is in the line
    /// that every pin reads.
    pub(crate) watches_set: Word,
    _line0: [Word; 6],
    /// `| 63:32 round of a concurrent collection | 31:0 [`IDLE`], [`UNCLEAN`] or [`MARKING`] |`.
    pub(crate) phase: Word,
    /// Held by the collector.
    pub(crate) collector: Lock,
    /// No slot from this index on has been taken in this generation.
    pub(crate) slots_used: Word,
    /// Slots that are taken now.
    pub(crate) slots_taken: Word,
    /// The slab that provides limbo chunks when there is no other memory; 0 is none.
    pub(crate) reserve: Word,
    _line1: [Word; 3],
    /// Where the search for an empty unit continues.
    pub(crate) slab_hint: Word,
    /// Where the search for free granules continues, as a unit; from bit 32 on, a count of such
    /// searches.
    pub(crate) extent_hint: Word,
    /// Units that are slabs and were revalidated, or made, since the open.
    pub(crate) slab_units: Word,
    /// Total bytes freed when a reclaim last found nothing, plus one.
    pub(crate) fruitless: Word,
    /// Bytes in blocks of slabs that the slots did not count, since they were allocated before this
    /// open.
    pub(crate) small_base: Word,
    /// The same in extents.
    pub(crate) large_base: Word,
    /// Bytes that leaked; only a collection recovers them.
    pub(crate) lost: Word,
    /// Frees of free blocks, and lists that lead nowhere: signs of damage or of a wrong caller.
    pub(crate) faults: Word,
    pub(crate) lists: [ListHead; CLASSES_MAX],
    /// How often a thread or process died that may have left unreachable blocks.
    pub(crate) collection_requests: Word,
    /// How many of those requests have been served.
    pub(crate) collected: Word,
    /// `collection_requests` at the last recount. While it differs, the figures may be wrong by
    /// what died while counting.
    pub(crate) counted: Word,
    /// The round of the last concurrent collection.
    pub(crate) collections: Word,
    /// The unit whose bitmaps the collector is reading, plus one: it stays a slab meanwhile.
    pub(crate) sweeping: Word,
    /// Held by a thread that chooses slabs to vacate.
    pub(crate) vacate: Lock,
    /// Slabs that are being vacated; may be too large if a thread died.
    pub(crate) vacated: Word,
    /// The units that searches for memory leave out.
    /// `| 63:32 first unit | 31:0 units, 0 for none |`
    pub(crate) window: Word,
    /// Threads that look through a list for empty slabs, and have taken slabs out of it meanwhile;
    /// may be too large if a thread died.
    pub(crate) scans: Word,
    _rest: [Word; 127],
}

const _: () = assert!(size_of::<Shared>() as u64 == ALLOCATOR_BYTES);

// SAFETY: words and locks only; the array of 8 x 8 bytes lines and the assertion above leave no
// room for padding.
unsafe impl Persistent for Shared {}

/// Every block of the pool is accounted for.
pub(crate) const IDLE: u64 = 0;
/// What was left before this open has yet to be collected.
pub(crate) const UNCLEAN: u64 = 1;
/// A concurrent collection is running. The phase has its round in the upper half.
pub(crate) const MARKING: u64 = 2;
/// The upper half of the phase, and of a slab's `link`.
pub(crate) const ROUND: u64 = !0 << 32;
/// The first epoch: a pin of 0 means none.
pub(crate) const FIRST_EPOCH: u64 = 4;

/// The allocator's part of an open pool: what follows from the geometry, and the free slots of
/// ended threads of this process.
pub(crate) struct Memory {
    pub(crate) classes: Classes,
    pub(crate) zones: Zones,
    pub(crate) free_slots: Arc<FreeSlots>,
}

impl Memory {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            classes: Classes::new(layout.geometry.slab_log2),
            zones: Zones::new(layout),
            free_slots: Arc::default(),
        }
    }
}

impl<M: MappedMedium> Inner<M> {
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

    /// Initializes the allocator, once, before other threads see the pool.
    pub(crate) fn open_allocator(&self) {
        let shared = self.shared();
        let kept = [&shared.reserve, &shared.slab_hint, &shared.extent_hint];
        let reserve = shared.reserve.load(self.medium(), Relaxed);
        if self.start != Start::Clean {
            // The kept words are not zeroed even for a moment: another crash here must not lose
            // them.
            self.zero(self.layout.allocator, ALLOCATOR_BYTES, &kept);
            let phase = if self.start == Start::Unclean { UNCLEAN } else { IDLE };
            shared.phase.store(self.medium(), phase, Relaxed);
        }
        self.zero(self.layout.thread_slots, self.layout.zones - self.layout.thread_slots, &[]);
        shared.watches_set.store(self.medium(), 0, Relaxed);
        shared.slots_used.store(self.medium(), 0, Relaxed);
        shared.slots_taken.store(self.medium(), 0, Relaxed);
        shared.fruitless.store(self.medium(), 0, Relaxed);
        shared.scans.store(self.medium(), 0, Relaxed);
        shared.epoch.store(self.medium(), FIRST_EPOCH, Release);
        // A pool that is opened has its units' hints. PERSIST: those of a new one, by the fence of
        // its superblock.
        self.open_zones(if self.start == Start::Created { 0 } else { u64::MAX }, self.size());
        if self.start != Start::Created {
            self.restore_reserve(reserve);
        }
        self.ensure_reserve();
    }

    /// Announces new memory: threads that searched in vain search again.
    pub(crate) fn announce_memory(&self) {
        // ORDER: Relaxed, as all accesses of it: a hint. The memory itself becomes visible by the
        // pool's size.
        self.shared().fruitless.store(self.medium(), 0, Relaxed);
    }

    /// Prepares the memory from the first `before` bytes up to `size`. There is storage for it; the
    /// superblock does not include it yet.
    pub(crate) fn init_hints(&self, before: u64, size: u64) {
        // PERSIST: the hints of the new units, before the superblock includes them; it fences
        // before it changes anything. Later hints are not persisted, since the sweep after a crash
        // corrects them. Without these, a full pool would not know until that sweep that it has
        // grown.
        self.open_zones(self.memory.zones.units(before).saturating_sub(1), size);
    }

    /// Prepares the allocator for the next open. No thread is pinned. Returns whether all memory is
    /// accounted for: if not, the pool must not be marked clean, and the next open collects.
    pub(crate) fn close_allocator(&self) -> bool {
        self.drain_all_slots();
        let complete = !self.needs_collection() && self.shared().lost.load(self.medium(), Relaxed) == 0;
        if complete {
            self.seal_units();
        }
        if M::VOLATILE_CACHE && complete {
            // PERSIST: before the clean flag, which makes the next open rely on these.
            self.region.write_back(self.shared());
            self.write_back_zones();
            self.region.fence();
        }
        complete
    }

    /// Zeroes lines, except for the words in `kept`. Does not write to lines that are zero.
    fn zero(&self, from: u64, bytes: u64, kept: &[&Word]) {
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
}
