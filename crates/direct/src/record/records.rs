//! The records of a store: pool, index and root block together.

use crate::record::layout::Root;
use crate::record::limit::Limit;
use crate::record::uses::Uses;
use crate::record::view::Record;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use terrace_engine::{Clock, Durability, KEY_MAX, Ranges, ReadError, Table, VALUE_MAX, WriteError};
use terrace_index::CacheBounds;
use terrace_medium::MappedMedium;
use terrace_pool::Pool;

/// Settings of an open store.
pub struct Settings {
    /// Number of keys that a new index has room for.
    pub expected_keys: u64,
    /// Bounds of the index's cache in DRAM, if the index has such a cache and the pool is not
    /// shared.
    pub index_cache: CacheBounds,
    /// Bytes of DRAM for the layers of the index, if it can have such layers and the pool is not
    /// shared; 0: none. `None`: an eighth of the pool, but at least 1 MiB, if the medium is slower
    /// than DRAM, and none otherwise.
    pub index_dram: Option<u64>,
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

/// The records of a store, and whether they may be written. It owns the pool in which they lie, the
/// index whose words name them, the root block that counts them, and what each read and write
/// looks up: the settings, the uses and the limit. Below it stand the pool and the index alone; it
/// knows of batches only the word in the root.
pub(crate) struct Records<M: MappedMedium> {
    pub(crate) index: Box<dyn Table<M>>,
    pool: Pool<M>,
    pub(crate) root: Root<M>,
    pub(crate) settings: Settings,
    pub(crate) uses: Uses,
    pub(crate) limit: Limit,
    stopped: OnceLock<String>,
    /// State of the generator of random numbers.
    random_state: AtomicU64,
}

impl<M: MappedMedium> Records<M> {
    pub(crate) fn new(index: Box<dyn Table<M>>, pool: Pool<M>, root: Root<M>, settings: Settings) -> Self {
        let random_state = AtomicU64::new(pool.hash_seed() ^ u64::from(pool.generation()));
        let (uses, limit, stopped) = (Uses::default(), Limit::default(), OnceLock::new());
        Self { index, pool, root, settings, uses, limit, stopped, random_state }
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

    /// Checks the limits of a key and a value, and whether the store accepts writes. Each write
    /// checks this before it stages a record.
    pub(crate) fn check_write(&self, key: &[u8], value_len: usize) -> Result<(), WriteError> {
        if key.len() > KEY_MAX {
            return Err(WriteError::KeyTooLong);
        }
        if value_len > VALUE_MAX {
            return Err(WriteError::ValueTooLong);
        }
        self.check_writable()
    }

    /// A random number that is unpredictable without the pool's seed (SplitMix64).
    pub(crate) fn random_u64(&self) -> u64 {
        let mut z = self.random_state.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Whether a record has expired for this thread.
    #[inline(always)]
    pub(crate) fn has_expired(&self, record: &Record<'_>) -> bool {
        record.body.expires_at.is_some_and(|at| self.settings.clock.has_come(at))
    }

    /// The ranges of the index.
    pub(crate) fn ranges(&self) -> Result<&dyn Ranges<M>, ReadError> {
        self.index.ordered().ok_or(ReadError::Unordered { index: self.index.name() })
    }

    /// Whether this thread holds an entry: then nothing that it removes becomes free.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pool().try_pin().is_ok_and(|guard| guard.depth() > 1)
    }
}

#[cfg(test)]
#[path = "tests/records.rs"]
mod tests;
