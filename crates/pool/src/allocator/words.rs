//! Shared words of the allocator: every participant reads and writes them.
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

use crate::allocator::classes::CLASSES_MAX;
use crate::format::layout::ALLOCATOR_BYTES;
use crate::sync::lock::Lock;
use terrace_medium::{Persistent, Word};

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
