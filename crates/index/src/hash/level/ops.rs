//! The table, and the operations that only read.

use super::bucket::{BUCKET, Bucket, Meta, meta};
use super::resize::Resize;
use super::root::*;
use super::shape::{BucketShape, Found, Probe};
use super::units::{Changed, Units};
use crate::count::STRIPES;
use crate::{ChangeError, Damage, Decision, Fencing, IndexStats, PointIndex};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Guard, Marker, Pool};

/// A hash table of two levels. See the module's head for the algorithm.
///
/// ```
/// use terrace_index::{Inserted, PointIndex, Stored, U64, hash::Level};
/// use terrace_medium::Dram;
/// use terrace_pool::Pool;
///
/// let pool = Pool::<Dram>::anonymous(16 << 20)?;
/// let map = Level::<Dram, U64>::create(&pool, "map", 1000)?;
/// let guard = pool.pin();
/// assert_eq!(map.insert(&guard, &7, 700)?, Inserted::New);
/// assert_eq!(map.get(&guard, &7), Some(700));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It owns the `Units`, and searches and writes in them. A `Resize` stands between the two.
pub struct Level<M: MappedMedium, K> {
    pub(super) units: Units<M, K>,
}

impl<M: MappedMedium, K: BucketShape> Level<M, K> {
    /// The growing and shrinking of this table, by the thread with this guard.
    #[inline(always)]
    pub(super) fn resize<'t>(&'t self, guard: &'t Guard<'_, M>) -> Resize<'t, M, K> {
        Resize { units: &self.units, guard }
    }

    /// Looks for a key in its four buckets.
    #[inline(always)]
    fn search(
        &self,
        guard: &Guard<'_, M>,
        view: &View,
        probe: &Probe<'_, K>,
    ) -> Result<Option<u64>, Changed> {
        let sides = probe.positions.map(|position| self.units.side(view, position));
        let places = self.units.places(&sides);
        self.units.pool.region().prefetch(places[1].raw());
        let mut metas = [Meta(0); 4];
        for (nth, &place) in places.iter().enumerate() {
            match K::find(guard, self.units.bucket(place), probe) {
                Found::Here(_, word, _) => {
                    self.units.persist_read(view, &sides[nth % 2])?;
                    return Ok(Some(word));
                }
                Found::Missing(meta) => metas[nth] = meta,
            }
        }
        self.confirm_absent(view, &sides, &places, &metas).map(|()| None)
    }

    /// Checks that a key that was found in none of its buckets was absent at one instant: none of
    /// them has changed since it was searched. Otherwise the key may have moved from a bucket
    /// searched later to one searched before.
    #[inline(always)]
    fn confirm_absent(
        &self,
        view: &View,
        sides: &[Side; 2],
        places: &[Offset<Bucket>; 4],
        metas: &[Meta; 4],
    ) -> Result<(), Changed> {
        let medium = self.units.pool.medium();
        let is_same = |(&place, &before): (_, &Meta)| meta(medium, self.units.bucket(place)) == before;
        if !places.iter().zip(metas).all(is_same) {
            return Err(Changed);
        }
        sides.iter().try_for_each(|side| self.units.persist_read(view, side))
    }

    #[inline(always)]
    fn get_with(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>) -> Option<u64> {
        loop {
            if let Ok(found) = self.search(guard, &self.units.view(), probe) {
                return found;
            }
        }
    }

    /// A key was not found: decides whether that is certain.
    #[cold]
    fn absent(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>) -> Result<Option<u64>, Damage> {
        let view = self.units.view();
        let sides = probe.positions.map(|position| self.units.side(&view, position));
        let mut places = self.units.places(&sides).into_iter();
        let record = places.find_map(|place| K::suspect(guard, self.units.bucket(place), probe));
        let what = "a record that may be the key's, or what leads to it, is unsound";
        match record.map(|offset| Damage { offset, what }).or(self.damage()) {
            Some(damage) => Err(damage),
            None => Ok(None),
        }
    }

    fn fetch(&self, probe: &Probe<'_, K>) {
        let view = self.units.view();
        let sides = probe.positions.map(|position| self.units.side(&view, position));
        for place in &self.units.places(&sides)[..2] {
            self.units.pool.region().prefetch(place.raw());
            self.units.pool.region().prefetch(place.raw() + BUCKET as u64 / 2);
        }
    }

    fn fetch_records(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>) {
        let view = self.units.view();
        let sides = probe.positions.map(|position| self.units.side(&view, position));
        for &place in &self.units.places(&sides)[..2] {
            K::prefetch(guard, self.units.bucket(place), probe);
        }
    }
}

