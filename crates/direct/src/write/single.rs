//! Changes of single keys.
//!
//! Every change ends in one compare-and-swap of the index's word, from the record that was read to
//! the new one. While the thread is pinned, no record that it has seen is reused, so the swap
//! succeeds only if nothing happened in between.
//!
//! Crash: before the swap is durable, the key is unchanged and the staged record unreachable; the
//! collector frees it. After the swap, the change is made and the old record is unreachable.

use crate::engine::Direct;
use crate::record::stage::{Draft, Source, Staged};
use crate::record::view::{Record, RecordFacts};
use terrace_engine::{Change, Entry, Put, ReadError, WriteError};
use terrace_index::{Deferred, Swapped};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Puts that share a fence. More would delay the reuse of memory for no gain.
const TOGETHER: usize = 64;
/// Total bytes after which no more puts share it.
const BYTES_TOGETHER: usize = 1 << 20;

/// How often a write that finds the pool full reclaims memory and tries again.
const RETRIES_MAX: u32 = 64;

impl<M: MappedMedium> Direct<M> {
    /// The word of `key`, once no batch claims it.
    #[inline(always)]
    pub(crate) fn wait_unclaimed_word(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
    ) -> Result<Option<u64>, WriteError> {
        let word = self.index.get(guard, key);
        if word.is_some_and(|word| self.is_claimed(guard, word)) {
            return self.wait_unclaimed(guard, key);
        }
        Ok(word)
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
    fn succeed(&self, guard: &Guard<'_, M>, key: &[u8], old: Option<u64>, new: Option<RecordFacts>) {
        self.pool().notify_watches(key);
        let old = self.readable_record(guard, old);
        self.root.count_replaced(guard, old.as_ref().map(Record::facts), new);
        if let Some(old) = &old {
            self.retire(guard, old, new);
        }
    }

    /// Runs `write`, and repeats it while the pool is full and keys were evicted or memory was
    /// reclaimed, by this thread or another: other threads may use it up each time. After that,
    /// `make_room` may help. The caller must hold no guard.
    pub(crate) fn retry_after_reclaim<T>(
        &self,
        mut write: impl FnMut() -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let (mut tries, mut evictions) = (0, 0);
        loop {
            let gains = self.gains();
            match write() {
                Err(WriteError::PoolFull { wanted, .. })
                    if self.evictor.is_on() && self.evict_for(wanted, evictions)? =>
                {
                    evictions += 1;
                }
                Err(WriteError::PoolFull { wanted, waiting, .. })
                    if tries < RETRIES_MAX
                        && ((tries == 0 || waiting >= wanted) && self.reclaim_limbo(waiting)
                            || self.make_room(wanted, tries, gains)) =>
                {
                    tries += 1;
                }
                // The free memory that is left is in blocks of other sizes.
                Err(WriteError::PoolFull { .. }) => return self.pool().with_larger_blocks(write),
                done => return done,
            }
        }
    }

    /// Whether memory was reclaimed since the pool was full with `waiting` bytes in limbo.
    fn reclaim_limbo(&self, waiting: u64) -> bool {
        let has_come_back = self.pool().waiting_bytes() < waiting;
        self.pool().reclaim_blocking() || has_come_back
    }

    pub(crate) fn put_one(&self, put: &Put<'_>) -> Result<(), WriteError> {
        self.retry_after_reclaim(|| self.try_put(put))
    }

    fn try_put(&self, put: &Put<'_>) -> Result<(), WriteError> {
        let guard = self.pool().try_pin()?;
        let mut seen = self.index.get(&guard, put.key);
        let staged = self.stage_put(&guard, put, seen)?;
        // PERSIST: the record before the index's word.
        self.pool().region().fence();
        let (facts, new) = (staged.facts, staged.into_offset());
        loop {
            if seen.is_some_and(|word| self.is_claimed(&guard, word)) {
                seen = self.wait_unclaimed_or_discard(&guard, put.key, new)?;
            }
            match self.index.compare_and_swap(&guard, put.key, seen, Some(new)) {
                Ok(Swapped::Done) => break,
                Ok(Swapped::Found(now)) => seen = now,
                Err(error) => {
                    self.discard(&guard, new, None);
                    return Err(error.into());
                }
            }
        }
        self.succeed(&guard, put.key, seen, Some(facts));
        Ok(())
    }

    fn wait_unclaimed_or_discard(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        new: u64,
    ) -> Result<Option<u64>, WriteError> {
        self.wait_unclaimed_word(guard, key).inspect_err(|_| self.discard(guard, new, None))
    }

    pub(crate) fn put_each(&self, puts: &[Put<'_>]) -> Vec<Result<(), WriteError>> {
        let mut done = Vec::with_capacity(puts.len());
        while let Some(first) = puts.get(done.len()) {
            let rest = &puts[done.len()..];
            let before = done.len();
            self.put_together(&rest[..rest.len().min(TOGETHER)], &mut done);
            if done.len() == before {
                // The pool was full for it.
                done.push(self.put_one(first));
            }
        }
        done
    }

    /// Stages all puts, fences, publishes them, and persists the index with one more fence. Stops
    /// before the first put for which the pool is full, be it for the record or for the index, and
    /// after a mebibyte.
    fn put_together(&self, puts: &[Put<'_>], done: &mut Vec<Result<(), WriteError>>) {
        // In a forked child, the put of the first one alone returns the error.
        let Ok(guard) = self.pool().try_pin() else { return };
        let mut seen = Vec::with_capacity(puts.len());
        let keys: Vec<&[u8]> = puts.iter().map(|put| put.key).collect();
        self.index.get_many(&guard, &keys, &mut |_, word| seen.push(word));
        let (mut staged, mut bytes) = (Vec::with_capacity(puts.len()), 0);
        for (put, seen) in puts.iter().zip(&seen) {
            match self.stage_put(&guard, put, *seen) {
                Err(WriteError::PoolFull { .. }) => break,
                result => staged.push(result),
            }
            bytes += put.value.len();
            if bytes >= BYTES_TOGETHER {
                break;
            }
        }
        // PERSIST: all records before the index's words.
        self.pool().region().fence();
        let mut deferred = Deferred::default();
        let mut published = Vec::with_capacity(staged.len());
        for ((put, seen), staged) in puts.iter().zip(seen).zip(staged) {
            let publish = |staged: Staged<'_, _>| {
                let facts = staged.facts;
                let old = self.publish(&guard, put.key, seen, staged.into_offset(), &mut deferred)?;
                Ok((old, facts))
            };
            match staged.and_then(publish) {
                // The index has no room. The records that follow are freed, and staged again.
                Err(WriteError::PoolFull { .. }) => break,
                result => published.push(result),
            }
        }
        self.index.persist_deferred(&guard, deferred);
        // Only now: until the new words are durable, a crash restores the old records.
        let succeed = |(put, published): (&Put<'_>, Result<_, _>)| {
            published.map(|(old, new)| self.succeed(&guard, put.key, old, Some(new)))
        };
        done.extend(puts.iter().zip(published).map(succeed));
    }

    fn stage_put<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        put: &Put<'_>,
        seen: Option<u64>,
    ) -> Result<Staged<'g, M>, WriteError> {
        self.check_write(put.key, put.value.len())?;
        let used = self.use_of_new(guard, seen);
        let draft = Draft { used, ..Draft::single(put.key, Source::Bytes(put.value), put.expires_at) };
        Ok(self.stage(guard, &draft)?)
    }

