//! Whether a key that has no entry had none all along.
//!
//! An entry has a token that no other version of its key has; a key without one has nothing that could tell. So removals are counted, in stripes by
//! the key's hash: a count goes up *before* a removal can be seen. If a key was absent when somebody looked, it is absent at a second look, and the count of its stripe is *behind* that
//! what it was *before* the first one, then it was absent all the while: had it come, it would be there still, or its removal would have been counted. A removal of another key of the
//! stripe looks the same; then somebody is told of a change that was none.
//!
//! An entry that has expired is not there for anyone, and goes without a trace when another takes its place: its token is part of the absence.

use super::root::Root;
use super::store::Direct;
use super::view::Record;
use crate::entry::Absence;
use crate::{ReadError, Version};
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{Line, MappedMedium, Word};
use terrace_pool::{Geometry, Guard};
use xxhash_rust::xxh3::xxh3_64;

/// Lines of counters: more in larger pools, at most 32 KiB. They follow from the geometry, so that damage cannot make them more than there are.
pub(super) fn lines(geometry: &Geometry) -> usize {
    let log2 = 3 + geometry.slab_log2.saturating_sub(12) * 3 / 2;
    1 << log2.min(9)
}

impl<M: MappedMedium> Root<M> {
    /// The count of removals that `key` shares.
    fn removals(&self, key: &[u8]) -> &Word {
        const WORDS: usize = size_of::<Line>() / 8;
        let place = xxh3_64(key) as usize % (self.removal_lines() * WORDS);
        self.removal_line(place / WORDS, place % WORDS)
    }
}

impl<M: MappedMedium> Direct<M> {
    /// To be called before a look that may find `key` absent, and behind a second one.
    pub(super) fn removals(&self, key: &[u8]) -> u64 {
        // ORDER: Acquire: what is read after this is read after it.
        self.root.removals(key).load(self.pool().medium(), Acquire)
    }

    /// To be called before `key` is removed.
    pub(super) fn count_removal(&self, key: &[u8]) {
        // ORDER: Release: who counts this one sees the key as it was before, or gone. Who sees it gone sees this, by the Release of what removes it.
        self.root.removals(key).fetch_add(self.pool().medium(), 1, Release);
    }

    /// How a key stands whose record that counts this is, expired or not, and whose removals were `removals` before it was looked for.
    pub(super) fn version_of(&self, removals: u64, record: Option<&Record<'_>>) -> Version {
        let token = record.map(Record::token);
        match record {
            Some(record) if !self.has_expired(record) => Version { token, absence: None },
            _ => Version { token: None, absence: Some(Absence { removals, expired: token }) },
        }
    }

    /// Whether `key` has been `before` all along until a look, behind which this is called, that found it to be `now`. Before must have been counted before it was looked for.
    pub(super) fn has_stayed(&self, key: &[u8], before: &Version, now: Version) -> bool {
        // ORDER: the count comes behind the look: a search that finds nothing has loaded with Acquire what it found instead. So who saw a key gone counts its removal.
        let counted = now.absence.map(|absence| Absence { removals: self.removals(key), ..absence });
        Version { absence: counted, ..now }.meets(before)
    }

    /// Whether a key that is claimed, and had this word before, has been absent since `absence`.
    pub(super) fn is_still(
        &self,
        guard: &Guard<'_, M>,
        absence: Absence,
        key: &[u8],
        word: Option<u64>,
    ) -> bool {
        let record = word.and_then(|word| self.standing(guard, word).ok()?);
        let expired = record.map(|record| record.token());
        Absence { removals: self.removals(key), expired } == absence
    }

    /// How `key` stands.
    pub(super) fn find_version(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Version, ReadError> {
        let removals = self.removals(key);
        let word = self.word(guard, key)?;
        let record = word.map_or(Ok(None), |word| self.standing(guard, word))?;
        if self.settings.verify_reads {
            record.as_ref().map_or(Ok(()), Record::verify)?;
        }
        Ok(self.version_of(removals, record.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::small::store;

    #[test]
    fn a_larger_pool_has_more_counts_up_to_32_kib() {
        let lines = |slab_log2| lines(&Geometry { slab_log2, ..Geometry::default() });
        assert_eq!([12, 13, 14, 15, 16, 19].map(lines), [8, 16, 64, 128, 512, 512]);
    }

    #[test]
    fn each_removal_is_counted_and_few_keys_share_a_count() {
        let (store, _) = store();
        let keys: Vec<[u8; 4]> = (0..1000u32).map(u32::to_le_bytes).collect();
        keys.iter().for_each(|key| store.count_removal(key));
        let (root, medium) = (&store.root, store.pool().medium());
        let places = (0..root.removal_lines()).flat_map(|line| (0..8).map(move |index| (line, index)));
        let counts: Vec<u64> =
            places.map(|(line, index)| root.removal_line(line, index).load(medium, Acquire)).collect();
        assert_eq!(counts.iter().sum::<u64>(), 1000);
        assert!(
            counts.iter().all(|&count| count < 20) && counts.iter().filter(|&&count| count > 0).count() > 300
        );
        let before = store.removals(&keys[0]);
        store.count_removal(&keys[0]);
        assert_eq!(store.removals(&keys[0]), before + 1);
    }
}
