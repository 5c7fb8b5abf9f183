//! Duplicate marks: what a crash in the middle of a movement leaves.
//!
//! It leaves a key in two slots, or a mark without a second copy. Both copies are marked and have
//! the same word, because no thread changes one of two. So a reader may return either. A writer of
//! the key holds the locks of both its units and removes one copy first. The collector's walk,
//! which follows every crash of a machine, removes them all. Of two copies in different units the
//! earlier one is removed: a scan that visits its unit leaves the key to the later one.

use super::bucket::*;

use super::root::*;
use super::shape::{BucketShape, Entry, Found, Probe, positions};
use super::units::{LockedUnits, SlotRef, Units};
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::Guard;

impl<M: MappedMedium, K: BucketShape> Units<M, K> {
    /// Removes the other copy, if any, of a key that was found in a marked slot. Returns the
    /// remaining one.
    #[cold]
    pub(super) fn remove_duplicate<'t>(
        &'t self,
        guard: &Guard<'_, M>,
        held: &LockedUnits<'_, M>,
        probe: &Probe<'_, K>,
        found: SlotRef<'t>,
    ) -> SlotRef<'t> {
        let medium = self.pool.medium();
        let buckets = self.places(&held.sides).map(|at| self.bucket(at));
        let other = buckets.into_iter().enumerate().find_map(|(nth, bucket)| {
            let Found::Here(slot, ..) = K::find(guard, bucket, probe) else { return None };
            let is_other = !std::ptr::eq(bucket, found.bucket);
            is_other.then_some(SlotRef { bucket, slot, side: nth % 2 })
        });
        let start = |place: &SlotRef<'_>| held.sides[place.side].first_position();
        let (stays, goes) = match other {
            Some(other) if start(&other) > start(&found) => (other, Some(found)),
            other => (found, other),
        };
        if let Some(SlotRef { bucket, slot, .. }) = goes {
            store_meta(medium, bucket, meta(medium, bucket).without::<K>(slot));
            // PERSIST: before the remaining copy changes; otherwise a crash would bring this one
            // back with the key's old word.
            self.pool.region().persist(&bucket[0]);
        }
        store_meta(medium, stays.bucket, meta(medium, stays.bucket).unmarked::<K>(stays.slot));
        stays
    }

    /// Another bucket with the key of a marked slot, which lies in bucket `at` of the unit `here`;
    /// and whether it is later: in a later unit, or behind `at` in this one.
    pub(super) fn other_copy(
        &self,
        guard: &Guard<'_, M>,
        view: &View,
        here: &Side,
        at: Offset<Bucket>,
        entry: Entry,
    ) -> Option<(&Bucket, bool)> {
        let sides = positions(K::hash_of(guard, entry, self.seed)?).map(|position| self.side(view, position));
        let elsewhere = sides.iter().filter(|side| side.lower_at() != here.lower_at()).flat_map(|side| {
            let is_further_on = side.first_position() > here.first_position();
            [side.upper_at(), side.lower_at()].map(|at| (at, is_further_on))
        });
        let mut is_behind = false;
        let own = here.unit().map(|other| {
            is_behind |= other == at;
            (other, is_behind)
        });
        let mut others = own.into_iter().filter(|&(other, _)| other != at).chain(elsewhere);
        let found = others.find(|&(other, _)| self.copy_in(guard, self.bucket(other), entry).is_some());
        found.map(|(other, is_further_on)| (self.bucket(other), is_further_on))
    }

    /// The entry of a bucket with the same key.
    pub(super) fn copy_in(&self, guard: &Guard<'_, M>, bucket: &Bucket, entry: Entry) -> Option<Entry> {
        let mut entries = (0..K::SLOTS).filter_map(|slot| K::read(guard, bucket, slot));
        entries.find(|&other| K::same_key(guard, entry, other))
    }

    /// In a unit whose lock is held: removes each key that also lies later, and the marks of keys
    /// that lie nowhere else.
    pub(super) fn clear_marks(&self, guard: &Guard<'_, M>, view: &View, here: &Side) {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        for at in here.unit() {
            let bucket = self.bucket(at);
            for slot in (0..K::SLOTS).filter(|&slot| meta(medium, bucket).is_marked::<K>(slot)) {
                let Some(entry) = K::read(guard, bucket, slot) else { continue };
                match self.other_copy(guard, view, here, at, entry) {
                    // Its unit is not locked. A writer there finds this copy.
                    Some((_, false)) => {}
                    Some((other, true)) => {
                        // PERSIST: the remaining copy, whose unit may be unfenced, before this one
                        // is removed; and the removal before its lock is free.
                        region.persist(other);
                        store_meta(medium, bucket, meta(medium, bucket).without::<K>(slot));
                        region.persist(&bucket[0]);
                    }
                    None => store_meta(medium, bucket, meta(medium, bucket).unmarked::<K>(slot)),
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/marks.rs"]
mod tests;
