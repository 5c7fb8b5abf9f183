//! Units of an open pool: finding their descriptions, and the hints about them.

use crate::allocator::classes::Classes;
use crate::allocator::words::ROUND;
use crate::allocator::zones::{Hint, UNIT_BYTES, Unit, UnitState, UnitUse, Zone, Zones, low_bits};
use crate::base::Base;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use terrace_medium::{MappedMedium, Offset, Word};

/// The units of an open pool: descriptions, hints, the bitmaps of slabs. Owns how the memory is
/// divided, which follows from the geometry; stands on [`Base`]. It takes and frees nothing.
pub(crate) struct Units<M: MappedMedium> {
    pub(crate) base: Base<M>,
    pub(crate) classes: Classes,
    pub(crate) zones: Zones,
}

impl<M: MappedMedium> Units<M> {
    pub(crate) fn new(base: Base<M>) -> Self {
        let layout = &base.layout;
        let (classes, zones) = (Classes::new(layout.geometry.slab_log2), Zones::new(layout));
        Self { base, classes, zones }
    }

    #[inline(always)]
    pub(crate) fn medium(&self) -> &M {
        self.base.medium()
    }
}

impl<M: MappedMedium> Units<M> {
    pub(crate) fn is_vacating(&self, unit: u64) -> bool {
        // ORDER: Relaxed: the caller then changes the state, or moves what any thread may move.
        let state = UnitState(self.unit(unit).state.load(self.medium(), Relaxed));
        state.usage() == UnitUse::Vacating && state.open_seq() == self.base.open_seq
    }

    /// Whether `unit` is in the window that is being vacated.
    #[inline(always)]
    pub(crate) fn is_in_window(&self, unit: u64) -> bool {
        // ORDER: Relaxed: a hint.
        let window = self.base.shared().window.load(self.medium(), Relaxed);
        unit.wrapping_sub(window >> 32) < window & u64::from(u32::MAX)
    }

    /// Prepares the memory from the first `before` bytes up to `size`. There is storage for it; the
    /// superblock does not include it yet.
    pub(crate) fn init_hints(&self, before: u64, size: u64) {
        // PERSIST: the hints of the new units, before the superblock includes them; it fences
        // before it changes anything. Later hints are not persisted, since the sweep after a crash
        // corrects them. Without these, a full pool would not know until that sweep that it has
        // grown.
        self.open_zones(self.zones.units(before).saturating_sub(1), size);
    }

    /// The description of `unit`, which must lie in the pool.
    #[inline(always)]
    pub(crate) fn unit(&self, unit: u64) -> &Unit {
        let zone = self.zones.of_unit(unit);
        self.base.region.at(Offset::new(zone.start + (unit - zone.first) * UNIT_BYTES))
    }

    /// The unit that contains `offset`, or `None` if no unit that can be allocated from lies there.
    #[inline(always)]
    pub(crate) fn unit_at(&self, offset: u64) -> Option<u64> {
        self.entry_at(offset).map(|(unit, _)| unit)
    }

    /// As `unit_at`, with the unit's description.
    #[inline(always)]
    pub(crate) fn entry_at(&self, offset: u64) -> Option<(u64, &Unit)> {
        let size = self.base.size();
        if offset < self.zones.base || offset >= size {
            return None;
        }
        let unit = self.zones.unit_of(offset);
        let zone = self.zones.of_unit(unit);
        if zone.start + zone.header_bytes() > size {
            return None;
        }
        Some((unit, self.base.region.get(Offset::new(zone.start + (unit - zone.first) * UNIT_BYTES))?))
    }

