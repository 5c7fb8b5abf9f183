//! The table, and the operations that only read.

use super::bucket::{Bucket, has_overflowed, line_for};
use super::cache::{Cache, CacheBounds, CacheKey, CacheStats, Look, Ticket};
use super::place::Place;
use super::shape::{BucketShape, Probe};
use super::stripes::STRIPE_BYTES;
use super::view::*;
use crate::{ChangeError, Damage, Decision, Fencing, IndexStats, PointIndex};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::{BLOCK, Line, MappedMedium, Offset, external_sync};
use terrace_pool::{Fixed, FixedRow, Guard, Lock, Marker, Pool};

/// A cuckoo hash table of large data tables. See the module's head for the algorithm.
///
/// ```
/// use terrace_index::{Inserted, PointIndex, Stored, U64, hash::Rewo};
/// use terrace_medium::Dram;
/// use terrace_pool::Pool;
///
/// let pool = Pool::<Dram>::anonymous(16 << 20)?;
/// let map = Rewo::<Dram, U64>::create(&pool, "map", 1000)?;
/// let guard = pool.pin();
/// assert_eq!(map.insert(&guard, &7, 700)?, Inserted::New);
/// assert_eq!(map.get(&guard, &7), Some(700));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rewo<M: MappedMedium, K> {
    pub(super) pool: Pool<M>,
    pub(super) root: Fixed<M, Root>,
    pub(super) stripe_lines: FixedRow<M, Line>,
    pub(super) seed: u64,
    pub(super) damage: OnceLock<Damage>,
    pub(super) cache: Option<Box<Cache>>,
    /// The view for which the pool had no memory for a spare.
    pub(super) refused: AtomicU64,
    /// Whether this handle has created the table.
    pub(super) is_new: bool,
    pub(super) kind: PhantomData<fn() -> K>,
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

impl<M: MappedMedium, K: BucketShape> Rewo<M, K> {
    #[inline(always)]
    pub(super) fn view_offset(&self) -> Offset<ViewBlock> {
        // ORDER: Acquire: pairs with the Release of a resize: the view is visible as it was
        // written.
        Offset::new(self.root[1].0[VIEW].load(self.pool.medium(), Acquire))
    }