    /// Makes `new` the record of `key`, durable once `deferred` is persisted. Returns the word that
    /// it replaced.
    fn publish(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        seen: Option<u64>,
        new: u64,
        deferred: &mut Deferred,
    ) -> Result<Option<u64>, WriteError> {
        let mut seen = seen;
        loop {
            if seen.is_some_and(|word| self.is_claimed(guard, word)) {
                seen = self.wait_unclaimed_or_discard(guard, key, new)?;
            }
            match self.index.compare_and_swap_deferred(guard, key, seen, Some(new), deferred) {
                Ok(Swapped::Done) => return Ok(seen),
                Ok(Swapped::Found(now)) => seen = now,
                Err(error) => {
                    self.discard(guard, new, None);
                    return Err(error.into());
                }
            }
        }
    }

    pub(crate) fn remove_one(&self, key: &[u8]) -> Result<bool, WriteError> {
        self.check_write(key, 0)?;
        let guard = self.pool().try_pin()?;
        loop {
            let Some(word) = self.wait_unclaimed_word(&guard, key)? else {
                // An error if damage may be why it is absent.
                return self.word(&guard, key).map(|_| false).map_err(WriteError::from);
            };
            if self.unlink(&guard, key, word)? {
                return Ok(self.was_live(&guard, word));
            }
        }
    }

