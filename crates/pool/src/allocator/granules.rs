//! Taking and freeing granules: whole units for slabs, runs of granules for extents.
//!
//! There are no locks. A run is taken unit by unit with a compare-and-swap each, and returned if
//! another thread was faster in one of them. The hint bitmaps let a search skip 64 units without
//! free granules by one word.
//!
//! A search continues where the last one ended. Now and then one begins at the front again, so that
//! used memory stays together there. The largest extents are taken from the end, so free memory
//! stays in one piece between them and the rest.

use crate::allocator::classes::{Class, GRANULES};
use crate::allocator::units::Units;
use crate::allocator::zones::{Hint, UnitState, UnitUse, Zone, low_bits};
use crate::base::Base;
use crate::format::layout::PAGE;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};
use terrace_medium::MappedMedium;

/// Searches for an extent that continue where the last one ended, before one begins at the front.
const TURNS: u64 = 128;
/// Extents larger than this part of the pool are taken from the end.
const LARGE_PART: u64 = 64;

/// Granules of one unit, as bits.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) unit: u64,
    pub(crate) bits: u64,
}

/// The pieces of the run of `count` granules from `first` on. Granules are numbered through the
/// whole pool.
pub(crate) fn pieces(first: u64, count: u64) -> impl Iterator<Item = Piece> {
    let end = first + count;
    (first / GRANULES..end.div_ceil(GRANULES)).map(move |unit| {
        let start = unit * GRANULES;
        let bits = low_bits(end - start) & !low_bits(first.saturating_sub(start));
        Piece { unit, bits }
    })
}

/// Searches for a run of free granules.
struct Run {
    wanted: u64,
    align: u64,
    start: u64,
    len: u64,
}

impl Run {
    fn new(wanted: u64, align: u64) -> Self {
        debug_assert!(wanted > 0 && align.is_power_of_two(), "{wanted} granules, aligned to {align}");
        Self { wanted, align, start: 0, len: 0 }
    }

    /// Continues with a unit whose granules in `taken` are not free. Returns where a run begins,
    /// once there is one.
    fn feed(&mut self, unit: u64, taken: u64) -> Option<u64> {
        let mut at = 0;
        while at < GRANULES {
            let rest = taken >> at;
            let free = u64::from(rest.trailing_zeros()).min(GRANULES - at);
            if self.len == 0 {
                self.start = unit * GRANULES + at;
            }
            self.len += free;
            let aligned = self.start.next_multiple_of(self.align);
            if (self.start + self.len).saturating_sub(aligned) >= self.wanted {
                return Some(aligned);
            }
            at += free;
            if at < GRANULES {
                at += u64::from((!(taken >> at)).trailing_zeros());
                self.len = 0;
            }
        }
        None
    }
}

/// Whole units and runs of granules. Owns the hints where searches begin and the window that they
/// leave out, which lie in the pool; stands on [`Units`].
pub(crate) struct Granules<M: MappedMedium> {
    pub(crate) units: Units<M>,
}

impl<M: MappedMedium> Granules<M> {
    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<M> {
        &self.units.base
    }

    #[inline(always)]
    pub(crate) fn medium(&self) -> &M {
        self.units.medium()
    }

    /// Takes an empty unit for a slab of class `number`, in use `usage`. None of its blocks is
    /// allocated.
    pub(crate) fn take_unit(&self, number: usize, class: &Class, usage: UnitUse) -> Option<u64> {
        debug_assert!(!matches!(usage, UnitUse::Granules | UnitUse::Quarantined), "a new slab is {usage:?}");
        let hint = &self.base().shared().slab_hint;
        let from = hint.load(self.medium(), Relaxed);
        let unit = self.search(from, |zone, units| self.take_unit_among(zone, units))?;
        hint.store(self.medium(), unit + 1, Relaxed);
        self.medium().point("slab.write-back-hint");
        self.base().region.write_back(hint);
        self.base().shared().slab_units.fetch_add(self.medium(), 1, Relaxed);
        let entry = self.units.unit(unit);
        let round = self.base().round();
        if round != 0 {
            // The snapshot of its granules that the collection took no longer holds.
            entry.old.store(self.medium(), 0, Relaxed);
            entry.link.store(self.medium(), round, Relaxed);
        }
        // Not persisted: in a slab that a crash leaves, all blocks count as allocated until the
        // sweep.
        self.units.clear_bitmap(unit, class);
        // ORDER: Release: a thread that sees the slab sees the round in its link (see `orphans`),
        // and no bitmap bits of earlier content. A sweep would take those for garbage, and free
        // what is allocated there next.
        entry.state.store(
            self.medium().point("slab.make"),
            UnitState::slab(self.base().open_seq, number, usage).0,
            Release,
        );
        // PERSIST: that the unit is a slab of this class, before any of its blocks can be linked. A
        // crash before that leaves a unit in which the collector finds no live block. Costs two
        // write-backs and a fence for each slab. (The hint is for the first search after a crash,
        // which would otherwise scan all taken units.)
        self.base().region.persist(entry);
        Some(unit)
    }

