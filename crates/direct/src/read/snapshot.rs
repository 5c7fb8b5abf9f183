//! Reads of several keys at one instant.

use crate::batch::plan::BatchStep;
use crate::engine::Direct;
use crate::record::view::Record;
use std::collections::BTreeMap;
use terrace_engine::EntryCallback;
use terrace_engine::{ReadError, Version};
use terrace_medium::MappedMedium;
use terrace_pool::{Backoff, Guard};

/// Double reads that are tried before writers are stopped.
const TRIES: usize = 16;

/// The state of a key, and its visible record, expired or not.
type KeyState<'g> = Result<(Version, Option<Record<'g>>), ReadError>;

impl<M: MappedMedium> Direct<M> {
    /// Reads all keys twice. If no key changed from its first read to its second, all of them were
    /// in this state between the two rounds.
    pub(crate) fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        if keys.len() < 2 {
            return self.get_each(keys, each);
        }
        // In a forked child, this returns the error for each key.
        let Ok(guard) = self.pool().try_pin() else { return self.get_each(keys, each) };
        let mut first = self.read_all(&guard, keys);
        for _ in 0..TRIES {
            let second = self.read_all(&guard, keys);
            if self.is_same(keys, &first, &second) {
                return self.report(&guard, visible(second), each);
            }
            first = second;
        }
        let seen = self.snapshot_with_writers_stopped(&guard, keys);
        self.report(&guard, seen, each);
    }

    fn read_all<'g>(&self, guard: &'g Guard<'_, M>, keys: &[&[u8]]) -> Vec<KeyState<'g>> {
        let removals: Vec<u64> = keys.iter().map(|key| self.removals(key)).collect();
        let mut seen = Vec::with_capacity(keys.len());
        self.index.get_many(guard, keys, &mut |nth, word| {
            seen.push(self.read_one(guard, keys[nth], removals[nth], word));
        });
        seen
    }

    fn read_one<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
        removals: u64,
        word: Option<u64>,
    ) -> KeyState<'g> {
        let word = word.map_or_else(|| self.word(guard, key), |word| Ok(Some(word)))?;
        let record = word.map_or(Ok(None), |word| self.visible_record(guard, word))?;
        let version = self.version_of(removals, record.as_ref());
        if version.token.is_none() {
            record.as_ref().map_or(Ok(None), |record| self.expired(record))?;
        }
        Ok((version, record))
    }

    /// Whether no key has changed from `first` to `second`, the latest read.
    fn is_same(&self, keys: &[&[u8]], first: &[KeyState<'_>], second: &[KeyState<'_>]) -> bool {
        keys.iter().zip(first.iter().zip(second)).all(|(key, seen)| match seen {
            (Ok((before, _)), Ok((now, _))) => self.has_stayed_unchanged(key, before, *now),
            (Err(before), Err(now)) => before == now,
            _ => false,
        })
    }

    /// Reads the keys while their writers are stopped. If that takes more memory than there is, it
    /// retries double reads.
    pub(crate) fn snapshot_with_writers_stopped<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        keys: &[&[u8]],
    ) -> Vec<VisibleRecord<'g>> {
        let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
        let writable = keys.iter().filter(|key| self.check_write(key, 0).is_ok());
        places.extend(writable.map(|&key| (key, 0)));
        places.values_mut().enumerate().for_each(|(place, value)| *value = place);
        let steps: Vec<BatchStep<'_>> = places.keys().map(|key| BatchStep::keep(key)).collect();
        let (mut words, mut now) = (vec![None; steps.len()], 0);
        let record_word = |place: usize, word| {
            words[place] = word;
            // The time advances. The last call decides for all keys what has expired: no writer
            // runs then.
            now = self.settings.clock.now_ms();
        };
        if self.with_writers_stopped(guard, &steps, record_word).is_ok() {
            let word = |key: &&[u8]| places.get(*key).and_then(|&place| words[place]);
            let live =
                |key| word(key).map_or(Ok(None), |word| self.live_record_unless(guard, word, |at| at <= now));
            return keys.iter().map(live).collect();
        }
        let (mut first, mut backoff) = (self.read_all(guard, keys), Backoff::new());
        loop {
            let second = self.read_all(guard, keys);
            if self.is_same(keys, &first, &second) {
                return visible(second).collect();
            }
            backoff.rest();
            first = second;
        }
    }

    pub(crate) fn report<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        visible: impl IntoIterator<Item = VisibleRecord<'g>>,
        each: &mut EntryCallback<'_>,
    ) {
        for (nth, visible) in visible.into_iter().enumerate() {
            each(nth, visible.and_then(|record| self.entry_of(guard, record)));
        }
    }
}

/// What a reader sees of a key.
type VisibleRecord<'g> = Result<Option<Record<'g>>, ReadError>;

fn visible(seen: Vec<KeyState<'_>>) -> impl Iterator<Item = VisibleRecord<'_>> {
    let live = |(version, record): (Version, _)| version.token.and(record);
    seen.into_iter().map(move |seen| seen.map(live))
}
