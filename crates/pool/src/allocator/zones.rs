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
use crate::pool::Inner;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terrace_medium::{MappedMedium, Offset, Persistent, Word};

/// The description of a unit.
#[repr(C, align(32))]
pub(crate) struct Unit {
    pub(crate) taken: Word,
    pub(crate) state: Word,
    pub(crate) old: Word,
    pub(crate) link: Word,
}

const UNIT_BYTES: u64 = 32;
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
    fn bitmap_bytes(&self) -> u64 {
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

impl<M: MappedMedium> Inner<M> {
    /// The description of `unit`, which must lie in the pool.
    #[inline(always)]
    pub(crate) fn unit(&self, unit: u64) -> &Unit {
        let zone = self.memory.zones.of_unit(unit);
        self.region.at(Offset::new(zone.start + (unit - zone.first) * UNIT_BYTES))
    }

    /// The unit that contains `offset`, or `None` if no unit that can be allocated from lies there.
    #[inline(always)]
    pub(crate) fn unit_at(&self, offset: u64) -> Option<u64> {
        self.entry_at(offset).map(|(unit, _)| unit)
    }

    /// As `unit_at`, with the unit's description.
    #[inline(always)]
    pub(crate) fn entry_at(&self, offset: u64) -> Option<(u64, &Unit)> {
        let size = self.size();
        if offset < self.memory.zones.base || offset >= size {
            return None;
        }
        let unit = self.memory.zones.unit_of(offset);
        let zone = self.memory.zones.of_unit(unit);
        if zone.start + zone.header_bytes() > size {
            return None;
        }
        Some((unit, self.region.get(Offset::new(zone.start + (unit - zone.first) * UNIT_BYTES))?))
    }

    /// The zones that can be allocated from.
    pub(crate) fn zones(&self) -> impl Iterator<Item = Zone> + '_ {
        self.zones_of(|| self.size())
    }

    /// The zones that can be allocated from in a pool of this size. (`size` is called each time,
    /// since the pool may grow meanwhile.)
    fn zones_of(&self, size: impl Fn() -> u64) -> impl Iterator<Item = Zone> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let zone = self.memory.zones.of_unit(next);
            next = zone.end();
            (zone.start + zone.header_bytes() <= size()).then_some(zone)
        })
    }

    /// The units of `zone` that begin within the pool.
    pub(crate) fn units_in(&self, zone: &Zone) -> Range<u64> {
        zone.first..zone.end().min(self.memory.zones.units(self.size()))
    }

    /// The word of a zone's bitmap that contains the bit of `unit`, and the bit.
    pub(crate) fn hint_word(&self, hint: Hint, zone: &Zone, unit: u64) -> (&Word, u64) {
        let bitmap = zone.start + zone.units * UNIT_BYTES;
        let bitmap = if hint == Hint::Room { bitmap + zone.bitmap_bytes() } else { bitmap };
        let index = unit - zone.first;
        (self.word_at(bitmap + index / 64 * 8), 1 << (index % 64))
    }

    /// Sets or clears both hints of `unit` after its `taken` word has changed.
    pub(crate) fn update_hints(&self, unit: u64) {
        let zone = self.memory.zones.of_unit(unit);
        for hint in [Hint::Empty, Hint::Room] {
            self.update_hint(hint, &zone, unit);
        }
    }

    /// Sets or clears a hint. A thread that clears it checks again: a bit is never left clear for a
    /// unit to which the hint applies.
    pub(crate) fn update_hint(&self, hint: Hint, zone: &Zone, unit: u64) {
        let (word, bit) = self.hint_word(hint, zone, unit);
        let usable = self.memory.zones.usable(unit, self.size());
        let applies = || {
            // ORDER: SeqCst here, where granules are freed, and where the bit is loaded and
            // cleared: of a thread that clears the bit and one that frees a granule, at least one
            // sees what the other did. Taking granules and setting the bit leave no bit clear, so
            // these need no order for it.
            let taken = self.unit(unit).taken.load(self.medium(), SeqCst);
            // A unit that lies in the pool only in part keeps its hints. It may have room as soon
            // as the pool has grown, and its hints were set durably before.
            usable != !0 || if hint == Hint::Empty { taken == 0 } else { taken != !0 }
        };
        let set = word.load(self.medium(), SeqCst) & bit != 0;
        match (applies(), set) {
            (true, false) => {
                word.fetch_or(self.medium(), bit, Relaxed);
            }
            (false, true) => {
                word.fetch_and(self.medium(), !bit, SeqCst);
                if applies() {
                    word.fetch_or(self.medium(), bit, SeqCst);
                }
            }
            _ => {}
        }
    }

    /// Prepares the zones of a pool of `size` bytes: takes the granules of their headers, and sets
    /// the hints of all units from `from` on, which the caller fences.
    pub(crate) fn open_zones(&self, from: u64, size: u64) {
        for zone in self.zones_of(|| size) {
            let units = zone.first..zone.end().min(self.memory.zones.units(size));
            for unit in units.start.. {
                let head = self.memory.zones.header_granules(&zone, unit);
                if head == 0 || unit >= units.end {
                    break;
                }
                self.unit(unit).taken.fetch_or(self.medium(), head, Relaxed);
            }
            self.hint_at(&zone, units.start.max(from)..units.end);
        }
    }

    /// Sets the hints of `units`: any of them may have room.
    fn hint_at(&self, zone: &Zone, units: Range<u64>) {
        let mut unit = units.start;
        while unit < units.end {
            let word = unit - (unit - zone.first) % 64;
            let bits = low_bits(units.end - word) & !low_bits(unit - word);
            for hint in [Hint::Empty, Hint::Room] {
                let word = self.hint_word(hint, zone, word).0;
                // ORDER: Relaxed: a thread that loads them has seen the pool's size, which is
                // stored later (see `set_size`).
                word.fetch_or(self.medium().point("zone.hint"), bits, Relaxed);
                self.region.write_back(word);
            }
            unit = word + 64;
        }
    }

    /// Starts to write back all that the next open relies on after a clean close: the headers of
    /// all zones, and the bitmaps of slabs.
    pub(crate) fn write_back_zones(&self) {
        for zone in self.zones() {
            self.region.write_back_bytes(zone.start, zone.header_bytes() as usize);
            for unit in self.units_in(&zone) {
                let state = UnitState(self.unit(unit).state.load(self.medium(), Relaxed));
                if let Some(class) = state.class().and_then(|class| self.memory.classes.get(class)) {
                    let start = self.memory.zones.start_of(unit);
                    self.region.write_back_bytes(start, class.first as usize);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/zones.rs"]
mod tests;
