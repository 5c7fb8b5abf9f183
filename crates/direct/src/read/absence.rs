//! Detects whether a key that has no entry has been absent all along.
//!
//! An entry has a token that no other version of its key has; an absent key has none. So removals
//! are counted, in stripes by the key's hash: a counter is incremented *before* a removal can be
//! seen. A key was absent all along if it is absent at a first and a second read, and its counter
//! *after* the second read is what it was *before* the first. If the key had been added, it would
//! still be present, or its removal would have been counted. A removal of another key of the stripe
//! looks the same; it causes a false report of a change.
//!
//! An expired entry is absent for every reader, and vanishes without a count when another entry
//! replaces it. So its token is part of the absence.

use crate::engine::Direct;
use crate::record::layout::Root;
use crate::record::view::Record;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_engine::Absence;
use terrace_engine::{ReadError, Version};
use terrace_medium::{Line, MappedMedium, Word};
use terrace_pool::{Geometry, Guard};
use xxhash_rust::xxh3::xxh3_64;

/// Lines of counters: more in larger pools, at most 32 KiB. They follow from the geometry, so
/// damage cannot yield more than there are.
pub(crate) fn lines(geometry: &Geometry) -> usize {
    let log2 = 3 + geometry.slab_log2.saturating_sub(12) * 3 / 2;
    1 << log2.min(9)
}

impl<M: MappedMedium> Root<M> {
    /// The counter of removals that `key` shares.
    fn removals(&self, key: &[u8]) -> &Word {
        const WORDS: usize = size_of::<Line>() / 8;
        let place = xxh3_64(key) as usize % (self.removal_lines() * WORDS);
        self.removal_line(place / WORDS, place % WORDS)
    }
}

impl<M: MappedMedium> Direct<M> {
    /// The count of removals for `key`. Read it before a read that may find `key` absent, and after
    /// a second one.
    pub(crate) fn removals(&self, key: &[u8]) -> u64 {
        // ORDER: Acquire: later reads happen after this one.
        self.root.removals(key).load(self.pool().medium(), Acquire)
    }

    /// Counts a removal. Must be called before `key` is removed.
    pub(crate) fn count_removal(&self, key: &[u8]) {
        // ORDER: Release: a thread that reads this count sees the key as it was before, or removed.
        // A thread that sees the key removed sees this count, by the Release of the removal.
        self.root.removals(key).fetch_add(self.pool().medium(), 1, Release);
    }

    /// The state of a key from its visible record, expired or not. `removals` is the count from
    /// before the key was looked up.
    pub(crate) fn version_of(&self, removals: u64, record: Option<&Record<'_>>) -> Version {
        let token = record.map(Record::token);
        match record {
            Some(record) if !self.has_expired(record) => Version { token, absence: None },
            _ => Version { token: None, absence: Some(Absence { removals, expired: token }) },
        }
    }

    /// Whether `key` has been in the state `before` all along until a read that found it to be
    /// `now`. Call this after that read. The count in `before` must have been read before the first
    /// lookup.
    pub(crate) fn has_stayed_unchanged(&self, key: &[u8], before: &Version, now: Version) -> bool {
        // ORDER: this count is read after the lookup: a search that finds nothing has loaded with
        // Acquire what it found instead. So a thread that saw a key removed sees its removal
        // counted.
        let counted = now.absence.map(|absence| Absence { removals: self.removals(key), ..absence });
        Version { absence: counted, ..now }.meets(before)
    }

    /// Whether a claimed key, whose word was `word` before, has been absent since `absence`.
    pub(crate) fn has_stayed_absent(
        &self,
        guard: &Guard<'_, M>,
        absence: Absence,
        key: &[u8],
        word: Option<u64>,
    ) -> bool {
        let record = word.and_then(|word| self.visible_record(guard, word).ok()?);
        let expired = record.map(|record| record.token());
        Absence { removals: self.removals(key), expired } == absence
    }

    /// The state of `key`.
    pub(crate) fn find_version(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Version, ReadError> {
        let removals = self.removals(key);
        let word = self.word(guard, key)?;
        let record = word.map_or(Ok(None), |word| self.visible_record(guard, word))?;
        if self.settings.verify_reads {
            record.as_ref().map_or(Ok(()), Record::verify)?;
        }
        Ok(self.version_of(removals, record.as_ref()))
    }
}

#[cfg(test)]
#[path = "tests/absence.rs"]
mod tests;
