//! Bucketized cuckoo hashing (BCH): a key lies in one of two buckets; if both are full, an insert
//! evicts keys, one after the other.
//!
//! As measured in *Level Hashing* (sections 2.2.1, 5.1 and 5.2.1): two hash functions, at most 500
//! evictions, and no log. The path of evictions is found first and executed from its end. So a pair
//! is in its new slot before its old slot is reused (end of section 3.3.4).
//!
//! ```text
//!   key x --> buckets L1 and L2, both full
//!             the path:  a in L1 -> its other bucket, full: b there -> its other: a free slot
//!             then:      b moves, a moves to b's slot, x comes to a's slot
//! ```
//! A table without such a path is full; it grows by a new table and a full rehash.

use super::bucket::{Buckets, Place, SLOTS};
use super::{Baseline, Space, SpaceFull};
use crate::Random;
use std::sync::Arc;
use terrace_medium::Medium;

const EVICTIONS_MAX: usize = 500;

/// Bucketized cuckoo hashing.
pub struct Bch<M> {
    buckets: Buckets<M>,
    keys: u64,
    random: Random,
}

impl<M: Medium> Bch<M> {
    /// A path of slots: each slot's pair can move to the next slot, and the last one's to the free
    /// slot.
    fn path(&mut self, first: u64) -> Option<(Vec<Place>, Place)> {
        let (mut path, mut bucket) = (Vec::<Place>::new(), first);
        for _ in 0..EVICTIONS_MAX {
            let place = Place { bucket, slot: self.random.below(SLOTS as u64) as usize };
            // A path that returns to a slot is as good without the loop.
            path.truncate(path.iter().position(|&before| before == place).unwrap_or(path.len()));
            path.push(place);
            bucket = self.buckets.alternative(self.buckets.key(place), bucket);
            if let Some(free) = self.buckets.free_slot(bucket) {
                return Some((path, free));
            }
        }
        None
    }
}

impl<M: Medium> Baseline<M> for Bch<M> {
    const NAME: &'static str = "BCH";

    fn create(space: Arc<Space<M>>, slots: u64) -> Result<Self, SpaceFull> {
        Ok(Self { buckets: Buckets::create(space, slots)?, keys: 0, random: Random::new(1) })
    }

    fn slots(&self) -> u64 {
        self.buckets.slots()
    }

    fn keys(&self) -> u64 {
        self.keys
    }

    fn bytes(&self) -> u64 {
        self.buckets.bytes()
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.buckets.find(key).map(|place| self.buckets.value(place))
    }

    fn add(&mut self, key: u64, value: u64) -> Result<(), SpaceFull> {
        let [one, other] = self.buckets.of(key);
        let free = self.buckets.free_slot(one).or_else(|| self.buckets.free_slot(other));
        let place = match free {
            Some(place) => place,
            None => {
                let first = if self.random.below(2) == 0 { one } else { other };
                let (path, mut free) = self.path(first).ok_or(SpaceFull)?;
                for &place in path.iter().rev() {
                    self.buckets.relocate(place, free);
                    free = place;
                }
                free
            }
        };
        self.buckets.put(place, key, value);
        self.keys += 1;
        Ok(())
    }

    fn update(&mut self, key: u64, value: u64) -> bool {
        self.buckets.find(key).map(|place| self.buckets.replace(place, value)).is_some()
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        let place = self.buckets.find(key)?;
        let value = self.buckets.value(place);
        self.buckets.clear(place);
        self.keys -= 1;
        Some(value)
    }
}