    /// Calls `each` for the zones, from the unit `from` on and around, until it finds something.
    fn search(&self, from: u64, mut each: impl FnMut(&Zone, Range<u64>) -> Option<u64>) -> Option<u64> {
        let later = self.units.zones().find_map(|zone| {
            let units = self.units.units_in(&zone);
            let start = units.start.max(from);
            if start < units.end { each(&zone, start..units.end) } else { None }
        });
        later.or_else(|| {
            self.units.zones().find_map(|zone| {
                let units = self.units.units_in(&zone);
                if units.start < from { each(&zone, units) } else { None }
            })
        })
    }

    /// The next unit of `units` for which a hint is set.
    fn next_hinted(&self, hint: Hint, zone: &Zone, units: Range<u64>) -> Option<u64> {
        let mut unit = units.start;
        while unit < units.end {
            let inside = (unit - zone.first) % 64;
            // ORDER: Relaxed: a stale hint only costs time; a thread that takes the unit acquires
            // by `taken`.
            let bits = self.units.hint_word(hint, zone, unit).0.load(self.medium(), Relaxed) >> inside;
            if bits != 0 {
                let found = unit + u64::from(bits.trailing_zeros());
                return (found < units.end).then_some(found);
            }
            unit += 64 - inside;
        }
        None
    }

    fn take_unit_among(&self, zone: &Zone, mut units: Range<u64>) -> Option<u64> {
        while let Some(unit) = self.next_hinted(Hint::Empty, zone, units.clone()) {
            let usable = self.units.zones.usable(unit, self.base().size());
            let taken = &self.units.unit(unit).taken;
            // A taken unit keeps its open sequence. After an unclean open the search passes all
            // units that were in use, and revalidating a slab would touch the slab itself.
            // ORDER: Acquire: what the last user of the unit did. Release: a recount that finds it
            // taken finds this thread pinned (see `snapshot_if_quiet`). The load before decides
            // nothing.
            let is_mine = usable == !0
                && !self.units.is_in_window(unit)
                && taken.load(self.medium(), Relaxed) == 0
                && self.units.revalidate(unit).usage() == UnitUse::Granules
                && taken.compare_exchange(self.medium(), 0, !0, AcqRel, Relaxed).is_ok();
            self.units.update_hints(unit);
            if is_mine {
                return Some(unit);
            }
            units.start = unit + 1;
        }
        None
    }

    /// Returns an owned unit to the units: it was a slab of class `number` and no block of it is
    /// allocated. While the collector inspects it, it stays a slab and the caller's. Returns
    /// whether it was released. (The collector may be dead or stopped meanwhile, so no thread waits
    /// for it.)
    #[must_use = "a slab that stays must be disowned"]
    pub(crate) fn release_unit(&self, unit: u64, number: usize) -> bool {
        let entry = self.units.unit(unit);
        // ORDER: SeqCst, with `inspect_unit`: this stores the state, then loads `sweeping`; the
        // collector stores `sweeping`, then loads the state. At least one side sees the other.
        entry.state.store(
            self.medium().point("unit.release"),
            UnitState::granules(self.base().open_seq).0,
            SeqCst,
        );
        let stays =
            self.base().shared().sweeping.load(self.medium().point("unit.sweeping"), SeqCst) == unit + 1;
        // The collector may have taken a snapshot of granules here. A slab has no old granules, nor
        // has what takes the unit next.
        entry.old.store(self.medium(), 0, Relaxed);
        if stays {
            entry.state.store(
                self.medium(),
                UnitState::slab(self.base().open_seq, number, UnitUse::Owned).0,
                SeqCst,
            );
            return false;
        }
        entry.link.store(self.medium(), 0, Relaxed);
        // ORDER: SeqCst: see `update_hint`; a thread that takes the granules acquires this.
        entry.taken.swap(self.medium().point("unit.free"), 0, SeqCst);
        self.base().shared().slab_units.fetch_sub(self.medium(), 1, Relaxed);
        self.units.update_hints(unit);
        true
    }

