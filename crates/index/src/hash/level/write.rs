//! The operations that write: under the locks of both of the key's units.

use super::bucket::*;
use super::ops::Level;
use super::root::*;
use super::shape::{BucketShape, Found, Probe};
use crate::{Decision, Fencing};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Line, MappedMedium, Offset};
use terrace_pool::{Guard, Locked, PoolFull};

/// A key's two sides, locked. No other thread changes the key's state, nor anything in these two
/// units.
pub(super) struct LockedUnits<'g, M: MappedMedium> {
    pub(super) view: View,
    pub(super) sides: [Side; 2],
    /// Only one, if it is the lock of both.
    pub(super) locks: [Option<Locked<'g, M>>; 2],
}

/// A slot, and the side of the key on which it lies.
#[derive(Clone, Copy)]
pub(super) struct SlotRef<'t> {
    pub(super) bucket: &'t Bucket,
    pub(super) slot: usize,
    pub(super) side: usize,
}

/// The table in which a key has no place, even after one movement.
struct NoPlace(View);

impl<M: MappedMedium, K: BucketShape> Level<M, K> {
    /// Locks both units of a key, the earlier one first.
    #[inline(always)]
    pub(super) fn lock_units<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        positions: [u64; 2],
    ) -> LockedUnits<'g, M> {
        loop {
            let mut view = self.view();
            if !view.state.is_resting() {
                self.help_resize(guard, &view);
                view = self.view();
            }
            let sides = self.sides_to_lock(&view, positions);
            for side in &sides {
                self.pool.region().prefetch_to_write(side.lower_at().raw());
                self.pool.region().prefetch_to_write(side.upper_at().raw());
            }
            let first = usize::from(positions[0] > positions[1]);
            let mut locks = [const { None }; 2];
            locks[first] = Some(self.lock(&sides[first]).acquire(guard));
            if sides[0].lower_at() != sides[1].lower_at() {
                locks[1 - first] = Some(self.lock(&sides[1 - first]).acquire(guard));
            }
            // Changes before the locks were taken are visible now; from now on there are none.
            if sides.iter().all(|side| self.is_current(&view, side)) {
                let held = LockedUnits { view, sides, locks };
                self.persist_unfenced(&held);
                return held;
            }
            locks.into_iter().flatten().for_each(|lock| lock.release_unchanged());
        }
    }

    /// The sides whose locks are taken. Both positions in one unit of the lowest tier use the same
    /// look at it. A resizing thread takes the locks from below, so the holder of an upper one must
    /// never wait for the lower one.
    #[inline(always)]
    fn sides_to_lock(&self, view: &View, positions: [u64; 2]) -> [Side; 2] {
        let one = self.side(view, positions[0]);
        let is_one_unit =
            view.state.is_moving() && view.low.index(positions[0]) == view.low.index(positions[1]);
        let other =
            if is_one_unit { Side { position: positions[1], ..one } } else { self.side(view, positions[1]) };
        [one, other]
    }

    /// Persists what the last holders left unfenced, before this one builds upon it.
    #[inline(always)]
    fn persist_unfenced(&self, held: &LockedUnits<'_, M>) {
        if M::VOLATILE_CACHE {
            for (side, lock) in held.sides.iter().zip(&held.locks) {
                if lock.as_ref().is_some_and(|lock| lock.was_unfenced()) {
                    self.persist_unit(&held.view, side.position);
                }
            }
        }
    }

    /// Looks `key` up under its locks, and changes it as `decide` says. Returns the state it found.
    #[inline(always)]
    pub(super) fn change_key(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        mut fencing: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, PoolFull> {
        let probe = Probe::new(key, self.seed);
        loop {
            let held = self.lock_units(guard, probe.positions);
            let Some((place, before)) = self.locate(guard, &held, &probe) else {
                match decide(None) {
                    Decision::Keep | Decision::Set(None) => {}
                    Decision::Set(Some(word)) => {
                        if let Err(NoPlace(view)) = self.add(guard, held, &probe, word, &mut fencing) {
                            self.make_place(guard, &view, &probe)?;
                            continue;
                        }
                    }
                }
                return Ok(None);
            };
            match decide(Some(before)) {
                // Nothing was stored, and `lock_units` has persisted what was found.
                Decision::Keep => {}
                Decision::Set(word) => self.change_found(guard, held, &probe, place, word, &mut fencing),
            }
            return Ok(Some(before));
        }
    }

    /// The place of a key. On return it has only one.
    #[inline(always)]
    fn locate<'t>(
        &'t self,
        guard: &Guard<'_, M>,
        held: &LockedUnits<'_, M>,
        probe: &Probe<'_, K>,
    ) -> Option<(SlotRef<'t>, u64)> {
        for (nth, at) in self.places(&held.sides).into_iter().enumerate() {
            let bucket = self.bucket(at);
            if let Found::Here(slot, word, meta) = K::find(guard, bucket, probe) {
                let place = SlotRef { bucket, slot, side: nth % 2 };
                let place = match meta.is_marked::<K>(slot) {
                    true => self.remove_duplicate(guard, held, probe, place),
                    false => place,
                };
                return Some((place, word));
            }
        }
        None
    }

    /// Gives a key another word, or removes it.
    #[inline(always)]
    fn change_found(
        &self,
        guard: &Guard<'_, M>,
        held: LockedUnits<'_, M>,
        probe: &Probe<'_, K>,
        place: SlotRef<'_>,
        word: Option<u64>,
        fencing: &mut Fencing<'_>,
    ) {
        let (medium, SlotRef { bucket, slot, side }) = (self.pool.medium(), place);
        let Some(word) = word else {
            store_meta(medium, bucket, meta(medium, bucket).without::<K>(slot));
            self.count().add(guard.slot_index(), held.sides[side].position, -1);
            let view = held.view;
            self.finish(held, side, &bucket[0], fencing);
            return self.shrink_if_needed(guard, &view, probe.hash);
        };
        assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
        K::replace(guard, bucket, slot, K::entry(probe, word));
        self.finish(held, side, &bucket[K::line_of(slot)], fencing);
    }

    /// Adds a key: above if there is room, else below, else where another key can be moved away.
    #[inline(always)]
    fn add(
        &self,
        guard: &Guard<'_, M>,
        held: LockedUnits<'_, M>,
        probe: &Probe<'_, K>,
        word: u64,
        fencing: &mut Fencing<'_>,
    ) -> Result<(), NoPlace> {
        assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
        if probe.hash & 0xff == 0 {
            self.update_balance(&held.sides);
        }
        let above = self.less_loaded(&held.sides, Side::upper_at);
        let vacant = above.or_else(|| self.less_loaded(&held.sides, Side::lower_at));
        let Some(place) = vacant.or_else(|| self.evict(guard, &held)) else {
            return Err(NoPlace(held.view));
        };
        self.put(guard, held, place, (probe, word), fencing);
        Ok(())
    }

    /// A free slot in the less loaded of two buckets. If their loads are nearly equal, in the one
    /// that comes first: from there the key can be moved later (see `movement.rs`).
    #[inline(always)]
    fn less_loaded<'t>(
        &'t self,
        sides: &[Side; 2],
        at: impl Fn(&Side) -> Offset<Bucket>,
    ) -> Option<SlotRef<'t>> {
        let first = usize::from(sides[0].position > sides[1].position);
        let choice = |side: usize| {
            let bucket = self.bucket(at(&sides[side]));
            (SlotRef { bucket, slot: 0, side }, meta(self.pool.medium(), bucket))
        };
        let (earlier, later) = (choice(first), choice(1 - first));
        let (one, other) = match earlier.1.load::<K>() <= later.1.load::<K>() + 1 {
            true => (earlier, later),
            false => (later, earlier),
        };
        let vacant =
            |(place, meta): (SlotRef<'t>, Meta)| meta.vacancy::<K>().map(|slot| SlotRef { slot, ..place });
        vacant(one).or_else(|| vacant(other))
    }

    /// Updates the balance of upper and lower level, from the buckets of one key in 256.
    #[cold]
    fn update_balance(&self, sides: &[Side; 2]) {
        let medium = self.pool.medium();
        let load = |at: Offset<Bucket>| i64::from(meta(medium, self.bucket(at)).load::<K>());
        // There are twice as many buckets above.
        let loads = sides.iter().map(|side| 2 * load(side.upper_at()) - load(side.lower_at()));
        let word = &self.root[0].0[BALANCE];
        let before = word.load(medium, Relaxed) as i64;
        let balance = before - before / 16 + 1024 * loads.sum::<i64>();
        word.store(medium, balance as u64, Relaxed);
    }

    /// Puts an entry into a free slot.
    #[inline(always)]
    pub(super) fn put(
        &self,
        guard: &Guard<'_, M>,
        held: LockedUnits<'_, M>,
        SlotRef { bucket, slot, side }: SlotRef<'_>,
        (probe, word): (&Probe<'_, K>, u64),
        fencing: &mut Fencing<'_>,
    ) {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        K::write(guard, bucket, slot, K::entry(probe, word));
        let line = K::line_of(slot);
        if line != 0 {
            // PERSIST: the slot before its token. In the line of the meta word, the order of stores
            // is enough.
            region.persist(&bucket[line]);
        }
        // PERSIST: this store adds the key. A crash that keeps it keeps the slot; a crash without
        // it leaves the slot free.
        store_meta(medium, bucket, meta(medium, bucket).with::<K>(slot));
        self.count().add(guard.slot_index(), held.sides[side].position, 1);
        self.finish(held, side, &bucket[0], fencing);
    }

    /// Makes the change to a line of a side durable, now or later, and unlocks both sides.
    #[inline(always)]
    fn finish(&self, mut held: LockedUnits<'_, M>, side: usize, line: &Line, fencing: &mut Fencing<'_>) {
        let region = self.pool.region();
        match fencing {
            Fencing::Deferred(deferred) if M::VOLATILE_CACHE => {
                // PERSIST: written back now, fenced by `persist_deferred`. Until then the lock word
                // is marked unfenced.
                region.write_back(line);
                deferred.0.push(region.offset_of(self.lock(&held.sides[side])).raw());
                let lock = held.locks[side].take().or_else(|| held.locks[1 - side].take());
                lock.into_iter().for_each(|lock| lock.release_unfenced());
            }
            _ => {
                // PERSIST: the last write-back and fence of a change; without them a crash leaves
                // the unit as it was before.
                region.persist(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::test_pools::{Medium, Power, pool};
    use super::super::shape::sealed::Shape;
    use super::*;
    use crate::{Deferred, PointIndex, Stored, Swapped, U64};
    use terrace_medium::{Dram, Pmem};
    use terrace_pool::Lock;
    use terrace_testkit::What;

    #[test]
    fn balance_decays_by_a_sixteenth() {
        let pool = pool::<Dram>(1 << 20);
        let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
        let (view, medium, balance) = (table.view(), pool.medium(), &table.root[0].0[BALANCE]);
        let sides_of = |key: u64| {
            Probe::<U64>::new(&key, table.seed).positions.map(|position| table.side(&view, position))
        };
        // Two different units.
        let sides = (0..).map(sides_of).find(|[one, other]| one.lower_at() != other.lower_at()).unwrap();
        let weighed = |before: i64| {
            balance.store(medium, before as u64, Relaxed);
            table.update_balance(&sides);
            balance.load(medium, Relaxed) as i64
        };
        assert_eq!([1600, 0, -1600].map(weighed), [1500, 0, -1500]);
        let fill = |at: Offset<Bucket>, slots: usize| {
            let bucket = table.bucket(at);
            (0..slots).for_each(|slot| store_meta(medium, bucket, meta(medium, bucket).with::<U64>(slot)));
        };
        fill(sides[0].upper_at(), 3);
        fill(sides[1].upper_at(), 2);
        assert_eq!([1600, -1600].map(weighed), [1500 + 10 * 1024, -1500 + 10 * 1024]);
        fill(sides[0].lower_at(), 5);
        fill(sides[1].lower_at(), 7);
        assert_eq!([1600, -1600].map(weighed), [1500 - 2 * 1024, -1500 - 2 * 1024]);
        assert_eq!(table.places(&sides)[..2], sides.map(|side| side.lower_at()), "more lie below");
    }

    #[test]
    fn insert_prefers_the_earlier_bucket() {
        for key in 0..40 {
            let pool = pool::<Dram>(1 << 20);
            let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
            let (view, medium) = (table.view(), pool.medium());
            let sides =
                Probe::<U64>::new(&key, table.seed).positions.map(|position| table.side(&view, position));
            if sides[0].upper_at() == sides[1].upper_at() {
                continue;
            }
            let earlier = usize::from(sides[0].position > sides[1].position);
            let fill = |side: usize, slots: u64| {
                let bucket = table.bucket(sides[side].upper_at());
                store_meta(medium, bucket, meta(medium, bucket).becoming::<U64>(!(!0 << slots), 0));
            };
            // Keys in the earlier bucket and in the later one, and the bucket of the next key.
            for (in_earlier, in_later, goes) in [
                (0, 0, Some(0)),
                (1, 0, Some(0)),
                (2, 0, Some(1)),
                (3, 5, Some(0)),
                (6, 5, Some(0)),
                (7, 6, Some(1)),
            ] {
                fill(earlier, in_earlier);
                fill(1 - earlier, in_later);
                let place = table.less_loaded(&sides, Side::upper_at);
                let expected = goes.map(|goes: usize| if goes == 0 { earlier } else { 1 - earlier });
                assert_eq!(place.map(|place| place.side), expected, "{in_earlier} and {in_later}");
            }
            fill(earlier, 7);
            fill(1 - earlier, 7);
            assert!(table.less_loaded(&sides, Side::upper_at).is_none());
        }
    }

    #[test]
    fn units_are_locked_in_order_and_once() {
        let power = Power::new();
        let table = Level::<Medium, U64>::create(&power.pool, "table", 120).unwrap();
        let (guard, view, mut seen) = (power.pool.pin(), table.view(), [0, 0]);
        for key in 0..40 {
            let probe = Probe::<U64>::new(&key, table.seed);
            let [one, other] = probe.positions;
            let lock =
                |position| power.pool.region().offset_of(table.lock(&table.side(&view, position))).raw();
            let before = power.trace().events().len();
            drop(table.lock_units(&guard, [one, other]));
            drop(table.lock_units(&guard, [other, one]));
            let trace = power.trace();
            let taken: Vec<u64> = trace.events()[before..]
                .iter()
                .filter_map(|event| if let What::Rmw { at, .. } = event.what { Some(at) } else { None })
                .filter(|at| [one, other].map(lock).contains(at))
                .collect();
            let (first, second) = (lock(one.min(other)), lock(one.max(other)));
            match first == second {
                true => assert_eq!(taken, [first, first], "key {key}"),
                false => assert_eq!(taken, [first, second, first, second], "key {key}"),
            }
            seen[usize::from(first == second)] += 1;
        }
        assert!(seen.iter().all(|&seen| seen > 0), "{seen:?}");
    }

    #[test]
    fn one_new_key_in_256_updates_the_balance() {
        let pool = pool::<Dram>(1 << 20);
        let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
        let (guard, balance) = (pool.pin(), &table.root[0].0[BALANCE]);
        for (end, expected) in [(0, 1500), (0xff, 1600), (1, 1600), (0x80, 1600)] {
            let has_it = |key: &u64| Probe::<U64>::new(key, table.seed).hash & 0xff == end;
            let key = (0..).find(has_it).unwrap();
            balance.store(pool.medium(), 1600, Relaxed);
            table.insert(&guard, &key, 0).unwrap();
            assert_eq!(balance.load(pool.medium(), Relaxed), expected, "{end:#x}");
            assert_eq!(table.remove(&guard, &key), Some(0));
        }
    }

    #[test]
    fn deferred_write_marks_its_own_unit_unfenced() {
        // In the smaller table both sides are one unit.
        for capacity in [0, 120] {
            let pool = pool::<Pmem>(1 << 20);
            let table = Level::<Pmem, U64>::create(&pool, "table", capacity).unwrap();
            let (guard, view) = (pool.pin(), table.view());
            for key in 0..12 {
                let probe = Probe::<U64>::new(&key, table.seed);
                let sides = probe.positions.map(|position| table.side(&view, position));
                for (before, after) in [(None, Some(70)), (Some(70), Some(71)), (Some(71), Some(72))] {
                    let mut deferred = Deferred::default();
                    let done = table.compare_and_swap_deferred(&guard, &key, before, after, &mut deferred);
                    assert_eq!(done, Ok(Swapped::Done));
                    let has_it = |at| matches!(U64::find(&guard, table.bucket(at), &probe), Found::Here(..));
                    let side =
                        sides.iter().find(|side| [side.upper_at(), side.lower_at()].into_iter().any(has_it));
                    let own = side.unwrap().lower_at();
                    assert_eq!(deferred.0, [pool.region().offset_of(lock_word(table.bucket(own))).raw()]);
                    let open = || {
                        let is_open =
                            |side: &&Side| Lock::may_be_unfenced(table.lock(side).load_word(pool.medium()));
                        sides.iter().filter(is_open).map(Side::lower_at).collect::<Vec<_>>()
                    };
                    assert!(!open().is_empty() && open().iter().all(|&at| at == own), "key {key}");
                    table.persist_deferred(&guard, deferred);
                    assert_eq!(open(), []);
                }
            }
        }
    }

    #[test]
    fn update_of_an_unmarked_key_stores_no_meta() {
        let pool = pool::<Dram>(1 << 20);
        let table = Level::<Dram, U64>::create(&pool, "table", 120).unwrap();
        let (guard, view) = (pool.pin(), table.view());
        for key in 0..60 {
            table.insert(&guard, &key, 70).unwrap();
            let sides = Probe::<U64>::new(&key, table.seed).positions.map(|at| table.side(&view, at));
            let metas = || table.places(&sides).map(|at| meta(pool.medium(), table.bucket(at)));
            let before = metas();
            assert_eq!(table.update(&guard, &key, 71), Some(70));
            assert_eq!(metas(), before, "key {key}");
        }
    }
}
