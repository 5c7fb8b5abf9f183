//! PCM-friendly hash table (PFHT): cuckoo hashing with at most one eviction, and a stash for keys
//! that find no place.
//!
//! Debnath et al., as measured in *Level Hashing* (sections 2.2.2, 5.1 and 5.2.1): buckets with as
//! many slots as Level's. The stash has 3% of all slots and is chained; a full stash is a full
//! table.
//!
//! ```text
//!   main: 2^n buckets of 128 bytes, each key in one of two
//!   stash: heads, a word for each node -->  node | key | value | next | 0 |
//! ```
//! There are as many heads as nodes, so chains have about one node, where the paper's become long.
//! A table that knows (in the process's memory) that its stash is empty does not search it.

use super::bucket::{Buckets, Place, SLOTS};
use super::{Baseline, Space, SpaceFull, hashes};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use terrace_medium::{Medium, Offset, Word};

/// The stash's share of all slots.
const STASH_PERCENT: u64 = 3;
const NODE: u64 = 32;

type Node = [Word; 4];
const KEY: usize = 0;
const VALUE: usize = 1;
const NEXT: usize = 2;

/// Cuckoo hashing with a stash.
pub struct Pfht<M> {
    space: Arc<Space<M>>,
    buckets: Buckets<M>,
    heads: u64,
    nodes: u64,
    /// Number of nodes of the stash, and the free ones.
    capacity: u64,
    free: Vec<u64>,
    keys: u64,
}

impl<M: Medium> Pfht<M> {
    fn node(&self, at: u64) -> &Node {
        self.space.region().at(Offset::new(at))
    }

    fn head(&self, key: u64) -> u64 {
        let [one, other] = hashes(key);
        let chain = (u128::from(one ^ other.rotate_left(32)) * u128::from(self.capacity)) >> 64;
        self.heads + 8 * chain as u64
    }

    /// The word that names the node of `key`, and that node.
    fn stashed(&self, key: u64) -> Option<(u64, u64)> {
        if self.free.len() as u64 == self.capacity {
            return None;
        }
        let mut link = self.head(key);
        loop {
            let node = self.space.load(link);
            if node == 0 {
                return None;
            }
            if self.space.load(node + 8 * KEY as u64) == key {
                return Some((link, node));
            }
            link = node + 8 * NEXT as u64;
        }
    }

    fn stash(&mut self, key: u64, value: u64) -> Result<(), SpaceFull> {
        let at = self.free.pop().ok_or(SpaceFull)?;
        let (head, region, medium) = (self.head(key), self.space.region(), self.space.medium());
        let node = self.node(at);
        for (word, value) in [(KEY, key), (VALUE, value), (NEXT, self.space.load(head))] {
            node[word].store(medium, value, Release);
        }
        // PERSIST: the node before the word that names it.
        region.persist(node);
        self.space.word(head).store(medium, at, Release);
        // PERSIST: the node is linked before the caller returns.
        region.persist(self.space.word(head));
        Ok(())
    }

    /// A slot in one of these buckets, emptied by moving its pair to that pair's other bucket.
    fn displaced(&self, buckets: [u64; 2]) -> Option<Place> {
        for bucket in buckets {
            for slot in 0..SLOTS {
                let place = Place { bucket, slot };
                let alternative = self.buckets.alternative(self.buckets.key(place), bucket);
                if let Some(free) = self.buckets.free_slot(alternative) {
                    self.buckets.relocate(place, free);
                    return Some(place);
                }
            }
        }
        None
    }
}

impl<M: Medium> Baseline<M> for Pfht<M> {
    const NAME: &'static str = "PFHT";

    fn create(space: Arc<Space<M>>, slots: u64) -> Result<Self, SpaceFull> {
        let buckets = Buckets::create(space.clone(), slots)?;
        let capacity = (buckets.slots() * STASH_PERCENT / (100 - STASH_PERCENT)).max(4);
        let heads = space.alloc(8 * capacity)?;
        let nodes = space.alloc(NODE * capacity)?;
        let free = (0..capacity).rev().map(|node| nodes + NODE * node).collect();
        Ok(Self { space, buckets, heads, nodes, capacity, free, keys: 0 })
    }

    fn slots(&self) -> u64 {
        self.buckets.slots() + self.capacity
    }

    fn keys(&self) -> u64 {
        self.keys
    }

    fn bytes(&self) -> u64 {
        self.buckets.bytes() + self.nodes - self.heads + NODE * self.capacity
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        match self.buckets.find(key) {
            Some(place) => Some(self.buckets.value(place)),
            None => self.stashed(key).map(|(_, node)| self.space.load(node + 8 * VALUE as u64)),
        }
    }

    fn add(&mut self, key: u64, value: u64) -> Result<(), SpaceFull> {
        let [one, other] = self.buckets.of(key);
        let free = self.buckets.free_slot(one).or_else(|| self.buckets.free_slot(other));
        match free.or_else(|| self.displaced([one, other])) {
            Some(place) => self.buckets.put(place, key, value),
            None => self.stash(key, value)?,
        }
        self.keys += 1;
        Ok(())
    }

    fn update(&mut self, key: u64, value: u64) -> bool {
        if let Some(place) = self.buckets.find(key) {
            self.buckets.replace(place, value);
            return true;
        }
        let Some((_, node)) = self.stashed(key) else { return false };
        let word = &self.node(node)[VALUE];
        word.store(self.space.medium(), value, Release);
        // PERSIST: the new value, before the caller returns.
        self.space.region().persist(word);
        true
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        let value = match self.buckets.find(key) {
            Some(place) => {
                let value = self.buckets.value(place);
                self.buckets.clear(place);
                value
            }
            None => {
                let (link, node) = self.stashed(key)?;
                let (value, next) =
                    (self.space.load(node + 8 * VALUE as u64), self.space.load(node + 8 * NEXT as u64));
                self.space.word(link).store(self.space.medium(), next, Release);
                // PERSIST: the node leaves its chain before it is reused.
                self.space.region().persist(self.space.word(link));
                self.free.push(node);
                value
            }
        };
        self.keys -= 1;
        Some(value)
    }
}