    /// Takes a run of granules for `bytes` bytes and returns its offset.
    pub(crate) fn take_extent(&self, bytes: u64) -> Option<u64> {
        let zones = &self.units.zones;
        let count = self.units.classes.granules(bytes);
        let align = if bytes.is_multiple_of(PAGE) { (PAGE >> zones.granule_log2()).max(1) } else { 1 };
        let first = if count
            > (self.units.zones.units(self.base().size()) * GRANULES / LARGE_PART).max(2 * GRANULES)
        {
            self.take_run_at_end(count, align)?
        } else {
            self.take_run_from_hint(count, align)?
        };
        debug_assert!(first.is_multiple_of(align), "granule {first} is not aligned to {align}");
        Some(zones.base + (first << zones.granule_log2()))
    }

    fn take_run_from_hint(&self, count: u64, align: u64) -> Option<u64> {
        let hint = &self.base().shared().extent_hint;
        let last = hint.load(self.medium(), Relaxed);
        let turn = (last >> 32) + 1;
        let from = if turn.is_multiple_of(TURNS) { 0 } else { last & u64::from(u32::MAX) };
        let first = self.search(from, |zone, units| self.take_run(zone, units, count, align))?;
        hint.store(self.medium(), (turn << 32) | ((first + count) / GRANULES), Relaxed);
        Some(first)
    }

    fn take_run_at_end(&self, count: u64, align: u64) -> Option<u64> {
        let zones: Vec<Zone> = self.units.zones().collect();
        zones.iter().rev().find_map(|zone| {
            let mut units = self.units.units_in(zone);
            loop {
                let first = self.find_last_run(units.clone(), count, align)?;
                match self.take_pieces(first, count) {
                    Ok(()) => return Some(first),
                    // Another thread was faster: search again below, so that this ends.
                    Err(unit) => units.end = unit,
                }
            }
        })
    }

    /// The highest run of `count` granules; `count` is more than a unit has.
    fn find_last_run(&self, units: Range<u64>, count: u64, align: u64) -> Option<u64> {
        debug_assert!(count > GRANULES, "a run of {count} granules may lie inside a unit");
        // All granules from `bottom` up to `top` are free.
        let mut top = units.end * GRANULES;
        for unit in units.rev() {
            let start = unit * GRANULES;
            let usable = self.units.zones.usable(unit, self.base().size());
            let taken = self.taken_or_kept(unit) | !usable;
            let bottom = start + GRANULES - u64::from(taken.leading_zeros());
            let first = top.saturating_sub(count) / align * align;
            if first >= bottom {
                return Some(first);
            }
            if taken != 0 {
                top = start + u64::from(taken.trailing_zeros());
            }
        }
        None
    }

    /// The granules of a unit that are not available: all of them, if the unit is in the window
    /// that is being vacated.
    fn taken_or_kept(&self, unit: u64) -> u64 {
        if self.units.is_in_window(unit) {
            !0
        } else {
            self.units.unit(unit).taken.load(self.medium(), Relaxed)
        }
    }

    fn take_run(&self, zone: &Zone, mut units: Range<u64>, count: u64, align: u64) -> Option<u64> {
        loop {
            let first = self.find_run(zone, units.clone(), count, align)?;
            match self.take_pieces(first, count) {
                Ok(()) => return Some(first),
                // Another thread was faster: search again from there, or from the next unit on, so
                // that this ends.
                Err(unit) => units.start = unit.max(units.start + 1),
            }
        }
    }

    fn find_run(&self, zone: &Zone, units: Range<u64>, count: u64, align: u64) -> Option<u64> {
        let mut run = Run::new(count, align);
        let mut unit = units.start;
        while unit < units.end {
            let next = self.next_hinted(Hint::Room, zone, unit..units.end)?;
            if next != unit {
                run = Run::new(count, align);
                unit = next;
            }
            let usable = self.units.zones.usable(unit, self.base().size());
            let taken = self.taken_or_kept(unit) | !usable;
            if taken == !0 {
                self.units.update_hint(Hint::Room, zone, unit);
            }
            if let Some(first) = run.feed(unit, taken) {
                return Some(first);
            }
            unit += 1;
        }
        None
    }

    /// Takes all granules of a run, or none and returns the unit in which one was not free.
    fn take_pieces(&self, first: u64, count: u64) -> Result<(), u64> {
        for piece in pieces(first, count) {
            if !self.take_piece(piece) {
                let taken = (piece.unit * GRANULES).saturating_sub(first);
                for earlier in pieces(first, taken) {
                    self.free_piece(earlier);
                }
                return Err(piece.unit);
            }
        }
        Ok(())
    }

