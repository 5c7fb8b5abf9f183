//! The words of the allocator that all threads share, and its part of an open pool.
//!
//! ```text
//!   line 0     | epoch | watches set | 0 ...                                                read by every pin
//!   line 1     | phase | collector's lock | slots used | slots taken | reserve | 0 ...      read mostly
//!   line 2     | slab hint | extent hint | slab units | fruitless | small base | large base | lost | faults |
//!   lines 3..  | list of class 0 | list of class 1 | ... 32 bytes each: head | emptied | kept | 0
//!   line 51    | collection requests | collected | counted | collections | sweeping         see `doubt`
//!              vacate | vacated | window                                                  see `vacate`
//! ```
//! Of these `reserve` and `slab hint` are persisted while the pool is open, and go on after an unclean open; the others start again from zero then.

use crate::classes::{CLASSES_MAX, Classes};
use crate::layout::{ALLOCATOR_BYTES, Layout};
use crate::lock::Lock;
use crate::pool::{Inner, Start};
use crate::seats::FreeSlots;
use crate::zones::Zones;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{LINE, Line, MappedMedium, Offset, Persistent, Word};

/// The head of a class's list of slabs with free blocks; alone on half a line.
#[repr(C)]
pub(crate) struct ListHead {
    pub(crate) head: Word,
    /// How often a slab of the list lost its last block since the list was last looked through. Some of them have blocks again.
    pub(crate) emptied: Word,
    /// Slabs that were in the list then and stayed there.
    pub(crate) kept: Word,
    _apart: Word,
}

/// The allocator's shared words.
#[repr(C, align(64))]
pub(crate) struct Shared {
    /// The global epoch.
    pub(crate) epoch: Word,
    /// A bit for each watch that there is: see `watch`. Read by every change, and so in the line that every pin reads.
    pub(crate) watches_set: Word,
    _line0: [Word; 6],
    /// `| 63:32 the number of the collection that marks beside others | 31:0 [`SETTLED`], [`PENDING`] or [`MARKING`] |`.
    pub(crate) phase: Word,
    /// Held by the collector.
    pub(crate) collector: Lock,
    /// No seat from this index on has ever been taken in this generation.
    pub(crate) slots_used: Word,
    /// Seats that are taken now.
    pub(crate) slots_taken: Word,
    /// The slab from which limbo takes its pages when there is no other memory; 0 is none.
    pub(crate) reserve: Word,
    _line1: [Word; 3],
    /// Where the search for an empty unit goes on.
    pub(crate) slab_hint: Word,
    /// Where the search for free granules goes on, as a unit; above bit 32, such searches.
    pub(crate) extent_hint: Word,
    /// Units that are slabs of this era.
    pub(crate) slab_units: Word,
    /// Bytes that had been freed in all when a reclaim last found nothing, plus one.
    pub(crate) fruitless: Word,
    /// Bytes in blocks of slabs that seats did not count, for they are older than the era.
    pub(crate) small_base: Word,
    /// The same in extents.
    pub(crate) large_base: Word,
    /// Bytes that had to be forgotten; only a collection brings them back.
    pub(crate) lost: Word,
    /// Frees of what was free, links that lead nowhere: signs of damage or of a wrong caller.
    pub(crate) faults: Word,
    pub(crate) lists: [ListHead; CLASSES_MAX],
    /// How often something died that may have left blocks that nobody can reach.
    pub(crate) collection_requests: Word,
    /// As many of those have been collected.
    pub(crate) collected: Word,
    /// `collection_requests` when the bytes in blocks were last counted. While it is another, the figures may be off by what died in the middle of counting.
    pub(crate) counted: Word,
    /// The number of the last collection beside others.
    pub(crate) collections: Word,
    /// The unit whose first lines the collector looks at now, plus one: it stays a slab until then.
    pub(crate) sweeping: Word,
    /// Held by a thread that chooses slabs to be emptied.
    pub(crate) vacate: Lock,
    /// Slabs that are being emptied; or a few more, if somebody died.
    pub(crate) vacated: Word,
    /// The units that are left out where memory is searched for.
    /// `| 63:32 first unit | 31:0 units, 0 for none |`
    pub(crate) window: Word,
    _rest: [Word; 128],
}

const _: () = assert!(size_of::<Shared>() as u64 == ALLOCATOR_BYTES);

// SAFETY: words and locks only; the array of 8 x 8 bytes lines and the assertion above leave no room for padding.
unsafe impl Persistent for Shared {}

/// Every block of the pool is accounted for.
pub(crate) const IDLE: u64 = 0;
/// What earlier eras left has yet to be collected.
pub(crate) const UNCLEAN: u64 = 1;
/// What somebody left who died in this era is being collected. The phase has the collection's number in its upper half.
pub(crate) const MARKING: u64 = 2;
/// The upper half of the phase, and of a slab's `link`.
pub(crate) const ROUND: u64 = !0 << 32;
/// The first epoch: a seat's announcement of 0 is none.
pub(crate) const FIRST_EPOCH: u64 = 4;

