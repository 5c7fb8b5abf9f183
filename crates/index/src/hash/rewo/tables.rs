//! The data tables: how a key is searched for on its path, and the stores to single slots.

use super::base::Base;
use super::bucket::*;
use super::place::Place;
use super::shape::{BucketShape, Probe};
use super::view::Route;
use crate::Damage;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::Guard;

/// The data tables of one kind of keys. It owns the part below them and what was found damaged.
/// It knows neither the cache nor when a table is due to be replaced.
pub(super) struct DataTables<M: MappedMedium, K> {
    pub(super) base: Base<M>,
    pub(super) seed: u64,
    pub(super) damage: OnceLock<Damage>,
    /// The view for which the pool had no memory for a spare.
    pub(super) refused: AtomicU64,
    pub(super) kind: PhantomData<fn() -> K>,
}

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

/// The buckets that may have a key, in the order in which it moves through them: first and second
/// of its table, then of the table that it moves to.
#[derive(Clone, Copy)]
pub(super) struct Path {
    buckets: [(Place, u64); 4],
    len: usize,
}

impl Path {
    #[inline(always)]
    pub(super) fn new(route: Route, hash: u64) -> Self {
        let of = |place: Place| {
            let home = place.home(hash);
            [(place, home), (place, place.second(home, hash as u8))]
        };
        let from = of(route.from);
        match route.to {
            None => Self { buckets: [from[0], from[1], from[0], from[1]], len: 2 },
            Some(to) => {
                let to = of(to);
                Self { buckets: [from[0], from[1], to[0], to[1]], len: 4 }
            }
        }
    }

    /// The offsets of its buckets, and their number.
    #[inline(always)]
    pub(super) fn offsets(&self) -> ([Offset<Bucket>; 4], usize) {
        (self.buckets.map(|(place, index)| place.bucket(index)), self.len)
    }
}

impl<M: MappedMedium, K: BucketShape> DataTables<M, K> {
    #[cold]
    pub(super) fn record_damage(&self, offset: u64, what: &'static str) {
        let _ = self.damage.set(Damage { offset, what });
    }

    /// The word of a key, persisted, and the number of buckets read.
    ///
    /// Keys move only forward on their path, and a copy exists before the original is removed. So a
    /// search in the path's order meets a key that is present throughout. The exception is a key
    /// that moves to a table newer than the view: then the root names another view, and the search
    /// starts over.
    #[inline(always)]
    pub(super) fn search_table(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>) -> (Option<u64>, u64) {
        loop {
            let view = self.base.view();
            let path = Path::new(view.route(probe.hash), probe.hash);
            let found = self.search_path(guard, probe, &path);
            if found.0.is_some() || self.base.view_offset() == view.offset {
                return found;
            }
        }
    }

    #[inline(always)]
    fn search_path(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>, path: &Path) -> (Option<u64>, u64) {
        let mut read = [false; 4];
        let found = self.walk(path, probe.tag(), |nth, bucket| {
            read[nth] = true;
            K::find(guard, bucket, probe)
        });
        self.persist_read(path, read);
        (found.map(|(_, (_, word))| word), read.map(u64::from).iter().sum())
    }

    /// Calls `each` on those buckets of a path that may have a key with this tag, until it returns
    /// a result. It visits a second bucket only if the first has the tag's overflow bit set.
    #[inline(always)]
    pub(super) fn walk<'t, T>(
        &'t self,
        path: &Path,
        tag: u8,
        mut each: impl FnMut(usize, &'t Bucket) -> Option<T>,
    ) -> Option<((Place, u64), T)> {
        for first in (0..path.len).step_by(2) {
            let bucket = self.base.bucket(path.buckets[first].0, path.buckets[first].1);
            if let Some(answer) = each(first, bucket) {
                return Some((path.buckets[first], answer));
            }
            if has_overflowed::<M, K>(self.base.pool.medium(), bucket, tag) {
                let (place, index) = path.buckets[first + 1];
                if let Some(answer) = each(first + 1, self.base.bucket(place, index)) {
                    return Some(((place, index), answer));
                }
            }
        }
        None
    }

    /// Persists what a reader saw, if a bucket's lock is held or unfenced (invariant 4).
    #[inline(always)]
    fn persist_read(&self, path: &Path, read: [bool; 4]) {
        if M::VOLATILE_CACHE {
            let (buckets, _) = path.offsets();
            let is_unfenced = |nth: usize| read[nth] && self.base.may_be_unfenced(buckets[nth]);
            if (0..path.len).any(is_unfenced) {
                self.persist_buckets(&buckets[..path.len]);
            }
        }
    }

