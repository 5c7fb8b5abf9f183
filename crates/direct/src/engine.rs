//! The store: implements the engine's traits with the other modules.

use crate::batch::flight::TOGETHER;
use crate::read::range::Range;
use crate::record::key::Key;
use crate::record::layout::{INDEX, Root};
use crate::upkeep::chores::CHORES;
use crate::upkeep::compact::Compactor;
use crate::upkeep::evict::Evictor;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use terrace_engine::{
    Change, Clock, CloseError, Costs, Count, Cursor, Durability, Durably, Entry, Evicting, IndexFigures,
    Memory, OpenError, Ordered, PoolStats, Pooled, Put, RangeCursor, RangeRemoved, ReadError, Report, Stats,
    Ticket, Token, Value, Version, WatchError, WriteError,
};
use terrace_engine::{Chore, Commit, Engine, EntryCallback, Expected, Rest, Salvage, WatchHandle, Write};
use terrace_engine::{Indexed, Ranges, Table};
use terrace_index::{Bytes, CacheBounds, Direction, Place, PointIndex, RangeIndex, Stored};
use terrace_medium::{HugePages, MappedMedium};
use terrace_pool::{GrowError, Holder, Pool, Space, Watch};

/// The kind of keys that the engine's index has.
pub type Kind = Bytes<Key>;

/// Settings of an open store.
pub struct Settings {
    /// Number of keys that a new index has room for.
    pub expected_keys: u64,
    /// Bounds of the index's cache in DRAM, if the index has such a cache and the pool is not
    /// shared.
    pub index_cache: CacheBounds,
    /// Whether reads compare records with their checksums.
    pub verify_reads: bool,
    /// Refuse writes although the pool accepts them: for a read-only process that shares a store
    /// others write to.
    pub read_only: bool,
    /// What a write survives when it returns; follows from the pool's medium and file.
    pub durability: Durability,
    /// The clock that decides what has expired.
    pub clock: Arc<dyn Clock>,
}

/// The name of the index of the store in `pool` ([`PointIndex::NAME`]). `None` if the pool contains
/// no store, or the root that names the index is damaged.
pub fn index_in<M: MappedMedium>(pool: &Pool<M>) -> Option<String> {
    let root = pool.roots().into_iter().find(|root| root.name == INDEX && root.offset.is_some());
    root.map(|root| root.kind)
}

/// An index, or `None` if there is none and none may be created.
type OpenedIndex<M> = Result<Option<Box<dyn Table<M>>>, OpenError>;

/// Opens the index, or creates it for `expected_keys` keys.
fn open_index<M: MappedMedium, I>(
    pool: &Pool<M>,
    expected_keys: Option<u64>,
    cache: CacheBounds,
    ranges: fn(&I) -> Option<&dyn Ranges<M>>,
) -> OpenedIndex<M>
where
    I: PointIndex<Medium = M, Kind = Kind> + Stored<Medium = M> + 'static,
{
    let mut index = match I::recover(pool, INDEX)? {
        Some(index) => index,
        None => match expected_keys {
            Some(keys) => I::create(pool, INDEX, keys)?,
            None => return Ok(None),
        },
    };
    index.set_cache(cache);
    Ok(Some(Box::new(Indexed { index, ranges })))
}

/// A store in a pool, over an index of byte keys.
pub struct Direct<M: MappedMedium> {
    pub(crate) index: Box<dyn Table<M>>,
    pool: Pool<M>,
    pub(crate) root: Root<M>,
    pub(crate) settings: Settings,
    stopped: OnceLock<String>,
    batch_finished: Option<bool>,
    /// State of the generator of random numbers.
    random_state: AtomicU64,
    pub(crate) compactor: Compactor,
    /// Damaged records that scans have skipped.
    pub(crate) skipped: AtomicU64,
    /// Keys of a batch that are published together.
    pub(crate) piece: usize,
    /// Where the next step requests huge pages.
    pub(crate) collapsed: AtomicU64,
    pub(crate) evictor: Evictor,
    /// Where the sweep continues in an index by order.
    pub(crate) swept: Mutex<Place>,
}

