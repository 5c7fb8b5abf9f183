//! Layout of the memory: units, zones, and the header of a zone.
//!
//! After the metadata the pool is divided into *units* of one slab each, and units into 64
//! *granules*. Consecutive units form a *zone*, whose header describes them. The first zone is
//! about as large as the pool at its creation. Each further zone is twice as large as the one
//! before, up to the geometry's limit. So the headers stay in proportion to a pool that grows, and
//! nothing ever moves.
//!
//! ```text
//! zone:   | header: Unit 0 | Unit 1 | ... | empty bitmap | room bitmap | padding | granules ...
//! Unit:   | taken | state | old | link |
//! ```
//! * `taken`: a bit for each granule. On media with a volatile cache a bit is durable before
//!   anything in its granule can be linked. So after any crash a granule whose bit is clear is
//!   free. Clearing is not persisted.
//! * `state`: see [`UnitState`]. Open sequence and class are persisted with `taken`, by the same
//!   write-back.
//! * `old`: granules that were taken before this open and that the collector has not found live
//!   yet. While the pool is closed, a checksum of the unit instead: see `revalidate`.
//! * `link`: of a slab, the next one in its list, and from bit 32 on the round of a collection (see
//!   `orphans`). Of granules, a copy of `taken`, so that a single bit cleared by damage does not
//!   make used memory free.
//! * The bitmaps have a bit for each unit: set if the unit may be empty, or may have a free
//!   granule. A set bit is a hint. A clear bit is exact, but after a crash only once the sweep has
//!   passed.

use crate::allocator::classes::GRANULES;
use crate::format::layout::Layout;
use terrace_medium::{Persistent, Word};

/// The description of a unit.
#[repr(C, align(32))]
pub(crate) struct Unit {
    pub(crate) taken: Word,
    pub(crate) state: Word,
    pub(crate) old: Word,
    pub(crate) link: Word,
}

pub(crate) const UNIT_BYTES: u64 = 32;
const _: () = assert!(size_of::<Unit>() as u64 == UNIT_BYTES);

// SAFETY: four words, no padding.
unsafe impl Persistent for Unit {}

/// The use of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitUse {
    /// Not a slab: its granules are taken one by one, or not at all.
    Granules,
    /// A thread is revalidating it.
    Revalidating,
    /// A slab that a thread slot allocates from.
    Owned,
    /// A full slab without an owner, in no list. A thread that frees a block of it lists it.
    Full,
    /// A slab in the list of its class.
    Listed,
    /// A slab of an earlier open that waits for the sweep. A clear bit of its bitmap means "freed
    /// since".
    Unclean,
    /// The reserve: the slab that provides the last limbo chunks.
    Reserve,
    /// Damaged: its content can be read, but nothing is allocated from it or freed to it.
    Quarantined,
    /// A slab that is being vacated: it has no owner, is in no list, and nothing is allocated from
    /// it. See `compact`.
    Vacating,
}

/// The state word of a unit:
/// `| 63:32 open_seq | 31:24 class + 1, 0 for granules | 23:16 use | 15:0 check of the rest |`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitState(pub(crate) u64);

impl UnitState {
    #[inline(always)]
    pub(crate) fn granules(open_seq: u32) -> Self {
        Self::checked(u64::from(open_seq) << 32)
    }
    #[inline(always)]
    pub(crate) fn slab(open_seq: u32, class: usize, usage: UnitUse) -> Self {
        debug_assert!(class < 255, "the state of a unit has 8 bits for its class, and 0 is none");
        Self::checked(u64::from(open_seq) << 32 | (class as u64 + 1) << 24 | code(usage) << 16)
    }
    pub(crate) fn quarantined(open_seq: u32) -> Self {
        Self::granules(open_seq).with(UnitUse::Quarantined)
    }
    /// Sets the check of the other bits: any change within one byte shows, and zero is its own
    /// check.
    #[inline(always)]
    fn checked(bits: u64) -> Self {
        Self(bits & !0xffff | (bits >> 16 ^ bits >> 32 ^ bits >> 48) & 0xffff)
    }
    /// Whether its check is right.
    pub(crate) fn is_sound(self) -> bool {
        self == Self::checked(self.0)
    }
    #[inline(always)]
    pub(crate) fn open_seq(self) -> u32 {
        (self.0 >> 32) as u32
    }
    /// The class, if it is a slab.
    #[inline(always)]
    pub(crate) fn class(self) -> Option<usize> {
        ((self.0 >> 24 & 0xff) as usize).checked_sub(1)
    }
    #[inline(always)]
    pub(crate) fn usage(self) -> UnitUse {
        match self.0 >> 16 & 0xff {
            1 => UnitUse::Revalidating,
            2 => UnitUse::Owned,
            3 => UnitUse::Full,
            4 => UnitUse::Listed,
            5 => UnitUse::Unclean,
            6 => UnitUse::Reserve,
            7 => UnitUse::Quarantined,
            8 => UnitUse::Vacating,
            _ => UnitUse::Granules,
        }
    }
    #[inline(always)]
    pub(crate) fn with(self, usage: UnitUse) -> Self {
        Self::checked(self.0 & !(0xff << 16) | code(usage) << 16)
    }
    pub(crate) fn at_open_seq(self, open_seq: u32) -> Self {
        Self::checked(self.0 & 0xffff_ffff | u64::from(open_seq) << 32)
    }
}