    #[cold]
    fn persist_buckets(&self, buckets: &[Offset<Bucket>]) {
        let region = self.base.pool.region();
        for &bucket in buckets {
            // PERSIST: the stores of a writer that holds one of these locks, or released it before
            // its fence. Only then does a reader return what it saw, or a writer build upon it.
            region.write_back(region.at(bucket));
        }
        region.fence();
    }

    /// A key was not found: decides whether that is certain.
    pub(super) fn absent(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>) -> Result<Option<u64>, Damage> {
        let path = Path::new(self.base.view().route(probe.hash), probe.hash);
        let mut suspects = (0..path.len).filter_map(|nth| {
            let bucket = self.base.bucket(path.buckets[nth].0, path.buckets[nth].1);
            let denying =
                || (nth % 2 == 1).then(|| self.lacks_overflow_bit(guard, &path, nth, probe)).flatten();
            K::suspect(guard, bucket, probe).or_else(denying)
        });
        let what = "a record that may be the key's, or what leads to it, is unsound";
        match suspects.next().map(|offset| Damage { offset, what }).or(self.damage.get().copied()) {
            Some(damage) => Err(damage),
            None => Ok(None),
        }
    }

    /// The first bucket of a key that is in its second, although the first one's overflow bit is
    /// clear.
    fn lacks_overflow_bit(
        &self,
        guard: &Guard<'_, M>,
        path: &Path,
        second: usize,
        probe: &Probe<'_, K>,
    ) -> Option<u64> {
        let (place, index) = path.buckets[second];
        if path.buckets[second - 1] == (place, index) {
            return None;
        }
        // A key that came since the search has set the overflow bit by now.
        K::find(guard, self.base.bucket(place, index), probe)?;
        let (place, index) = path.buckets[second - 1];
        let first = self.base.bucket(place, index);
        let is_denied = !has_overflowed::<M, K>(self.base.pool.medium(), first, probe.tag());
        is_denied.then(|| place.bucket(index).raw())
    }

    /// Prefetches the lines of a key's first bucket that a search reads.
    #[inline(always)]
    pub(super) fn prefetch(&self, probe: &Probe<'_, K>) {
        let at = self.first_bucket(probe).raw();
        self.base.pool.region().prefetch(at);
        self.base.pool.region().prefetch(at + 64 * line_for(probe.tag()) as u64);
    }

    #[inline(always)]
    pub(super) fn first_bucket(&self, probe: &Probe<'_, K>) -> Offset<Bucket> {
        let place = self.base.view().route(probe.hash).from;
        place.bucket(place.home(probe.hash))
    }

    /// Prefetches the lines that a write will most likely need, while locks are taken. An insert
    /// searches both of its buckets for room: fetches them at the same time, not one after the
    /// other.
    #[inline(always)]
    pub(super) fn prefetch_to_write(&self, probe: &Probe<'_, K>, adds: bool) {
        let (region, view) = (self.base.pool.region(), self.base.view());
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

    /// The slot and the word of a key.
    #[inline(always)]
    pub(super) fn survey(
        &self,
        guard: &Guard<'_, M>,
        path: &Path,
        probe: &Probe<'_, K>,
    ) -> Option<(Slot, u64)> {
        let found = self.walk(path, probe.tag(), |_, bucket| K::find(guard, bucket, probe));
        found.map(|((place, index), (slot, word))| (Slot { place, index, slot }, word))
    }

    /// Sets the overflow bit in the first bucket of a key that goes to the second. Returns whether
    /// anything was stored and needs a fence.
    #[inline(always)]
    pub(super) fn set_overflow_bit(&self, home: u64, at: Slot, tag: u8) -> bool {
        let (region, bucket) = (self.base.pool.region(), self.base.bucket(at.place, home));
        let is_said = at.index == home || has_overflowed::<M, K>(region.medium(), bucket, tag);
        if is_said {
            return false;
        }
        self.base.announce(at.place.bucket(home));
        store_overflow::<M, K>(region.medium(), bucket, tag);
        // PERSIST: fenced by the caller, before the key is added.
        region.write_back(&bucket[0]);
        self.base.fence_between(at.place, home, at.index);
        true
    }

    /// Makes a written slot valid.
    #[inline(always)]
    pub(super) fn publish(&self, at: Slot, tag: u8) {
        let (medium, bucket) = (self.base.pool.medium(), self.base.bucket(at.place, at.index));
        store_tag(medium, bucket, at.slot, tag);
        // PERSIST: this store adds the key; the caller makes it durable. The tag lies in its line
        // and was stored before, so a crash that keeps it keeps the tag.
        store_meta(medium, bucket, meta(medium, bucket).with::<K>(at.slot));
        self.base.add_keys(at.place.bucket(at.index), 1);
    }
}
