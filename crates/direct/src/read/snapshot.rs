//! Double reads: the state that several keys had at one instant.

use crate::read::get::Reads;
use crate::record::view::Record;
use terrace_engine::EntryCallback;
use terrace_engine::{ReadError, Version};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// The state of a key, and its visible record, expired or not.
pub(crate) type KeyState<'g> = Result<(Version, Option<Record<'g>>), ReadError>;

/// What a reader sees of a key.
pub(crate) type VisibleRecord<'g> = Result<Option<Record<'g>>, ReadError>;

/// What a reader sees of keys in these states.
pub(crate) fn visible(seen: Vec<KeyState<'_>>) -> impl Iterator<Item = VisibleRecord<'_>> {
    let live = |(version, record): (Version, _)| version.token.and(record);
    seen.into_iter().map(move |seen| seen.map(live))
}

impl<M: MappedMedium> Reads<M> {
    /// Reads all keys twice. If no key changed from its first read to its second, all of them were
    /// in this state between the two rounds. If one has, reads them once more while `goes_on`
    /// returns true.
    pub(crate) fn read_twice<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        keys: &[&[u8]],
        mut goes_on: impl FnMut() -> bool,
    ) -> Option<Vec<KeyState<'g>>> {
        let mut first = self.read_all(guard, keys);
        loop {
            let second = self.read_all(guard, keys);
            if self.is_same(keys, &first, &second) {
                return Some(second);
            }
            if !goes_on() {
                return None;
            }
            first = second;
        }
    }

    fn read_all<'g>(&self, guard: &'g Guard<'_, M>, keys: &[&[u8]]) -> Vec<KeyState<'g>> {
        let removals: Vec<u64> = keys.iter().map(|key| self.records().root.removals(key)).collect();
        let mut seen = Vec::with_capacity(keys.len());
        self.records().index.get_many(guard, keys, &mut |nth, word| {
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

    /// Calls `each` with the entry of each key.
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
