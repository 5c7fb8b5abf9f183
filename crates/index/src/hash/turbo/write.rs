//! The operations that write: under the lock of the key's shard.

use super::bucket::*;
use super::directory::*;
use super::ops::Turbo;
use super::shape::{Buckets, Found, Probe};
use crate::planted::{self, Bug};
use crate::{Change, Fencing};
use terrace_medium::{Line, MappedMedium};
use terrace_pool::{Guard, Locked, PoolFull};

/// The average path of inserts, in buckets, beyond which a shard is looked through: two and a half.
const CROWDED: u64 = ONE_PROBE * 5 / 2;

/// A shard, for who has its lock. That is not part of it: a guard with a destructor lies in memory, and what is passed on together with it does, too.
#[derive(Clone, Copy)]
pub(super) struct Held<'t> {
    pub(super) shard: usize,
    pub(super) descriptor: Descriptor<'t>,
    pub(super) place: Place,
}

/// What a change leaves to do with the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// All is durable.
    Settled,
    /// What was written back is not fenced.
    Unfenced,
    /// For ever: a planted bug.
    LeftHeld,
}

/// A slot that can take a key.
#[derive(Clone, Copy)]
struct Vacancy<'t> {
    bucket: &'t Bucket,
    slot: usize,
    /// Buckets from the home to this one, both counted.
    distance: u64,
}

