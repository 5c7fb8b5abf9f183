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
#[path = "tests/write.rs"]
mod tests;
