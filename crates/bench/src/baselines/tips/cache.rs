//! The table in DRAM: buckets of chains.

use super::super::{Space, SpaceFull, hashes};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::Medium;

/// Words of an entry.
const KEY: u64 = 0;
const PLACE: u64 = 8;
const NEXT: u64 = 16;
const ENTRY: u64 = 32;

/// Places of the values of keys that were written; 0 of a key that was removed.
pub(super) struct Cache<D> {
    space: Arc<Space<D>>,
    buckets: u64,
    shift: u32,
    keys: u64,
    /// Keys that it keeps once they are in the index.
    kept: u64,
    free: Vec<u64>,
}

impl<D: Medium> Cache<D> {
    pub(super) fn create(space: Arc<Space<D>>, kept: u64) -> Result<Self, SpaceFull> {
        let buckets = kept.next_power_of_two().max(64);
        let at = space.alloc(8 * buckets)?;
        let shift = 64 - buckets.ilog2();
        Ok(Self { space, buckets: at, shift, keys: 0, kept, free: Vec::new() })
    }

    /// The word that names the entry of a key, and the entry; 0 if there is none.
    fn find(&self, key: u64) -> (u64, u64) {
        let mut link = self.buckets + 8 * (hashes(key)[0] >> self.shift);
        loop {
            let entry = self.space.load(link);
            if entry == 0 || self.space.load(entry + KEY) == key {
                return (link, entry);
            }
            link = entry + NEXT;
        }
    }

    fn store(&self, at: u64, word: u64) {
        self.space.word(at).store(self.space.medium(), word, Release);
    }

    pub(super) fn get(&self, key: u64) -> Option<u64> {
        let (_, entry) = self.find(key);
        (entry != 0).then(|| self.space.word(entry + PLACE).load(self.space.medium(), Acquire))
    }

    pub(super) fn set(&mut self, key: u64, place: u64) -> Result<(), SpaceFull> {
        let (link, entry) = self.find(key);
        if entry != 0 {
            self.store(entry + PLACE, place);
            return Ok(());
        }
        let fresh = self.free.pop().map_or_else(|| self.space.alloc_aligned(ENTRY, ENTRY), Ok)?;
        [(KEY, key), (PLACE, place), (NEXT, 0)].iter().for_each(|(at, word)| self.store(fresh + at, *word));
        self.store(link, fresh);
        self.keys += 1;
        Ok(())
    }

    /// Lets go of a key that the index has, if there are too many.
    pub(super) fn replayed(&mut self, key: u64) {
        let (link, entry) = self.find(key);
        if self.keys > self.kept && entry != 0 {
            self.store(link, self.space.load(entry + NEXT));
            self.free.push(entry);
            self.keys -= 1;
        }
    }
}
