//! Several keys as they were at one instant.

use super::plan::Step;
use super::store::Direct;
use super::view::Record;
use crate::engine::Each;
use crate::{ReadError, Version};
use std::collections::BTreeMap;
use terrace_medium::MappedMedium;
use terrace_pool::{Backoff, Guard};

/// Double reads that are tried before writers are kept out.
const TRIES: usize = 16;

/// How a key stands, and the record that counts, expired or not.
type Seen<'g> = Result<(Version, Option<Record<'g>>), ReadError>;

impl<M: MappedMedium> Direct<M> {
    /// Reads all keys twice. If each was the second time as it had been all along since the first, all of them were so between the two.
    pub(super) fn snapshot(&self, keys: &[&[u8]], each: &mut Each<'_>) {
        if keys.len() < 2 {
            return self.get_each(keys, each);
        }
        // In the child of a fork, that says so.
        let Ok(guard) = self.pool().try_pin() else { return self.get_each(keys, each) };
        let mut first = self.see(&guard, keys);
        for _ in 0..TRIES {
            let second = self.see(&guard, keys);
            if self.is_same(keys, &first, &second) {
                return self.show(&guard, shown(second), each);
            }
            first = second;
        }
        let seen = self.see_frozen(&guard, keys);
        self.show(&guard, seen, each);
    }

    fn see<'g>(&self, guard: &'g Guard<'_, M>, keys: &[&[u8]]) -> Vec<Seen<'g>> {
        let removals: Vec<u64> = keys.iter().map(|key| self.removals(key)).collect();
        let mut seen = Vec::with_capacity(keys.len());
        self.index.get_many(guard, keys, &mut |nth, word| {
            seen.push(self.see_one(guard, keys[nth], removals[nth], word));
        });
        seen
    }

    fn see_one<'g>(&self, guard: &'g Guard<'_, M>, key: &[u8], removals: u64, word: Option<u64>) -> Seen<'g> {
        let word = word.map_or_else(|| self.word(guard, key), |word| Ok(Some(word)))?;
        let record = word.map_or(Ok(None), |word| self.standing(guard, word))?;
        let version = self.version_of(removals, record.as_ref());
        if version.token.is_none() {
            record.as_ref().map_or(Ok(None), |record| self.expired(record))?;
        }
        Ok((version, record))
    }

    /// Whether nothing has changed from one to the other, the last look of all.
    fn is_same(&self, keys: &[&[u8]], first: &[Seen<'_>], second: &[Seen<'_>]) -> bool {
        keys.iter().zip(first.iter().zip(second)).all(|(key, seen)| match seen {
            (Ok((before, _)), Ok((now, _))) => self.has_stayed(key, before, *now),
            (Err(before), Err(now)) => before == now,
            _ => false,
        })
    }

    /// Keeps writers out of the keys while it looks. Where that takes more memory than there is, it goes on trying.
    pub(super) fn see_frozen<'g>(&self, guard: &'g Guard<'_, M>, keys: &[&[u8]]) -> Vec<Shown<'g>> {
        let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
        let writable = keys.iter().filter(|key| self.may_write(key, 0).is_ok());
        places.extend(writable.map(|&key| (key, 0)));
        places.values_mut().enumerate().for_each(|(place, value)| *value = place);
        let steps: Vec<Step<'_>> = places.keys().map(|key| Step::keep(key)).collect();
        let (mut words, mut now) = (vec![None; steps.len()], 0);
        let note = |place: usize, word| {
            words[place] = word;
            // The time goes on: all have expired, or not, by one moment of it at which nobody writes.
            now = self.settings.clock.now_ms();
        };
        if self.freeze(guard, &steps, note).is_ok() {
            let word = |key: &&[u8]| places.get(*key).and_then(|&place| words[place]);
            let live = |key| word(key).map_or(Ok(None), |word| self.live_at(guard, word, || now));
            return keys.iter().map(live).collect();
        }
        let (mut first, mut backoff) = (self.see(guard, keys), Backoff::new());
        loop {
            let second = self.see(guard, keys);
            if self.is_same(keys, &first, &second) {
                return shown(second).collect();
            }
            backoff.rest();
            first = second;
        }
    }

    pub(super) fn show<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        shown: impl IntoIterator<Item = Shown<'g>>,
        each: &mut Each<'_>,
    ) {
        for (nth, shown) in shown.into_iter().enumerate() {
            each(nth, shown.and_then(|record| self.entry_of(guard, record)));
        }
    }
}

/// What a reader is shown of a key.
type Shown<'g> = Result<Option<Record<'g>>, ReadError>;

fn shown(seen: Vec<Seen<'_>>) -> impl Iterator<Item = Shown<'_>> {
    let live = |(version, record): (Version, _)| version.token.and(record);
    seen.into_iter().map(move |seen| seen.map(live))
}
