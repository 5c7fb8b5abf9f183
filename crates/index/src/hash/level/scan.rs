//! Scans and the collector's walk, unit by unit in the order of positions, which is the same in a
//! table of any size.

use super::bucket::{Bucket, Meta, meta};
use super::ops::{Changed, Level};
use super::root::*;
use super::shape::{BucketShape, Entry};
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

impl<M: MappedMedium, K: BucketShape> Level<M, K> {
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
mod tests {
    use super::super::super::test_pools::pool;
    use super::super::shape::positions;
    use super::super::shape::sealed::Shape;
    use super::*;
    use crate::key::WordRecords;
    use crate::{Bytes, KeyKind, PointIndex, Stored, U64};
    use terrace_medium::Dram;

    /// The walk continues in the middle of a unit, which was two units at the walk's last visit.
    #[test]
    fn entries_before_the_walk_are_already_counted() {
        let pool = pool::<Dram>(1 << 20);
        let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
        let guard = pool.pin();
        (0..130).for_each(|key| _ = table.insert(&guard, &key, key).unwrap());
        let (view, mut seen) = (table.view(), [[0; 2]; 2]);
        for unit in 0..view.mid.buckets() {
            let first = view.mid.first_position(unit);
            let (side, middle) = (table.side(&view, first), first + (1 << 63 >> view.mid.log2()));
            for (nth, at) in side.unit().into_iter().enumerate() {
                for entry in (0..U64::SLOTS).filter_map(|slot| U64::read(&guard, table.bucket(at), slot)) {
                    let (tier, index) =
                        if nth == 2 { (view.mid, unit) } else { (view.high, 2 * unit + nth as u64) };
                    let mut places = positions(U64::hash(&entry.key, table.seed)).into_iter();
                    let lies_before = places.find(|&place| tier.index(place) == index).unwrap() < middle;
                    let was_passed = |position| table.was_passed(&guard, &side, at, entry, position);
                    assert_eq!((was_passed(first), was_passed(middle)), (false, lies_before), "{entry:?}");
                    seen[usize::from(nth == 2)][usize::from(lies_before)] += 1;
                }
            }
        }
        assert!(seen.as_flattened().iter().all(|&seen| seen > 0), "{seen:?}");
    }

    /// For an entry whose record is unsound only the bucket is known, which the walk may be about
    /// to visit.
    #[test]
    fn entries_from_the_walk_on_are_not_counted() {
        type Strings = Bytes<WordRecords>;
        let pool = pool::<Dram>(1 << 20);
        let table = Level::<Dram, Strings>::create(&pool, "table", 224).unwrap();
        let (guard, view) = (pool.pin(), table.view());
        let records: Vec<u64> = (1..60)
            .map(|key: u64| {
                let record = WordRecords::put(&guard, key);
                table.insert(&guard, &key.to_le_bytes(), record).unwrap();
                record
            })
            .collect();
        records.into_iter().for_each(|record| WordRecords::erase(&guard, record));
        for unit in 0..view.mid.buckets() {
            let middle = view.high.first_position(2 * unit + 1);
            let (side, at) = (table.side(&view, middle), view.high.bucket(2 * unit + 1));
            let entry = Strings::read(&guard, table.bucket(at), 0).expect("a key came here");
            let was_passed = |position| table.was_passed(&guard, &side, at, entry, position);
            assert_eq!([middle - 1, middle, middle + 1].map(was_passed), [false, false, true]);
        }
    }
}
