//! Bucketized cuckoo hashing (BCH): a key lies in one of two buckets, and whoever finds both full throws others out, one after the other.
//!
//! As *Level Hashing* measures it (sections 2.2.1, 5.1 and 5.2.1): two hash functions, at most 500 evictions, and no log: the way of evictions is found first, and gone from its end,
//! so that a pair is in its new slot before its old one is taken (end of section 3.3.4).
//!
//! ```text
//!   key x --> bucket L1 full, bucket L2 full        the way: a in L1 -> its other bucket, full: b there -> its other bucket: a free slot
//!                                                   then: b moves, a moves to where b was, x comes where a was
//! ```
//! A table that finds no way is full; it grows by a new table and a full rehash.

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
    /// Slots, each of whose pairs can go where the next one is; the last one's to the free slot beside.
    fn way(&mut self, first: u64) -> Option<(Vec<Place>, Place)> {
        let (mut way, mut bucket) = (Vec::<Place>::new(), first);
        for _ in 0..EVICTIONS_MAX {
            let place = Place { bucket, slot: self.random.below(SLOTS as u64) as usize };
            // A way that comes back to a slot is as good without the round.
            way.truncate(way.iter().position(|&before| before == place).unwrap_or(way.len()));
            way.push(place);
            bucket = self.buckets.alternative(self.buckets.key(place), bucket);
            if let Some(free) = self.buckets.free_slot(bucket) {
                return Some((way, free));
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
                let (way, mut free) = self.way(first).ok_or(SpaceFull)?;
                for &place in way.iter().rev() {
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
