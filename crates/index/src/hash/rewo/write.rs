//! The operations that write: under the locks of the buckets that may have the key.

use super::bucket::*;
use super::cache::CacheChange;
use super::ops::Rewo;
use super::shape::{BucketShape, Entry, Probe};
use super::stripes::LockedStripes;
use super::tables::{Blocked, Path, Slot};
use crate::{Decision, Fencing};
use terrace_medium::{MappedMedium, external_sync};
use terrace_pool::{Guard, PoolFull};

impl<M: MappedMedium, K: BucketShape> Rewo<M, K> {
    /// Looks `key` up under the locks of its buckets, and changes it as `decide` says. Returns the
    /// state it found.
    #[inline(always)]
    pub(super) fn change_key(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        mut fencing: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, PoolFull> {
        let probe = Probe::new(key, self.tables.seed);
        self.tables.prefetch_to_write(&probe, matches!(decide(None), Decision::Set(Some(_))));
        // The view of the resize, or of its beginning, that this writer has helped with.
        let mut helped = None;
        loop {
            let before = self.base().view();
            if before.wants_help() && helped != Some(before.offset) && self.resize(guard).help_resize() {
                helped = Some(before.offset);
            }
            let view = self.base().view();
            let route = view.route(probe.hash);
            let path = Path::new(route, probe.hash);
            let (offsets, len) = path.offsets();
            let mut held = self.base().lock_buckets(guard, &offsets[..len]);
            if self.base().view_offset() != view.offset {
                continue;
            }
            self.base().persist_view(view.offset);
            if let Err(stripe) = self.tables.repair(guard, &mut held, view, (&path, probe.tag())) {
                drop(held);
                self.base().wait_for(guard, stripe);
                continue;
            }
            if let Some((at, before)) = self.tables.survey(guard, &path, &probe) {
                self.change_found(guard, held, &probe, at, decide(Some(before)), &mut fencing);
                return Ok(Some(before));
            }
            let word = match decide(None) {
                Decision::Set(Some(word)) => word,
                Decision::Keep | Decision::Set(None) => return Ok(None),
            };
            assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
            if view.is_moving() && helped != Some(view.offset) {
                drop(held);
                self.resize(guard).wait_and_help();
                helped = Some(view.offset);
                continue;
            }
            let target = route.target();
            // Not a function of its own: the locks would be copied once more.
            match self.tables.vacancy(guard, &mut held, view, target, (target.home(probe.hash), probe.tag()))
            {
                Ok(at) => {
                    let home = target.home(probe.hash);
                    let entry = K::entry(&probe, word, at.index != home);
                    let shadow = self.shadow(guard, &probe, true);
                    let evictions = held.evictions();
                    self.put(guard, held, (home, at), entry, &mut fencing, shadow);
                    if evictions > 0 {
                        self.resize(guard).prepare_resize(target, evictions);
                    }
                    return Ok(None);
                }
                Err(Blocked::Busy(stripe)) => {
                    drop(held);
                    self.base().wait_for(guard, stripe);
                }
                Err(Blocked::Full) => {
                    drop(held);
                    self.resize(guard).make_place(view, target)?;
                }
            }
        }
    }

    /// Does `change` to the key in a slot.
    #[inline(always)]
    fn change_found(
        &self,
        guard: &Guard<'_, M>,
        held: LockedStripes<'_, M>,
        probe: &Probe<'_, K>,
        at: Slot,
        change: Decision,
        fencing: &mut Fencing<'_>,
    ) {
        let (medium, bucket) = (self.base().pool.medium(), self.base().bucket(at.place, at.index));
        match change {
            // Nothing was stored, and `lock_buckets` has persisted what was found.
            Decision::Keep => {}
            Decision::Set(Some(word)) => {
                assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
                let shadow = self.shadow(guard, probe, false);
                self.base().announce(at.place.bucket(at.index));
                K::replace(guard, bucket, at.slot, K::entry(probe, word, false));
                self.finish(held, at, line_of::<K>(at.slot), fencing, (shadow, Some(word)));
            }
            Decision::Set(None) => {
                let shadow = self.shadow(guard, probe, false);
                self.base().announce(at.place.bucket(at.index));
                store_meta(medium, bucket, meta(medium, bucket).without::<K>(1 << at.slot));
                self.base().add_keys(at.place.bucket(at.index), -1);
                self.finish(held, at, 0, fencing, (shadow, None));
                if probe.hash & 0xff == 0 {
                    self.resize(guard).shrink_if_sparse();
                }
            }
        }
    }

    /// Announces a change of a key to the cache, if there is one.
    #[inline(always)]
    fn shadow(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>, is_insert: bool) -> CacheChange<'_> {
        match &self.cache {
            None => CacheChange::NONE,
            Some(cache) => {
                external_sync(self.base().pool.medium());
                cache.begin(guard.slot_index(), Self::cache_key(probe), is_insert)
            }
        }
    }

    /// Puts an entry into a free slot.
    #[inline(always)]
    fn put(
        &self,
        guard: &Guard<'_, M>,
        held: LockedStripes<'_, M>,
        (home, at): (u64, Slot),
        entry: Entry,
        fencing: &mut Fencing<'_>,
        shadow: CacheChange<'_>,
    ) {
        let (region, bucket) = (self.base().pool.region(), self.base().bucket(at.place, at.index));
        let line = line_of::<K>(at.slot);
        let passes = self.tables.set_overflow_bit(home, at, entry.tag);
        self.base().announce(at.place.bucket(at.index));
        K::write(guard, bucket, at.slot, entry);
        if line != 0 || passes {
            // PERSIST: the slot before the bit that makes it valid, and with it the overflow bit
            // that leads searches to the second bucket. In the first line of the bucket, the order
            // of stores is enough.
            region.persist(&bucket[line]);
        }
        self.tables.publish(at, entry.tag);
        self.finish(held, at, 0, fencing, (shadow, Some(entry.word)));
    }

    /// Makes the change to a line of a bucket durable, now or later, tells the cache the key's new
    /// state, and unlocks.
    #[inline(always)]
    fn finish(
        &self,
        mut held: LockedStripes<'_, M>,
        at: Slot,
        line: usize,
        fencing: &mut Fencing<'_>,
        (shadow, becomes): (CacheChange<'_>, Option<u64>),
    ) {
        let region = self.base().pool.region();
        let line = &self.base().bucket(at.place, at.index)[line];
        if self.cache.is_some() {
            external_sync(region.medium());
        }
        match fencing {
            Fencing::Deferred(deferred) if M::VOLATILE_CACHE => {
                // PERSIST: written back now, fenced by `persist_deferred`. Until then the lock word
                // is marked unfenced.
                region.write_back(line);
                let stripe = self.base().stripe_of(at.place.bucket(at.index));
                deferred.0.push(region.offset_of(self.base().lock_of(stripe)).raw());
                shadow.left();
                held.release_unfenced(stripe);
            }
            _ => {
                // PERSIST: the last write-back and fence of a change; without them a crash leaves
                // the bucket as it was before.
                region.persist(line);
                shadow.done(becomes);
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/write.rs"]
mod tests;
