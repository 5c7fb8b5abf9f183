//! Counts of removals, in stripes by the key's hash: they tell whether a key that is absent twice
//! was absent all along. (See `direct::absence`, which does the same in the pool.)

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use xxhash_rust::xxh3::xxh3_64;

const STRIPES: usize = 4096;

/// The counts.
pub struct Removals(Box<[AtomicU64]>);

impl Default for Removals {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Removals {
    fn stripe(&self, key: &[u8]) -> &AtomicU64 {
        &self.0[xxh3_64(key) as usize % STRIPES]
    }

    /// The count that `key` shares. Read it before a read that may find the key absent.
    pub fn of(&self, key: &[u8]) -> u64 {
        // ORDER: Acquire: later reads happen after this one.
        self.stripe(key).load(Acquire)
    }

    /// Counts a removal that is about to become visible.
    pub fn count(&self, key: &[u8]) {
        // ORDER: Release: a thread that sees the key removed sees this count.
        self.stripe(key).fetch_add(1, Release);
    }

    /// Counts removals of all keys.
    pub fn count_all(&self) {
        self.0.iter().for_each(|count| _ = count.fetch_add(1, Release));
    }
}