impl<M: MappedMedium> Direct<M> {
    /// Opens the store in `pool` over the index `I`, and creates it if there is none. Finishes or
    /// aborts the batch that a crash has interrupted. An index by order has no ranges then: see
    /// [`Direct::open_ordered`].
    pub fn open<I>(pool: Pool<M>, settings: Settings) -> Result<Self, OpenError>
    where
        I: PointIndex<Medium = M, Kind = Kind> + Stored<Medium = M> + 'static,
    {
        Self::open_with(pool, settings, |pool, expected_keys, cache| {
            open_index::<M, I>(pool, expected_keys, cache, |_| None)
        })
    }

    /// As [`Direct::open`], over an index by order. The store keeps its keys in order:
    /// [`Engine::ordered`] returns its ranges.
    pub fn open_ordered<I>(pool: Pool<M>, settings: Settings) -> Result<Self, OpenError>
    where
        I: RangeIndex<Medium = M, Kind = Kind> + Stored<Medium = M> + 'static,
    {
        Self::open_with(pool, settings, |pool, expected_keys, cache| {
            open_index::<M, I>(pool, expected_keys, cache, |index| Some(index))
        })
    }

    /// `open_index` opens the index, or creates it for this number of expected keys. It is a plain
    /// function, so that this is compiled once for all indexes.
    fn open_with(
        pool: Pool<M>,
        settings: Settings,
        open_index: fn(&Pool<M>, Option<u64>, CacheBounds) -> OpenedIndex<M>,
    ) -> Result<Self, OpenError> {
        let opening = pool.initialize();
        let expected_keys = (!pool.is_read_only() && !settings.read_only).then_some(settings.expected_keys);
        let index = open_index(&pool, expected_keys, settings.index_cache)?.ok_or(OpenError::Empty)?;
        let root = match Root::find(&pool)? {
            Some(root) => root,
            None if pool.is_read_only() || settings.read_only => return Err(OpenError::Empty),
            None => Root::create(&pool)?,
        };
        let random_state = AtomicU64::new(pool.hash_seed() ^ u64::from(pool.generation()));
        let stopped = OnceLock::new();
        let mut store = Self {
            index,
            pool: pool.clone(),
            root,
            settings,
            stopped,
            batch_finished: None,
            random_state,
            compactor: Compactor::default(),
            skipped: AtomicU64::new(0),
            piece: TOGETHER,
            collapsed: AtomicU64::new(0),
            evictor: Evictor::default(),
            swept: Mutex::default(),
        };
        if !pool.is_read_only() && !pool.is_initialized() {
            store.batch_finished = store.finish_batch()?;
        }
        opening.done();
        if store.settings.read_only && pool.is_shared() {
            // Protects the data of other processes from stray stores in this one. Where the system
            // lacks such protection, this process still does not store to it.
            let _ = pool.protect_data();
        }
        Ok(store)
    }
}

impl<M: MappedMedium> Direct<M> {
    /// Publishes batches in pieces of `keys` keys. For tests, whose batches are short.
    #[doc(hidden)]
    pub fn publish_in_pieces_of(&mut self, keys: usize) {
        assert!(keys > 0, "a piece has at least one key");
        self.piece = keys;
    }

    #[inline(always)]
    pub(crate) fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    /// Checks whether the store accepts writes.
    #[inline(always)]
    pub(crate) fn check_writable(&self) -> Result<(), WriteError> {
        if self.settings.read_only || self.pool().is_read_only() {
            return Err(WriteError::ReadOnly);
        }
        match self.stopped.get() {
            None => Ok(()),
            Some(why) => Err(WriteError::Stopped(why.clone())),
        }
    }

    #[cold]
    pub(crate) fn disable_writes(&self, why: &str) {
        let _ = self.stopped.set(why.into());
    }