#[inline(always)]
fn code(usage: UnitUse) -> u64 {
    match usage {
        UnitUse::Granules => 0,
        UnitUse::Revalidating => 1,
        UnitUse::Owned => 2,
        UnitUse::Full => 3,
        UnitUse::Listed => 4,
        UnitUse::Unclean => 5,
        UnitUse::Reserve => 6,
        UnitUse::Quarantined => 7,
        UnitUse::Vacating => 8,
    }
}

/// A zone: its first unit and number of units, counted through the whole pool, and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) first: u64,
    pub(crate) units: u64,
    pub(crate) start: u64,
}

impl Zone {
    pub(crate) fn bitmap_bytes(&self) -> u64 {
        self.units.div_ceil(64) * 8
    }
    pub(crate) fn header_bytes(&self) -> u64 {
        self.units * UNIT_BYTES + 2 * self.bitmap_bytes()
    }
    #[inline(always)]
    pub(crate) fn end(&self) -> u64 {
        self.first + self.units
    }
}

/// The hints that a zone's header has a bitmap of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Maybe no granule of the unit is taken.
    Empty,
    /// Maybe some granule of the unit is free.
    Room,
}

/// How a pool is divided into zones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zones {
    pub(crate) base: u64,
    pub(crate) slab_log2: u32,
    /// Units of the first zone and of the largest ones, as powers of two.
    first_log2: u32,
    last_log2: u32,
}

impl Zones {
    pub(crate) fn new(layout: &Layout) -> Self {
        let geometry = layout.geometry;
        assert!(geometry.first_zone_log2 <= geometry.zone_log2, "zones grow, as the geometry's check says");
        let last_log2 = geometry.zone_log2 - geometry.slab_log2;
        let first_log2 = geometry.first_zone_log2 - geometry.slab_log2;
        Self { base: layout.zones, slab_log2: geometry.slab_log2, first_log2, last_log2 }
    }

    /// Units of all zones that are smaller than the largest ones.
    #[inline(always)]
    fn units_of_smaller(&self) -> u64 {
        ((1 << (self.last_log2 - self.first_log2)) - 1) << self.first_log2
    }

    /// The zone that contains `unit`.
    #[inline(always)]
    pub(crate) fn of_unit(&self, unit: u64) -> Zone {
        let smaller = self.units_of_smaller();
        let (first, units) = if unit < smaller {
            let zone = ((unit >> self.first_log2) + 1).ilog2();
            (((1 << zone) - 1) << self.first_log2, 1 << (zone + self.first_log2))
        } else {
            let units = 1 << self.last_log2;
            (smaller + ((unit - smaller) & !(units - 1)), units)
        };
        debug_assert!((first..first + units).contains(&unit), "the zones leave out no unit");
        Zone { first, units, start: self.start_of(first) }
    }

    /// The unit that contains `offset`, which lies after the metadata.
    #[inline(always)]
    pub(crate) fn unit_of(&self, offset: u64) -> u64 {
        (offset - self.base) >> self.slab_log2
    }

    /// Offset of `unit`.
    #[inline(always)]
    pub(crate) fn start_of(&self, unit: u64) -> u64 {
        self.base + (unit << self.slab_log2)
    }

    #[inline(always)]
    pub(crate) fn granule_log2(&self) -> u32 {
        self.slab_log2 - GRANULES.ilog2()
    }

    /// Units that begin within a pool of `size` bytes.
    pub(crate) fn units(&self, size: u64) -> u64 {
        size.saturating_sub(self.base).div_ceil(1 << self.slab_log2)
    }

    /// The granules of `unit` that lie in a pool of `size` bytes, as bits.
    #[inline(always)]
    pub(crate) fn usable(&self, unit: u64, size: u64) -> u64 {
        low_bits(size.saturating_sub(self.start_of(unit)) >> self.granule_log2())
    }

    /// The granules of `unit` that its zone's header occupies, as bits.
    pub(crate) fn header_granules(&self, zone: &Zone, unit: u64) -> u64 {
        let head = zone.header_bytes().div_ceil(1 << self.granule_log2());
        low_bits(head.saturating_sub((unit - zone.first) * GRANULES))
    }
}

/// The lowest `count` bits, at most 64.
#[inline(always)]
pub(crate) fn low_bits(count: u64) -> u64 {
    if count >= 64 { !0 } else { (1 << count) - 1 }
}

#[cfg(test)]
#[path = "tests/zones.rs"]
mod tests;
