//! Counts of removals: they tell whether a key that is absent has been absent all along. See
//! `read::absence`.

use crate::record::layout::Root;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{Line, MappedMedium, Word};
use xxhash_rust::xxh3::xxh3_64;

impl<M: MappedMedium> Root<M> {
    /// The counter of removals that `key` shares.
    fn removal_word(&self, key: &[u8]) -> &Word {
        const WORDS: usize = size_of::<Line>() / 8;
        let place = xxh3_64(key) as usize % (self.removal_lines() * WORDS);
        self.removal_line(place / WORDS, place % WORDS)
    }

    /// The count of removals for `key`. Read it before a read that may find `key` absent, and after
    /// a second one.
    pub(crate) fn removals(&self, key: &[u8]) -> u64 {
        // ORDER: Acquire: later reads happen after this one.
        self.removal_word(key).load(self.medium(), Acquire)
    }

    /// Counts a removal. Must be called before `key` is removed.
    pub(crate) fn count_removal(&self, key: &[u8]) {
        // ORDER: Release: a thread that reads this count sees the key as it was before, or removed.
        // A thread that sees the key removed sees this count, by the Release of the removal.
        self.removal_word(key).fetch_add(self.medium(), 1, Release);
    }
}

#[cfg(test)]
#[path = "tests/removals.rs"]
mod tests;