    /// The zones that can be allocated from.
    pub(crate) fn zones(&self) -> impl Iterator<Item = Zone> + '_ {
        self.zones_of(|| self.base.size())
    }

    /// The zones that can be allocated from in a pool of this size. (`size` is called each time,
    /// since the pool may grow meanwhile.)
    fn zones_of(&self, size: impl Fn() -> u64) -> impl Iterator<Item = Zone> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let zone = self.zones.of_unit(next);
            next = zone.end();
            (zone.start + zone.header_bytes() <= size()).then_some(zone)
        })
    }

    /// The units of `zone` that begin within the pool.
    pub(crate) fn units_in(&self, zone: &Zone) -> Range<u64> {
        zone.first..zone.end().min(self.zones.units(self.base.size()))
    }

    /// The word of a zone's bitmap that contains the bit of `unit`, and the bit.
    pub(crate) fn hint_word(&self, hint: Hint, zone: &Zone, unit: u64) -> (&Word, u64) {
        debug_assert!((zone.first..zone.end()).contains(&unit), "unit {unit} is not in {zone:?}");
        let bitmap = zone.start + zone.units * UNIT_BYTES;
        let bitmap = if hint == Hint::Room { bitmap + zone.bitmap_bytes() } else { bitmap };
        let index = unit - zone.first;
        (self.base.word_at(bitmap + index / 64 * 8), 1 << (index % 64))
    }

    /// Sets or clears both hints of `unit` after its `taken` word has changed.
    pub(crate) fn update_hints(&self, unit: u64) {
        let zone = self.zones.of_unit(unit);
        for hint in [Hint::Empty, Hint::Room] {
            self.update_hint(hint, &zone, unit);
        }
    }

    /// Sets or clears a hint. A thread that clears it checks again: a bit is never left clear for a
    /// unit to which the hint applies.
    pub(crate) fn update_hint(&self, hint: Hint, zone: &Zone, unit: u64) {
        let (word, bit) = self.hint_word(hint, zone, unit);
        let usable = self.zones.usable(unit, self.base.size());
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
            let units = zone.first..zone.end().min(self.zones.units(size));
            for unit in units.start.. {
                let head = self.zones.header_granules(&zone, unit);
                if head == 0 || unit >= units.end {
                    break;
                }
                self.unit(unit).taken.fetch_or(self.medium(), head, Relaxed);
            }
            self.hint_at(&zone, units.start.max(from)..units.end);
        }
    }

    /// Sets the hints of `units`: any of them may have room.
    pub(crate) fn hint_at(&self, zone: &Zone, units: Range<u64>) {
        debug_assert!(units.end <= zone.end(), "these units are not in {zone:?}");
        let mut unit = units.start;
        while unit < units.end {
            let word = unit - (unit - zone.first) % 64;
            let bits = low_bits(units.end - word) & !low_bits(unit - word);
            for hint in [Hint::Empty, Hint::Room] {
                let word = self.hint_word(hint, zone, word).0;
                // ORDER: Relaxed: a thread that loads them has seen the pool's size, which is
                // stored later (see `set_size`).
                word.fetch_or(self.medium().point("zone.hint"), bits, Relaxed);
                self.base.region.write_back(word);
            }
            unit = word + 64;
        }
    }

    /// Starts to write back all that the next open relies on after a clean close: the headers of
    /// all zones, and the bitmaps of slabs.
    pub(crate) fn write_back_zones(&self) {
        for zone in self.zones() {
            self.base.region.write_back_bytes(zone.start, zone.header_bytes() as usize);
            for unit in self.units_in(&zone) {
                let state = UnitState(self.unit(unit).state.load(self.medium(), Relaxed));
                if let Some(class) = state.class().and_then(|class| self.classes.get(class)) {
                    let start = self.zones.start_of(unit);
                    self.base.region.write_back_bytes(start, class.first as usize);
                }
            }
        }
    }

    /// Calls `each` with the state of `unit`. A slab stays one until `each` returns. Called by the
    /// collector only.
    pub(crate) fn inspect_unit<R>(&self, unit: u64, each: impl FnOnce(UnitState) -> R) -> R {
        let sweeping = &self.base.shared().sweeping;
        // ORDER: SeqCst: see `release_unit`.
        sweeping.store(self.medium().point("inspect.announce"), unit + 1, SeqCst);
        let state = UnitState(self.unit(unit).state.load(self.medium().point("inspect.state"), SeqCst));
        let result = each(state);
        // ORDER: Release: after the loads of `each`.
        sweeping.store(self.medium(), 0, Release);
        result
    }

    /// Every unit of the pool.
    pub(crate) fn all_units(&self) -> impl Iterator<Item = u64> + '_ {
        self.zones().flat_map(|zone| self.units_in(&zone))
    }

    pub(crate) fn is_in_round(&self, unit: u64) -> bool {
        self.unit(unit).link.load(self.medium(), Relaxed) & ROUND == self.base.round()
    }
}