impl<M: MappedMedium, K: BucketShape> PointIndex for Level<M, K> {
    type Medium = M;
    type Kind = K;
    const NAME: &'static str = "level";
    /// Two, and three for the one movement that an insert may need.
    const FENCES_PER_INSERT: u32 = 5;

    fn pool(&self) -> &Pool<M> {
        &self.units.pool
    }

    #[inline(always)]
    fn get(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        self.get_with(guard, &Probe::new(key, self.units.seed))
    }

    #[inline]
    fn get_sound(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        let probe = Probe::new(key, self.units.seed);
        match self.get_with(guard, &probe) {
            None => self.absent(guard, &probe),
            found => Ok(found),
        }
    }

    fn get_many<'k>(
        &self,
        guard: &Guard<'_, M>,
        keys: impl IntoIterator<Item = &'k K::Key>,
        mut each: impl FnMut(usize, Option<u64>),
    ) where
        K::Key: 'k,
    {
        /// Keys whose lines are fetched at the same time.
        const BATCH: usize = 8;
        let mut keys = keys.into_iter();
        let mut done = 0;
        loop {
            let mut batch = [const { None }; BATCH];
            let mut len = 0;
            for key in keys.by_ref().take(BATCH) {
                let probe = Probe::<K>::new(key, self.units.seed);
                self.fetch(&probe);
                batch[len] = Some(probe);
                len += 1;
            }
            batch[..len].iter().flatten().for_each(|probe| self.fetch_records(guard, probe));
            for probe in batch[..len].iter().flatten() {
                each(done, self.get_with(guard, probe));
                done += 1;
            }
            if len < BATCH {
                return;
            }
        }
    }

    fn change(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        fencing: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, ChangeError> {
        Ok(self.change_key(guard, key, fencing, decide)?)
    }

    fn len(&self) -> u64 {
        self.units.count().len()
    }

    fn scan(
        &self,
        guard: &Guard<'_, M>,
        from: &crate::Place,
        at_least: usize,
        each: impl FnMut(u64),
    ) -> crate::Place {
        from.scan(|position| self.units.scan_from(guard, position, at_least, each))
    }

    fn trace(&self, guard: &Guard<'_, M>, marker: &mut Marker<'_>, each: impl FnMut(&mut Marker<'_>, u64)) {
        self.units.trace_all(guard, marker, each);
    }

    fn maintain(&self, guard: &Guard<'_, M>) -> bool {
        self.resize(guard).resize_step()
    }

    fn stats(&self, _: &Guard<'_, M>) -> IndexStats {
        let view = self.units.view();
        let tiers = match view.state.phase() {
            Phase::Shrink => [view.mid, view.low],
            _ => [view.high, view.mid],
        };
        let buckets: u64 = tiers.iter().map(|tier| tier.buckets()).sum();
        let bytes: usize = view.state.tiers().map(|log2| BUCKET << log2).sum();
        IndexStats {
            nodes: [0; 4],
            keys: self.len(),
            slots: buckets * K::SLOTS as u64,
            buckets,
            overflow_buckets: 0,
            bytes: (bytes + size_of::<Root>()) as u64 + STRIPES * 64,
            resizes: self.units.root[2].0[RESIZES].load(self.units.pool.medium(), Relaxed),
            resizing: !view.state.is_resting(),
        }
    }

    fn damage(&self) -> Option<Damage> {
        self.units.damage.get().copied()
    }
}
