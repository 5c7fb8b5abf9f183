//! Spot-on: what makes an index on slow persistent memory fast, as a layer over three of them.
//!
//! The thesis on WipDB, TurboHash and Spot-on, section 4.3. Its guidelines: **B**uffer small writes
//! in DRAM, merge them **O**ut of place, **C**ache the search path in DRAM. It adds them one after
//! the other to CCEH, to FAST & FAIR and to a skip list. For one thread, as most of its figures.
//!
//! ```text
//!             put              get: the buffer, then the index
//!              |                |
//!   DRAM:      v                v
//!     path (C): directory, inner nodes, or tall towers  ->  unit of the key
//!     buffers (B):   | unit: key -> word, newest only |  | unit: ... |
//!              |
//!   - - - - - -|- full: merge - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - -
//!   pool:      v
//!     in place:             | unit |  stores, write-backs and fences within the unit
//!     out of place (O):     | unit | + buffer -> | copy |   in sequence, then one pointer
//!     path: always kept, so that a recovery needs no DRAM
//!     log (optional):  | check | sequence | key | word | ...   a ring; one fence a put
//! ```
//! | | unit | buffer | merge in place | merge out of place |
//! |---|---|---|---|---|
//! | CCEH | segment | half of its slots | its slots | a new segment, the directory |
//! | FAST & FAIR | leaf | half of its entries | single inserts | a new leaf, two pointers |
//! | skip list | behind a tall tower | 16 pairs | single inserts | all nodes, then all links |
//!
//! # What a crash leaves
//! Without a log: what was merged. With a log: every put that has returned. Replay takes the newest
//! record of each key. All changes of buffered keys are in the log, and the log's tail moves over
//! the oldest records first. So the newest record of a key that the log has is the key's last
//! change, and to put it again never reverts a later one. A crash in a replay changes nothing of
//! that: the tail does not move meanwhile.
//!
//! # What was repaired
//! * **The log ends.** The published one only grows (64 GB are set aside), and is not replayed.
//!   Here it is a ring: a put that finds it full merges the units that hold its oldest records.
//! * **Records have one order**, by sequence number; the check proves that a record is whole.
//! * **A merge in place of CCEH fences once.** Its pairs are independent, and a line keeps the
//!   order of its stores.
//!
//! Memory that a merge replaces is used again. A crash forgets which memory is free, as in all
//! baselines.

mod buffers;
mod log;
#[cfg(test)]
mod tests;
mod variant;

pub use variant::{Merge, SpotVariant};

use super::{Space, SpaceFull};
use buffers::Buffers;
use log::Log;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use terrace_medium::{LINE, Medium};

/// A key and its new word; none removes it.
pub type Change = (u64, Option<u64>);

/// An index below the layer: words of 8-byte keys, for one thread.
pub trait Spotted<M: Medium>: Sized {
    /// Its name in the thesis.
    const NAME: &'static str;
    /// Pairs that the buffer of a unit holds.
    const BUFFERED: usize;

    /// An empty index, which caches its search path in DRAM, or not.
    fn create(space: Arc<Space<M>>, caches: bool) -> Result<Self, SpaceFull>;

    /// The index whose root's word is at this offset, as a crash left it, repaired.
    fn open(space: Arc<Space<M>>, root: u64, caches: bool) -> Result<Self, SpaceFull>;

    /// The offset of the word from which [`Spotted::open`] finds everything.
    fn root(&self) -> u64;

    /// The word of a key.
    fn get(&self, key: u64) -> Option<u64>;

    /// Changes one key, durable on return: the index as published, without a cached path.
    fn change(&mut self, change: Change) -> Result<(), SpaceFull>;

    /// The unit of a key. Only a merge of this unit makes it another one.
    fn unit(&self, key: u64) -> u64;

    /// Puts changes of a unit, in the order of their keys, into the index; durable on return. After
    /// an error, any of them may be there.
    fn merge(&mut self, how: Merge, unit: u64, changes: &[Change]) -> Result<(), SpaceFull>;
}

/// An index that can remove keys.
pub trait Removing {}

/// How large the parts of a layer are.
#[derive(Clone, Copy, Debug)]
pub struct SpotSizes {
    /// Pairs that the buffer of a unit holds; none for what the thesis says.
    pub buffered: Option<usize>,
    /// Records that the log holds, if there is one.
    pub logged: u64,
}

/// Words of the layer's head: the index's root, and the log's place.
const INDEX: u64 = 0;
const LOG: u64 = 8;

/// An index and the layer above it.
pub struct Spot<M, S> {
    space: Arc<Space<M>>,
    head: u64,
    below: S,
    variant: SpotVariant,
    buffered: usize,
    buffers: Buffers,
    log: Option<Log<M>>,
}

impl<M: Medium, S: Spotted<M>> Spot<M, S> {
    /// An empty index under the layer of a variant.
    ///
    /// # Panics
    /// If buffers hold nothing, or the log less than four records; or if the variant has a path or
    /// a log, and no buffers.
    pub fn create(space: Arc<Space<M>>, variant: SpotVariant, sizes: SpotSizes) -> Result<Self, SpaceFull> {
        let head = space.alloc(LINE as u64)?;
        let log = variant.logs.then(|| Log::create(space.clone(), sizes.logged)).transpose()?;
        let below = S::create(space.clone(), variant.caches)?;
        let (region, place) = (space.region(), log.as_ref().map_or(0, Log::place));
        space.word(head + LOG).store(space.medium(), place, Release);
        space.word(head + INDEX).store(space.medium(), below.root(), Release);
        // PERSIST: index and log are durable before this; their places, before any use. Both words
        // lie in one line, the index's last: a crash leaves no layer, or both.
        region.persist(space.word(head));
        Ok(Self::over(space, head, below, variant, sizes, log))
    }