    fn take_piece(&self, piece: Piece) -> bool {
        debug_assert!(piece.bits != 0, "a piece has a granule");
        if self.units.revalidate(piece.unit).usage() != UnitUse::Granules {
            return false;
        }
        let entry = self.units.unit(piece.unit);
        let mut taken = entry.taken.load(self.medium(), Relaxed);
        while taken & piece.bits == 0 {
            // ORDER: Acquire: what the last user of the granules did. Release: as in
            // `take_unit_among`.
            match entry.taken.compare_exchange(
                self.medium().point("granules.take"),
                taken,
                taken | piece.bits,
                AcqRel,
                Relaxed,
            ) {
                Ok(_) => {
                    if self.base().round() != 0 {
                        // The snapshot of them that the collection took no longer holds.
                        entry.old.fetch_and(self.medium(), !piece.bits, Relaxed);
                    }
                    entry.link.fetch_or(self.medium().point("granules.record"), piece.bits, Relaxed);
                    // PERSIST: durable by the fence that the block itself needs before it can be
                    // linked.
                    self.base().region.write_back(entry);
                    self.units.update_hints(piece.unit);
                    return true;
                }
                Err(now) => taken = now,
            }
        }
        false
    }

    /// Frees the granules of a piece. Returns those that were not taken.
    fn free_piece(&self, piece: Piece) -> u64 {
        // First, while the granules are still the caller's.
        self.units.unit(piece.unit).link.fetch_and(self.medium(), !piece.bits, Relaxed);
        // ORDER: SeqCst: see `update_hint`; a thread that takes the granules acquires what was done
        // to them before.
        let before = self.units.unit(piece.unit).taken.fetch_and(self.medium(), !piece.bits, SeqCst);
        self.units.update_hints(piece.unit);
        piece.bits & !before
    }

    /// The first granule and the number of granules of an extent of `bytes` bytes at `offset`;
    /// `None` if there can be none: it must begin at a granule, after the zone's header, and end in
    /// the zone.
    pub(crate) fn extent_at(&self, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        let zones = &self.units.zones;
        let zone = zones.of_unit(self.units.unit_at(offset)?);
        let inside = offset - zones.base;
        let (first, count) = (inside >> zones.granule_log2(), self.units.classes.granules(bytes));
        let end = offset.checked_add(count << zones.granule_log2())?;
        let sound = inside.is_multiple_of(1 << zones.granule_log2())
            && offset >= zone.start + zone.header_bytes()
            && end <= self.base().size().min(zones.start_of(zone.end()));
        sound.then_some((first, count))
    }

    /// Frees an extent. Returns whether all of it was allocated.
    pub(crate) fn free_extent(&self, offset: u64, bytes: u64) -> bool {
        let Some((first, count)) = self.extent_at(offset, bytes) else { return false };
        // The part in a quarantined unit stays as it is.
        let may_be_freed = |usage| matches!(usage, UnitUse::Granules | UnitUse::Quarantined);
        let mut sound =
            pieces(first, count).all(|piece| may_be_freed(self.units.revalidate(piece.unit).usage()));
        if !sound {
            return false;
        }
        for piece in pieces(first, count) {
            if self.units.revalidate(piece.unit).usage() == UnitUse::Granules {
                // Before it is free: what takes it next is not old.
                self.units.unit(piece.unit).old.fetch_and(self.medium(), !piece.bits, Relaxed);
                sound &= self.free_piece(piece) == 0;
            }
        }
        sound
    }

    /// Marks an extent of an earlier open as live. Returns whether there can be one.
    pub(crate) fn mark_extent(&self, offset: u64, bytes: u64) -> bool {
        let Some((first, count)) = self.extent_at(offset, bytes) else { return false };
        for piece in pieces(first, count) {
            let (state, old) = (self.units.revalidate(piece.unit), &self.units.unit(piece.unit).old);
            if state.usage() == UnitUse::Unclean {
                self.units.quarantine(piece.unit, state);
            } else if old.load(self.medium(), Relaxed) & piece.bits != 0 {
                old.fetch_and(self.medium(), !piece.bits, Relaxed);
            }
        }
        true
    }

    /// Frees the old granules of a unit that are still unmarked. Returns how many.
    pub(crate) fn sweep_granules(&self, unit: u64) -> u64 {
        let garbage = self.units.unit(unit).old.swap(self.medium(), 0, Relaxed);
        if garbage != 0 {
            self.free_piece(Piece { unit, bits: garbage });
        }
        u64::from(garbage.count_ones())
    }
}

#[cfg(test)]
#[path = "tests/granules.rs"]
mod tests;
