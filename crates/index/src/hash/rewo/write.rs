//! The operations that write: under the locks of the buckets that may have the key.

use super::bucket::*;
use super::cache::CacheChange;
use super::ops::{Path, Rewo};
use super::place::Place;
use super::shape::{BucketShape, Entry, Probe};
use super::stripes::LockedStripes;
use super::view::{DURABLE_VIEW, ViewBlock};
use crate::{Decision, Fencing};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, Offset, external_sync};
use terrace_pool::{Guard, PoolFull};

/// A slot of a data table.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) place: Place,
    pub(super) index: u64,
    pub(super) slot: usize,
}

/// Why something cannot be done now.
pub(super) enum Blocked {
    /// Another thread holds this stripe.
    Busy(usize),
    /// No slot can be freed.
    Full,
}

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
        let probe = Probe::new(key, self.seed);
        self.prefetch_to_write(&probe, matches!(decide(None), Decision::Set(Some(_))));
        // The view of the resize, or of its beginning, that this writer has helped with.
        let mut helped = None;
        loop {
            let before = self.view();
            if before.wants_help() && helped != Some(before.offset) && self.help_resize(guard) {
                helped = Some(before.offset);
            }
            let view = self.view();
            let route = view.route(probe.hash);
            let path = Path::new(route, probe.hash);
            let (offsets, len) = path.offsets();
            let mut held = self.lock_buckets(guard, &offsets[..len]);
            if self.view_offset() != view.offset {
                continue;
            }
            self.persist_view(view.offset);
            if let Err(stripe) = self.repair(guard, &mut held, view, (&path, probe.tag())) {
                drop(held);
                self.wait_for(guard, stripe);
                continue;
            }
            if let Some((at, before)) = self.survey(guard, &path, &probe) {
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
                self.wait_and_help(guard);
                helped = Some(view.offset);
                continue;
            }
            let target = route.target();
            match self.vacancy(guard, &mut held, view, target, (target.home(probe.hash), probe.tag())) {
                Ok(at) => {
                    let home = target.home(probe.hash);
                    let entry = K::entry(&probe, word, at.index != home);
                    let shadow = self.shadow(guard, &probe, true);
                    let evictions = held.evictions();
                    self.put(guard, held, (home, at), entry, &mut fencing, shadow);
                    if evictions > 0 {
                        self.prepare_resize(guard, target, evictions);
                    }
                    return Ok(None);
                }
                Err(Blocked::Busy(stripe)) => {
                    drop(held);
                    self.wait_for(guard, stripe);
                }
                Err(Blocked::Full) => {
                    drop(held);
                    self.make_place(guard, view, target)?;
                }
            }
        }
    }

    /// Prefetches the lines that a write will most likely need, while locks are taken. An insert
    /// searches both of its buckets for room: fetches them at the same time, not one after the
    /// other.
    #[inline(always)]
    fn prefetch_to_write(&self, probe: &Probe<'_, K>, adds: bool) {
        let (region, view) = (self.pool.region(), self.view());
        let route = view.route(probe.hash);
        let at = route.from.bucket(route.from.home(probe.hash)).raw();
        region.prefetch_to_write(at);
        region.prefetch_to_write(at + 64 * line_for(probe.tag()) as u64);
        if adds {
            let target = route.target();
            let second = target.second(target.home(probe.hash), probe.tag());
            region.prefetch_to_write(target.bucket(second).raw());
        }
    }

    /// Waits until a stripe is free. The caller holds none.
    #[cold]
    pub(super) fn wait_for(&self, guard: &Guard<'_, M>, stripe: usize) {
        let mut held = LockedStripes::none();
        self.lock_stripe(guard, &mut held, stripe);
    }

    /// Persists the view that this thread builds upon: a key that it adds to a new table must not
    /// be lost with the way there. The thread that stored the view may not have reached its fence,
    /// or may have died.
    #[inline(always)]
    pub(super) fn persist_view(&self, view: Offset<ViewBlock>) {
        let (medium, durable) = (self.pool.medium(), &self.root[2].0[DURABLE_VIEW]);
        // ORDER: Relaxed, both: the word says that a fence has happened, and nothing about other
        // memory. That fence keeps the store behind it. What depends on the view are stores with
        // Release, which the load stays before; or, if something is retired, the decision of this
        // branch.
        if M::VOLATILE_CACHE && durable.load(medium, Relaxed) != view.raw() {
            // PERSIST: `view` in the root, before anything follows from it.
            self.pool.region().persist(&self.root[1]);
            if self.view_offset() == view {
                durable.store(medium, view.raw(), Relaxed);
            }
        }
    }

    /// The slot and the word of a key.
    #[inline(always)]
    fn survey(&self, guard: &Guard<'_, M>, path: &Path, probe: &Probe<'_, K>) -> Option<(Slot, u64)> {
        let found = self.walk(path, probe.tag(), |_, bucket| K::find(guard, bucket, probe));
        found.map(|((place, index), (slot, word))| (Slot { place, index, slot }, word))
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
        let (medium, bucket) = (self.pool.medium(), self.bucket(at.place, at.index));
        match change {
            // Nothing was stored, and `lock_buckets` has persisted what was found.
            Decision::Keep => {}
            Decision::Set(Some(word)) => {
                assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
                let shadow = self.shadow(guard, probe, false);
                self.announce(at.place.bucket(at.index));
                K::replace(guard, bucket, at.slot, K::entry(probe, word, false));
                self.finish(held, at, line_of::<K>(at.slot), fencing, (shadow, Some(word)));
            }
            Decision::Set(None) => {
                let shadow = self.shadow(guard, probe, false);
                self.announce(at.place.bucket(at.index));
                store_meta(medium, bucket, meta(medium, bucket).without::<K>(1 << at.slot));
                self.add_keys(at.place.bucket(at.index), -1);
                self.finish(held, at, 0, fencing, (shadow, None));
                if probe.hash & 0xff == 0 {
                    self.shrink_if_sparse(guard);
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
                external_sync(self.pool.medium());
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
        let (region, bucket) = (self.pool.region(), self.bucket(at.place, at.index));
        let line = line_of::<K>(at.slot);
        let passes = self.set_overflow_bit(home, at, entry.tag);
        self.announce(at.place.bucket(at.index));
        K::write(guard, bucket, at.slot, entry);
        if line != 0 || passes {
            // PERSIST: the slot before the bit that makes it valid, and with it the overflow bit
            // that leads searches to the second bucket. In the first line of the bucket, the order
            // of stores is enough.
            region.persist(&bucket[line]);
        }
        self.publish(at, entry.tag);
        self.finish(held, at, 0, fencing, (shadow, Some(entry.word)));
    }

    /// Sets the overflow bit in the first bucket of a key that goes to the second. Returns whether
    /// anything was stored and needs a fence.
    #[inline(always)]
    pub(super) fn set_overflow_bit(&self, home: u64, at: Slot, tag: u8) -> bool {
        let (region, bucket) = (self.pool.region(), self.bucket(at.place, home));
        let is_said = at.index == home || has_overflowed::<M, K>(region.medium(), bucket, tag);
        if is_said {
            return false;
        }
        self.announce(at.place.bucket(home));
        store_overflow::<M, K>(region.medium(), bucket, tag);
        // PERSIST: fenced by the caller, before the key is added.
        region.write_back(&bucket[0]);
        self.fence_between(at.place, home, at.index);
        true
    }

    /// Fences between stores to two buckets with the same lock.
    pub(super) fn fence_between(&self, place: Place, one: u64, other: u64) {
        if self.stripe_of(place.bucket(one)) == self.stripe_of(place.bucket(other)) {
            // PERSIST: under one lock only one bucket may be not durable.
            self.pool.region().fence();
        }
    }

    /// Makes a written slot valid.
    #[inline(always)]
    pub(super) fn publish(&self, at: Slot, tag: u8) {
        let (medium, bucket) = (self.pool.medium(), self.bucket(at.place, at.index));
        store_tag(medium, bucket, at.slot, tag);
        // PERSIST: this store adds the key; the caller makes it durable. The tag lies in its line
        // and was stored before, so a crash that keeps it keeps the tag.
        store_meta(medium, bucket, meta(medium, bucket).with::<K>(at.slot));
        self.add_keys(at.place.bucket(at.index), 1);
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
        let region = self.pool.region();
        let line = &self.bucket(at.place, at.index)[line];
        if self.cache.is_some() {
            external_sync(region.medium());
        }
        match fencing {
            Fencing::Deferred(deferred) if M::VOLATILE_CACHE => {
                // PERSIST: written back now, fenced by `persist_deferred`. Until then the lock word
                // is marked unfenced.
                region.write_back(line);
                let stripe = self.stripe_of(at.place.bucket(at.index));
                deferred.0.push(region.offset_of(self.lock_of(stripe)).raw());
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