    /// The layer whose head is at this offset, as a crash left it, if it exists. Puts what its log
    /// holds into the buffers again.
    ///
    /// # Panics
    /// As [`Spot::create`], or if the variant has a log and the layer has none.
    pub fn open(
        space: Arc<Space<M>>,
        head: u64,
        variant: SpotVariant,
        sizes: SpotSizes,
    ) -> Option<Result<Self, SpaceFull>> {
        let root = space.load(head + INDEX);
        (root != 0).then(|| Self::recovered(space, (head, root), variant, sizes))
    }

    fn recovered(
        space: Arc<Space<M>>,
        (head, root): (u64, u64),
        variant: SpotVariant,
        sizes: SpotSizes,
    ) -> Result<Self, SpaceFull> {
        let below = S::open(space.clone(), root, variant.caches)?;
        let place = space.load(head + LOG);
        let log = variant.logs.then(|| Log::open(space.clone(), place));
        let (log, records) = log.map_or((None, Vec::new()), |(log, records)| (Some(log), records));
        let mut spot = Self::over(space, head, below, variant, sizes, log);
        let newest: BTreeMap<u64, _> = records.into_iter().map(|record| (record.key, record)).collect();
        for record in newest.into_values() {
            let unit = spot.unit_with_room(record.key)?;
            spot.buffers.set(unit, (record.key, record.word), record.sequence);
        }
        Ok(spot)
    }

    fn over(
        space: Arc<Space<M>>,
        head: u64,
        below: S,
        variant: SpotVariant,
        sizes: SpotSizes,
        log: Option<Log<M>>,
    ) -> Self {
        let buffered = sizes.buffered.unwrap_or(S::BUFFERED);
        let is_bare = !variant.caches && !variant.logs;
        assert!(variant.merge.is_some() || is_bare, "a path or a log, and nothing that is buffered");
        assert!(buffered > 0, "a buffer of no pairs");
        Self { space, head, below, variant, buffered, buffers: Buffers::default(), log }
    }

    /// The offset from which [`Spot::open`] finds everything.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Bytes of its memory.
    pub fn bytes(&self) -> u64 {
        self.space.used()
    }

    /// Pairs in buffers.
    pub fn buffered(&self) -> u64 {
        self.buffers.pairs()
    }

    /// Records that a replay would read.
    pub fn logged(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::len)
    }

    /// The index below, which does not have what is buffered.
    pub fn below(&self) -> &S {
        &self.below
    }

    /// The word of a key.
    pub fn get(&self, key: u64) -> Option<u64> {
        let buffered = self.variant.merge.and_then(|_| self.buffers.get(self.below.unit(key), key));
        buffered.unwrap_or_else(|| self.below.get(key))
    }

    /// Gives a key a word, whether it has one or not. Durable on return, but for a variant with
    /// buffers and without a log.
    ///
    /// # Panics
    /// If the key is that of all ones: neither CCEH nor FAST & FAIR can hold it.
    pub fn put(&mut self, key: u64, word: u64) -> Result<(), SpaceFull> {
        self.change((key, Some(word)))
    }

    /// Removes a key, if it is there. As durable as a put.
    pub fn remove(&mut self, key: u64) -> Result<(), SpaceFull>
    where
        S: Removing,
    {
        self.change((key, None))
    }

    fn change(&mut self, (key, word): Change) -> Result<(), SpaceFull> {
        assert_ne!(key, u64::MAX, "the layer cannot hold the key of all ones");
        if self.variant.merge.is_none() {
            return self.below.change((key, word));
        }
        self.make_room_in_log()?;
        // Before the record: a change that is refused must not come back with a replay.
        let unit = self.unit_with_room(key)?;
        let sequence = self.log.as_mut().map_or(0, |log| log.append(key, word));
        self.buffers.set(unit, (key, word), sequence);
        Ok(())
    }

    /// The unit of a key, in whose buffer the key has room.
    fn unit_with_room(&mut self, key: u64) -> Result<u64, SpaceFull> {
        let unit = self.below.unit(key);
        if self.buffers.has_room(unit, key, self.buffered) {
            return Ok(unit);
        }
        self.merge(unit)?;
        Ok(self.below.unit(key))
    }

    /// Merges the buffer of a unit into the index.
    fn merge(&mut self, unit: u64) -> Result<(), SpaceFull> {
        let (Some(how), Some(buffer)) = (self.variant.merge, self.buffers.take(unit)) else { return Ok(()) };
        let changes: Vec<Change> = buffer.changes.into_iter().collect();
        let merged = self.below.merge(how, unit, &changes);
        if merged.is_err() {
            // The unit may have become several before the memory was full.
            for change in changes {
                self.buffers.set(self.below.unit(change.0), change, buffer.first);
            }
        }
        merged
    }

    /// Merges all buffers.
    pub fn merge_all(&mut self) -> Result<(), SpaceFull> {
        self.buffers.units().into_iter().try_for_each(|unit| self.merge(unit))?;
        self.log.as_mut().into_iter().for_each(Log::forget_all);
        Ok(())
    }

    /// If the log is full, merges the units of its oldest records until a quarter of it is free.
    fn make_room_in_log(&mut self) -> Result<(), SpaceFull> {
        let Some(first) = self.log.as_ref().and_then(Log::first_kept_if_full) else { return Ok(()) };
        while let Some((_, unit)) = self.buffers.oldest().filter(|oldest| oldest.0 < first) {
            self.merge(unit)?;
        }
        let oldest = self.buffers.oldest().map(|oldest| oldest.0);
        self.log.as_mut().into_iter().for_each(|log| log.forget_before(oldest));
        Ok(())
    }
}
