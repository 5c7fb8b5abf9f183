//! What a store that serves as a cache evicts, to make room for new keys.

use crate::{ReadError, WriteError};

/// Which keys make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether only keys with an expiry do.
    pub only_volatile: bool,
    /// Which of them first.
    pub first: First,
}

/// The keys that are evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Those that have not been used for the longest time.
    LeastRecent,
    /// Those that are used least often.
    LeastFrequent,
    /// Any.
    Random,
    /// Those that expire next.
    NextToExpire,
}

/// How a store evicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Which keys make room; `None`: writes fail instead.
    pub policy: Option<Policy>,
    /// Bytes that the store may use, apart from those of the pool that are free; 0: the pool's.
    pub limit_bytes: u64,
    /// Keys that are compared for each one that is evicted.
    pub samples: u32,
    /// How much a write above the limit evicts before it goes on, from 0 to 100 (as much as is
    /// above).
    pub tenacity: u32,
    /// A frequency of n grows with a probability of 1 in n times this.
    pub log_factor: u32,
    /// Minutes after which a frequency falls by one; 0: never.
    pub decay_minutes: u32,
    /// A key that is never evicted.
    pub spared: Option<&'static [u8]>,
}

impl Default for Eviction {
    fn default() -> Self {
        Self {
            policy: None,
            limit_bytes: 0,
            samples: 5,
            tenacity: 10,
            log_factor: 10,
            decay_minutes: 1,
            spared: None,
        }
    }
}

/// What a store knows of the use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// Milliseconds since its last use, to a quarter of a second, if the policy needs that.
    pub idle_ms: Option<u64>,
    /// Its frequency, from 0 to 255 on a logarithmic scale, if the policy needs that.
    pub frequency: Option<u8>,
}

impl KeyUse {
    /// The frequency of a key that was just added.
    pub const FIRST_FREQUENCY: u8 = 5;
}

/// A store that can evict.
pub trait Evicting {
    /// Changes how the store evicts, from now on. Each process that shares a pool has its own
    /// setting. Fails if the store cannot be written.
    fn set_eviction(&self, eviction: &Eviction) -> Result<(), WriteError>;

    /// The use of a key, without counting as one; `None` if it is absent.
    fn key_use(&self, key: &[u8]) -> Result<Option<KeyUse>, ReadError>;

    /// Gives a key the use of another one, as [`Evicting::key_use`] has told it: for a new name.
    fn set_key_use(&self, key: &[u8], of: &KeyUse) -> Result<(), ReadError>;

    /// Does `read` without recording the use of the keys that it reads.
    fn unrecorded(&self, read: &mut dyn FnMut());

    /// Does `write`, which takes no memory for long, also where the store is above its limit.
    fn unlimited(&self, write: &mut dyn FnMut());

    /// Bytes that count for the limit: the pool's without what is free.
    fn used_bytes(&self) -> u64;

    /// Keys that this process has evicted.
    fn evicted(&self) -> u64;
}
