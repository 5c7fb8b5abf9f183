//! TIPS: a framework that makes an index of DRAM persistent, with a hash table in DRAM before it.
//!
//! Krishnan et al.: *TIPS: Making Volatile Index Structures Persistent with DRAM-NVMM Tiering*,
//! USENIX ATC 2021; as the paper of HeterMM describes it (sections 2.3, 6.1 and 6.2) and compares
//! with. For one thread.
//!
//! ```text
//!   DRAM:                 table of recent writes: | key | place of the value | next |
//!   persistent memory:    operation log:  | key | place of the value, or 0 | sequence number | 0 |
//!                         values          index: key -> place of the value
//!                         undo log:       | key | place before, or 0 |
//!                         memory log:     | place of a value that is free |
//! ```
//! A put writes the value, then an entry of the operation log, then the log's tail, and adds the
//! key to the table. A get asks the table, then the index, and reads the value. A *replay* puts the
//! entries of the log into the index: first what it will change goes to the undo log, at the end
//! the values that were replaced to the memory log; a change of one line commits it. A crash before
//! that leaves an undo log that takes the index back, and the operation log.
//!
//! # What was repaired
//! * **Entry and value are persisted with one fence**, the tail with another one: two fences a put.
//! * **A replay fences by batch**: the undo log once, the index once, the memory log once, the
//!   commit once. The published one fences each entry of the undo log twice.
//! * **A key that is written again in a batch changes the index once.**
//! * **The table has each key once.** The published one adds an entry a write, and collects the old
//!   ones.
//! * **Allocation costs nothing**: the entry of the operation log tells which place was taken.
//!
//! The caller replays, when it likes: in TIPS threads in the background do, and a put that finds
//! the log full waits for them. Recovery is not implemented.

mod cache;
mod log;
#[cfg(test)]
mod tests;

use super::{Space, SpaceFull};
use cache::Cache;
use log::Logs;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{LINE, Medium, Offset, Word};

/// The index that TIPS makes persistent: words of 8-byte keys.
pub trait Converted {
    /// The word of a key.
    fn get(&self, key: u64) -> Option<u64>;

    /// Gives distinct keys these words, or removes them. Durable when it returns.
    fn change_all(&self, changes: &[(u64, Option<u64>)]) -> Result<(), SpaceFull>;
}

/// How large the parts of a store are.
#[derive(Clone, Copy, Debug)]
pub struct TipsSizes {
    /// Words of a value.
    pub value_words: usize,
    /// Keys that the table in DRAM holds.
    pub cached: u64,
    /// Entries of the operation log.
    pub logged: u64,
}

/// A store of TIPS: its table on the medium `D`, everything else but the index on the medium `N`.
pub struct Tips<D, N, I> {
    space: Arc<Space<N>>,
    index: I,
    cache: Cache<D>,
    logs: Logs<N>,
    value_words: usize,
    /// Places of values that are free.
    free: Vec<u64>,
}

impl<D: Medium, N: Medium, I: Converted> Tips<D, N, I> {
    /// An empty store over an empty index.
    pub fn create(
        dram: Arc<Space<D>>,
        space: Arc<Space<N>>,
        index: I,
        sizes: TipsSizes,
    ) -> Result<Self, SpaceFull> {
        let TipsSizes { value_words, cached, logged } = sizes;
        let (cache, logs) = (Cache::create(dram, cached)?, Logs::create(space.clone(), logged)?);
        Ok(Self { space, index, cache, logs, value_words, free: Vec::new() })
    }

    /// Calls `each` with the words of a key's value. Returns whether there is one.
    pub fn get(&self, key: u64, each: &mut dyn FnMut(u64)) -> bool {
        let place = match self.cache.get(key) {
            Some(place) => (place != 0).then_some(place),
            None => self.index.get(key),
        };
        let Some(place) = place else { return false };
        (0..self.value_words).for_each(|nth| each(self.word(place, nth).load(self.space.medium(), Acquire)));
        true
    }

    /// Gives a key a value.
    ///
    /// # Panics
    /// If the value has not as many words as all values.
    pub fn put(&mut self, key: u64, value: &[u64]) -> Result<(), SpaceFull> {
        assert_eq!(value.len(), self.value_words, "all values are as long");
        self.make_room()?;
        let bytes = 8 * self.value_words as u64;
        let align = bytes.next_power_of_two().clamp(8, LINE as u64);
        let place = self.free.pop().map_or_else(|| self.space.alloc_aligned(bytes, align), Ok)?;
        for (nth, word) in value.iter().enumerate() {
            self.word(place, nth).store(self.space.medium(), *word, Release);
        }
        // PERSIST: the value, with the fence of its entry.
        self.space.region().write_back_bytes(place, bytes as usize);
        self.logs.append(key, place);
        self.cache.set(key, place)
    }

    /// Removes a key.
    pub fn remove(&mut self, key: u64) -> Result<(), SpaceFull> {
        self.make_room()?;
        self.logs.append(key, 0);
        self.cache.set(key, 0)
    }

    fn word(&self, place: u64, nth: usize) -> &Word {
        self.space.region().at(Offset::new(place + 8 * nth as u64))
    }

    /// A put that finds the log full waits for a replay.
    fn make_room(&mut self) -> Result<(), SpaceFull> {
        if self.logs.is_full() { self.replay() } else { Ok(()) }
    }

    /// Entries that were not replayed.
    pub fn logged(&self) -> u64 {
        self.logs.len()
    }

    /// Puts all entries of the log into the index.
    pub fn replay(&mut self) -> Result<(), SpaceFull> {
        let (mut last, mut replaced) = (BTreeMap::new(), Vec::new());
        for (key, place) in self.logs.entries() {
            replaced.extend(last.insert(key, place).filter(|before| *before != 0));
        }
        let before = |(key, _): (&u64, &u64)| (*key, self.index.get(*key).unwrap_or(0));
        let before: Vec<(u64, u64)> = last.iter().map(before).collect();
        self.logs.note_undo(&before);
        let word = |place: u64| (place != 0).then_some(place);
        let changes: Vec<(u64, Option<u64>)> = last.iter().map(|(key, place)| (*key, word(*place))).collect();
        self.index.change_all(&changes)?;
        replaced.extend(before.iter().filter_map(|(_, place)| word(*place)));
        self.logs.note_free(&replaced);
        self.logs.commit();
        self.free.extend(replaced);
        last.keys().for_each(|key| self.cache.replayed(*key));
        Ok(())
    }
}