    /// The current directory.
    #[inline(always)]
    pub(super) fn view(&self) -> View<'_, M> {
        let offset = self.view_offset();
        View { offset, block: self.pool.region().at(offset), medium: self.pool.medium() }
    }

    #[inline(always)]
    pub(super) fn bucket(&self, place: Place, index: u64) -> &Bucket {
        self.pool.region().at(place.bucket(index))
    }

    pub(super) fn resize_lock(&self) -> &Lock {
        Lock::of(&self.root[1].0[RESIZE_LOCK])
    }

    #[cold]
    pub(super) fn record_damage(&self, offset: u64, what: &'static str) {
        let _ = self.damage.set(Damage { offset, what });
    }

    /// The table with a DRAM cache within these bounds; see [`PointIndex::set_cache`].
    pub fn with_cache(mut self, bounds: CacheBounds) -> Self {
        self.set_cache(bounds);
        self
    }

    /// Gives the cache the size for this many bytes, whatever its bounds. For tests of concurrent
    /// resizes.
    #[doc(hidden)]
    pub fn resize_cache(&self, bytes: u64) {
        self.cache.iter().for_each(|cache| cache.resize(bytes));
    }

    #[inline(always)]
    pub(super) fn cache_key(probe: &Probe<'_, K>) -> CacheKey {
        CacheKey { hash: probe.hash, word: K::cache_word(probe) }
    }

    /// The word of a key, and whether it comes from the cache.
    #[inline(always)]
    fn search(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>) -> (Option<u64>, bool) {
        match &self.cache {
            None => (self.search_table(guard, probe).0, false),
            Some(cache) => match self.look(cache, guard, probe) {
                Look::Word(word) => (Some(word), true),
                Look::Absent => (None, true),
                Look::Unknown(ticket) => (self.search_to_cache(cache, guard, probe, &ticket), false),
            },
        }
    }

    #[inline(always)]
    fn look(&self, cache: &Cache, guard: &Guard<'_, M>, probe: &Probe<'_, K>) -> Look {
        external_sync(self.pool.medium());
        let look =
            cache.look(guard.slot_index(), Self::cache_key(probe), |word| K::is_word_of(guard, word, probe));
        external_sync(self.pool.medium());
        look
    }

    /// As `search_table`, for a key that is not cached but will be.
    #[inline(always)]
    fn search_to_cache(
        &self,
        cache: &Cache,
        guard: &Guard<'_, M>,
        probe: &Probe<'_, K>,
        ticket: &Ticket,
    ) -> Option<u64> {
        let (found, buckets) = self.search_table(guard, probe);
        external_sync(self.pool.medium());
        cache.fill(guard.slot_index(), Self::cache_key(probe), ticket, found, buckets);
        found
    }

    /// The word of a key, persisted, and the number of buckets read.
    ///
    /// Keys move only forward on their path, and a copy exists before the original is removed. So a
    /// search in the path's order meets a key that is present throughout. The exception is a key
    /// that moves to a table newer than the view: then the root names another view, and the search
    /// starts over.
    #[inline(always)]
    fn search_table(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>) -> (Option<u64>, u64) {
        loop {
            let view = self.view();
            let path = Path::new(view.route(probe.hash), probe.hash);
            let found = self.search_path(guard, probe, &path);
            if found.0.is_some() || self.view_offset() == view.offset {
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
            let bucket = self.bucket(path.buckets[first].0, path.buckets[first].1);
            if let Some(answer) = each(first, bucket) {
                return Some((path.buckets[first], answer));
            }
            if has_overflowed::<M, K>(self.pool.medium(), bucket, tag) {
                let (place, index) = path.buckets[first + 1];
                if let Some(answer) = each(first + 1, self.bucket(place, index)) {
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
            let is_unfenced = |nth: usize| read[nth] && self.may_be_unfenced(buckets[nth]);
            if (0..path.len).any(is_unfenced) {
                self.persist_buckets(&buckets[..path.len]);
            }
        }
    }

    #[cold]
    fn persist_buckets(&self, buckets: &[Offset<Bucket>]) {
        let region = self.pool.region();
        for &bucket in buckets {
            // PERSIST: the stores of a writer that holds one of these locks, or released it before
            // its fence. Only then does a reader return what it saw, or a writer build upon it.
            region.write_back(region.at(bucket));
        }
        region.fence();
    }

    /// A key was not found: decides whether that is certain.
    fn absent(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K>) -> Result<Option<u64>, Damage> {
        let path = Path::new(self.view().route(probe.hash), probe.hash);
        let mut suspects = (0..path.len).filter_map(|nth| {
            let bucket = self.bucket(path.buckets[nth].0, path.buckets[nth].1);
            let denying =
                || (nth % 2 == 1).then(|| self.lacks_overflow_bit(guard, &path, nth, probe)).flatten();
            K::suspect(guard, bucket, probe).or_else(denying)
        });
        let what = "a record that may be the key's, or what leads to it, is unsound";
        match suspects.next().map(|offset| Damage { offset, what }).or(self.damage()) {
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
        K::find(guard, self.bucket(place, index), probe)?;
        let (place, index) = path.buckets[second - 1];
        let first = self.bucket(place, index);
        let is_denied = !has_overflowed::<M, K>(self.pool.medium(), first, probe.tag());
        is_denied.then(|| place.bucket(index).raw())
    }

    /// Prefetches the lines of a key's first bucket that a search reads.
    #[inline(always)]
    fn prefetch(&self, probe: &Probe<'_, K>) {
        let at = self.first_bucket(probe).raw();
        self.pool.region().prefetch(at);
        self.pool.region().prefetch(at + 64 * line_for(probe.tag()) as u64);
    }

    #[inline(always)]
    fn first_bucket(&self, probe: &Probe<'_, K>) -> Offset<Bucket> {
        let place = self.view().route(probe.hash).from;
        place.bucket(place.home(probe.hash))
    }
}

impl<M: MappedMedium, K: BucketShape> PointIndex for Rewo<M, K> {
    type Medium = M;
    type Kind = K;
    const NAME: &'static str = "rewo";
    /// An insert that evicts one or two keys takes three more for each.
    const FENCES_PER_INSERT: u32 = 2;

    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    #[inline(always)]
    fn get(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        self.search(guard, &Probe::new(key, self.seed)).0
    }

    #[inline]
    fn get_sound(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        let probe = Probe::new(key, self.seed);
        match self.search(guard, &probe) {
            (None, false) => self.absent(guard, &probe),
            // The cache has only words that this process added or found.
            (found, _) => Ok(found),
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
        /// Cache misses of a core that can overlap.
        const BATCH: usize = 16;
        enum Step<'k, K: BucketShape> {
            Found(Option<u64>),
            Seek(Probe<'k, K>, Option<Ticket>),
        }
        let mut keys = keys.into_iter();
        let mut done = 0;
        loop {
            let mut batch = [const { None }; BATCH];
            let mut len = 0;
            for key in keys.by_ref().take(BATCH) {
                let probe = Probe::<K>::new(key, self.seed);
                let known = self.cache.as_ref().map(|cache| self.look(cache, guard, &probe));
                let step = match known {
                    Some(Look::Word(word)) => Step::Found(Some(word)),
                    Some(Look::Absent) => Step::Found(None),
                    Some(Look::Unknown(ticket)) => Step::Seek(probe, Some(ticket)),
                    None => Step::Seek(probe, None),
                };
                if let Step::Seek(probe, _) = &step {
                    self.prefetch(probe);
                }
                batch[len] = Some(step);
                len += 1;
            }
            for step in batch[..len].iter().flatten() {
                if let Step::Seek(probe, _) = step {
                    K::prefetch(guard, self.pool.region().at(self.first_bucket(probe)), probe);
                }
            }
            for step in batch[..len].iter().flatten() {
                let found = match (step, &self.cache) {
                    (Step::Found(found), _) => *found,
                    (Step::Seek(probe, Some(ticket)), Some(cache)) => {
                        self.search_to_cache(cache, guard, probe, ticket)
                    }
                    (Step::Seek(probe, _), _) => self.search_table(guard, probe).0,
                };
                each(done, found);
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
        self.count_keys()
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
        self.background_step(guard)
    }

    fn stats(&self, _: &Guard<'_, M>) -> IndexStats {
        let view = self.view();
        let directory = view.directory();
        let buckets = directory.buckets();
        IndexStats {
            nodes: [0; 4],
            keys: self.len(),
            slots: buckets * K::SLOTS as u64,
            buckets,
            overflow_buckets: 0,
            bytes: (buckets + directory.spare().map_or(0, Place::buckets)) * BLOCK as u64
                + (self.stripes() * STRIPE_BYTES + size_of::<Root>() + size_of::<ViewBlock>()) as u64,
            resizes: self.root[2].0[RESIZES].load(self.pool.medium(), Relaxed),
            resizing: view.wants_help(),
        }
    }

    fn set_cache(&mut self, bounds: CacheBounds) {
        let is_alone = !self.pool.is_shared();
        self.cache = is_alone.then(|| Cache::new(bounds, self.is_new && self.is_empty())).flatten();
    }

    fn cache(&self) -> Option<CacheStats> {
        self.cache.as_ref().map(|cache| cache.stats())
    }

    fn damage(&self) -> Option<Damage> {
        self.damage.get().copied()
    }
}

#[cfg(test)]
#[path = "tests/ops.rs"]
mod tests;
