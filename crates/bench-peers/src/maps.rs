//! The maps that are compared: one trait for all of them, and its implementations for the peers.
//!
//! Every operation is written as a user of that map would write it for single keys: if a map needs
//! a guard, each operation takes one. The peers hash with foldhash's fast variant, the fastest of
//! the sensible hashers for integers. Terrace hashes as its pools do, with one multiplication more.

use foldhash::fast::FixedState;

/// A map from 8-byte keys to 8-byte values that threads share.
pub(crate) trait Map: Sync {
    /// An empty map with room for `capacity` keys (0: it grows from nothing), which will hold
    /// `keys`.
    fn with_capacity(capacity: u64, keys: u64) -> Self;
    /// The value of `key`.
    fn get(&self, key: u64) -> Option<u64>;
    /// Replaces the value of a present key.
    fn update(&self, key: u64, value: u64) -> bool;
    /// Adds an absent key.
    fn insert(&self, key: u64, value: u64) -> bool;
}

pub(crate) struct Papaya(papaya::HashMap<u64, u64, FixedState>);

impl Map for Papaya {
    fn with_capacity(capacity: u64, _: u64) -> Self {
        Self(papaya::HashMap::with_capacity_and_hasher(capacity as usize, FixedState::default()))
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).copied()
    }
    #[inline]
    fn update(&self, key: u64, value: u64) -> bool {
        self.0.pin().insert(key, value).is_some()
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.pin().insert(key, value).is_none()
    }
}

pub(crate) struct DashMap(dashmap::DashMap<u64, u64, FixedState>);

impl Map for DashMap {
    fn with_capacity(capacity: u64, _: u64) -> Self {
        Self(dashmap::DashMap::with_capacity_and_hasher(capacity as usize, FixedState::default()))
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| *value)
    }
    #[inline]
    fn update(&self, key: u64, value: u64) -> bool {
        self.0.get_mut(&key).map(|mut old| *old = value).is_some()
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.insert(key, value).is_none()
    }
}

pub(crate) struct Scc(scc::HashMap<u64, u64, FixedState>);

impl Map for Scc {
    fn with_capacity(capacity: u64, _: u64) -> Self {
        Self(scc::HashMap::with_capacity_and_hasher(capacity as usize, FixedState::default()))
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.read_sync(&key, |_, value| *value)
    }
    #[inline]
    fn update(&self, key: u64, value: u64) -> bool {
        self.0.update_sync(&key, |_, old| *old = value).is_some()
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.insert_sync(key, value).is_ok()
    }
}
