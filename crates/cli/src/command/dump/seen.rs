//! The keys that a dump has written. While other clients write, a scan may visit a key twice.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

use crate::failure::say;

/// Maximum number of remembered keys, at about 35 bytes each.
const KEYS_MAX: usize = 1 << 22;

/// A set of keys, by a randomly seeded hash of 128 bits: a collision is less likely than a memory
/// error.
#[derive(Default)]
pub(crate) struct Seen {
    seeds: [RandomState; 2],
    keys: HashSet<u128>,
    is_full: bool,
}

impl Seen {
    /// Adds a key; returns whether it was new, as far as the set remembers.
    pub(crate) fn is_new(&mut self, key: &[u8]) -> bool {
        let hash = self.seeds.iter().fold(0, |hash, seed| hash << 64 | u128::from(seed.hash_one(key)));
        if self.keys.len() < KEYS_MAX {
            return self.keys.insert(hash);
        }
        self.is_full = true;
        !self.keys.contains(&hash)
    }

    /// Says so if there were more keys than the set remembers.
    pub(crate) fn warn(&self) {
        if self.is_full {
            say(
                "warning: too many keys to detect duplicates: a key that moved during the dump may be in it twice; load keeps the later one",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_new_once() {
        let mut seen = Seen::default();
        assert!([&b"a"[..], b"b", b""].iter().all(|key| seen.is_new(key)));
        assert!(![&b"a"[..], b"b", b""].iter().any(|key| seen.is_new(key)));
        assert!(!seen.is_full);
    }
}