    /// A random number that is unpredictable without the pool's seed (SplitMix64).
    pub(crate) fn random_u64(&self) -> u64 {
        let mut z = self.random_state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn stats_now(&self) -> Stats {
        let guard = self.pool().pin();
        let (space, index, tally) = (self.pool().space(), self.index.stats(&guard), self.root.tally(&guard));
        let used = space.used_by_blocks + space.slab_free + space.metadata;
        Stats {
            records: index.keys,
            expiring: tally.expiring,
            data_bytes: tally.data_bytes,
            overhead_bytes: used.saturating_sub(tally.data_bytes),
            expired: self.root.expired(&guard),
            damaged_records_skipped: self.skipped.load(Ordering::Relaxed),
            costs: self.costs(),
            pool: Some(self.pool_stats(&space)),
            index: Some(IndexFigures {
                name: self.index.name(),
                bytes: index.bytes,
                slots: index.slots,
                nodes: index.nodes,
                resizes: index.resizes,
                resizing: index.resizing,
                cache: self.index.cache(),
            }),
            disk: None,
            tier: None,
        }
    }

    fn pool_stats(&self, space: &Space) -> PoolStats {
        let pool = self.pool();
        PoolStats {
            size_bytes: space.size,
            reserved_bytes: pool.medium().mapping().reserved() as u64,
            free_bytes: space.free,
            largest_free_bytes: space.largest_free_extent,
            waiting_bytes: space.waiting_bytes,
            // Without the caller's own guard.
            readers: space.readers.saturating_sub(1),
            blocking_readers: space.blocking_readers,
            lost_bytes: space.lost,
            damaged_bytes: space.damaged,
            participants: pool.layout().geometry.participants,
            generation: pool.generation(),
            found: pool.found(),
            batch_finished: self.batch_finished,
        }
    }

    fn costs(&self) -> Costs {
        if M::VOLATILE_CACHE { Costs::power(self.index.fences_per_insert()) } else { Costs::PROCESS }
    }
}

/// A watch of the pool's.
struct OfPool<M: MappedMedium>(Watch<M>);

impl<M: MappedMedium> WatchHandle for OfPool<M> {
    fn has_changed(&mut self) -> bool {
        self.0.has_changed()
    }
    fn wait(&mut self, time: Duration) -> bool {
        self.0.wait(time)
    }
}

impl<M: MappedMedium> Direct<M> {
    /// Checks whether a write can be as durable as it asks for: every write is as durable as the
    /// store when it returns.
    #[inline(always)]
    fn check_durability(&self, how: Durably) -> Result<(), WriteError> {
        match how {
            Durably::Store | Durably::Later => Ok(()),
            Durably::AtLeast(asked) => self.check_durability_level(asked),
        }
    }

    #[cold]
    fn check_durability_level(&self, asked: Durability) -> Result<(), WriteError> {
        let most = self.settings.durability;
        if asked <= most { Ok(()) } else { Err(WriteError::Durability { asked, most }) }
    }
}

impl<M: MappedMedium> Engine for Direct<M> {
    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.get_value(key)
    }
    fn get_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        self.get_each(keys, each);
    }
    fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        self.snapshot_many(keys, each);
    }
    fn token(&self, key: &[u8]) -> Result<Option<Token>, ReadError> {
        self.find_token(&self.pool().try_pin()?, key)
    }
    fn version(&self, key: &[u8]) -> Result<Version, ReadError> {
        self.find_version(&self.pool().try_pin()?, key)
    }
    fn put(&self, put: Put<'_>, how: Durably) -> Result<(), WriteError> {
        self.check_durability(how)?;
        self.put_one(&put)
    }
    fn put_many(&self, puts: &[Put<'_>], how: Durably) -> Vec<Result<(), WriteError>> {
        match self.check_durability(how) {
            Ok(()) => self.put_each(puts),
            Err(error) => vec![Err(error); puts.len()],
        }
    }
    fn delete(&self, key: &[u8], how: Durably) -> Result<(), WriteError> {
        self.check_durability(how)?;
        self.remove_one(key).map(drop)
    }
    fn remove(&self, key: &[u8], how: Durably) -> Result<bool, WriteError> {
        self.check_durability(how)?;
        self.remove_one(key)
    }
    fn remove_all(&self, keys: &[&[u8]], how: Durably) -> Result<u64, WriteError> {
        self.check_durability(how)?;
        self.remove_together(keys)
    }
    fn modify(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
        how: Durably,
    ) -> Result<(), WriteError> {
        self.check_durability(how)?;
        self.modify_one(key, change)
    }
    fn commit(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
        how: Durably,
    ) -> Result<Commit, WriteError> {
        self.check_durability(how)?;
        self.commit_all(writes, expected)
    }
    fn clear(&self, how: Durably) -> Result<(), WriteError> {
        self.check_durability(how)?;
        self.clear_all()
    }
    fn ticket(&self) -> Ticket {
        Ticket::SETTLED
    }
    fn settle(&self, _: Ticket) -> Result<(), WriteError> {
        Ok(())
    }
    fn durability(&self) -> Durability {
        self.settings.durability
    }
    fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        self.scan(cursor, at_least, each)
    }
    fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.random_key()
    }
    fn len(&self) -> Count {
        Count::Exact(self.index.len())
    }
    fn chores(&self) -> &[Chore] {
        &CHORES
    }
    fn step(&self, chore: Chore, stop: &dyn Fn() -> bool) -> Rest {
        self.do_step(chore, stop)
    }
    fn watch(&self, prefix: &[u8]) -> Result<Box<dyn WatchHandle>, WatchError> {
        Ok(Box::new(OfPool(self.pool().watch(prefix)?)))
    }
    fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.check_write(key, value.len())
    }
    fn now_ms(&self) -> u64 {
        self.settings.clock.now_ms()
    }
    fn stats(&self) -> Stats {
        self.stats_now()
    }
    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        self.check_all(progress)
    }
    fn check_records(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        self.check_concurrently(progress)
    }
    fn keeps_entries(&self) -> bool {
        self.pool().try_pin().is_ok_and(|guard| guard.depth() > 1)
    }
    fn salvage(&self, each: &mut Salvage<'_>) {
        self.salvage_all(each);
    }
    fn stop(&self, why: String) {
        self.disable_writes(&why);
    }
    fn close(self: Arc<Self>) -> Result<(), CloseError> {
        let store = Arc::into_inner(self).ok_or(CloseError::StillOpen)?;
        let pool = store.pool().clone();
        drop(store);
        Ok(pool.close()?)
    }
    fn pooled(&self) -> Option<&dyn Pooled> {
        Some(self)
    }
    fn evicting(&self) -> Option<&dyn Evicting> {
        Some(self)
    }
    fn ordered(&self) -> Option<&dyn Ordered> {
        self.index.ordered().map(|_| self as &dyn Ordered)
    }
}

