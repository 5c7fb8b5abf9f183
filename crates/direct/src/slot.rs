//! Changes of single slots of the index.
//!
//! Every change ends in one compare-and-swap of the index's word, from the record that was read to
//! the new one. While the thread is pinned, no record that it has seen is reused, so the swap
//! succeeds only if nothing happened in between.
//!
//! Crash: before the swap is durable, the key is unchanged and the staged record unreachable; the
//! collector frees it. After the swap, the change is made and the old record is unreachable.

use crate::batch::claim::Claims;
use crate::read::get::Reads;
use crate::record::records::Records;
use crate::record::stage::{Draft, Source, Staged};
use crate::record::view::{Record, RecordFacts};
use terrace_engine::{Put, WriteError};
use terrace_index::{Deferred, Swapped};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Pool};

/// The slots of a store. It owns the reads, on which it stands, and adds the changes that take no
/// more than one try: if the pool is full or the slot has changed, they say so. Batches, upkeep and
/// writes stand above it.
pub(crate) struct Slots<M: MappedMedium> {
    pub(crate) reads: Reads<M>,
}

impl<M: MappedMedium> Slots<M> {
    #[inline(always)]
    pub(crate) fn claims(&self) -> &Claims<M> {
        &self.reads.claims
    }

    #[inline(always)]
    pub(crate) fn records(&self) -> &Records<M> {
        self.reads.records()
    }

    #[inline(always)]
    pub(crate) fn pool(&self) -> &Pool<M> {
        self.records().pool()
    }

    /// The record at `word`, if it is readable. An unreadable record is replaced or removed all the
    /// same.
    #[inline(always)]
    fn readable_record<'g>(&self, guard: &'g Guard<'_, M>, word: Option<u64>) -> Option<Record<'g>> {
        word.and_then(|word| Record::at(guard, word).ok())
    }

    /// Completes a change of `key` from the record `old` to one with the facts `new`: notifies
    /// watches, updates the counters and retires `old`. (Does not read the new record: its
    /// write-back may have evicted it from the cache.)
    #[inline(always)]
    pub(crate) fn succeed(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        old: Option<u64>,
        new: Option<RecordFacts>,
    ) {
        self.pool().notify_watches(key);
        let old = self.readable_record(guard, old);
        self.records().root.count_replaced(guard, old.as_ref().map(Record::facts), new);
        if let Some(old) = &old {
            self.records().retire(guard, old, new);
        }
    }

    pub(crate) fn wait_unclaimed_or_discard(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        new: u64,
    ) -> Result<Option<u64>, WriteError> {
        self.claims()
            .wait_unclaimed_word(guard, key)
            .inspect_err(|_| self.records().discard(guard, new, None))
    }

    #[inline]
    pub(crate) fn stage_put<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        put: &Put<'_>,
        seen: Option<u64>,
    ) -> Result<Staged<'g, M>, WriteError> {
        self.records().check_write(put.key, put.value.len())?;
        let used = self.reads.use_of_new(guard, seen);
        let draft = Draft { used, ..Draft::single(put.key, Source::Bytes(put.value), put.expires_at) };
        Ok(self.records().stage(guard, &draft)?)
    }

    /// Makes `new` the record of `key`, durable once `deferred` is persisted. Returns the word that
    /// it replaced.
    #[inline]
    pub(crate) fn publish(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        seen: Option<u64>,
        new: u64,
        deferred: &mut Deferred,
    ) -> Result<Option<u64>, WriteError> {
        let mut seen = seen;
        loop {
            if seen.is_some_and(|word| self.claims().is_claimed(guard, word)) {
                seen = self.wait_unclaimed_or_discard(guard, key, new)?;
            }
            match self.records().index.compare_and_swap_deferred(guard, key, seen, Some(new), deferred) {
                Ok(Swapped::Done) => return Ok(seen),
                Ok(Swapped::Found(now)) => seen = now,
                Err(error) => {
                    self.records().discard(guard, new, None);
                    return Err(error.into());
                }
            }
        }
    }

    /// Whether the record of a key that was removed was an entry for readers.
    #[inline(always)]
    pub(crate) fn was_live(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        self.readable_record(guard, Some(word)).is_some_and(|record| !self.records().has_expired(&record))
    }

    /// Removes `key` if the index still has this word for it. Takes no memory.
    pub(crate) fn unlink(&self, guard: &Guard<'_, M>, key: &[u8], word: u64) -> Result<bool, WriteError> {
        self.records().root.count_removal(key);
        let done = self.records().index.compare_and_swap(guard, key, Some(word), None)? == Swapped::Done;
        if done {
            self.succeed(guard, key, Some(word), None);
        }
        Ok(done)
    }

    /// Replaces the word `seen` by a new record, if the word is unchanged. Returns whether it was.
    pub(crate) fn replace(
        &self,
        guard: &Guard<'_, M>,
        seen: Option<u64>,
        draft: &Draft<'_>,
    ) -> Result<bool, WriteError> {
        let draft = &Draft { used: self.reads.use_of_new(guard, seen), ..*draft };
        let staged = self.records().stage(guard, draft)?;
        // PERSIST: the record before the index's word.
        self.pool().region().fence();
        let (facts, new) = (staged.facts, staged.into_offset());
        let swapped = self.records().index.compare_and_swap(guard, draft.key, seen, Some(new));
        if swapped != Ok(Swapped::Done) {
            let old = self.readable_record(guard, seen);
            self.records().discard(guard, new, old.as_ref().map(Record::facts));
            return swapped.map(|_| false).map_err(WriteError::from);
        }
        self.succeed(guard, draft.key, seen, Some(facts));
        Ok(true)
    }

    /// Removes the key of a record that the index had a moment ago, whatever its record is by now.
    /// Returns the word that it removed.
    ///
    /// If that is not this record, another writer was first, or the record is damaged, and its key
    /// is not the one that it was added with: then an error, because it is left.
    pub(crate) fn remove_found(
        &self,
        guard: &Guard<'_, M>,
        record: &Record<'_>,
    ) -> Result<Option<u64>, WriteError> {
        let key = record.body.key;
        while let Some(word) = self.claims().wait_unclaimed_word(guard, key)? {
            if self.unlink(guard, key, word)? {
                if word != record.offset {
                    record.verify()?;
                }
                return Ok(Some(word));
            }
        }
        record.verify()?;
        Ok(None)
    }
}
