//! Detects whether a key that has no entry has been absent all along.
//!
//! An entry has a token that no other version of its key has; an absent key has none. So removals
//! are counted (see `record::removals`), in stripes by the key's hash: a counter is incremented
//! *before* a removal can be seen. A key was absent all along if it is absent at a first and a
//! second read, and its counter *after* the second read is what it was *before* the first. If the
//! key had been added, it would still be present, or its removal would have been counted. A removal
//! of another key of the stripe looks the same; it causes a false report of a change.
//!
//! An expired entry is absent for every reader, and vanishes without a count when another entry
//! replaces it. So its token is part of the absence.

use crate::read::get::Reads;
use crate::record::view::Record;
use terrace_engine::Absence;
use terrace_engine::{ReadError, Version};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

impl<M: MappedMedium> Reads<M> {
    /// The state of a key from its visible record, expired or not. `removals` is the count from
    /// before the key was looked up.
    pub(crate) fn version_of(&self, removals: u64, record: Option<&Record<'_>>) -> Version {
        let token = record.map(Record::token);
        match record {
            Some(record) if !self.records().has_expired(record) => Version { token, absence: None },
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
        let counted =
            now.absence.map(|absence| Absence { removals: self.records().root.removals(key), ..absence });
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
        Absence { removals: self.records().root.removals(key), expired } == absence
    }

    /// The state of `key`.
    pub(crate) fn find_version(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Version, ReadError> {
        let removals = self.records().root.removals(key);
        let word = self.word(guard, key)?;
        let record = word.map_or(Ok(None), |word| self.visible_record(guard, word))?;
        record.as_ref().map_or(Ok(()), |record| self.verify(record))?;
        Ok(self.version_of(removals, record.as_ref()))
    }
}
