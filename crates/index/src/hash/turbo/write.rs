//! The operations that write: under the lock of the key's shard.

use super::super::change::{Change, Fencing};
use super::bucket::*;
use super::directory::*;
use super::ops::Turbo;
use super::shape::{Buckets, Found, Probe};
use crate::planted::{self, Bug};
use terrace_medium::{Line, MappedMedium};
use terrace_pool::{Guard, Locked, PoolFull};

/// The average path of inserts, in buckets, beyond which a shard is looked through: two and a half.
const CROWDED: u64 = ONE_PROBE * 5 / 2;

/// A shard under its lock.
pub(super) struct Held<'g, M: MappedMedium> {
    pub(super) shard: usize,
    pub(super) descriptor: Descriptor<'g>,
    pub(super) place: Place,
    pub(super) lock: Locked<'g, M>,
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
    pub(super) fn hold<'g>(&'g self, guard: &'g Guard<'_, M>, shard: usize) -> Held<'g, M> {
        let descriptor = self.descriptor(shard);
        let lock = descriptor.lock().acquire(guard);
        if M::VOLATILE_CACHE && lock.was_unfenced() {
            self.persist_pending(descriptor);
        }
        let place = descriptor.place(self.pool.medium());
        if place != self.place(shard) {
            self.publish(shard, place);
        }
        Held { shard, descriptor, place, lock }
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
    #[inline(always)]
    pub(super) fn change(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        mut fencing: Fencing<'_>,
        decide: impl FnOnce(Option<u64>) -> Change,
    ) -> Result<Option<u64>, PoolFull> {
        let hash = K::hash(key, self.seed);
        let (shard, inner) = self.route(hash);
        let probe = Probe::new(key, hash, inner);
        self.prefetch_to_write(self.place(shard), &probe);
        let held = self.hold(guard, shard);
        match self.survey(guard, held.place, &probe) {
            Survey::Here(bucket, slot, before) => {
                self.change_found(guard, held, &probe, (bucket, slot), &mut fencing, decide(Some(before)));
                Ok(Some(before))
            }
            Survey::Missing { vacancy, length } => match decide(None) {
                Change::To(None) if planted::has(Bug::LockLeftHeld) => {
                    std::mem::forget(held.lock);
                    Ok(None)
                }
                Change::Keep | Change::To(None) => Ok(None),
                Change::To(Some(word)) => {
                    self.add(guard, held, &probe, word, (vacancy, length), &mut fencing).map(|()| None)
                }
            },
        }
    }

    /// The lines of the home that a write will most likely need, while the lock is taken.
    #[inline(always)]
    fn prefetch_to_write(&self, place: Place, probe: &Probe<'_, K>) {
        let at = place.bucket(place.home(probe.inner)).raw();
        self.pool.region().prefetch_to_write(at);
        self.pool.region().prefetch_to_write(at + 64 * line_for(probe.tag) as u64);
    }

    /// Looks for a key on the whole of its path, and for the first slot on it that could take the key. Mostly the first bucket has the answer to both.
    #[inline(always)]
    fn survey<'t>(&'t self, guard: &Guard<'_, M>, place: Place, probe: &Probe<'_, K>) -> Survey<'t> {
        // It has no home: what lies at its offset 0 is the pool's header, whose words a tag may take for a key.
        if place.is_none() {
            return Survey::Missing { vacancy: None, length: 0 };
        }
        let bucket = self.bucket(place, place.home(probe.inner));
        match K::find(guard, bucket, probe) {
            Found::Here(slot, word) => Survey::Here(bucket, slot, word),
            Found::Missing(now) if now.deleted::<K>() == 0 && !now.is_full::<K>() => {
                let vacancy = Vacancy { bucket, slot: choose::<K>(now.empty::<K>(), probe.tag), distance: 1 };
                Survey::Missing { vacancy: Some(vacancy), length: 1 }
            }
            Found::Missing(_) => self.survey_path(guard, place, probe),
        }
    }

    #[inline(never)]
    fn survey_path<'t>(&'t self, guard: &Guard<'_, M>, place: Place, probe: &Probe<'_, K>) -> Survey<'t> {
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
        held: Held<'_, M>,
        probe: &Probe<'_, K>,
        (bucket, slot): (&Bucket, usize),
        fencing: &mut Fencing<'_>,
        change: Change,
    ) {
        match change {
            // Nothing was stored, and `hold` has made durable what was found.
            Change::Keep => held.lock.release(),
            Change::To(Some(word)) => {
                assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
                self.announce(&held, bucket, 1);
                K::replace(guard, bucket, slot, K::entry(probe, word));
                self.finish(held, &bucket[line_of::<K>(slot)], fencing);
            }
            Change::To(None) => self.delete(guard, held, bucket, slot, fencing),
        }
    }

    fn delete(
        &self,
        guard: &Guard<'_, M>,
        mut held: Held<'_, M>,
        bucket: &Bucket,
        slot: usize,
        fencing: &mut Fencing<'_>,
    ) {
        let medium = self.pool.medium();
        self.announce(&held, bucket, 1);
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
        self.shrink(guard, &mut held);
        held.lock.release();
    }

    /// Adds a key whose path was surveyed.
    #[inline(always)]
    fn add(
        &self,
        guard: &Guard<'_, M>,
        mut held: Held<'_, M>,
        probe: &Probe<'_, K>,
        word: u64,
        (vacancy, length): (Option<Vacancy<'_>>, u64),
        fencing: &mut Fencing<'_>,
    ) -> Result<(), PoolFull> {
        assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
        let average = held.descriptor.measure(self.pool.medium(), length, held.place.log2());
        let vacancy = match vacancy {
            Some(vacancy) if vacancy.distance <= SCOPE && average <= CROWDED => vacancy,
            _ => self.find_room(guard, &mut held, probe, vacancy)?,
        };
        self.put(guard, held, vacancy, (probe, word), fencing);
        Ok(())
    }

    /// Rehashes the shard if that is worth it, and returns a slot for the key.
    #[cold]
    #[inline(never)]
    fn find_room<'t>(
        &'t self,
        guard: &Guard<'_, M>,
        held: &mut Held<'_, M>,
        probe: &Probe<'_, K>,
        mut vacancy: Option<Vacancy<'t>>,
    ) -> Result<Vacancy<'t>, PoolFull> {
        loop {
            match (self.make_room(guard, held), vacancy) {
                // Each time with half of the load, or without what was deleted: it comes to an end.
                (Ok(true), _) => {}
                // Beyond the scope, if need be: longer paths are better than no room.
                (_, Some(vacancy)) => return Ok(vacancy),
                (Ok(false), None) => return Err(self.shard_full(held.place)),
                (Err(full), None) => return Err(full),
            }
            vacancy = match self.survey(guard, held.place, probe) {
                Survey::Missing { vacancy, .. } => vacancy,
                Survey::Here(..) => unreachable!("a rehash brought up a key that was not there"),
            };
            if let Some(vacancy) = vacancy.filter(|vacancy| vacancy.distance <= SCOPE) {
                return Ok(vacancy);
            }
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
        held: Held<'_, M>,
        Vacancy { bucket, slot, distance }: Vacancy<'_>,
        (probe, word): (&Probe<'_, K>, u64),
        fencing: &mut Fencing<'_>,
    ) {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        let entry = K::entry(probe, word);
        self.announce(&held, bucket, distance);
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
        self.finish(held, &bucket[0], fencing);
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
    fn announce(&self, held: &Held<'_, M>, last: &Bucket, count: u64) {
        if M::VOLATILE_CACHE {
            let region = self.pool.region();
            held.descriptor.set_pending(region.medium(), region.offset_of(last), count);
        }
    }

    /// Makes the change to a line durable, now or later, and unlocks the shard.
    #[inline(always)]
    fn finish(&self, held: Held<'_, M>, line: &Line, fencing: &mut Fencing<'_>) {
        let region = self.pool.region();
        match fencing {
            Fencing::Deferred(deferred) if M::VOLATILE_CACHE => {
                // PERSIST: written back now, fenced by `settle`. Until then the lock word tells every reader and writer so.
                region.write_back(line);
                deferred.0.push(region.offset_of(held.descriptor.lock()).raw());
                held.lock.release_unfenced();
            }
            _ => {
                // PERSIST: the last write-back and fence of a change; without them a crash leaves the shard as it was before.
                if !planted::has(Bug::UnlockWithoutPersist) {
                    region.persist(line);
                }
                held.lock.release();
            }
        }
    }
}
