//! The table, and the operations that only read.

use super::base::Base;
use super::cache::{Cache, CacheBounds, CacheKey, CacheStats, Look, Ticket};
use super::place::Place;
use super::resize::Resize;
use super::shape::{BucketShape, Probe};
use super::stripes::STRIPE_BYTES;
use super::tables::DataTables;
use super::view::*;
use crate::{ChangeError, Damage, Decision, Fencing, IndexStats, PointIndex};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{BLOCK, MappedMedium, external_sync};
use terrace_pool::{Guard, Marker, Pool};

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
///
/// It owns the data tables and the cache of reads above them. `Resize` stands between its writes
/// and the tables.
pub struct Rewo<M: MappedMedium, K> {
    pub(super) tables: DataTables<M, K>,
    pub(super) cache: Option<Box<Cache>>,
    /// Whether this handle has created the table.
    pub(super) is_new: bool,
}

impl<M: MappedMedium, K: BucketShape> Rewo<M, K> {
    /// The part below the data tables.
    #[inline(always)]
    pub(super) fn base(&self) -> &Base<M> {
        &self.tables.base
    }

    /// The resizing of this table, by the thread with this guard.
    #[inline(always)]
    pub(super) fn resize<'t>(&'t self, guard: &'t Guard<'_, M>) -> Resize<'t, M, K> {
        Resize { tables: &self.tables, guard }
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
            None => (self.tables.search_table(guard, probe).0, false),
            Some(cache) => match self.look(cache, guard, probe) {
                Look::Word(word) => (Some(word), true),
                Look::Absent => (None, true),
                Look::Unknown(ticket) => (self.search_to_cache(cache, guard, probe, &ticket), false),
            },
        }
    }

    #[inline(always)]
    fn look(&self, cache: &Cache, guard: &Guard<'_, M>, probe: &Probe<'_, K>) -> Look {
        external_sync(self.base().pool.medium());
        let look =
            cache.look(guard.slot_index(), Self::cache_key(probe), |word| K::is_word_of(guard, word, probe));
        external_sync(self.base().pool.medium());
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
        let (found, buckets) = self.tables.search_table(guard, probe);
        external_sync(self.base().pool.medium());
        cache.fill(guard.slot_index(), Self::cache_key(probe), ticket, found, buckets);
        found
    }
}

impl<M: MappedMedium, K: BucketShape> PointIndex for Rewo<M, K> {
    type Medium = M;
    type Kind = K;
    const NAME: &'static str = "rewo";
    /// An insert that evicts one or two keys takes three more for each.
    const FENCES_PER_INSERT: u32 = 2;

    fn pool(&self) -> &Pool<M> {
        &self.base().pool
    }

    #[inline(always)]
    fn get(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        self.search(guard, &Probe::new(key, self.tables.seed)).0
    }

    #[inline]
    fn get_sound(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        let probe = Probe::new(key, self.tables.seed);
        match self.search(guard, &probe) {
            (None, false) => self.tables.absent(guard, &probe),
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
                let probe = Probe::<K>::new(key, self.tables.seed);
                let known = self.cache.as_ref().map(|cache| self.look(cache, guard, &probe));
                let step = match known {
                    Some(Look::Word(word)) => Step::Found(Some(word)),
                    Some(Look::Absent) => Step::Found(None),
                    Some(Look::Unknown(ticket)) => Step::Seek(probe, Some(ticket)),
                    None => Step::Seek(probe, None),
                };
                if let Step::Seek(probe, _) = &step {
                    self.tables.prefetch(probe);
                }
                batch[len] = Some(step);
                len += 1;
            }
            for step in batch[..len].iter().flatten() {
                if let Step::Seek(probe, _) = step {
                    K::prefetch(guard, self.base().pool.region().at(self.tables.first_bucket(probe)), probe);
                }
            }
            for step in batch[..len].iter().flatten() {
                let found = match (step, &self.cache) {
                    (Step::Found(found), _) => *found,
                    (Step::Seek(probe, Some(ticket)), Some(cache)) => {
                        self.search_to_cache(cache, guard, probe, ticket)
                    }
                    (Step::Seek(probe, _), _) => self.tables.search_table(guard, probe).0,
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
        self.base().count_keys()
    }

    fn scan(
        &self,
        guard: &Guard<'_, M>,
        from: &crate::Place,
        at_least: usize,
        each: impl FnMut(u64),
    ) -> crate::Place {
        from.scan(|position| self.tables.scan_from(guard, position, at_least, each))
    }

    fn trace(&self, guard: &Guard<'_, M>, marker: &mut Marker<'_>, each: impl FnMut(&mut Marker<'_>, u64)) {
        self.tables.trace_all(guard, marker, each);
    }

    fn maintain(&self, guard: &Guard<'_, M>) -> bool {
        self.resize(guard).background_step()
    }

    fn stats(&self, _: &Guard<'_, M>) -> IndexStats {
        let view = self.base().view();
        let directory = view.directory();
        let buckets = directory.buckets();
        IndexStats {
            nodes: [0; 4],
            keys: self.len(),
            slots: buckets * K::SLOTS as u64,
            buckets,
            overflow_buckets: 0,
            bytes: (buckets + directory.spare().map_or(0, Place::buckets)) * BLOCK as u64
                + (self.base().stripes() * STRIPE_BYTES + size_of::<Root>() + size_of::<ViewBlock>()) as u64,
            resizes: self.base().root[2].0[RESIZES].load(self.base().pool.medium(), Relaxed),
            resizing: view.wants_help(),
        }
    }

    fn set_cache(&mut self, bounds: CacheBounds) {
        let is_alone = !self.base().pool.is_shared();
        self.cache = is_alone.then(|| Cache::new(bounds, self.is_new && self.is_empty())).flatten();
    }

    fn cache(&self) -> Option<CacheStats> {
        self.cache.as_ref().map(|cache| cache.stats())
    }

    fn damage(&self) -> Option<Damage> {
        self.tables.damage.get().copied()
    }
}

#[cfg(test)]
#[path = "tests/ops.rs"]
mod tests;