impl<M: MappedMedium> Direct<M> {
    /// The ranges of the index.
    pub(crate) fn ranges(&self) -> Result<&dyn Ranges<M>, ReadError> {
        self.index.ordered().ok_or(ReadError::Unordered { index: self.index.name() })
    }
}

impl<M: MappedMedium> Ordered for Direct<M> {
    fn range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Box<dyn RangeCursor + '_>, ReadError> {
        Ok(Box::new(Range::new(self, self.ranges()?, from, to, direction)))
    }
    fn remove_range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        at_most: u64,
        how: Durably,
    ) -> Result<RangeRemoved, WriteError> {
        self.check_durability(how)?;
        self.remove_between(from, to, at_most)
    }
}

impl<M: MappedMedium> Pooled for Direct<M> {
    fn other_processes(&self) -> Vec<Holder> {
        self.pool().other_participants()
    }
    fn recover_dead(&self) -> u32 {
        self.recover_dead()
    }
    fn end_stopped(&self, holder: &Holder) -> std::io::Result<bool> {
        self.pool().end_stopped(holder)
    }
    fn post_notice(&self, text: &str) -> bool {
        self.pool().post_notice(text)
    }
    fn needs_collection(&self) -> bool {
        self.pool().needs_collection()
    }
    fn collect(&self, stop: &dyn Fn() -> bool) {
        self.collect(stop);
    }
    fn sweep_expired(&self, budget: usize) -> u64 {
        self.sweep(budget)
    }
    fn compact(&self) -> bool {
        self.compact_step()
    }
    fn move_all(&self) {
        self.move_each();
    }
    fn maintain(&self) -> bool {
        self.maintain_step()
    }
    fn collapse_step(&self, from: u64) -> Option<u64> {
        self.pool().collapse_step(from)
    }
    fn huge_pages(&self) -> std::io::Result<HugePages> {
        self.pool().medium().mapping().huge_pages()
    }
    fn grow(&self, bytes: u64) -> Result<u64, GrowError> {
        if self.settings.read_only {
            return Err(GrowError::ReadOnly);
        }
        self.pool().grow(bytes)
    }
    fn memory(&self) -> Memory {
        self.memory()
    }
}

#[cfg(test)]
#[path = "tests/engine.rs"]
mod tests;
