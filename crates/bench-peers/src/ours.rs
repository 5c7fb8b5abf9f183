//! CLHT in memory that was touched before, on huge pages if the kernel has them.

use crate::maps::Map;
use std::sync::atomic::Ordering::Relaxed;
use terrace_index::hash::Clht;
use terrace_index::{Inserted, PointIndex, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Offset, Word};
use terrace_pool::{Pool, PoolOptions};

/// CLHT on a medium.
pub(crate) struct Ours<M: MappedMedium> {
    pub(crate) index: Clht<M, U64>,
}

/// Bytes of memory for an index of so many keys that grows from nothing: tables of all sizes up to the last, and room.
fn pool_bytes(keys: u64) -> u64 {
    (64 << 20) + keys * 160
}

impl<M: MappedMedium> Ours<M> {
    /// An empty index with room for `capacity` keys at first, in a pool for `keys`.
    pub(crate) fn new(capacity: u64, keys: u64) -> Self {
        let options = PoolOptions::anonymous().size(pool_bytes(keys)).huge_pages(true);
        let pool: Pool<M> = options.create().expect("memory for a pool");
        touch(&pool);
        let index = Clht::create(&pool, "bench", capacity).expect("room for an index");
        Self { index }
    }
}

/// Touches every page of the pool. Adds nothing to one word of each, so whatever lies there stays as it is.
fn touch<M: MappedMedium>(pool: &Pool<M>) {
    for page in (0..pool.size()).step_by(4096) {
        pool.region().at(Offset::<Word>::new(page)).fetch_or(pool.medium(), 0, Relaxed);
    }
}

impl Map for Ours<Dram> {
    fn with_capacity(capacity: u64, keys: u64) -> Self {
        Self::new(capacity, keys)
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.index.get(&self.index.pool().pin(), &key)
    }
    #[inline]
    fn update(&self, key: u64, value: u64) -> bool {
        self.index.update(&self.index.pool().pin(), &key, value).is_some()
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        matches!(self.index.insert(&self.index.pool().pin(), &key, value), Ok(Inserted::New))
    }
}

impl Ours<Dram> {
    /// How many of the keys are there.
    pub(crate) fn get_many(&self, keys: &[u64]) -> u64 {
        let mut found = 0;
        self.index.get_many(&self.index.pool().pin(), keys, |_, word| found += u64::from(word.is_some()));
        found
    }
}
