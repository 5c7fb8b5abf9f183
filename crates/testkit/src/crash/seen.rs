//! The set of crash states that were checked, by hash.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

const SHARDS: usize = 64;

/// A hasher for values that are hashes already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Hashes of distinct states, shared by all threads.
pub struct Seen {
    shards: [Mutex<HashSet<u64, BuildHasherDefault<Same>>>; SHARDS],
    len: AtomicU64,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Seen").field(&self.len()).finish()
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self::new()
    }
}

impl Seen {
    /// An empty set.
    pub fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), len: AtomicU64::new(0) }
    }

    /// Adds a hash. Returns whether it is new.
    pub fn insert(&self, hash: u64) -> bool {
        // The set uses the low bits for buckets and the highest for tags; these lie in between.
        let shard = &self.shards[(hash >> 48) as usize % SHARDS];
        let new = shard.lock().unwrap_or_else(PoisonError::into_inner).insert(hash);
        if new {
            self.len.fetch_add(1, Relaxed);
        }
        new
    }

    /// Number of states.
    pub fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
