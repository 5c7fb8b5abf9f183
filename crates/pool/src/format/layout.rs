//! The offset of each part of a pool. Computed from the geometry alone, which is chosen at creation
//! and kept in the superblock.
//!
//! ```text
//! 0              superblock A          512 bytes
//! 512            notices               256 bytes each, to the end of the page
//! 4096           superblock B          512 of 4096 bytes
//! roots          root directory        64 bytes per root
//! participants   participant table     64 bytes per participant
//! shared         the pool's own words  64 bytes
//! allocator      the allocator's words ALLOCATOR_BYTES
//! thread_slots   thread slots          SLOT_BYTES each
//! watches        key watches           64 bytes each, at most 64: as many as fit before the zones
//! zones          zones                 headers and memory, to the end of the pool
//! ```
//!
//! Every part begins at a line, the zones at a slab.

/// Bytes of a page, the unit of large allocations.
pub const PAGE: u64 = 4096;
/// Pools end below this: offsets fit in 44 bits.
pub const MAX_POOL: u64 = 1 << 44;
/// Bytes between the two copies of the superblock.
pub(crate) const SUPERBLOCK_STEP: u64 = 4096;
/// Bytes of a root.
pub(crate) const ROOT_BYTES: u64 = 64;
/// Bytes of an entry of the participant table.
pub(crate) const PARTICIPANT_BYTES: u64 = 64;
/// Bytes of the pool's own shared words.
pub(crate) const SHARED_BYTES: u64 = 64;
/// Bytes of the allocator's shared words: epoch, class lists, search hints, counters.
pub(crate) const ALLOCATOR_BYTES: u64 = 4096;
/// Bytes of a thread slot: epoch line, caches by class, limbo, counters.
pub(crate) const SLOT_BYTES: u64 = 2048;
/// Bytes of a key watch.
pub(crate) const WATCH_BYTES: u64 = 64;
/// The most key watches: a bit of a word for each.
const WATCHES_MAX: u64 = 64;

/// The capacities of a pool: numbers of slots, and sizes of slabs and zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Threads that can use the pool at one time.
    pub thread_slots: u32,
    /// Processes that can have it open at one time.
    pub participants: u32,
    /// Named roots.
    pub roots: u32,
    /// Bytes of a slab, as a power of two.
    pub slab_log2: u32,
    /// Bytes of the largest zones, as a power of two.
    pub zone_log2: u32,
    /// Bytes of the first zone, as a power of two. Each further zone is twice as large, up to the
    /// largest. No block is larger than a zone.
    pub first_zone_log2: u32,
}

impl Default for Geometry {
    fn default() -> Self {
        Self {
            thread_slots: 1024,
            participants: 64,
            roots: 64,
            slab_log2: 16,
            zone_log2: 34,
            first_zone_log2: 26,
        }
    }
}

impl Geometry {
    /// The smallest geometry: for test pools of 64 KiB and less.
    pub const fn tiny() -> Self {
        Self { thread_slots: 4, participants: 4, roots: 8, slab_log2: 12, zone_log2: 20, first_zone_log2: 16 }
    }

    /// The geometry for a pool of `size` bytes that may grow: the default from 64 MiB on, smaller
    /// numbers below, so that the metadata stays small compared to the data. If possible the pool
    /// is a single zone, so that free memory is not divided.
    pub fn for_size(size: u64) -> Self {
        let some = match size {
            s if s < 1 << 20 => Self::tiny(),
            s if s < 64 << 20 => {
                let few = Self { thread_slots: 64, participants: 16, roots: 32, ..Self::default() };
                Self { slab_log2: 14, zone_log2: 28, ..few }
            }
            _ => Self::default(),
        };
        let first_zone_log2 = size.clamp(1, MAX_POOL).next_power_of_two().ilog2();
        Self { first_zone_log2: first_zone_log2.clamp(some.slab_log2 + 2, some.zone_log2), ..some }
    }

