//! Thread slots: what each running thread owns in the pool.
//!
//! ```text
//!   line 0     | owner lock | pin | intents set | overflow count |
//!              | chunk | chunk entries | small bytes | large bytes |
//!   line 1     | queue lock | oldest | newest | retired | drained | freed | chunk bytes | chunks |
//!   line 2     | counters 0 to 7, for the layers above |
//!   lines 3..  | cache of class 0 | cache of class 1 | ... two words each | overflow | intents |
//! ```

use crate::allocator::classes::CLASSES_MAX;
use crate::format::layout::SLOT_BYTES;
use crate::sync::lock::Lock;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, Persistent, Word};

/// Intents of one slot.
pub(crate) const INTENTS: usize = 16;

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

/// Adds to a word that only this thread writes.
#[inline(always)]
pub(crate) fn add_own<M: MappedMedium>(medium: &M, word: &Word, by: u64) {
    word.store(medium, word.load(medium, Relaxed).wrapping_add(by), Relaxed);
}