/// What lies on a key's path.
enum Survey<'t> {
    Here(&'t Bucket, usize, u64),
    Missing { vacancy: Option<Vacancy<'t>>, length: u64 },
}

impl<M: MappedMedium, K: Buckets> Turbo<M, K> {
    /// Locks a shard.
    #[inline(always)]
    pub(super) fn hold<'g>(&'g self, guard: &'g Guard<'_, M>, shard: usize) -> (Locked<'g, M>, Held<'g>) {
        let lock = self.descriptor(shard).lock().acquire(guard);
        let held = self.look(&lock, shard, Place::NONE);
        (lock, held)
    }

    /// Where a shard is that was just locked, and of which readers, since this thread is pinned, have been told that it is at `place`. If it is there, they are told so now, too: no shard
    /// comes back to a place while somebody is pinned who has seen it there (but for none at all, from which nothing follows).
    #[inline(always)]
    fn look(&self, lock: &Locked<'_, M>, shard: usize, place: Place) -> Held<'_> {
        let descriptor = self.descriptor(shard);
        if M::VOLATILE_CACHE && lock.was_unfenced() {
            self.persist_pending(descriptor);
        }
        let now = descriptor.place(self.pool.medium());
        if place.is_none() || now != place {
            self.tell_readers(shard, now);
        }
        Held { shard, descriptor, place: now }
    }

    /// If somebody has moved the shard and died before he told the readers.
    #[inline(never)]
    fn tell_readers(&self, shard: usize, now: Place) {
        if now != self.place(shard) {
            self.publish(shard, now);
        }
    }

    /// What the last holder left unfenced is durable before it is built upon.
    #[cold]
    fn persist_pending(&self, descriptor: Descriptor<'_>) {
        let region = self.pool.region();
        // PERSIST: the holder deferred its fence, or died: between the stores of a change, or of a rehash. All that it may have left is these buckets and this line.
        region.write_back(descriptor.0);
        let place = descriptor.place(region.medium());
        for index in descriptor.pending(region.medium(), place) {
            region.write_back(self.bucket(place, index));
        }
        region.fence();
    }

    /// Looks `key` up under its shard's lock, lets `decide` say what becomes of it, and does that. Returns the state it found.
    ///
    /// Mostly the key's home has the answer: where it lies, or a slot for it. All else is left to [`Turbo::change_on_path`], which makes anew what it needs: whatever the two shared would
    /// lie in memory, and be moved there, on the short way, too.
    #[inline(always)]
    pub(super) fn change_key(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        fencing: Fencing<'_>,
        decide: impl FnOnce(Option<u64>) -> Change,
    ) -> Result<Option<u64>, PoolFull> {
        let hash = K::hash(key, self.seed);
        let (shard, inner) = self.route(hash);
        let probe = Probe::new(key, hash, inner);
        let place = self.place(shard);
        // At the offset of none lies the pool's header, whose words a tag may take for a key.
        let home = if place.is_none() { None } else { self.glance(place, inner) };
        if let Some(home) = home {
            self.prefetch_to_write(home, &probe);
        }
        let lock = self.descriptor(shard).lock().acquire(guard);
        let held = self.look(&lock, shard, place);
        let home = home.filter(|_| held.place == place);
        let glance = home.and_then(|bucket| Some((bucket, K::glance(guard, bucket, &probe)?)));
        let (before, ending) = match glance {
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
        match ending {
            Ending::Unfenced if M::VOLATILE_CACHE => lock.release_unfenced(),
            Ending::LeftHeld if planted::has(Bug::LockLeftHeld) => std::mem::forget(lock),
            _ => {}
        }
        Ok(before)
    }

    #[inline(never)]
    fn change_on_path(
        &self,
        guard: &Guard<'_, M>,
        held: Held<'_>,
        key: &K::Key,
        fencing: Fencing<'_>,
        decide: impl FnOnce(Option<u64>) -> Change,
    ) -> Result<(Option<u64>, Ending), PoolFull> {
        let hash = K::hash(key, self.seed);
        let probe = Probe::new(key, hash, self.route(hash).1);
        match self.survey(guard, held.place, &probe) {
            Survey::Here(bucket, slot, before) => {
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

    /// The lines of the home that a write will most likely need, while the lock is taken.
    #[inline(always)]
    fn prefetch_to_write(&self, home: &Bucket, probe: &Probe<'_, K>) {
        let region = self.pool.region();
        let at = region.offset_of(home).raw();
        region.prefetch_to_write(at);
        region.prefetch_to_write(at + 64 * line_for(probe.tag) as u64);
    }

    /// Looks for a key on the whole of its path, and for the first slot on it that could take the key.
    fn survey<'t>(&'t self, guard: &Guard<'_, M>, place: Place, probe: &Probe<'_, K>) -> Survey<'t> {
        let mut vacancy = None;
        let (mut distance, mut is_searching) = (0, true);
        let ended = self.walk(place, probe.inner, |bucket| {
            distance += 1;
            // Where the path has ended without a vacancy, only that is looked for.
            let now = match is_searching {
                true => match K::find(guard, bucket, probe) {
                    Found::Here(slot, word) => return Some(Some(Survey::Here(bucket, slot, word))),
                    Found::Missing(now) => now,
                },
                false => meta(self.pool.medium(), bucket),
            };
            let free = if now.deleted::<K>() != 0 { now.deleted::<K>() } else { now.empty::<K>() };
            if free != 0 && vacancy.is_none() {
                vacancy = Some(Vacancy { bucket, slot: choose::<K>(free, probe.tag), distance });
            }
            is_searching &= !self.ends(bucket, now, probe) && !planted::has(Bug::StaleDuplicate);
            (!is_searching && vacancy.is_some()).then_some(None)
        });
        ended.flatten().unwrap_or(Survey::Missing { vacancy, length: distance })
    }

    /// Does `change` to the key in a slot.
    #[inline(always)]
    fn change_found(
        &self,
        guard: &Guard<'_, M>,
        held: Held<'_>,
        probe: &Probe<'_, K>,
        (bucket, slot): (&Bucket, usize),
        fencing: Fencing<'_>,
        change: Change,
    ) -> Ending {
        match change {
            // Nothing was stored, and `look` has made durable what was found.
            Change::Keep => Ending::Settled,
            Change::To(Some(word)) => {
                assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
                self.announce(held, bucket, 1);
                K::replace(guard, bucket, slot, K::entry(probe, word));
                self.finish(held, &bucket[line_of::<K>(slot)], fencing)
            }
            Change::To(None) => self.delete(guard, held, bucket, slot, fencing),
        }
    }

    /// Does `change` to a key that is not there.
    #[inline(always)]
    fn change_missing(
        &self,
        guard: &Guard<'_, M>,
        held: Held<'_>,
        probe: &Probe<'_, K>,
        surveyed: (Option<Vacancy<'_>>, u64),
        fencing: Fencing<'_>,
        change: Change,
    ) -> Result<Ending, PoolFull> {
        match change {
            Change::To(None) if planted::has(Bug::LockLeftHeld) => Ok(Ending::LeftHeld),
            Change::Keep | Change::To(None) => Ok(Ending::Settled),
            Change::To(Some(word)) => self.add(guard, held, probe, word, surveyed, fencing),
        }
    }

    fn delete(
        &self,
        guard: &Guard<'_, M>,
        held: Held<'_>,
        bucket: &Bucket,
        slot: usize,
        fencing: Fencing<'_>,
    ) -> Ending {
        let medium = self.pool.medium();
        self.announce(held, bucket, 1);
        let before = meta(medium, bucket);
        let after = match planted::has(Bug::DeletedEndsPath) {
            true => before.becoming::<K>(before.live::<K>() & !(1 << slot), before.deleted::<K>()),
            false => before.with_deleted::<K>(slot),
        };
        store_meta(medium, bucket, after);
        let keys = held.descriptor.keys(medium).wrapping_sub(1);
        held.descriptor.set_keys(medium, keys);
        if held.place.log2() == 0 || keys.wrapping_mul(8) > held.place.buckets() * K::SLOTS as u64 {
            return self.finish(held, &bucket[0], fencing);
        }
        // PERSIST: the removal, before the shard is drawn without the key.
        self.pool.region().persist(&bucket[0]);
        self.shrink(guard, held);
        Ending::Settled
    }

    /// Adds a key whose path was surveyed.
    #[inline(always)]
    fn add(
        &self,
        guard: &Guard<'_, M>,
        held: Held<'_>,
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
            _ => self.add_where_there_is_room(guard, held, (probe.key, word), fencing),
        }
    }

    /// Adds a key, which is not there, to a shard that is rehashed for it if that is worth it.
    #[cold]
    #[inline(never)]
    fn add_where_there_is_room(
        &self,
        guard: &Guard<'_, M>,
        mut held: Held<'_>,
        (key, word): (&K::Key, u64),
        fencing: Fencing<'_>,
    ) -> Result<Ending, PoolFull> {
        let hash = K::hash(key, self.seed);
        let probe = Probe::new(key, hash, self.route(hash).1);
        let vacancy = loop {
            let vacancy = self.vacancy(guard, held.place, &probe);
            match (self.make_room(guard, &mut held), vacancy) {
                // Each time with half of the load, or without what was deleted: it comes to an end.
                (Ok(true), _) => match self.vacancy(guard, held.place, &probe) {
                    Some(vacancy) if vacancy.distance <= SCOPE => break vacancy,
                    _ => {}
                },
                // Beyond the scope, if need be: longer paths are better than no room.
                (_, Some(vacancy)) => break vacancy,
                (Ok(false), None) => return Err(self.shard_full(held.place)),
                (Err(full), None) => return Err(full),
            }
        };
        Ok(self.put(guard, held, vacancy, (&probe, word), fencing))
    }

    /// A slot for a key that is not there.
    fn vacancy<'t>(
        &'t self,
        guard: &Guard<'_, M>,
        place: Place,
        probe: &Probe<'_, K>,
    ) -> Option<Vacancy<'t>> {
        match self.survey(guard, place, probe) {
            Survey::Missing { vacancy, .. } => vacancy,
            Survey::Here(..) => unreachable!("the key was not there, and the shard is locked"),
        }
    }

    /// A shard that has reached its largest size, and of which every slot has a key.
    fn shard_full(&self, place: Place) -> PoolFull {
        PoolFull {
            wanted: 2 * place.bytes() as u64,
            size: self.pool.size(),
            longest: None,
            waiting: 0,
            collecting: false,
        }
    }

    /// Puts an entry into a free slot.
    #[inline(always)]
    fn put(
        &self,
        guard: &Guard<'_, M>,
        held: Held<'_>,
        Vacancy { bucket, slot, distance }: Vacancy<'_>,
        (probe, word): (&Probe<'_, K>, u64),
        fencing: Fencing<'_>,
    ) -> Ending {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        let entry = K::entry(probe, word);
        self.announce(held, bucket, distance);
        let passes = distance > 1 && self.pass(held.place, probe, distance);
        if planted::has(Bug::PublishBeforePair) {
            store_meta(medium, bucket, meta(medium, bucket).with_live::<K>(slot));
        }
        K::write(guard, bucket, slot, entry);
        let line = line_of::<K>(slot);
        if (line != 0 || passes) && !planted::has(Bug::SlotUnfenced) {
            // PERSIST: the slot before the bit that makes it live, and with it what makes searches pass the buckets before. In the first line of the bucket the order
            // of the stores is enough.
            region.persist(&bucket[line]);
        }
        if !planted::has(Bug::ForgottenTag) {
            store_tag(medium, bucket, slot, entry.tag);
        }
        // PERSIST: this store adds the key. The tag lies in its line and was stored before, so a crash that keeps it keeps the tag.
        store_meta(medium, bucket, meta(medium, bucket).with_live::<K>(slot));
        if !planted::has(Bug::ForgottenCount) {
            held.descriptor.set_keys(medium, held.descriptor.keys(medium).wrapping_add(1));
        }
        self.finish(held, &bucket[0], fencing)
    }

    /// Says in the buckets of a path before its last that a key with this tag passes them. Returns whether anything was stored, and has to be fenced.
    #[inline(never)]
    fn pass(&self, place: Place, probe: &Probe<'_, K>, distance: u64) -> bool {
        let (region, mut left, mut stored) = (self.pool.region(), distance - 1, false);
        let _ = self.walk(place, probe.inner, |bucket| {
            if !has_passed::<M, K>(region.medium(), bucket, probe.tag) && !planted::has(Bug::PassedUnsaid) {
                store_passed::<M, K>(region.medium(), bucket, probe.tag);
                // PERSIST: fenced by the caller, before the key is added.
                region.write_back(&bucket[0]);
                stored = true;
            }
            left -= 1;
            (left == 0).then_some(())
        });
        stored
    }

    /// Notes which bucket is going to be stored to, and how many before it, itself counted.
    #[inline(always)]
    fn announce(&self, held: Held<'_>, last: &Bucket, count: u64) {
        if M::VOLATILE_CACHE {
            let region = self.pool.region();
            held.descriptor.set_pending(region.medium(), region.offset_of(last), count);
        }
    }

    /// Makes the change to a line durable, now or later.
    #[inline(always)]
    fn finish(&self, held: Held<'_>, line: &Line, fencing: Fencing<'_>) -> Ending {
        let region = self.pool.region();
        match fencing {
            Fencing::Deferred(deferred) if M::VOLATILE_CACHE => {
                // PERSIST: written back now, fenced by `settle`. Until then the lock word tells every reader and writer so.
                region.write_back(line);
                deferred.0.push(region.offset_of(held.descriptor.lock()).raw());
                Ending::Unfenced
            }
            _ => {
                // PERSIST: the last write-back and fence of a change; without them a crash leaves the shard as it was before.
                if !planted::has(Bug::UnlockWithoutPersist) {
                    region.persist(line);
                }
                Ending::Settled
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::power::pool;
    use super::*;
    use crate::U64;
    use terrace_medium::Dram;

    #[test]
    fn a_full_shard_asks_for_one_twice_as_large() {
        let pool = pool::<Dram>(1 << 20);
        let index = Turbo::<Dram, U64>::with_shards(&pool, "index", 0, 0).unwrap();
        let full = index.shard_full(Place::new(1 << 12, 3));
        assert_eq!((full.wanted, full.size), (2 * 8 * 256, pool.size()));
    }
}
