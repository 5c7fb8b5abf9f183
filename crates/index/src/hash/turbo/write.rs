//! The operations that write: under the lock of the key's shard.

use super::bucket::*;
use super::directory::*;
use super::ops::Turbo;
use super::shape::{BucketShape, Found, Probe};
use crate::{Decision, Fencing};
use terrace_medium::{Line, MappedMedium};
use terrace_pool::{Guard, Locked, PoolFull};

/// The average path of inserts, in buckets, above which a shard is counted: two and a half.
const CROWDED: u64 = ONE_PROBE * 5 / 2;

/// A shard whose lock the caller holds. The lock's guard is not part of it: a guard with a
/// destructor lies in memory, and so would everything passed together with it.
#[derive(Clone, Copy)]
pub(super) struct LockedShard<'t> {
    pub(super) shard: usize,
    pub(super) descriptor: Descriptor<'t>,
    pub(super) place: Place,
}

/// What remains to be done with the lock after a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Everything is durable.
    Durable,
    /// Something was written back but not fenced.
    Unfenced,
}

/// A slot that can take a key.
#[derive(Clone, Copy)]
struct Vacancy<'t> {
    bucket: &'t Bucket,
    slot: usize,
    /// Buckets from the home to this one, including both.
    distance: u64,
}

/// The result of searching a key's path.
enum Survey<'t> {
    Found(&'t Bucket, usize, u64),
    Missing { vacancy: Option<Vacancy<'t>>, length: u64 },
}

impl<M: MappedMedium, K: BucketShape> Turbo<M, K> {
    /// Locks a shard.
    #[inline(always)]
    pub(super) fn lock_shard<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        shard: usize,
    ) -> (Locked<'g, M>, LockedShard<'g>) {
        let lock = self.descriptor(shard).lock().acquire(guard);
        let held = self.find_locked(&lock, shard, Place::NONE);
        (lock, held)
    }

    /// The place of a shard that was just locked; publishes it for readers if they have another.
    /// This thread has read `place` from the readers' copy while pinned. If the shard is still
    /// there, that copy is current: no shard returns to a place while a thread is pinned that has
    /// seen it there. (But having no buckets may recur, so it is checked.)
    #[inline(always)]
    fn find_locked(&self, lock: &Locked<'_, M>, shard: usize, place: Place) -> LockedShard<'_> {
        let descriptor = self.descriptor(shard);
        if M::VOLATILE_CACHE && lock.was_unfenced() {
            self.persist_pending(descriptor);
        }
        let now = descriptor.place(self.pool.medium());
        if place.is_none() || now != place {
            self.publish_if_moved(shard, now);
        }
        LockedShard { shard, descriptor, place: now }
    }

    /// Publishes the place of a shard whose mover died before it did so.
    #[inline(never)]
    fn publish_if_moved(&self, shard: usize, now: Place) {
        if now != self.place(shard) {
            self.publish(shard, now);
        }
    }

    /// Persists what the last holder left unfenced, before this one builds upon it.
    #[cold]
    fn persist_pending(&self, descriptor: Descriptor<'_>) {
        let region = self.pool.region();
        // PERSIST: the holder deferred its fence, or died between the stores of a change or of a
        // rehash. It can have left only these buckets and this line.
        region.write_back(descriptor.0);
        let place = descriptor.place(region.medium());
        for index in descriptor.pending(region.medium(), place) {
            region.write_back(self.bucket(place, index));
        }
        region.fence();
    }

    /// Looks `key` up under its shard's lock, and changes it as `decide` says. Returns the state it
    /// found.
    ///
    /// Mostly the key's home decides: it has the key, or a slot for it. The rest is left to
    /// [`Turbo::change_on_path`], which recomputes what it needs: values shared by both would lie
    /// in memory on the short way, too.
    #[inline(always)]
    pub(super) fn change_key(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        fencing: Fencing<'_>,
        decide: impl FnOnce(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, PoolFull> {
        let hash = K::hash(key, self.seed);
        let (shard, inner) = self.route(hash);
        let probe = Probe::new(key, hash, inner);
        let place = self.place(shard);
        // A place without buckets has offset 0, where the pool's header lies; a tag might match its
        // words.
        let home = if place.is_none() { None } else { self.bucket_if_known(place, inner) };
        if let Some(home) = home {
            self.prefetch_to_write(home, &probe);
        }
        let lock = self.descriptor(shard).lock().acquire(guard);
        let held = self.find_locked(&lock, shard, place);
        let home = home.filter(|_| held.place == place);
        let first_match =
            home.and_then(|bucket| Some((bucket, K::check_first_match(guard, bucket, &probe)?)));
        let (before, ending) = match first_match {
            Some((bucket, Found::Here(slot, before))) => {
                let change = decide(Some(before));
                (Some(before), self.change_found(guard, held, &probe, (bucket, slot), fencing, change))
            }
            Some((bucket, Found::Missing(now))) if now.deleted::<K>() == 0 && !now.is_full::<K>() => {
                let vacancy = Vacancy { bucket, slot: choose::<K>(now.empty::<K>(), probe.tag), distance: 1 };
                (None, self.change_missing(guard, held, &probe, (Some(vacancy), 1), fencing, decide(None))?)
            }
            _ => self.change_on_path(guard, held, key, fencing, decide)?,
        };
        if M::VOLATILE_CACHE && ending == Ending::Unfenced {
            lock.release_unfenced();
        }
        Ok(before)
    }

    #[inline(never)]
    fn change_on_path(
        &self,
        guard: &Guard<'_, M>,
        held: LockedShard<'_>,
        key: &K::Key,
        fencing: Fencing<'_>,
        decide: impl FnOnce(Option<u64>) -> Decision,
    ) -> Result<(Option<u64>, Ending), PoolFull> {
        let hash = K::hash(key, self.seed);
        let probe = Probe::new(key, hash, self.route(hash).1);
        match self.survey(guard, held.place, &probe) {
            Survey::Found(bucket, slot, before) => {
                let change = decide(Some(before));
                Ok((Some(before), self.change_found(guard, held, &probe, (bucket, slot), fencing, change)))
            }
            Survey::Missing { vacancy, length } => {
                let ending =
                    self.change_missing(guard, held, &probe, (vacancy, length), fencing, decide(None))?;
                Ok((None, ending))
            }
        }
    }

    /// Prefetches the lines of the home that a write will most likely need, while the lock is
    /// taken.
    #[inline(always)]
    fn prefetch_to_write(&self, home: &Bucket, probe: &Probe<'_, K>) {
        let region = self.pool.region();
        let at = region.offset_of(home).raw();
        region.prefetch_to_write(at);
        region.prefetch_to_write(at + 64 * line_for(probe.tag) as u64);
    }

    /// Looks for a key on its whole path, and for the first slot on it that could take the key.
    fn survey<'t>(&'t self, guard: &Guard<'_, M>, place: Place, probe: &Probe<'_, K>) -> Survey<'t> {
        let mut vacancy = None;
        let (mut distance, mut is_searching) = (0, true);
        let ended = self.walk(place, probe.inner, |bucket| {
            distance += 1;
            // After the end of the path, only a vacancy is looked for.
            let now = match is_searching {
                true => match K::find(guard, bucket, probe) {
                    Found::Here(slot, word) => return Some(Some(Survey::Found(bucket, slot, word))),
                    Found::Missing(now) => now,
                },
                false => meta(self.pool.medium(), bucket),
            };
            let free = if now.deleted::<K>() != 0 { now.deleted::<K>() } else { now.empty::<K>() };
            if free != 0 && vacancy.is_none() {
                vacancy = Some(Vacancy { bucket, slot: choose::<K>(free, probe.tag), distance });
            }
            is_searching &= !self.ends(bucket, now, probe);
            (!is_searching && vacancy.is_some()).then_some(None)
        });
        ended.flatten().unwrap_or(Survey::Missing { vacancy, length: distance })
    }

    /// Does `change` to the key in a slot.
    #[inline(always)]
    fn change_found(
        &self,
        guard: &Guard<'_, M>,
        held: LockedShard<'_>,
        probe: &Probe<'_, K>,
        (bucket, slot): (&Bucket, usize),
        fencing: Fencing<'_>,
        change: Decision,
    ) -> Ending {
        match change {
            // Nothing was stored, and `find_locked` has persisted what was found.
            Decision::Keep => Ending::Durable,
            Decision::Set(Some(word)) => {
                assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
                self.announce(held, bucket, 1);
                K::replace(guard, bucket, slot, K::entry(probe, word));
                self.finish(held, &bucket[line_of::<K>(slot)], fencing)
            }
            Decision::Set(None) => self.delete(guard, held, bucket, slot, fencing),
        }
    }

    /// Does `change` to an absent key.
    #[inline(always)]
    fn change_missing(
        &self,
        guard: &Guard<'_, M>,
        held: LockedShard<'_>,
        probe: &Probe<'_, K>,
        surveyed: (Option<Vacancy<'_>>, u64),
        fencing: Fencing<'_>,
        change: Decision,
    ) -> Result<Ending, PoolFull> {
        match change {
            Decision::Keep | Decision::Set(None) => Ok(Ending::Durable),
            Decision::Set(Some(word)) => self.add(guard, held, probe, word, surveyed, fencing),
        }
    }

    fn delete(
        &self,
        guard: &Guard<'_, M>,
        held: LockedShard<'_>,
        bucket: &Bucket,
        slot: usize,
        fencing: Fencing<'_>,
    ) -> Ending {
        let medium = self.pool.medium();
        self.announce(held, bucket, 1);
        let before = meta(medium, bucket);
        store_meta(medium, bucket, before.with_deleted::<K>(slot));
        let keys = held.descriptor.keys(medium).wrapping_sub(1);
        held.descriptor.set_keys(medium, keys);
        if held.place.log2() == 0 || keys.wrapping_mul(8) > held.place.buckets() * K::SLOTS as u64 {
            return self.finish(held, &bucket[0], fencing);
        }
        // PERSIST: the removal, before the shard is rebuilt without the key.
        self.pool.region().persist(&bucket[0]);
        self.shrink(guard, held);
        Ending::Durable
    }

    /// Adds a key whose path was surveyed.
    #[inline(always)]
    fn add(
        &self,
        guard: &Guard<'_, M>,
        held: LockedShard<'_>,
        probe: &Probe<'_, K>,
        word: u64,
        (vacancy, length): (Option<Vacancy<'_>>, u64),
        fencing: Fencing<'_>,
    ) -> Result<Ending, PoolFull> {
        assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
        let average = held.descriptor.measure(self.pool.medium(), length, held.place.log2());
        match vacancy {
            Some(vacancy) if vacancy.distance <= SCOPE && average <= CROWDED => {
                Ok(self.put(guard, held, vacancy, (probe, word), fencing))
            }
            _ => self.add_with_rehash(guard, held, (probe.key, word), fencing),
        }
    }

    /// Adds an absent key; rehashes the shard for it first, if that is useful.
    #[cold]
    #[inline(never)]
    fn add_with_rehash(
        &self,
        guard: &Guard<'_, M>,
        mut held: LockedShard<'_>,
        (key, word): (&K::Key, u64),
        fencing: Fencing<'_>,
    ) -> Result<Ending, PoolFull> {
        let hash = K::hash(key, self.seed);
        let probe = Probe::new(key, hash, self.route(hash).1);
        let made = self.rehash_if_useful(guard, &mut held);
        match (self.vacancy(guard, held.place, &probe), made) {
            // Beyond the scope, if necessary: longer paths are better than no room.
            (Some(vacancy), _) => Ok(self.put(guard, held, vacancy, (&probe, word), fencing)),
            (None, Ok(_)) => Err(self.shard_full(held.place)),
            (None, Err(full)) => Err(full),
        }
    }

    /// A slot for an absent key.
    fn vacancy<'t>(
        &'t self,
        guard: &Guard<'_, M>,
        place: Place,
        probe: &Probe<'_, K>,
    ) -> Option<Vacancy<'t>> {
        match self.survey(guard, place, probe) {
            Survey::Missing { vacancy, .. } => vacancy,
            Survey::Found(..) => unreachable!("the key was not there, and the shard is locked"),
        }
    }

    /// The error for a shard of the largest size without a free slot.
    fn shard_full(&self, place: Place) -> PoolFull {
        PoolFull {
            wanted: 2 * place.bytes() as u64,
            size: self.pool.size(),
            longest: None,
            waiting_bytes: 0,
            collecting: false,
        }
    }

    /// Puts an entry into a free slot.
    #[inline(always)]
    fn put(
        &self,
        guard: &Guard<'_, M>,
        held: LockedShard<'_>,
        Vacancy { bucket, slot, distance }: Vacancy<'_>,
        (probe, word): (&Probe<'_, K>, u64),
        fencing: Fencing<'_>,
    ) -> Ending {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        let entry = K::entry(probe, word);
        self.announce(held, bucket, distance);
        let passes = distance > 1 && self.set_overflow_bits(held.place, probe, distance);
        K::write(guard, bucket, slot, entry);
        let line = line_of::<K>(slot);
        if line != 0 || passes {
            // PERSIST: the slot before the bit that makes it live, and with it the overflow bits
            // that lead searches past the buckets before. In the first line of the bucket, the
            // order of stores is enough.
            region.persist(&bucket[line]);
        }
        store_tag(medium, bucket, slot, entry.tag);
        // PERSIST: this store adds the key. The tag lies in its line and was stored before, so a
        // crash that keeps it keeps the tag.
        store_meta(medium, bucket, meta(medium, bucket).with_live::<K>(slot));
        held.descriptor.set_keys(medium, held.descriptor.keys(medium).wrapping_add(1));
        self.finish(held, &bucket[0], fencing)
    }

    /// Sets the overflow bit of this tag in the buckets of a path before its last. Returns whether
    /// anything was stored and needs a fence.
    #[inline(never)]
    fn set_overflow_bits(&self, place: Place, probe: &Probe<'_, K>, distance: u64) -> bool {
        let (region, mut left, mut stored) = (self.pool.region(), distance - 1, false);
        let _ = self.walk(place, probe.inner, |bucket| {
            if !has_overflowed::<M, K>(region.medium(), bucket, probe.tag) {
                store_overflow::<M, K>(region.medium(), bucket, probe.tag);
                // PERSIST: fenced by the caller, before the key is added.
                region.write_back(&bucket[0]);
                stored = true;
            }
            left -= 1;
            (left == 0).then_some(())
        });
        stored
    }

    /// Announces stores to a bucket and to the buckets before it, `count` in all.
    #[inline(always)]
    fn announce(&self, held: LockedShard<'_>, last: &Bucket, count: u64) {
        if M::VOLATILE_CACHE {
            let region = self.pool.region();
            held.descriptor.set_pending(region.medium(), region.offset_of(last), count);
        }
    }

    /// Makes the change to a line durable, now or later.
    #[inline(always)]
    fn finish(&self, held: LockedShard<'_>, line: &Line, fencing: Fencing<'_>) -> Ending {
        let region = self.pool.region();
        match fencing {
            Fencing::Deferred(deferred) if M::VOLATILE_CACHE => {
                // PERSIST: written back now, fenced by `persist_deferred`. Until then the lock word
                // is marked unfenced.
                region.write_back(line);
                deferred.0.push(region.offset_of(held.descriptor.lock()).raw());
                Ending::Unfenced
            }
            _ => {
                // PERSIST: the last write-back and fence of a change; without them a crash leaves
                // the shard as it was before.
                region.persist(line);
                Ending::Durable
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::test_pools::{Power, pool};
    use super::super::shape::sealed::Shape;
    use super::*;
    use crate::{KeyKind, PointIndex, Stored, U64};
    use std::sync::atomic::Ordering::Relaxed;
    use terrace_medium::{Dram, Pmem};
    use terrace_pool::Pool;
    use terrace_testkit::{TappedPmem, TappedShm};

    type Index<M> = Turbo<M, U64>;

    /// One shard, of the size for `capacity` keys.
    fn shard<M: MappedMedium>(pool: &Pool<M>, capacity: u64, buckets: u64) -> Index<M> {
        let index = Index::with_shards(pool, "index", 0, capacity).unwrap();
        assert_eq!(index.place(0).buckets(), buckets);
        index
    }

    /// Keys whose home is `bucket`, as long as the shard has this size.
    fn keys_of<M: MappedMedium>(index: &Index<M>, bucket: u64) -> impl Iterator<Item = u64> {
        let (place, seed) = (index.place(0), index.seed);
        (0..).filter(move |key| place.home(U64::hash(key, seed)) == bucket)
    }

    fn insert<M: MappedMedium>(index: &Index<M>, keys: impl IntoIterator<Item = u64>) {
        let guard = index.pool().pin();
        keys.into_iter().for_each(|key| _ = index.insert(&guard, &key, key).unwrap());
    }

    fn remove<M: MappedMedium>(index: &Index<M>, keys: impl IntoIterator<Item = u64>) {
        let guard = index.pool().pin();
        keys.into_iter().for_each(|key| assert_eq!(index.remove(&guard, &key), Some(key)));
    }

    /// Live and deleted slots of each bucket.
    fn slots<M: MappedMedium>(index: &Index<M>) -> Vec<(u32, u32)> {
        let place = index.place(0);
        let metas = (0..place.buckets()).map(|at| meta(index.pool().medium(), index.bucket(place, at)));
        metas.map(|meta| (meta.live::<U64>().count_ones(), meta.deleted::<U64>().count_ones())).collect()
    }

    #[test]
    fn full_shard_reports_twice_its_size() {
        let pool = pool::<Dram>(1 << 20);
        let index = shard(&pool, 0, 0);
        let full = index.shard_full(Place::new(1 << 12, 3));
        assert_eq!((full.wanted, full.size), (2 * 8 * 256, pool.size()));
    }

    #[test]
    fn deleted_slot_is_filled_before_an_empty_one() {
        let pool = pool::<Dram>(1 << 20);
        let index = shard(&pool, 1, 1);
        insert(&index, 0..5);
        remove(&index, [2]);
        assert_eq!(slots(&index), [(4, 1)]);
        insert(&index, [7]);
        assert_eq!(slots(&index), [(5, 0)]);
    }

    #[test]
    fn key_takes_the_first_vacancy_and_sets_overflow_bits() {
        let pool = pool::<Dram>(1 << 20);
        let index = shard(&pool, 40, 4);
        let keys: Vec<u64> = keys_of(&index, 0).take(30).collect();
        insert(&index, keys[..28].iter().copied());
        assert_eq!(slots(&index), [(14, 0), (14, 0), (0, 0), (0, 0)]);
        let place = index.place(0);
        let passed = || [0, 1, 2, 3].map(|at| word(index.bucket(place, at), 3).load(pool.medium(), Relaxed));
        let before = passed();
        assert_eq!(before[1..], [0, 0, 0]);
        insert(&index, [keys[28]]);
        assert_eq!(slots(&index)[2], (1, 0));
        let bit = overflow_bit::<U64>(U64::hash(&keys[28], index.seed) as u8);
        assert_eq!(passed(), [before[0] | bit, bit, 0, 0]);
        remove(&index, [keys[1], keys[20]]);
        assert_eq!(slots(&index), [(13, 1), (13, 1), (1, 0), (0, 0)]);
        insert(&index, [keys[29]]);
        assert_eq!(slots(&index), [(14, 0), (13, 1), (1, 0), (0, 0)]);
        assert_eq!(index.verify(&pool.pin()), []);
    }

    #[test]
    fn overflow_bit_is_stored_once_a_class() {
        let pool = pool::<TappedPmem>(1 << 20);
        let index = shard(&pool, 40, 4);
        insert(&index, keys_of(&index, 0).take(14));
        let class = |key: &u64| overflow_bit::<U64>(U64::hash(key, index.seed) as u8);
        let more: Vec<u64> = keys_of(&index, 0).skip(14).take(200).collect();
        let alike: Vec<u64> =
            more.iter().copied().filter(|key| class(key) == class(&more[0])).take(2).collect();
        let cost = |key: u64| {
            let (counts, ()) = pool.medium().during(|| insert(&index, [key]));
            (counts.write_backs, counts.fences)
        };
        // Both go to the first line of the next bucket, where one fence is enough.
        assert_eq!([cost(alike[0]), cost(alike[1])], [(3, 2), (1, 1)]);
    }

    #[test]
    fn one_bucket_takes_a_key_in_each_slot() {
        let pool = pool::<Dram>(1 << 20);
        let index = shard(&pool, 0, 0);
        for key in 0..14 {
            insert(&index, [key]);
            assert_eq!((index.stats(&pool.pin()).buckets, index.stats(&pool.pin()).resizes), (1, 1));
        }
        insert(&index, [14]);
        assert_eq!(index.stats(&pool.pin()).buckets, 2);
        remove(&index, 0..15);
        assert_eq!(index.stats(&pool.pin()).buckets, 1, "nor does it become smaller");
    }

    #[test]
    fn shard_shrinks_below_an_eighth() {
        let pool = pool::<Dram>(1 << 20);
        // 112 slots.
        let index = shard(&pool, 80, 8);
        insert(&index, 0..16);
        let buckets = [15, 14, 13].map(|keys| {
            remove(&index, [keys]);
            index.stats(&pool.pin()).buckets
        });
        assert_eq!(buckets, [8, 2, 2]);
        assert_eq!((index.len(), index.verify(&pool.pin())), (13, vec![]));
    }

    #[test]
    fn long_path_grows_a_full_shard() {
        let pool = pool::<Dram>(1 << 20);
        // 448 slots, of which 85% are 381.
        let index = shard(&pool, 300, 32);
        let buckets = || index.stats(&pool.pin()).buckets;
        let keys: Vec<u64> = keys_of(&index, 0).take(225).collect();
        insert(&index, keys[..223].iter().copied());
        for bucket in 17..32 {
            insert(&index, keys_of(&index, bucket).take(11));
        }
        assert_eq!((slots(&index)[15], index.len(), buckets()), ((13, 0), 388, 32));
        insert(&index, [keys[223]]);
        assert_eq!(buckets(), 32, "the sixteenth bucket of its path had a slot for it");
        insert(&index, [keys[224]]);
        assert_eq!((buckets(), index.verify(&pool.pin())), (64, vec![]));
    }

    #[test]
    fn long_average_path_grows_a_full_shard() {
        for (keys, log2) in [(95, 3), (96, 4)] {
            let pool = pool::<Dram>(1 << 20);
            // 112 slots, of which 85% are 95.2; at most 12 keys have the same home.
            let index = shard(&pool, 80, 8);
            let all: Vec<u64> = (0..8).flat_map(|bucket| keys_of(&index, bucket).take(12)).collect();
            insert(&index, all[..keys].iter().copied());
            let measure = |average: u64| {
                let set = |_| index.descriptor(0).measure(pool.medium(), average, 3);
                (0..1000).map(set).last().unwrap()
            };
            let more: Vec<u64> = keys_of(&index, 0).skip(12).take(2).collect();
            assert!(measure(2) <= CROWDED);
            insert(&index, [more[0]]);
            remove(&index, [more[0]]);
            assert_eq!(index.place(0).log2(), 3);
            assert!(measure(3) > CROWDED);
            insert(&index, [more[1]]);
            assert_eq!(index.place(0).log2(), log2, "{keys} keys");
            // If it did not help, it is not tried again at once.
            assert!(index.descriptor(0).measure(pool.medium(), 1, 3) <= ONE_PROBE + ONE_PROBE / 8);
            assert_eq!(index.verify(&pool.pin()), []);
        }
    }

    #[test]
    fn largest_shard_refuses_keys_when_full() {
        let pool = pool::<Dram>(64 << 20);
        let index = shard(&pool, 450_000, 1 << BUCKETS_LOG2_MAX);
        let (guard, place) = (pool.pin(), index.place(0));
        for bucket in (0..place.buckets()).map(|at| index.bucket(place, at)) {
            store_meta(pool.medium(), bucket, Meta(0).becoming::<U64>(all_slots::<U64>(), 0));
        }
        let key = (1..).find(|key| U64::hash(key, index.seed) as u8 != 0).unwrap();
        let full = index.insert(&guard, &key, 1).expect_err("every slot has a key");
        let crate::ChangeError::Full(full) = full else { panic!("{full}") };
        assert_eq!((full.wanted, index.place(0)), (2 * place.bytes() as u64, place));
        assert_eq!(index.get(&guard, &key), None);
    }

    /// The thread that moved a shard may die before it publishes the new place.
    #[test]
    fn writer_publishes_the_place_of_a_moved_shard() {
        let pool = pool::<Dram>(1 << 20);
        let index = shard(&pool, 1, 1);
        insert(&index, 0..10);
        let (guard, before) = (pool.pin(), index.place(0));
        let (lock, mut held) = index.lock_shard(&guard, 0);
        index.rehash(&guard, &mut held, 1).unwrap();
        drop(lock);
        let now = index.place(0);
        let writes: [&dyn Fn(); 3] =
            [&|| _ = index.update(&guard, &1, 100), &|| _ = index.update(&guard, &100, 100), &|| {
                drop(index.lock_shard(&guard, 0))
            }];
        for write in writes {
            index.publish(0, before);
            write();
            assert_eq!(index.place(0), now);
        }
        assert_eq!((index.get(&guard, &1), index.verify(&guard)), (Some(100), vec![]));
    }

    #[test]
    fn home_is_read_once_if_it_decides() {
        let pool = pool::<TappedShm>(1 << 20);
        let index = shard(&pool, 1, 1);
        insert(&index, 0..9);
        let guard = pool.pin();
        let loads = |work: &dyn Fn()| pool.medium().during(work).0.loads;
        let locking = loads(&|| drop(index.lock_shard(&guard, 0)));
        for key in 0..12 {
            let hash = U64::hash(&key, index.seed);
            let probe = Probe::<U64>::new(&key, hash, index.route(hash).1);
            let bucket = index.bucket(index.place(0), 0);
            let live = meta(pool.medium(), bucket).live::<U64>();
            let is_alike =
                |&slot: &usize| live >> slot & 1 == 1 && tag_of(pool.medium(), bucket, slot) == probe.tag;
            assert!((0..U64::SLOTS).filter(is_alike).count() <= 1);
            let finding = loads(&|| _ = U64::find(&guard, bucket, &probe));
            assert_eq!(loads(&|| _ = index.update(&guard, &key, key)), locking + finding, "{key}");
            // The shard's place, and the overflow bits.
            assert_eq!(loads(&|| _ = index.get(&guard, &key)), 1 + finding + u64::from(key >= 9), "{key}");
        }
    }

    #[test]
    fn answered_change_survives_power_loss_during_rehash() {
        let power = Power::new();
        let index = shard(&power.pool, 0, 0);
        let holds = |keys: std::ops::Range<u64>| {
            let pool = power.after_power_loss();
            let after = Index::recover(&pool, "index").unwrap().unwrap();
            let found: Vec<u64> = (0..60).filter(|key| after.get(&pool.pin(), key) == Some(*key)).collect();
            assert_eq!(found, keys.clone().collect::<Vec<_>>());
            pool.abandon();
        };
        for key in 0..60 {
            insert(&index, [key]);
            holds(0..key + 1);
        }
        let resizes = index.stats(&power.pool.pin()).resizes;
        for key in 0..60 {
            remove(&index, [key]);
            holds(key + 1..60);
        }
        assert!(resizes >= 3 && index.stats(&power.pool.pin()).resizes > resizes);
    }
}