    /// Checks all ranges, and says what is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            g if !(1..=1 << 16).contains(&g.thread_slots) => Err("thread slots are not between 1 and 65536"),
            g if !(1..=1 << 12).contains(&g.participants) => Err("participants are not between 1 and 4096"),
            g if !(1..=1 << 12).contains(&g.roots) => Err("roots are not between 1 and 4096"),
            g if !(12..=19).contains(&g.slab_log2) => Err("slabs are not between 4 KiB and 512 KiB"),
            g if !(g.slab_log2 + 2..=36).contains(&g.zone_log2) => {
                Err("zones are not between 4 slabs and 64 GiB")
            }
            g if !(g.slab_log2 + 2..=g.zone_log2).contains(&g.first_zone_log2) => {
                Err("the first zone is not between 4 slabs and the largest zone")
            }
            _ => Ok(()),
        }
    }
}

/// Offsets of the parts of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The geometry that all offsets follow from.
    pub geometry: Geometry,
    /// The root directory.
    pub roots: u64,
    /// The participant table.
    pub participants: u64,
    /// The pool's own shared words.
    pub shared: u64,
    /// The allocator's shared words.
    pub allocator: u64,
    /// The thread slots.
    pub thread_slots: u64,
    /// The key watches.
    pub watches: u64,
    /// The first zone; everything below is metadata.
    pub zones: u64,
}

impl Layout {
    /// The layout of a pool with this geometry, or what is wrong with the geometry.
    pub fn new(geometry: Geometry) -> Result<Self, &'static str> {
        geometry.check()?;
        let roots = 2 * SUPERBLOCK_STEP;
        let participants = roots + u64::from(geometry.roots) * ROOT_BYTES;
        let shared = participants + u64::from(geometry.participants) * PARTICIPANT_BYTES;
        let allocator = shared + SHARED_BYTES;
        let slots = allocator + ALLOCATOR_BYTES;
        let watches = slots + u64::from(geometry.thread_slots) * SLOT_BYTES;
        let zones = watches.next_multiple_of(1 << geometry.slab_log2);
        assert!(
            [roots, participants, shared, allocator, slots, watches, zones].is_sorted(),
            "the parts of a pool lie one behind the other"
        );
        debug_assert!(
            [participants, shared, allocator, slots, watches].iter().all(|at| at.is_multiple_of(64)),
            "every part begins at a line"
        );
        Ok(Self { geometry, roots, participants, shared, allocator, thread_slots: slots, watches, zones })
    }

    /// The fewest bytes of a pool with this layout: its metadata and 8 slabs.
    pub fn smallest(&self) -> u64 {
        self.zones + (8 << self.geometry.slab_log2)
    }

    /// Offset of thread slot `index`.
    pub fn thread_slot(&self, index: u32) -> u64 {
        debug_assert!(index < self.geometry.thread_slots, "no thread slot {index}");
        self.thread_slots + u64::from(index) * SLOT_BYTES
    }

    /// The number of key watches.
    pub fn watch_count(&self) -> u32 {
        ((self.zones - self.watches) / WATCH_BYTES).min(WATCHES_MAX) as u32
    }

    /// Offset of key watch `index`.
    pub(crate) fn watch(&self, index: u32) -> u64 {
        debug_assert!(index <= self.watch_count(), "no watch {index}");
        self.watches + u64::from(index) * WATCH_BYTES
    }

    /// Offset of root `index`.
    pub(crate) fn root(&self, index: u32) -> u64 {
        debug_assert!(index < self.geometry.roots, "no root {index}");
        self.roots + u64::from(index) * ROOT_BYTES
    }

    /// Offset of entry `index` of the participant table.
    pub(crate) fn participant(&self, index: u32) -> u64 {
        debug_assert!(index < self.geometry.participants, "no entry {index} for participants");
        self.participants + u64::from(index) * PARTICIPANT_BYTES
    }
}

#[cfg(test)]
#[path = "tests/layout.rs"]
mod tests;