    /// Whether the record of a key that was removed was an entry for readers.
    #[inline(always)]
    pub(crate) fn was_live(&self, guard: &Guard<'_, M>, word: u64) -> bool {
        self.readable_record(guard, Some(word)).is_some_and(|record| !self.has_expired(&record))
    }

    /// Removes `key` if the index still has this word for it. Takes no memory.
    pub(crate) fn unlink(&self, guard: &Guard<'_, M>, key: &[u8], word: u64) -> Result<bool, WriteError> {
        self.count_removal(key);
        let done = self.index.compare_and_swap(guard, key, Some(word), None)? == Swapped::Done;
        if done {
            self.succeed(guard, key, Some(word), None);
        }
        Ok(done)
    }

    pub(crate) fn modify_one(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
    ) -> Result<(), WriteError> {
        self.retry_after_reclaim(|| self.try_modify(key, change))
    }

    fn try_modify(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
    ) -> Result<(), WriteError> {
        self.check_write(key, 0)?;
        let guard = self.pool().try_pin()?;
        loop {
            let seen = self.wait_unclaimed_word(&guard, key)?;
            let live = self.live_record_of(&guard, key, seen)?;
            let entry = live.map(|record| self.entry(&guard, &record)).transpose()?;
            let done = match change(entry) {
                Change::Put { value, expires_at } => {
                    self.check_write(key, value.len())?;
                    self.replace(&guard, seen, &Draft::single(key, Source::Bytes(&value), expires_at))?
                }
                Change::Expire(at) if live.is_some_and(|record| record.body.expires_at != at) => {
                    let record = live.expect("just seen");
                    self.replace(&guard, seen, &Draft::single(key, Source::of(&record), at))?
                }
                Change::Remove => match seen {
                    Some(word) => self.unlink(&guard, key, word)?,
                    None => true,
                },
                Change::Keep | Change::Expire(_) => true,
            };
            if done {
                return Ok(());
            }
        }
    }

    /// The live record at `word`, the index's word for `key`. (If there is none and the key is
    /// added meanwhile, the caller's swap fails and is tried again.)
    fn live_record_of<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
        word: Option<u64>,
    ) -> Result<Option<Record<'g>>, ReadError> {
        match word {
            None => self.word(guard, key).map(|_| None),
            Some(word) => self.live_record(guard, word),
        }
    }

    /// Replaces the word `seen` by a new record, if the word is unchanged. Returns whether it was.
    pub(crate) fn replace(
        &self,
        guard: &Guard<'_, M>,
        seen: Option<u64>,
        draft: &Draft<'_>,
    ) -> Result<bool, WriteError> {
        let draft = &Draft { used: self.use_of_new(guard, seen), ..*draft };
        let staged = self.stage(guard, draft)?;
        // PERSIST: the record before the index's word.
        self.pool().region().fence();
        let (facts, new) = (staged.facts, staged.into_offset());
        let swapped = self.index.compare_and_swap(guard, draft.key, seen, Some(new));
        if swapped != Ok(Swapped::Done) {
            let old = self.readable_record(guard, seen);
            self.discard(guard, new, old.as_ref().map(Record::facts));
            return swapped.map(|_| false).map_err(WriteError::from);
        }
        self.succeed(guard, draft.key, seen, Some(facts));
        Ok(true)
    }
}

#[cfg(test)]
#[path = "tests/single.rs"]
mod tests;
