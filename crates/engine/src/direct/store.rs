//! The store, and the engine's face over its parts.

use super::compact::Compactor;
use super::key::Key;
use super::root::{INDEX, Root};
use crate::engine::{Commit, Each, Engine, Expected, Salvage, Watching, Write};
use crate::{
    Change, Clock, Costs, Cursor, Entry, Memory, OpenError, Put, ReadError, Report, Stats, Token, Value,
    Version, WriteError,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use terrace_index::{Bytes, CacheBounds, PointIndex, Stored};
use terrace_medium::{HugePages, MappedMedium, Medium};
use terrace_pool::{CloseError, GrowError, Holder, Lock, Pool, Watch, WatchError};

/// The kind of keys that the engine's index has.
pub type Kind = Bytes<Key>;

/// What an open store goes by.
pub struct Settings {
    /// Keys that a new index has room for from the start.
    pub expected_keys: u64,
    /// How large a cache in DRAM the index may have, if it is one that has such a cache, and the pool is not shared.
    pub index_cache: CacheBounds,
    /// Whether reads compare records with their checksums.
    pub verify_reads: bool,
    /// Whether nothing is written, though the pool would take it: a store that others write to is read by one who has a place in its pool.
    pub read_only: bool,
    /// Tells what has expired.
    pub clock: Arc<dyn Clock>,
}

/// What the index of the store in `pool` is called ([`PointIndex::NAME`]); `None` if there is no store in it, or the root that would tell is damaged.
pub fn index_in<M: MappedMedium>(pool: &Pool<M>) -> Option<String> {
    let root = pool.roots().into_iter().find(|root| root.name == INDEX && root.offset.is_some());
    root.map(|root| root.kind)
}

/// A store in a pool, over an index of byte keys.
pub struct Direct<I: PointIndex> {
    pub(super) index: I,
    pub(super) root: Root<I::Medium>,
    pub(super) settings: Settings,
    stopped: OnceLock<String>,
    batch_finished: Option<bool>,
    /// For random keys.
    draws: AtomicU64,
    pub(super) compactor: Compactor,
    /// Damaged records that scans have left out.
    pub(super) skipped: AtomicU64,
}

impl<I> Direct<I>
where
    I: PointIndex<Kind = Kind> + Stored<Medium = <I as PointIndex>::Medium>,
{
    /// The store in `pool`, made if there is none; what a crash has cut off is ended.
    pub fn open(pool: Pool<<I as PointIndex>::Medium>, settings: Settings) -> Result<Self, OpenError> {
        let opening = pool.initialize();
        let mut index = match I::recover(&pool, INDEX)? {
            Some(index) => index,
            None if pool.is_read_only() || settings.read_only => return Err(OpenError::Empty),
            None => I::create(&pool, INDEX, settings.expected_keys)?,
        };
        index.set_cache(settings.index_cache);
        let root = match Root::find(&pool)? {
            Some(root) => root,
            None if pool.is_read_only() || settings.read_only => return Err(OpenError::Empty),
            None => Root::create(&pool)?,
        };
        let draws = AtomicU64::new(pool.hash_seed() ^ u64::from(pool.generation()));
        let stopped = OnceLock::new();
        let mut store = Self {
            index,
            root,
            settings,
            stopped,
            batch_finished: None,
            draws,
            compactor: Compactor::default(),
            skipped: AtomicU64::new(0),
        };
        if !pool.is_read_only() && !pool.is_initialized() {
            store.batch_finished = store.end_batch()?;
        }
        opening.done();
        if store.settings.read_only && pool.is_shared() {
            // Whatever goes wrong in this process, what the others write stays whole. Where the system has no such protection, it is not stored to all the same.
            let _ = pool.protect_data();
        }
        Ok(store)
    }
}

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    #[inline(always)]
    pub(super) fn pool(&self) -> &Pool<I::Medium> {
        self.index.pool()
    }

    /// Whether anything is written at all.
    #[inline(always)]
    pub(super) fn is_running(&self) -> Result<(), WriteError> {
        if self.settings.read_only || self.pool().is_read_only() {
            return Err(WriteError::ReadOnly);
        }
        match self.stopped.get() {
            None => Ok(()),
            Some(why) => Err(WriteError::Stopped(why.clone())),
        }
    }

    #[cold]
    pub(super) fn stop_writing(&self, why: &str) {
        let _ = self.stopped.set(why.into());
    }

    /// A number that cannot be foreseen by who does not know the pool's seed (SplitMix64).
    pub(super) fn draw(&self) -> u64 {
        let mut z = self.draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
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
            waiting_bytes: space.waiting_bytes,
            // The guard above is one of them.
            readers: space.readers.saturating_sub(1),
            readers_holding_up: space.holding_up,
            lost_bytes: space.lost,
            damaged_bytes: space.damaged,
            damaged_records_skipped: self.skipped.load(Ordering::Relaxed),
            free_bytes: space.free,
            largest_free_bytes: space.largest_free_extent,
            size_bytes: space.size,
            reserved_bytes: self.pool().medium().mapping().reserved() as u64,
            participants: self.pool().layout().geometry.participants,
            index: I::NAME,
            index_bytes: index.bytes,
            index_slots: index.slots,
            index_resizes: index.resizes,
            index_resizing: index.resizing,
            index_cache: self.index.cache(),
            generation: self.pool().generation(),
            found: self.pool().found(),
            batch_finished: self.batch_finished,
            expired: self.root.expired(&guard),
            costs: if I::Medium::VOLATILE_CACHE {
                Costs::power(I::FENCES_PER_INSERT)
            } else {
                Costs::PROCESS
            },
        }
    }
}