/// The allocator's part of an open pool: what follows from the geometry, and the seats that threads of this process left behind.
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

    /// Whether blocks of earlier eras have yet to be collected.
    #[inline(always)]
    pub(crate) fn is_unclean(&self) -> bool {
        // ORDER: Acquire: pairs with the end of the sweep.
        self.shared().phase.load(self.medium().point("phase.is-unclean"), Acquire) == UNCLEAN
    }

    /// Whether a collection is under way or to come whose sweep must not take what is retired now for garbage.
    #[inline(always)]
    pub(crate) fn is_marking(&self) -> bool {
        // ORDER: Acquire: pairs with the end of the sweep.
        self.shared().phase.load(self.medium().point("phase.is-marking"), Acquire) != IDLE
    }

    /// What whoever owns or lists a slab writes into the upper half of its `link`: the number of the collection that goes on, or 0.
    #[inline(always)]
    pub(crate) fn round(&self) -> u64 {
        // ORDER: the collection begins with a barrier in every running thread and waits for all that are pinned: see `doubt`.
        self.shared().phase.load(self.medium(), Relaxed) & ROUND
    }

    /// Something that a sound pool and sound callers never do. Counted, and an assertion in debug builds of the caller's tests.
    #[cold]
    pub(crate) fn count_fault(&self) {
        self.shared().faults.fetch_add(self.medium(), 1, Relaxed);
    }

    /// Makes the allocator ready, once, before anyone else sees the pool.
    pub(crate) fn open_allocator(&self) {
        let shared = self.shared();
        let kept = [&shared.reserve, &shared.slab_hint, &shared.extent_hint];
        let reserve = shared.reserve.load(self.medium(), Relaxed);
        if self.start != Start::Clean {
            // The words that go on stay as they are meanwhile: another death here must not take them.
            self.zero(self.layout.allocator, ALLOCATOR_BYTES, &kept);
            let phase = if self.start == Start::Unclean { UNCLEAN } else { IDLE };
            shared.phase.store(self.medium(), phase, Relaxed);
        }
        self.zero(self.layout.thread_slots, self.layout.zones - self.layout.thread_slots, &[]);
        shared.watches_set.store(self.medium(), 0, Relaxed);
        shared.slots_used.store(self.medium(), 0, Relaxed);
        shared.slots_taken.store(self.medium(), 0, Relaxed);
        shared.fruitless.store(self.medium(), 0, Relaxed);
        shared.epoch.store(self.medium(), FIRST_EPOCH, Release);
        // The units of a pool that is opened have their hints. PERSIST: those of a new one, by the fence of its superblock.
        self.open_zones(if self.start == Start::Created { 0 } else { u64::MAX }, self.size());
        if self.start != Start::Created {
            self.restore_reserve(reserve);
        }
        self.ensure_reserve();
    }

    /// Whoever looked for memory in vain looks again: there is more.
    pub(crate) fn announce_memory(&self) {
        // ORDER: Relaxed, as all accesses of it: a hint. The memory itself is seen by the pool's size.
        self.shared().fruitless.store(self.medium(), 0, Relaxed);
    }

    /// Makes what lies between the first `before` bytes and `size` ready for use. There is storage for it; the pool does not say yet that it is there.
    pub(crate) fn init_hints(&self, before: u64, size: u64) {
        // PERSIST: that the new units may have room, before the superblock says that they are there; it fences before it changes anything. Hints of later times are
        // not persisted, but the sweep after a crash corrects them; until it has been by, a full pool would not know that it has grown.
        self.open_zones(self.memory.zones.units(before).saturating_sub(1), size);
    }

    /// Leaves the allocator as the next open wants to find it. Nobody is pinned. Whether all memory is accounted for: if not, the pool is not
    /// to be called clean, and the next open collects.
    pub(crate) fn close_allocator(&self) -> bool {
        self.drain_all_slots();
        let complete = !self.needs_collection() && self.shared().lost.load(self.medium(), Relaxed) == 0;
        if complete {
            self.seal_units();
        }
        if M::VOLATILE_CACHE && complete {
            // PERSIST: before the clean flag, which makes the next open believe these.
            self.region.write_back(self.shared());
            self.write_back_zones();
            self.region.fence();
        }
        complete
    }

    /// Zeroes lines, without touching those that are zero, but for the words in `kept`.
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

    /// Whether the line at `at` is, while nobody else sees the pool.
    fn is_zero(&self, at: u64) -> bool {
        // SAFETY: nobody writes there meanwhile: this thread does not, and it is alone with the pool.
        let line = unsafe { self.region.bytes(at, LINE) };
        line.is_some_and(|line| line.iter().fold(0, |all, &byte| all | byte) == 0)
    }
}
