//! Scans and the collector's walk, unit by unit in the order of positions, which is the same in a
//! table of any size.

use super::bucket::{Bucket, Meta, meta};
use super::root::*;
use super::shape::{BucketShape, Entry};
use super::units::{Changed, Units};
use crate::Position;
use crate::count::STRIPES;
use crate::cursor::POSITION_BITS;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Guard, Locked, Marker};

// The bits of a unit's first position fit into a cursor.
const _: () = assert!(LOG2_MAX <= POSITION_BITS);

/// A key of a unit.
struct Seen {
    at: Offset<Bucket>,
    entry: Entry,
    is_marked: bool,
}

impl<M: MappedMedium, K: BucketShape> Units<M, K> {
    /// See [`PointIndex::scan`](crate::PointIndex::scan). Takes no lock. Each unit is seen at one
    /// instant, and keys move to later units only. So a key that is present throughout is visited;
    /// a key that an insert moves between two calls may be visited twice.
    pub(super) fn scan_from(
        &self,
        guard: &Guard<'_, M>,
        from: Position,
        at_least: usize,
        mut each: impl FnMut(u64),
    ) -> Position {
        let (mut position, mut seen) = (from, 0);
        let mut unit = Vec::with_capacity(3 * K::SLOTS);
        loop {
            let (view, side) = self.read_unit(guard, position, &mut unit);
            for entry in unit.iter().filter(|seen| !self.comes_later(guard, &view, &side, seen)) {
                seen += 1;
                each(entry.entry.word);
            }
            position = side.end();
            if position == 0 || seen >= at_least {
                return position;
            }
        }
    }

    /// The entries of the unit at a position, at one instant, and persisted.
    fn read_unit(&self, guard: &Guard<'_, M>, position: u64, unit: &mut Vec<Seen>) -> (View, Side) {
        loop {
            let view = self.view();
            let side = self.side(&view, position);
            if self.try_read_unit(guard, &view, &side, unit).is_ok() {
                return (view, side);
            }
        }
    }

    fn try_read_unit(
        &self,
        guard: &Guard<'_, M>,
        view: &View,
        side: &Side,
        unit: &mut Vec<Seen>,
    ) -> Result<(), Changed> {
        let medium = self.pool.medium();
        unit.clear();
        let metas = side.unit().map(|at| meta(medium, self.bucket(at)));
        for (at, meta) in side.unit().into_iter().zip(metas) {
            for slot in (0..K::SLOTS).filter(|slot| meta.tokens::<K>() >> slot & 1 == 1) {
                let entry = K::read(guard, self.bucket(at), slot).ok_or(Changed)?;
                unit.push(Seen { at, entry, is_marked: meta.is_marked::<K>(slot) });
            }
        }
        let is_same = |(at, before): (_, Meta)| meta(medium, self.bucket(at)) == before;
        match side.unit().into_iter().zip(metas).all(is_same) {
            true => self.persist_read(view, side),
            false => Err(Changed),
        }
    }

    /// Whether a scan meets the key of a slot again later, because a crash left it in two slots.
    fn comes_later(&self, guard: &Guard<'_, M>, view: &View, side: &Side, seen: &Seen) -> bool {
        seen.is_marked
            && self.other_copy(guard, view, side, seen.at, seen.entry).is_some_and(|(_, later)| later)
    }

    /// Locks the unit at a position.
    fn lock_unit<'g>(&'g self, guard: &'g Guard<'_, M>, position: u64) -> (View, Side, Locked<'g, M>) {
        loop {
            let view = self.view();
            let side = self.side(&view, position);
            let lock = self.lock(&side).acquire(guard);
            if self.is_current(&view, &side) {
                if M::VOLATILE_CACHE && lock.was_unfenced() {
                    self.persist_unit(&view, position);
                }
                return (view, side, lock);
            }
            lock.release_unchanged();
        }
    }

    /// See [`PointIndex::trace`](crate::PointIndex::trace). Visits unit by unit under the unit's
    /// lock, removes the remains of interrupted movements, and recounts the keys.
    pub(super) fn trace_all(
        &self,
        guard: &Guard<'_, M>,
        marker: &mut Marker<'_>,
        mut each: impl FnMut(&mut Marker<'_>, u64),
    ) {
        marker.mark(self.root.offset().raw(), size_of::<Root>());
        marker.mark(self.stripes.offset().raw(), STRIPES as usize * 64);
        let count = self.count();
        count.start_recount();
        // A later tier is younger than the collection, which does not touch it.
        let view = self.view();
        self.write_back_state();
        // PERSIST: the state, before anything is freed that the previous state named. The thread
        // that stored it may have died before it was durable.
        self.pool.region().fence();
        for log2 in view.state.tiers() {
            let tier = [view.high, view.mid, view.low][(view.state.top() - log2) as usize];
            marker.mark(tier.start(), tier.bytes());
        }
        let (mut position, mut total) = (0, 0);
        loop {
            let (view, side, lock) = self.lock_unit(guard, position);
            self.clear_marks(guard, &view, &side);
            for at in side.unit() {
                for entry in (0..K::SLOTS).filter_map(|slot| K::read(guard, self.bucket(at), slot)) {
                    each(marker, entry.word);
                    // A unit that has grown since the walk was last here is only partly new to it.
                    total += u64::from(!self.was_passed(guard, &side, at, entry, position));
                }
            }
            position = side.end();
            count.advance_frontier(position);
            lock.release();
            if position == 0 {
                return count.finish_recount(total);
            }
        }
    }

    /// Whether an entry of a unit lies there because of a position before this one.
    fn was_passed(
        &self,
        guard: &Guard<'_, M>,
        side: &Side,
        at: Offset<Bucket>,
        entry: Entry,
        position: u64,
    ) -> bool {
        if side.first_position() == position {
            return false;
        }
        let tier = if at == side.lower_at() { side.lower } else { side.upper };
        let index = (at.raw() - tier.start()) / size_of::<Bucket>() as u64;
        self.position_in(guard, tier, index, entry) < position
    }
}

#[cfg(test)]
#[path = "tests/scan.rs"]
mod tests;
