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
use super::ops::{Path, Rewo};
use super::place::Place;
use super::shape::{BucketShape, Entry, cell_of};
use super::stripes::LockedStripes;
use super::view::{Directory, EVICTIONS, View};
use super::write::{Blocked, Slot};
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

impl<M: MappedMedium, K: BucketShape> Rewo<M, K> {
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
            if meta(self.pool.medium(), self.bucket(place, index)).slot_lock::<K>() != SlotLock::None {
                self.resolve(guard, held, view, place, index).map_err(Blocked::Busy)?;
            }
        }
        let free = |index| meta(self.pool.medium(), self.bucket(place, index)).free::<K>();
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
        let bucket = self.bucket(place, index);
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
        let (medium, target) = (self.pool.medium(), self.bucket(victim.at.place, victim.to));
        let free = || meta(medium, target).free::<K>() != 0;
        if !free() {
            return Err(Blocked::Full);
        }
        self.try_lock(guard, held, victim)?;
        if self.view_offset() != view.offset {
            // A resize that began meanwhile may have passed this bucket: a key that leaves the
            // table would stay behind in it.
            return Err(Blocked::Busy(self.stripe_of(victim.at.place.bucket(victim.to))));
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
        match self.try_lock_bucket(guard, held, target) {
            true => Ok(()),
            false => Err(Blocked::Busy(self.stripe_of(target))),
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
        let (medium, place) = (self.pool.medium(), victim.at.place);
        let has_room = |index| meta(medium, self.bucket(place, index)).free::<K>() != 0;
        let Some(next) = self.victims(guard, view, place, victim.to).find(|next| has_room(next.to)) else {
            return Err(Blocked::Full);
        };
        self.try_lock(guard, held, victim)?;
        let middle = self.bucket(place, victim.to);
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
        let (medium, target) = (self.pool.medium(), self.bucket(at.place, to));
        self.announce(at.place.bucket(at.index));
        // In the line of the meta word that is stored next.
        store_overflow::<M, K>(medium, self.bucket(at.place, at.index), entry.tag);
        self.lock_slots(at.place, at.index, SlotLock::Slot(at.slot));
        // ORDER: Release: behind the lock bit and before the copy. A scan that meets both records
        // has seen one of the two changes, because it looks for the bit before it reads the slots.
        self.root[3].0[EVICTIONS].fetch_add(medium, 1, Release);
        self.fence_between(at.place, at.index, to);
        let slot = choose::<K>(meta(medium, target).free::<K>(), entry.tag);
        self.install(guard, Slot { slot, index: to, ..at }, K::placed(entry, true));
        self.clear(at.place, at.index, 1 << at.slot);
    }

    /// Locks slots of a bucket. Durable at the next fence.
    pub(super) fn lock_slots(&self, place: Place, index: u64, lock: SlotLock) {
        let (region, bucket) = (self.pool.region(), self.bucket(place, index));
        self.announce(place.bucket(index));
        let before = meta(region.medium(), bucket);
        store_meta(region.medium(), bucket, before.becoming::<K>(before.valid::<K>(), lock));
        // PERSIST: before the copy is valid (`install` fences in between). Otherwise a crash could
        // leave two records of a key for which no thread would look.
        region.write_back(&bucket[0]);
    }

    /// Copies a key into a free slot, durably.
    pub(super) fn install(&self, guard: &Guard<'_, M>, at: Slot, entry: Entry) {
        let (region, bucket) = (self.pool.region(), self.bucket(at.place, at.index));
        self.announce(at.place.bucket(at.index));
        K::write(guard, bucket, at.slot, entry);
        // PERSIST: the copy, and the lock of its original slot, before the copy is valid.
        region.persist(&bucket[line_of::<K>(at.slot)]);
        self.publish(at, entry.tag);
        // PERSIST: the copy is valid before its slot is not.
        region.persist(&bucket[0]);
    }

    /// Invalidates slots whose keys have copies elsewhere, and unlocks, in one store.
    pub(super) fn clear(&self, place: Place, index: u64, slots: u64) {
        let (region, bucket) = (self.pool.region(), self.bucket(place, index));
        let before = meta(region.medium(), bucket);
        let gone = before.valid::<K>() & slots;
        self.announce(place.bucket(index));
        store_meta(
            region.medium(),
            bucket,
            before.becoming::<K>(before.valid::<K>() & !slots, SlotLock::None),
        );
        self.add_keys(place.bucket(index), -i64::from(gone.count_ones()));
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
        let medium = self.pool.medium();
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
        let (bucket, directory, base) = (self.bucket(place, index), view.directory(), held.len());
        let mark = meta(self.pool.medium(), bucket).slot_lock::<K>();
        let mut gone = 0;
        for slot in 0..K::SLOTS {
            let Some(entry) = K::read(guard, bucket, slot) else { continue };
            for (place, index) in self.copies(guard, &directory, (place, index), (mark, slot), entry) {
                if !self.try_lock_bucket(guard, held, place.bucket(index)) {
                    return Err(self.stripe_of(place.bucket(index)));
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
        let bucket = self.bucket(place, index);
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
mod tests {
    use super::super::super::test_pools::pool;
    use super::super::shape::Probe;
    use super::super::shape::sealed::Shape;
    use super::*;
    use crate::key::NoRecords;
    use crate::{Bytes, KeyKind, PointIndex, Stored, U64};
    use terrace_medium::{Dram, Offset};
    use terrace_pool::Pool;

    /// Its record is unreadable, so only its slot and its bucket are known of its hash.
    #[test]
    fn unreadable_key_moves_to_its_mapped_home() {
        let pool = pool::<Dram>(1 << 20);
        let (guard, entry) = (pool.pin(), Entry { tag: 9, key: 0, word: 64 });
        for (nth, (from, to, index)) in
            [(6, 3, 0), (6, 3, 17), (6, 3, 63), (3, 6, 5), (3, 6, 7), (20, 27, 77_777)]
                .into_iter()
                .enumerate()
        {
            let map = Rewo::<Dram, Bytes<NoRecords>>::with_shape(&pool, &format!("map {nth}"), 1, 0).unwrap();
            let place = Place::new(64, from);
            let home = map.home_in(&guard, Place::new(64, from), (place, index), entry);
            assert_eq!((home, map.damage()), (index, None), "in a table of the same size");
            let second = (place, place.second(index, entry.tag));
            let placed = Bytes::<NoRecords>::placed(entry, true);
            for (at, entry) in [((place, index), entry), (second, placed)] {
                let home = map.home_in(&guard, Place::new(64, to), at, entry);
                assert_eq!(home, (index << to) >> from, "2^{from} to 2^{to}");
            }
            assert!(map.damage().is_some());
        }
    }

    type Map = Rewo<Dram, U64>;

    /// A table of sixteen buckets, each with a lock of its own.
    fn table(pool: &Pool<Dram>) -> (Map, Place) {
        let map = Map::with_shape(pool, "map", 4, 4).unwrap();
        let place = map.view().directory().cells[0];
        (map, place)
    }

    fn mark_of(map: &Map, place: Place, index: u64) -> SlotLock {
        meta(map.pool().medium(), map.bucket(place, index)).slot_lock::<U64>()
    }

    /// Keys whose home is this bucket, as entries.
    fn entries_of_home(map: &Map, place: Place, index: u64) -> impl Iterator<Item = Entry> {
        let seed = map.seed;
        let keys = (0..).filter(move |key| place.home(U64::hash(key, seed)) == index);
        keys.map(move |key| U64::entry(&Probe::new(&key, seed), key, false))
    }

    /// Puts a key into a slot, whether or not the table has it elsewhere.
    fn put(map: &Map, place: Place, index: u64, slot: usize, entry: Entry) {
        map.install(&map.pool().pin(), Slot { place, index, slot }, entry);
    }

    #[test]
    fn vacancy_prefers_the_first_bucket() {
        let pool = pool::<Dram>(1 << 20);
        let (map, place) = table(&pool);
        let (guard, tag) = (pool.pin(), 100);
        let second = place.second(3, tag);
        let chosen = |free: [u32; 2], mark| {
            for (index, free) in [3, second].into_iter().zip(free) {
                let mark = if index == 3 { SlotLock::None } else { mark };
                let meta = Meta(0).becoming::<U64>(all_slots::<U64>() >> free, mark);
                store_meta(pool.medium(), map.bucket(place, index), meta);
            }
            let mut held = map.lock_buckets(&guard, &[place.bucket(3), place.bucket(second)]);
            let Ok(at) = map.vacancy(&guard, &mut held, map.view(), place, (3, tag)) else {
                panic!("there is room")
            };
            assert_eq!(mark_of(&map, place, second), SlotLock::None, "what was left there is ended");
            at.index == 3
        };
        let cases = [[14, 14], [4, 14], [3, 14], [3, 3], [3, 2], [2, 3], [1, 0], [0, 1], [0, 14]];
        let is_first = [true, true, false, true, true, false, true, false, false];
        assert_eq!(cases.map(|free| chosen(free, SlotLock::None)), is_first);
        assert!(!chosen([0, 14], SlotLock::Slot(13)));
    }

    #[test]
    fn eviction_needs_an_unlocked_bucket_with_room() {
        let pool = pool::<Dram>(1 << 20);
        let (map, place) = table(&pool);
        let (guard, view, medium) = (pool.pin(), map.view(), pool.medium());
        let entry = entries_of_home(&map, place, 3).next().unwrap();
        let to = place.second(3, entry.tag);
        put(&map, place, 3, 0, entry);
        let victim = Victim { at: Slot { place, index: 3, slot: 0 }, entry, to };
        let bucket = map.bucket(place, to);
        let evict = |view: View<'_, Dram>| {
            let mut held = map.lock_buckets(&guard, &[place.bucket(3)]);
            let outcome = map.evict_one(&guard, &mut held, view, victim);
            let is_left = U64::read(&guard, map.bucket(place, 3), 0) == Some(entry);
            assert_eq!(is_left, outcome.is_err());
            outcome.map_err(|blocked| match blocked {
                Blocked::Busy(stripe) => Some(stripe),
                Blocked::Full => None,
            })
        };
        let (full, empty) =
            (Meta(0).becoming::<U64>(all_slots::<U64>(), SlotLock::None), meta(medium, bucket));
        store_meta(medium, bucket, full);
        assert_eq!(evict(view), Err(None));
        store_meta(medium, bucket, empty.becoming::<U64>(0, SlotLock::Slot(5)));
        assert_eq!((evict(view), mark_of(&map, place, to)), (Err(None), SlotLock::Slot(5)));
        store_meta(medium, bucket, empty);
        let stripe = map.stripe_of(place.bucket(to));
        let other = map.lock_buckets(&guard, &[place.bucket(to)]);
        assert_eq!(evict(view), Err(Some(stripe)));
        drop(other);
        assert_eq!(evict(View { offset: Offset::new(64), ..view }), Err(Some(stripe)));
        assert_eq!(evict(view), Ok(()));
        assert_eq!((map.get(&guard, &entry.key), map.verify(&guard)), (Some(entry.word), vec![]));
        assert_eq!(map.evictions(), 1);
    }

    #[test]
    fn second_eviction_checks_the_bucket_again() {
        let pool = pool::<Dram>(1 << 20);
        let (map, place) = table(&pool);
        let (guard, view) = (pool.pin(), map.view());
        let entry = entries_of_home(&map, place, 3).next().unwrap();
        let to = place.second(3, entry.tag);
        put(&map, place, 3, 0, entry);
        let there: Vec<Entry> = entries_of_home(&map, place, to).take(14).collect();
        there.iter().enumerate().for_each(|(slot, &entry)| put(&map, place, to, slot, entry));
        let victim = Victim { at: Slot { place, index: 3, slot: 0 }, entry, to };
        let evict = |buckets| {
            let mut held = map.lock_buckets(&guard, &[place.bucket(3)]);
            map.evict_two(&guard, &mut held, view, victim, buckets).is_ok()
        };
        let before = meta(pool.medium(), map.bucket(place, to));
        assert!(!evict([3, to]), "there is no room for what comes from there");
        map.lock_slots(place, to, SlotLock::Slot(9));
        assert!(!evict([3, 3]) && mark_of(&map, place, to) == SlotLock::Slot(9));
        store_meta(
            pool.medium(),
            map.bucket(place, to),
            before.becoming::<U64>(before.valid::<U64>(), SlotLock::None),
        );
        let other = map.lock_buckets(&guard, &[place.bucket(to)]);
        assert!(!evict([3, 3]));
        drop(other);
        assert_eq!((map.evictions(), map.verify(&guard)), (0, vec![]));
        assert!(evict([3, 3]));
        assert_eq!((map.evictions(), map.verify(&guard)), (2, vec![]));
        let mut all = there.iter().chain([&entry]);
        assert!(all.all(|entry| map.get(&guard, &entry.key) == Some(entry.word)));
    }

    /// A duplicate that was not moving is damage for people to see.
    #[test]
    fn locked_slot_is_cleared_only_with_a_copy() {
        let pool = pool::<Dram>(1 << 20);
        let (map, place) = table(&pool);
        let guard = pool.pin();
        let entries: Vec<Entry> = entries_of_home(&map, place, 3).take(2).collect();
        for (slot, &entry) in entries.iter().enumerate() {
            put(&map, place, 3, slot, entry);
            store_overflow::<_, U64>(pool.medium(), map.bucket(place, 3), entry.tag);
            put(&map, place, place.second(3, entry.tag), slot, entry);
        }
        map.lock_slots(place, 3, SlotLock::Slot(1));
        let mut held = map.lock_buckets(&guard, &[place.bucket(3)]);
        assert_eq!(map.resolve(&guard, &mut held, map.view(), place, 3), Ok(()));
        drop(held);
        let left = [0, 1].map(|slot| U64::read(&guard, map.bucket(place, 3), slot));
        assert_eq!((left, mark_of(&map, place, 3)), ([Some(entries[0]), None], SlotLock::None));
        assert_eq!(map.verify(&guard).len(), 1);
    }

    #[test]
    fn moving_bucket_clears_only_copied_keys() {
        let pool = pool::<Dram>(1 << 20);
        let map = Map::with_shape(&pool, "map", 4, 5).unwrap();
        let (guard, mut keys) = (pool.pin(), 0..);
        while !map.view().is_moving() {
            map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
        }
        let (view, directory) = (map.view(), map.view().directory());
        let (from, to) = (directory.cells[0], directory.to.unwrap());
        let index = view.count();
        let entries =
            || (0..14).filter_map(|slot| Some((slot, U64::read(&guard, map.bucket(from, index), slot)?)));
        let leaves = |of: &(usize, Entry)| map.leaves(&directory, from, of.1);
        let goes = entries().find(leaves).unwrap();
        let stays = entries().find(|of| !leaves(of)).unwrap();
        map.lock_slots(from, index, SlotLock::Moving);
        for (slot, (_, entry)) in [goes, stays].into_iter().enumerate() {
            put(&map, to, map.home_in(&guard, to, (from, index), entry), slot, entry);
        }
        let mut held = map.lock_buckets(&guard, &[from.bucket(index)]);
        assert_eq!(map.resolve(&guard, &mut held, view, from, index), Ok(()));
        let is_left = |(slot, _): (usize, Entry)| U64::read(&guard, map.bucket(from, index), slot).is_some();
        assert_eq!([goes, stays].map(is_left), [false, true]);
    }

    #[test]
    fn locked_slot_of_a_single_bucket_has_no_copy() {
        let pool = pool::<Dram>(1 << 20);
        let map = Map::with_shape(&pool, "map", 1, 0).unwrap();
        let (guard, place) = (pool.pin(), map.view().directory().cells[0]);
        (0..5).for_each(|key| _ = map.insert(&guard, &key, key).unwrap());
        map.lock_slots(place, 0, SlotLock::Slot(2));
        assert_eq!(map.update(&guard, &100, 1), None);
        assert_eq!((mark_of(&map, place, 0), map.len(), map.verify(&guard)), (SlotLock::None, 5, vec![]));
    }
}