// What the pool's own does.
impl<M: MappedMedium> Watching for Watch<M> {
    fn has_changed(&mut self) -> bool {
        Self::has_changed(self)
    }
    fn wait(&mut self, time: Duration) -> bool {
        Self::wait(self, time)
    }
}

impl<I> Engine for Direct<I>
where
    I: PointIndex<Kind = Kind> + Stored<Medium = <I as PointIndex>::Medium> + 'static,
{
    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.get_value(key)
    }
    fn get_many(&self, keys: &[&[u8]], each: &mut Each<'_>) {
        self.get_each(keys, each);
    }
    fn snapshot_many(&self, keys: &[&[u8]], each: &mut Each<'_>) {
        self.snapshot(keys, each);
    }
    fn token(&self, key: &[u8]) -> Result<Option<Token>, ReadError> {
        self.find_token(&self.pool().try_pin()?, key)
    }
    fn version(&self, key: &[u8]) -> Result<Version, ReadError> {
        self.find_version(&self.pool().try_pin()?, key)
    }
    fn put(&self, put: Put<'_>) -> Result<(), WriteError> {
        self.put_one(&put)
    }
    fn put_many(&self, puts: &[Put<'_>]) -> Vec<Result<(), WriteError>> {
        self.put_each(puts)
    }
    fn remove(&self, key: &[u8]) -> Result<bool, WriteError> {
        self.remove_one(key)
    }
    fn remove_all(&self, keys: &[&[u8]]) -> Result<u64, WriteError> {
        self.remove_together(keys)
    }
    fn modify(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
    ) -> Result<(), WriteError> {
        self.modify_one(key, change)
    }
    fn commit(&self, writes: &[Write<'_>], expected: &[Expected<'_>]) -> Result<Commit, WriteError> {
        self.commit_all(writes, expected)
    }
    fn scan(
        &self,
        cursor: Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        self.scan_from(cursor, at_least, each)
    }
    fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.any_key()
    }
    fn clear(&self) -> Result<(), WriteError> {
        self.clear_all()
    }
    fn len(&self) -> u64 {
        self.index.len()
    }
    fn sweep_expired(&self, budget: usize) -> u64 {
        self.sweep(budget)
    }
    fn maintain(&self) -> bool {
        if self.is_running().is_err() {
            return false;
        }
        self.pool().reclaim_nonblocking();
        self.index.maintain(&self.pool().pin())
    }
    fn compact(&self) -> bool {
        self.compact_step()
    }
    fn move_all(&self) {
        self.move_each();
    }
    fn look_after_others(&self) -> u32 {
        self.take_over()
    }
    fn others(&self) -> Vec<Holder> {
        self.pool().other_participants()
    }
    fn post_notice(&self, text: &str) -> bool {
        self.pool().post_notice(text)
    }
    fn end_stopped(&self, holder: &Holder) -> std::io::Result<bool> {
        self.pool().end_stopped(holder)
    }
    fn is_to_sweep(&self) -> bool {
        self.is_running().is_ok() && Lock::of(self.root.sweeper()).hold_for_process(self.pool())
    }
    fn needs_collection(&self) -> bool {
        self.pool().needs_collection()
    }
    fn collect(&self, is_to_stop: &dyn Fn() -> bool) {
        self.collect_lost(is_to_stop);
    }
    fn collapse_step(&self, from: u64) -> Option<u64> {
        self.pool().collapse_step(from)
    }
    fn watch(&self, prefix: &[u8]) -> Result<Box<dyn Watching>, WatchError> {
        Ok(Box::new(self.pool().watch(prefix)?))
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
    fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.may_write(key, value.len())
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
        self.check_beside(progress)
    }
    fn keeps_entries(&self) -> bool {
        self.pool().try_pin().is_ok_and(|guard| guard.depth() > 1)
    }
    fn salvage(&self, each: &mut Salvage<'_>) {
        self.salvage_all(each);
    }
    fn memory(&self) -> Memory {
        self.count_memory()
    }
    fn stop(&self, why: String) {
        self.stop_writing(&why);
    }
    fn close(self: Arc<Self>) -> Result<(), CloseError> {
        let store = Arc::into_inner(self).ok_or(CloseError::StillOpen)?;
        let pool = store.pool().clone();
        drop(store);
        pool.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::descriptor::Descriptor;
    use crate::direct::small::{self, settings, store};
    use std::path::Path;
    use terrace_medium::{Dram, Shm};
    use terrace_pool::{PoolOptions, Start};

    type Store<M = Shm> = small::Store<M>;

    #[test]
    fn draws_are_those_of_splitmix64() {
        let (store, _) = store();
        store.draws.store(1_234_567, Ordering::Relaxed);
        // The second number is the first of the published list for this seed.
        let _ = store.draw();
        assert_eq!([(); 2].map(|()| store.draw()), [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn each_pool_draws_numbers_of_its_own_each_time_that_it_is_opened() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut first = std::collections::BTreeSet::new();
        for (name, seed) in [("three", 3), ("four", 4), ("eight", 8)] {
            for _ in 0..2 {
                let options = PoolOptions::at(directory.path().join(name)).size(4 << 20).hash_seed(seed);
                let store = Store::<Shm>::open(options.open_or_create().unwrap(), settings()).unwrap();
                first.insert(store.draw());
            }
        }
        assert_eq!(first.len(), 6);
    }

    fn options(path: &Path) -> PoolOptions {
        PoolOptions::at(path.join("pool")).size(4 << 20).shared(true)
    }

    #[test]
    fn who_only_reads_makes_no_store_of_a_pool_that_another_has_begun_to_make_one_of() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = options(directory.path()).create::<Shm>().unwrap();
        small::Index::<Shm>::create(&pool, INDEX, 100).unwrap();
        let reader = Settings { read_only: true, ..settings() };
        let opened = Store::<Shm>::open(options(directory.path()).open().unwrap(), reader);
        assert!(matches!(opened, Err(OpenError::Empty)));
        assert_eq!(pool.roots().iter().filter(|root| root.offset.is_some()).count(), 1);
        assert!(Store::open(pool, settings()).is_ok());
    }

    #[test]
    fn an_index_is_that_of_a_store_if_it_has_the_store_s_name() {
        let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
        small::Index::<Dram>::create(&pool, "another", 100).unwrap();
        assert_eq!(index_in(&pool), None);
        Store::open(pool.clone(), settings()).unwrap();
        assert_eq!(index_in(&pool).as_deref(), Some("clht"));
    }

    #[test]
    fn who_opens_a_store_that_others_have_open_leaves_their_batch_alone() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let one = Store::<Shm>::open(options(directory.path()).create().unwrap(), settings()).unwrap();
        let guard = one.pool().pin();
        let block = Descriptor::alloc(&guard, 0).unwrap();
        let descriptor = Descriptor::draw(&guard, block, 0);
        let lock = Lock::of(one.root.lock()).acquire(&guard);
        one.root.set_active(descriptor.offset());
        let two = Store::<Shm>::open(options(directory.path()).open().unwrap(), settings()).unwrap();
        assert_eq!((two.batch_finished, one.root.active()), (None, descriptor.offset()));
        one.root.set_active(0);
        lock.release();
    }

    #[test]
    fn what_has_a_place_in_the_pool_is_asked_of_it() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("pool");
        let open = || {
            let pool = PoolOptions::at(&path).size(4 << 20).open_or_create::<Shm>().unwrap();
            Arc::new(Store::open(pool, settings()).unwrap())
        };
        let store = open();
        let mut watch = store.watch(b"k").unwrap();
        let put = |key| store.put(Put { key, value: b"value", expires_at: None }).unwrap();
        assert!(!watch.has_changed() && !watch.wait(Duration::ZERO));
        put(b"other");
        assert!(!watch.has_changed());
        put(b"key");
        assert!(watch.has_changed() && !watch.has_changed());
        put(b"key");
        assert!(watch.wait(Duration::from_secs(10)) && !watch.wait(Duration::ZERO));
        drop(watch);

        assert!(!store.keeps_entries());
        let value = store.get(b"key").unwrap();
        assert!(value.is_some() && store.keeps_entries());
        drop(value);
        assert!(!store.keeps_entries());

        // Huge pages are asked for piece by piece, up to the end of the pool.
        let pieces: Vec<u64> = std::iter::successors(Some(0), |&from| store.collapse_step(from)).collect();
        assert!(pieces.len() > 1 && pieces.is_sorted() && *pieces.last().unwrap() >= store.pool().size());
        assert!(pieces.iter().rev().skip(1).all(|&from| from < store.pool().size()));

        let other = store.clone();
        assert!(matches!(other.close(), Err(CloseError::StillOpen)));
        store.close().unwrap();
        assert_eq!(open().stats().found, Start::Clean);
    }
}
