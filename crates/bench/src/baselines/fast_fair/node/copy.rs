//! Leaves that are written as a whole, to replace another one.

use super::{CAPACITY, FIRST, HIGH, LEFTMOST, LEVEL_MASK, LOW, Node, SIBLING};
use terrace_medium::{LINE, Medium};

impl<M: Medium> Node<'_, M> {
    /// The word of the least key that belongs to this leaf; 0 for the first one.
    pub(in crate::baselines::fast_fair) fn low(self) -> u64 {
        self.load(LOW)
    }

    /// Writes a leaf past the cache, to memory that nothing names yet: the word of its least key,
    /// its right sibling with the least key there, and its entries. Durable after a fence.
    pub(in crate::baselines::fast_fair) fn write_leaf(
        self,
        low: u64,
        (sibling, high): (u64, u64),
        entries: &[(u64, u64)],
    ) {
        assert!(entries.len() <= CAPACITY, "{} entries of a leaf", entries.len());
        let mut lines = [[0; LINE / 8]; size_of::<super::Lines>() / LINE];
        let words = lines.as_flattened_mut();
        (words[LOW], words[SIBLING], words[HIGH]) = (low, sibling, high);
        for (nth, &(key, value)) in entries.iter().enumerate() {
            [words[FIRST + 2 * nth], words[FIRST + 2 * nth + 1]] = [key, value];
        }
        self.space.region().stream_lines(self.at, &lines);
    }

    /// Makes this inner node name another child behind so many entries. Durable after a fence.
    pub(in crate::baselines::fast_fair) fn rename(self, place: usize, child: u64) {
        let word = place.checked_sub(1).map_or(LEFTMOST, |slot| FIRST + 2 * slot + 1);
        self.store(word, child);
        // PERSIST: with the fence of the merge: a crash leaves the old leaf or its copy here, each
        // with all that was merged before.
        self.space.region().write_back(self.word(word));
    }

    /// Links another right sibling. Durable after a fence.
    pub(in crate::baselines::fast_fair) fn link(self, sibling: u64) {
        self.store(SIBLING, sibling | (self.load(SIBLING) & LEVEL_MASK));
        // PERSIST: with the fence of the merge. A crash in between leaves a link to another copy
        // than the parent's; opening makes it the parent's.
        self.space.region().write_back(self.word(SIBLING));
    }
}
