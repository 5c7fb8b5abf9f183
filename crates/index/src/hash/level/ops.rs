//! The table, and the operations that only read.

use super::bucket::{BUCKET, Bucket, Meta, lock_word, meta};
use super::root::*;
use super::shape::{BucketShape, Found, Probe};
use crate::count::{Count, STRIPES, Stripes};
use crate::{ChangeError, Damage, Decision, Fencing, IndexStats, PointIndex};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Fixed, Guard, Lock, Marker, Pool};

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
pub struct Level<M: MappedMedium, K> {
    pub(super) pool: Pool<M>,
    pub(super) root: Fixed<M, Root>,
    pub(super) stripes: Fixed<M, Stripes>,
    pub(super) seed: u64,
    pub(super) damage: OnceLock<Damage>,
    pub(super) kind: PhantomData<fn() -> K>,
}

/// The table was resized while a reader searched it; the reader must search again.
#[derive(Debug)]
pub(super) struct Changed;

impl<M: MappedMedium, K: BucketShape> Level<M, K> {
    #[inline(always)]
    pub(super) fn state(&self) -> State {
        state(self.pool.medium(), &self.root)
    }

    pub(super) fn count(&self) -> Count<'_, M> {
        Count { medium: self.pool.medium(), line: &self.root[2], stripes: &self.stripes }
    }

    #[cold]
    pub(super) fn record_damage(&self, offset: u64, what: &'static str) {
        let _ = self.damage.set(Damage { offset, what });
    }

    /// The tiers at one instant. Their blocks are not reused while the caller is pinned.
    #[inline(always)]
    pub(super) fn view(&self) -> View {
        let tier = |log2: u32| {
            Tier(tier_word(&self.root, log2).load(self.pool.medium().point("level.tier"), Acquire))
        };
        loop {
            let state = self.state();
            let top = state.top();
            let low = if state.is_resting() { Tier::NONE } else { tier(top.wrapping_sub(2)) };
            let view = View { state, high: tier(top), mid: tier(top.wrapping_sub(1)), low };
            if self.state() == state {
                return view;
            }
        }
    }

    #[inline(always)]
    pub(super) fn bucket(&self, at: Offset<Bucket>) -> &Bucket {
        self.pool.region().at(at)
    }

    /// The place of a key at a position: in the two upper tiers of three, or in the two lower ones.
    #[inline(always)]
    pub(super) fn side(&self, view: &View, position: u64) -> Side {
        let (upper, lower) = match view.state.is_moving() && !self.uses_upper(view, position) {
            true => (view.mid, view.low),
            false => (view.high, view.mid),
        };
        Side { position, upper, lower }
    }

    /// Whether the unit at a position uses the two upper tiers.
    #[inline(always)]
    pub(super) fn uses_upper(&self, view: &View, position: u64) -> bool {
        let bucket = self.bucket(view.low.bucket(view.low.index(position)));
        meta(self.pool.medium(), bucket).uses_upper::<K>()
    }

    /// Whether a side still uses the tiers that it used when it was looked up.
    #[inline(always)]
    pub(super) fn is_current(&self, view: &View, side: &Side) -> bool {
        self.state() == view.state
            && (!view.state.is_moving() || self.side(view, side.position).lower == side.lower)
    }

    #[inline(always)]
    pub(super) fn lock(&self, side: &Side) -> &Lock {
        Lock::of(lock_word(self.bucket(side.lower_at())))
    }

    /// The buckets of both sides of a key, the fuller level first.
    #[inline(always)]
    pub(super) fn places(&self, sides: &[Side; 2]) -> [Offset<Bucket>; 4] {
        let [one, other] = sides;
        // Positive if the upper level has more keys.
        let balance = self.root[0].0[BALANCE].load(self.pool.medium(), Relaxed) as i64;
        match balance >= 0 {
            true => [one.upper_at(), other.upper_at(), one.lower_at(), other.lower_at()],
            false => [one.lower_at(), other.lower_at(), one.upper_at(), other.upper_at()],
        }
    }

    /// Looks for a key in its four buckets.
    #[inline(always)]
    fn search(
        &self,
        guard: &Guard<'_, M>,
        view: &View,
        probe: &Probe<'_, K>,
    ) -> Result<Option<u64>, Changed> {
        let sides = probe.positions.map(|position| self.side(view, position));
        let places = self.places(&sides);
        self.pool.region().prefetch(places[1].raw());
        let mut metas = [Meta(0); 4];
        for (nth, &place) in places.iter().enumerate() {
            match K::find(guard, self.bucket(place), probe) {
                Found::Here(_, word, _) => {
                    self.persist_read(view, &sides[nth % 2])?;
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
        let medium = self.pool.medium();
        let is_same = |(&place, &before): (_, &Meta)| meta(medium, self.bucket(place)) == before;
        if !places.iter().zip(metas).all(is_same) {
            return Err(Changed);
        }
        sides.iter().try_for_each(|side| self.persist_read(view, side))
    }

    /// Validates what a reader saw on a side: the unit must not have used other tiers by then,
    /// because its keys change there from then on. Persists the unit if its lock is held or
    /// unfenced (invariant 3).
    #[inline(always)]
    pub(super) fn persist_read(&self, view: &View, side: &Side) -> Result<(), Changed> {
        // ORDER: the loads are Acquire: this check comes after the reads, and the load of the lock
        // after it is clear that it is this lock.
        if !self.is_current(view, side) {
            return Err(Changed);
        }
        if M::VOLATILE_CACHE && Lock::may_be_unfenced(self.lock(side).load_word(self.pool.medium())) {
            self.persist_unit(view, side.position);
        }
        Ok(())
    }

    /// Persists the unit at a position, in all tiers: a dead holder of one of its locks may have
    /// changed any of its buckets.
    #[cold]
    pub(super) fn persist_unit(&self, view: &View, position: u64) {
        let region = self.pool.region();
        let lowest = if view.state.is_moving() { view.low } else { view.mid };
        let unit = lowest.index(position);
        for tier in [view.high, view.mid, lowest] {
            let above = tier.log2() - lowest.log2();
            for index in unit << above..(unit + 1) << above {
                // PERSIST: the stores of a writer that holds a lock of the unit, or released it
                // before its fence. Only then does a reader return what it saw, or a writer build
                // upon it.
                region.write_back(self.bucket(tier.bucket(index)));
            }
        }
        region.fence();
    }

    #[inline(always)]
    fn get_with(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>) -> Option<u64> {
        loop {
            if let Ok(found) = self.search(guard, &self.view(), probe) {
                return found;
            }
        }
    }

    /// A key was not found: decides whether that is certain.
    #[cold]
    fn absent(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>) -> Result<Option<u64>, Damage> {
        let view = self.view();
        let sides = probe.positions.map(|position| self.side(&view, position));
        let mut places = self.places(&sides).into_iter();
        let record = places.find_map(|place| K::suspect(guard, self.bucket(place), probe));
        let what = "a record that may be the key's, or what leads to it, is unsound";
        match record.map(|offset| Damage { offset, what }).or(self.damage()) {
            Some(damage) => Err(damage),
            None => Ok(None),
        }
    }

    fn fetch(&self, probe: &Probe<'_, K>) {
        let view = self.view();
        let sides = probe.positions.map(|position| self.side(&view, position));
        for place in &self.places(&sides)[..2] {
            self.pool.region().prefetch(place.raw());
            self.pool.region().prefetch(place.raw() + BUCKET as u64 / 2);
        }
    }

    fn fetch_records(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>) {
        let view = self.view();
        let sides = probe.positions.map(|position| self.side(&view, position));
        for &place in &self.places(&sides)[..2] {
            K::prefetch(guard, self.bucket(place), probe);
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
        &self.pool
    }

    #[inline(always)]
    fn get(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        self.get_with(guard, &Probe::new(key, self.seed))
    }

    #[inline]
    fn get_sound(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        let probe = Probe::new(key, self.seed);
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
                let probe = Probe::<K>::new(key, self.seed);
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
        self.count().len()
    }

    fn scan(
        &self,
        guard: &Guard<'_, M>,
        from: &crate::Place,
        at_least: usize,
        each: impl FnMut(u64),
    ) -> crate::Place {
        from.scan(|position| self.scan_from(guard, position, at_least, each))
    }

    fn trace(&self, guard: &Guard<'_, M>, marker: &mut Marker<'_>, each: impl FnMut(&mut Marker<'_>, u64)) {
        self.trace_all(guard, marker, each);
    }

    fn maintain(&self, guard: &Guard<'_, M>) -> bool {
        self.resize_step(guard)
    }

    fn stats(&self, _: &Guard<'_, M>) -> IndexStats {
        let view = self.view();
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
            resizes: self.root[2].0[RESIZES].load(self.pool.medium(), Relaxed),
            resizing: !view.state.is_resting(),
        }
    }

    fn damage(&self) -> Option<Damage> {
        self.damage.get().copied()
    }
}
