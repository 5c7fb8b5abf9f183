//! The operations that write: under the locks of both of the key's units.

use super::bucket::*;
use super::ops::Level;
use super::root::*;
use super::shape::{BucketShape, Found, Probe};
use super::units::{LockedUnits, SlotRef};
use crate::{Decision, Fencing};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Line, MappedMedium, Offset};
use terrace_pool::{Guard, PoolFull};

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
            let mut view = self.units.view();
            if !view.state.is_resting() {
                self.resize(guard).help_resize(&view);
                view = self.units.view();
            }
            let sides = self.sides_to_lock(&view, positions);
            for side in &sides {
                self.units.pool.region().prefetch_to_write(side.lower_at().raw());
                self.units.pool.region().prefetch_to_write(side.upper_at().raw());
            }
            let first = usize::from(positions[0] > positions[1]);
            let mut locks = [const { None }; 2];
            locks[first] = Some(self.units.lock(&sides[first]).acquire(guard));
            if sides[0].lower_at() != sides[1].lower_at() {
                locks[1 - first] = Some(self.units.lock(&sides[1 - first]).acquire(guard));
            }
            // Changes before the locks were taken are visible now; from now on there are none.
            if sides.iter().all(|side| self.units.is_current(&view, side)) {
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
        let one = self.units.side(view, positions[0]);
        let is_one_unit =
            view.state.is_moving() && view.low.index(positions[0]) == view.low.index(positions[1]);
        let other = if is_one_unit {
            Side { position: positions[1], ..one }
        } else {
            self.units.side(view, positions[1])
        };
        [one, other]
    }

    /// Persists what the last holders left unfenced, before this one builds upon it.
    #[inline(always)]
    fn persist_unfenced(&self, held: &LockedUnits<'_, M>) {
        if M::VOLATILE_CACHE {
            for (side, lock) in held.sides.iter().zip(&held.locks) {
                if lock.as_ref().is_some_and(|lock| lock.was_unfenced()) {
                    self.units.persist_unit(&held.view, side.position);
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
        let probe = Probe::new(key, self.units.seed);
        loop {
            let held = self.lock_units(guard, probe.positions);
            let Some((place, before)) = self.locate(guard, &held, &probe) else {
                match decide(None) {
                    Decision::Keep | Decision::Set(None) => {}
                    Decision::Set(Some(word)) => {
                        if let Err(NoPlace(view)) = self.add(guard, held, &probe, word, &mut fencing) {
                            self.resize(guard).make_place(&view, &probe)?;
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
        for (nth, at) in self.units.places(&held.sides).into_iter().enumerate() {
            let bucket = self.units.bucket(at);
            if let Found::Here(slot, word, meta) = K::find(guard, bucket, probe) {
                let place = SlotRef { bucket, slot, side: nth % 2 };
                let place = match meta.is_marked::<K>(slot) {
                    true => self.units.remove_duplicate(guard, held, probe, place),
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
        let (medium, SlotRef { bucket, slot, side }) = (self.units.pool.medium(), place);
        let Some(word) = word else {
            store_meta(medium, bucket, meta(medium, bucket).without::<K>(slot));
            self.units.count().add(guard.slot_index(), held.sides[side].position, -1);
            let view = held.view;
            self.finish(held, side, &bucket[0], fencing);
            return self.resize(guard).shrink_if_needed(&view, probe.hash);
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
        let Some(place) = vacant.or_else(|| self.units.evict(guard, &held)) else {
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
            let bucket = self.units.bucket(at(&sides[side]));
            (SlotRef { bucket, slot: 0, side }, meta(self.units.pool.medium(), bucket))
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
        let medium = self.units.pool.medium();
        let load = |at: Offset<Bucket>| i64::from(meta(medium, self.units.bucket(at)).load::<K>());
        // There are twice as many buckets above.
        let loads = sides.iter().map(|side| 2 * load(side.upper_at()) - load(side.lower_at()));
        let word = &self.units.root[0].0[BALANCE];
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
        let (region, medium) = (self.units.pool.region(), self.units.pool.medium());
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
        self.units.count().add(guard.slot_index(), held.sides[side].position, 1);
        self.finish(held, side, &bucket[0], fencing);
    }

    /// Makes the change to a line of a side durable, now or later, and unlocks both sides.
    #[inline(always)]
    fn finish(&self, mut held: LockedUnits<'_, M>, side: usize, line: &Line, fencing: &mut Fencing<'_>) {
        let region = self.units.pool.region();
        match fencing {
            Fencing::Deferred(deferred) if M::VOLATILE_CACHE => {
                // PERSIST: written back now, fenced by `persist_deferred`. Until then the lock word
                // is marked unfenced.
                region.write_back(line);
                deferred.0.push(region.offset_of(self.units.lock(&held.sides[side])).raw());
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
#[path = "tests/write.rs"]
mod tests;
