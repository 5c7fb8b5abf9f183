//! Our indexes in touched memory, on huge pages if the kernel has them.

use crate::maps::Map;
use std::marker::PhantomData;
use terrace_bench::touch;
use terrace_index::hash::Clht;
use terrace_index::{Inserted, PointIndex, Stored, U64};
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::{Pool, PoolOptions};

/// An index on a medium: CLHT by default.
pub(crate) struct Ours<M: MappedMedium, I = Clht<M, U64>> {
    pub(crate) index: I,
    medium: PhantomData<fn() -> M>,
}

/// Bytes of memory for an index of `keys` keys that grows from nothing: tables of all sizes up to
/// the last, and some room.
fn pool_bytes(keys: u64) -> u64 {
    (64 << 20) + keys * 160
}

impl<M: MappedMedium, I: PointIndex<Medium = M, Kind = U64> + Stored<Medium = M>> Ours<M, I> {
    /// An empty index with initial room for `capacity` keys, in a pool for `keys`.
    pub(crate) fn new(capacity: u64, keys: u64) -> Self {
        let options = PoolOptions::anonymous().size(pool_bytes(keys)).huge_pages(true);
        let pool: Pool<M> = options.create().expect("memory for a pool");
        touch(pool.region());
        let index = I::create(&pool, "bench", capacity).expect("room for an index");
        Self { index, medium: PhantomData }
    }
}

impl<I: PointIndex<Medium = Dram, Kind = U64> + Stored<Medium = Dram>> Map for Ours<Dram, I> {
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
        self.index.insert(&self.index.pool().pin(), &key, value).expect("room in the pool") == Inserted::New
    }
}

impl<I: PointIndex<Medium = Dram, Kind = U64>> Ours<Dram, I> {
    /// Number of the keys that are present.
    pub(crate) fn get_many(&self, keys: &[u64]) -> u64 {
        let mut found = 0;
        self.index.get_many(&self.index.pool().pin(), keys, |_, word| found += u64::from(word.is_some()));
        found
    }
}
