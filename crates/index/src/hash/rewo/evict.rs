//! Room for a key: a free slot in its two buckets, or a slot that an eviction frees.
//!
//! A key is evicted from its first bucket to its second, never back. So readers that look in this
//! order cannot miss it, and evictions cannot cycle. At most two evictions follow each other. The
//! steps of one, under the locks of both buckets:
//! 1. lock the slot (in the meta word) and write the key into the second bucket; fence;
//! 2. make the copy valid; fence;
//! 3. unlock and invalidate the slot, in one store; fence.
//!
//! A crash between 2 and 3 leaves the key in both buckets, alike, and the slot locked. The next
//! thread that locks that bucket, or the collector, finds the lock bit and whether there is a copy
//! (`repair`). So does a thread that takes the locks of a dead one.

use super::bucket::*;
use super::place::Place;
use super::shape::{BucketShape, Entry, cell_of};
use super::stripes::LockedStripes;
use super::tables::{Blocked, DataTables, Path, Slot};
use super::view::{Directory, EVICTIONS, View};
use std::sync::atomic::Ordering::Release;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A key that can be evicted: its place, and its target bucket.
#[derive(Clone, Copy)]
struct Victim {
    at: Slot,
    entry: Entry,
    to: u64,
}

impl<M: MappedMedium, K: BucketShape> DataTables<M, K> {
    /// A free slot for a key with this home and tag, both of whose buckets are locked.
    #[inline(always)]
    pub(super) fn vacancy<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: &mut LockedStripes<'g, M>,
        view: View<'_, M>,
        place: Place,
        (home, tag): (u64, u8),
    ) -> Result<Slot, Blocked> {
        let second = place.second(home, tag);
        for index in [home, second] {
            if meta(self.base.pool.medium(), self.base.bucket(place, index)).slot_lock::<K>()
                != SlotLock::None
            {
                self.resolve(guard, held, view, place, index).map_err(Blocked::Busy)?;
            }
        }
        let free = |index| meta(self.base.pool.medium(), self.base.bucket(place, index)).free::<K>();
        let (in_first, in_second) = (free(home), free(second));
        // The first bucket until it is three quarters full, because most searches then end there;
        // then the bucket with more room.
        let (index, slots) = match in_first.count_ones() as usize * 4 > K::SLOTS
            || in_first.count_ones() >= in_second.count_ones()
        {
            true => (home, in_first),
            false => (second, in_second),
        };
        match slots {
            0 => self.evict_for(guard, held, view, place, [home, second]),
            _ => Ok(Slot { place, index, slot: choose::<K>(slots, tag) }),
        }
    }

    /// Frees a slot in one of two locked buckets.
    #[cold]
    #[inline(never)]
    fn evict_for<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: &mut LockedStripes<'g, M>,
        view: View<'_, M>,
        place: Place,
        buckets: [u64; 2],
    ) -> Result<Slot, Blocked> {
        let (base, mut blocked) = (held.len(), Blocked::Full);
        for evictions in [1, 2] {
            for victim in buckets.into_iter().flat_map(|index| self.victims(guard, view, place, index)) {
                let freed = match evictions {
                    1 => self.evict_one(guard, held, view, victim),
                    _ => self.evict_two(guard, held, view, victim, buckets),
                };
                held.release_after(base);
                match freed {
                    Ok(()) => {
                        held.set_evictions(evictions);
                        return Ok(victim.at);
                    }
                    Err(Blocked::Busy(stripe)) => blocked = Blocked::Busy(stripe),
                    Err(Blocked::Full) => {}
                }
            }
        }
        Err(blocked)
    }

    /// The keys in their first bucket here that do not leave the table.
    fn victims<'t>(
        &'t self,
        guard: &'t Guard<'_, M>,
        view: View<'t, M>,
        place: Place,
        index: u64,
    ) -> impl Iterator<Item = Victim> + 't {
        let bucket = self.base.bucket(place, index);
        let directory = view.directory();
        (0..K::SLOTS).filter_map(move |slot| {
            let entry = K::read(guard, bucket, slot)?;
            let to = place.second(index, entry.tag);
            let stays = !self.leaves(&directory, place, entry);
            let can_go =
                !K::is_damaged(entry) && !K::is_second(entry, place, index, self.seed) && to != index;
            (stays && can_go).then_some(Victim { at: Slot { place, index, slot }, entry, to })
        })
    }

    /// Whether a key of the table at `place` moves to another one.
    pub(super) fn leaves(&self, directory: &Directory, place: Place, entry: Entry) -> bool {
        directory.to != Some(place) && directory.moving >> cell_of(K::top(entry, self.seed)) & 1 == 1
    }

    /// Evicts a key whose second bucket has a free slot.
    fn evict_one<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: &mut LockedStripes<'g, M>,
        view: View<'_, M>,
        victim: Victim,
    ) -> Result<(), Blocked> {
        let (medium, target) = (self.base.pool.medium(), self.base.bucket(victim.at.place, victim.to));
        let free = || meta(medium, target).free::<K>() != 0;
        if !free() {
            return Err(Blocked::Full);
        }
        self.try_lock(guard, held, victim)?;
        if self.base.view_offset() != view.offset {
            // A resize that began meanwhile may have passed this bucket: a key that leaves the
            // table would stay behind in it.
            return Err(Blocked::Busy(self.base.stripe_of(victim.at.place.bucket(victim.to))));
        }
        let is_whole = meta(medium, target).slot_lock::<K>() == SlotLock::None;
        if !free() || !is_whole {
            return Err(Blocked::Full);
        }
        self.evict(guard, victim);
        Ok(())
    }

    fn try_lock<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: &mut LockedStripes<'g, M>,
        victim: Victim,
    ) -> Result<(), Blocked> {
        let target = victim.at.place.bucket(victim.to);
        match self.base.try_lock_bucket(guard, held, target) {
            true => Ok(()),
            false => Err(Blocked::Busy(self.base.stripe_of(target))),
        }
    }

    /// Evicts a key after another eviction has made room in its second bucket.
    fn evict_two<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: &mut LockedStripes<'g, M>,
        view: View<'_, M>,
        victim: Victim,
        buckets: [u64; 2],
    ) -> Result<(), Blocked> {
        if buckets.contains(&victim.to) {
            return Err(Blocked::Full);
        }
        let (medium, place) = (self.base.pool.medium(), victim.at.place);
        let has_room = |index| meta(medium, self.base.bucket(place, index)).free::<K>() != 0;
        let Some(next) = self.victims(guard, view, place, victim.to).find(|next| has_room(next.to)) else {
            return Err(Blocked::Full);
        };
        self.try_lock(guard, held, victim)?;
        let middle = self.base.bucket(place, victim.to);
        let is_as_it_was = meta(medium, middle).slot_lock::<K>() == SlotLock::None
            && K::read(guard, middle, next.at.slot) == Some(next.entry);
        if !is_as_it_was {
            return Err(Blocked::Full);
        }
        self.evict_one(guard, held, view, next)?;
        self.evict(guard, victim);
        Ok(())
    }

    /// Moves a key to its second bucket, which has a free slot. Both are locked.
    fn evict(&self, guard: &Guard<'_, M>, victim: Victim) {
        let Victim { at, entry, to } = victim;
        let (medium, target) = (self.base.pool.medium(), self.base.bucket(at.place, to));
        self.base.announce(at.place.bucket(at.index));
        // In the line of the meta word that is stored next.
        store_overflow::<M, K>(medium, self.base.bucket(at.place, at.index), entry.tag);
        self.lock_slots(at.place, at.index, SlotLock::Slot(at.slot));
        // ORDER: Release: behind the lock bit and before the copy. A scan that meets both records
        // has seen one of the two changes, because it looks for the bit before it reads the slots.
        self.base.root[3].0[EVICTIONS].fetch_add(medium, 1, Release);
        self.base.fence_between(at.place, at.index, to);
        let slot = choose::<K>(meta(medium, target).free::<K>(), entry.tag);
        self.install(guard, Slot { slot, index: to, ..at }, K::placed(entry, true));
        self.clear(at.place, at.index, 1 << at.slot);
    }

    /// Locks slots of a bucket. Durable at the next fence.
    pub(super) fn lock_slots(&self, place: Place, index: u64, lock: SlotLock) {
        let (region, bucket) = (self.base.pool.region(), self.base.bucket(place, index));
        self.base.announce(place.bucket(index));
        let before = meta(region.medium(), bucket);
        store_meta(region.medium(), bucket, before.becoming::<K>(before.valid::<K>(), lock));
        // PERSIST: before the copy is valid (`install` fences in between). Otherwise a crash could
        // leave two records of a key for which no thread would look.
        region.write_back(&bucket[0]);
    }

    /// Copies a key into a free slot, durably.
    pub(super) fn install(&self, guard: &Guard<'_, M>, at: Slot, entry: Entry) {
        let (region, bucket) = (self.base.pool.region(), self.base.bucket(at.place, at.index));
        self.base.announce(at.place.bucket(at.index));
        K::write(guard, bucket, at.slot, entry);
        // PERSIST: the copy, and the lock of its original slot, before the copy is valid.
        region.persist(&bucket[line_of::<K>(at.slot)]);
        self.publish(at, entry.tag);
        // PERSIST: the copy is valid before its slot is not.
        region.persist(&bucket[0]);
    }

    /// Invalidates slots whose keys have copies elsewhere, and unlocks, in one store.
    pub(super) fn clear(&self, place: Place, index: u64, slots: u64) {
        let (region, bucket) = (self.base.pool.region(), self.base.bucket(place, index));
        let before = meta(region.medium(), bucket);
        let gone = before.valid::<K>() & slots;
        self.base.announce(place.bucket(index));
        store_meta(
            region.medium(),
            bucket,
            before.becoming::<K>(before.valid::<K>() & !slots, SlotLock::None),
        );
        self.base.add_keys(place.bucket(index), -i64::from(gone.count_ones()));
        // PERSIST: the slots are free for reuse only once no crash can bring their keys back.
        region.persist(&bucket[0]);
    }

    /// Completes what a crash or a dead thread has left in those buckets of a path that may hold a
    /// key with this tag. They are locked. Returns the stripe of another thread, if one is needed.
    #[inline(always)]
    pub(super) fn repair<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: &mut LockedStripes<'g, M>,
        view: View<'_, M>,
        (path, tag): (&Path, u8),
    ) -> Result<(), usize> {
        let medium = self.base.pool.medium();
        while let Some(((place, index), ())) = self.walk(path, tag, |_, bucket| {
            (meta(medium, bucket).slot_lock::<K>() != SlotLock::None).then_some(())
        }) {
            self.resolve(guard, held, view, place, index)?;
        }
        Ok(())
    }

    /// Invalidates the locked slots of a bucket whose keys have copies, and unlocks all of them
    /// (Algorithm 6, a bucket at a time).
    #[cold]
    #[inline(never)]
    pub(super) fn resolve<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: &mut LockedStripes<'g, M>,
        view: View<'_, M>,
        place: Place,
        index: u64,
    ) -> Result<(), usize> {
        let (bucket, directory, base) = (self.base.bucket(place, index), view.directory(), held.len());
        let mark = meta(self.base.pool.medium(), bucket).slot_lock::<K>();
        let mut gone = 0;
        for slot in 0..K::SLOTS {
            let Some(entry) = K::read(guard, bucket, slot) else { continue };
            for (place, index) in self.copies(guard, &directory, (place, index), (mark, slot), entry) {
                if !self.base.try_lock_bucket(guard, held, place.bucket(index)) {
                    return Err(self.base.stripe_of(place.bucket(index)));
                }
                gone |= u64::from(self.has_key(guard, place, index, entry)) << slot;
            }
            held.release_after(base);
        }
        self.clear(place, index, gone);
        Ok(())
    }

    /// The buckets that may have a copy of a locked slot's key.
    pub(super) fn copies(
        &self,
        guard: &Guard<'_, M>,
        directory: &Directory,
        (place, index): (Place, u64),
        (mark, slot): (SlotLock, usize),
        entry: Entry,
    ) -> impl Iterator<Item = (Place, u64)> + use<M, K> {
        let buckets = match (mark, directory.to) {
            (SlotLock::Slot(locked), _) if locked == slot => {
                [Some((place, place.second(index, entry.tag))), None]
            }
            (SlotLock::Moving, Some(to)) if self.leaves(directory, place, entry) => {
                let home = self.home_in(guard, to, (place, index), entry);
                [Some((to, home)), Some((to, to.second(home, entry.tag)))]
            }
            _ => [None, None],
        };
        buckets.into_iter().flatten().filter(move |&at| at != (place, index))
    }

    /// Whether a bucket has an entry with the same key.
    fn has_key(&self, guard: &Guard<'_, M>, place: Place, index: u64, entry: Entry) -> bool {
        let bucket = self.base.bucket(place, index);
        let entries = (0..K::SLOTS).filter_map(|slot| K::read(guard, bucket, slot));
        entries.filter(|other| other.tag == entry.tag).any(|other| K::same_key(guard, other, entry))
    }

    /// The home in table `to` of a key in bucket `index` of another table.
    pub(super) fn home_in(
        &self,
        guard: &Guard<'_, M>,
        to: Place,
        (place, index): (Place, u64),
        entry: Entry,
    ) -> u64 {
        let home = match K::is_second(entry, place, index, self.seed) {
            true => place.home_of_second(index, entry.tag),
            false => index,
        };
        if to.log2() == place.log2() {
            return home;
        }
        match K::hash_of(guard, entry, self.seed) {
            Some(hash) => to.home(hash),
            None => {
                // The slot is kept, although no key may lead to it, so that `check` and `salvage`
                // can name its record.
                self.record_damage(entry.word, "a record that the index points to is unsound");
                (home << 32 >> place.log2() << to.log2()) >> 32
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/evict.rs"]
mod tests;
