//! The write buffer of a node, in DRAM: changes that the log has and the node does not.
//!
//! ```text
//!   | used 13:0, removed 32 | first number | superseded slots | Mnode | entries: as in a node |
//! ```
//! A key that is here has its word here. A key whose slot in the node is *superseded* does not have
//! that of the node: it is here, or was removed. So a removal needs no entry, and no key.
//!
//! The memory of a buffer stays one: a buffer that a node gives back goes to another node.

use super::super::node::{Pair, slots_of};
use crate::ordered::OrderedKind;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Dram, LINE, Line, Offset, Word};
use terrace_pool::Pool;

/// Entries of a buffer.
pub(in super::super) const ENTRIES: usize = 14;

const USED: usize = 0;
const FIRST: usize = 1;
const SUPERSEDED: usize = 2;
const OWNER: usize = 3;
/// The first entry.
const PAIRS: usize = 4;

/// Some key was removed since the buffer was empty.
const REMOVED: u64 = 1 << 32;
const USED_MASK: u64 = (1 << ENTRIES) - 1;

const fn words_of<K: OrderedKind>() -> usize {
    PAIRS + ENTRIES * if K::LEAF_BYTES > 0 { 2 } else { 1 }
}

/// Bytes of a buffer.
pub(super) const fn buffer_bytes<K: OrderedKind>() -> usize {
    (words_of::<K>() * 8).next_multiple_of(LINE)
}

#[derive(Clone, Copy)]
pub(in super::super) struct Buffer<'g>(&'g [Line]);

impl<'g> Buffer<'g> {
    pub(in super::super) fn at<K: OrderedKind>(pool: &'g Pool<Dram>, offset: u64) -> Option<Self> {
        let region = pool.region();
        match K::LEAF_BYTES > 0 {
            true => region.get(Offset::<[Line; 4]>::new(offset)).map(|lines| Self(lines)),
            false => region.get(Offset::<[Line; 3]>::new(offset)).map(|lines| Self(lines)),
        }
    }

    pub(in super::super) fn offset(self, pool: &Pool<Dram>) -> u64 {
        pool.region().offset_of(&self.0[0]).raw()
    }

    #[inline(always)]
    fn word(self, at: usize) -> &'g Word {
        &self.0[at / 8].0[at % 8]
    }

    fn pair_at<K: OrderedKind>(self, entry: usize) -> (Option<&'g Word>, &'g Word) {
        match K::LEAF_BYTES > 0 {
            true => (Some(self.word(PAIRS + 2 * entry)), self.word(PAIRS + 2 * entry + 1)),
            false => (None, self.word(PAIRS + entry)),
        }
    }

    /// The entries that are used.
    ///
    /// ORDER: Acquire: their pairs are visible.
    #[inline(always)]
    pub(in super::super) fn used(self, medium: &Dram) -> u64 {
        self.word(USED).load(medium, Acquire) & USED_MASK
    }

    /// Whether a key was removed.
    pub(in super::super) fn has_removed(self, medium: &Dram) -> bool {
        self.word(USED).load(medium, Relaxed) & REMOVED != 0
    }

    pub(in super::super) fn is_empty(self, medium: &Dram) -> bool {
        self.used(medium) == 0 && self.superseded(medium) == 0
    }

    /// The slots of the node that do not count.
    ///
    /// ORDER: Acquire: the entries are read after it. A key of these slots that is still there is
    /// seen among them.
    #[inline(always)]
    pub(in super::super) fn superseded(self, medium: &Dram) -> u64 {
        self.word(SUPERSEDED).load(medium, Acquire)
    }

    /// The number of the oldest change; 0 if there is none.
    pub(in super::super) fn first(self, medium: &Dram) -> u64 {
        self.word(FIRST).load(medium, Relaxed)
    }

    pub(in super::super) fn set_first(self, medium: &Dram, number: u64) {
        self.word(FIRST).store(medium, number, Relaxed);
    }

    /// The Mnode whose buffer it is; 0 if it is free.
    pub(in super::super) fn owner(self, medium: &Dram) -> u64 {
        self.word(OWNER).load(medium, Acquire)
    }

    pub(in super::super) fn set_owner(self, medium: &Dram, mnode: u64) {
        self.word(OWNER).store(medium, mnode, Release);
    }

    /// ORDER: Acquire: the version is read after it.
    #[inline(always)]
    pub(in super::super) fn pair<K: OrderedKind>(self, medium: &Dram, entry: usize) -> Pair {
        let (key, word) = self.pair_at::<K>(entry);
        (key.map_or(0, |key| key.load(medium, Acquire)), word.load(medium, Acquire))
    }

    /// Adds an entry, in the place of a slot of the node if there is one. Under the Mnode's lock.
    pub(in super::super) fn add<K: OrderedKind>(self, medium: &Dram, pair: Pair, supersedes: Option<usize>) {
        let used = self.word(USED).load(medium, Relaxed);
        let entry = (!used & USED_MASK).trailing_zeros() as usize;
        assert!(entry < ENTRIES, "a buffer has {ENTRIES} entries");
        let (key, word) = self.pair_at::<K>(entry);
        // ORDER: Release: a reader that sees them sees the version that changed when the entry
        // became free.
        key.inspect(|key| key.store(medium, pair.0, Release));
        word.store(medium, pair.1, Release);
        // ORDER: Release: the pair is visible. Before the slot is superseded: see `superseded`.
        self.word(USED).store(medium, used | 1 << entry, Release);
        supersedes.inspect(|&slot| self.supersede(medium, slot));
    }

    fn supersede(self, medium: &Dram, slot: usize) {
        let all = self.word(SUPERSEDED);
        all.store(medium, all.load(medium, Relaxed) | 1 << slot, Release);
    }

    /// Gives an entry another word.
    pub(in super::super) fn set<K: OrderedKind>(self, medium: &Dram, entry: usize, word: u64) {
        self.pair_at::<K>(entry).1.store(medium, word, Release);
    }

    /// Removes the key of a slot of the node.
    pub(in super::super) fn remove_slot(self, medium: &Dram, slot: usize) {
        self.supersede(medium, slot);
        self.word(USED).store(medium, self.word(USED).load(medium, Relaxed) | REMOVED, Release);
    }

    /// Removes an entry. The version of the Mnode changes after it.
    pub(in super::super) fn remove_entry(self, medium: &Dram, entry: usize) {
        let used = self.word(USED).load(medium, Relaxed) & !(1 << entry) | REMOVED;
        self.word(USED).store(medium, used, Release);
    }

    /// Empties it. The version of the Mnode changes after it.
    pub(in super::super) fn clear(self, medium: &Dram) {
        [USED, FIRST, SUPERSEDED].iter().for_each(|&word| self.word(word).store(medium, 0, Release));
    }

    /// The pairs that are used.
    pub(in super::super) fn pairs<K: OrderedKind>(
        self,
        medium: &Dram,
    ) -> impl Iterator<Item = Pair> + use<'g, '_, K> {
        slots_of(self.used(medium)).map(move |entry| self.pair::<K>(medium, entry))
    }
}
