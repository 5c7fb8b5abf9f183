//! Writes of single keys: each repeats a change of a slot until it is made, and makes room for it
//! where the pool is full.

use crate::batch::commit::Batches;
use crate::read::get::Reads;
use crate::record::records::Records;
use crate::record::stage::{Draft, Source, Staged};
use crate::record::view::Record;
use crate::slot::Slots;
use crate::upkeep::chores::Upkeep;
use crate::upkeep::evict::Evictions;
use terrace_engine::{Change, Entry, Put, ReadError, WriteError};
use terrace_index::{Deferred, Swapped};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Pool};

/// Puts that share a fence. More would delay the reuse of memory for no gain.
const TOGETHER: usize = 64;
/// Total bytes after which no more puts share it.
const BYTES_TOGETHER: usize = 1 << 20;

/// How often a write that finds the pool full reclaims memory and tries again.
const RETRIES_MAX: u32 = 64;

/// Writes of a store. It owns the batches, on which it stands, and what the upkeep remembers, which
/// makes room for a write that finds the pool full. Nothing but the engine stands above it.
pub(crate) struct Writes<M: MappedMedium> {
    pub(crate) batches: Batches<M>,
    pub(crate) upkeep: Upkeep,
}

impl<M: MappedMedium> Writes<M> {
    #[inline(always)]
    pub(crate) fn slots(&self) -> &Slots<M> {
        &self.batches.slots
    }

    #[inline(always)]
    pub(crate) fn reads(&self) -> &Reads<M> {
        &self.slots().reads
    }

    #[inline(always)]
    pub(crate) fn records(&self) -> &Records<M> {
        self.slots().records()
    }

    #[inline(always)]
    pub(crate) fn pool(&self) -> &Pool<M> {
        self.records().pool()
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
            let gains = self.upkeep.gains();
            match write() {
                Err(WriteError::PoolFull { wanted, .. })
                    if self.evictions().is_on() && self.evictions().evict_for(wanted, evictions)? =>
                {
                    evictions += 1;
                }
                Err(WriteError::PoolFull { wanted, waiting, .. })
                    if tries < RETRIES_MAX
                        && ((tries == 0 || waiting >= wanted) && self.reclaim_limbo(waiting)
                            || self.upkeep.room(self.slots()).make_room(wanted, tries, gains)) =>
                {
                    tries += 1;
                }
                // The free memory that is left is in blocks of other sizes.
                Err(WriteError::PoolFull { .. }) => return self.pool().with_larger_blocks(write),
                done => return done,
            }
        }
    }

    fn evictions(&self) -> Evictions<'_, M> {
        self.upkeep.evictions(self.slots())
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
        let mut seen = self.records().index.get(&guard, put.key);
        let staged = self.slots().stage_put(&guard, put, seen)?;
        // PERSIST: the record before the index's word.
        self.pool().region().fence();
        let (facts, new) = (staged.facts, staged.into_offset());
        loop {
            if seen.is_some_and(|word| self.slots().claims().is_claimed(&guard, word)) {
                seen = self.slots().wait_unclaimed_or_discard(&guard, put.key, new)?;
            }
            match self.records().index.compare_and_swap(&guard, put.key, seen, Some(new)) {
                Ok(Swapped::Done) => break,
                Ok(Swapped::Found(now)) => seen = now,
                Err(error) => {
                    self.records().discard(&guard, new, None);
                    return Err(error.into());
                }
            }
        }
        self.slots().succeed(&guard, put.key, seen, Some(facts));
        Ok(())
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
        self.records().index.get_many(&guard, &keys, &mut |_, word| seen.push(word));
        let staged = self.stage_each(&guard, puts, &seen);
        // PERSIST: all records before the index's words.
        self.pool().region().fence();
        let mut deferred = Deferred::default();
        let mut published = Vec::with_capacity(staged.len());
        for ((put, seen), staged) in puts.iter().zip(seen).zip(staged) {
            let publish = |staged: Staged<'_, _>| {
                let facts = staged.facts;
                let old = self.slots().publish(&guard, put.key, seen, staged.into_offset(), &mut deferred)?;
                Ok((old, facts))
            };
            match staged.and_then(publish) {
                // The index has no room. The records that follow are freed, and staged again.
                Err(WriteError::PoolFull { .. }) => break,
                result => published.push(result),
            }
        }
        self.records().index.persist_deferred(&guard, deferred);
        // Only now: until the new words are durable, a crash restores the old records.
        let succeed = |(put, published): (&Put<'_>, Result<_, _>)| {
            published.map(|(old, new)| self.slots().succeed(&guard, put.key, old, Some(new)))
        };
        done.extend(puts.iter().zip(published).map(succeed));
    }

    /// Stages puts until the pool is full, or a mebibyte is staged.
    #[inline]
    fn stage_each<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        puts: &[Put<'_>],
        seen: &[Option<u64>],
    ) -> Vec<Result<Staged<'g, M>, WriteError>> {
        let (mut staged, mut bytes) = (Vec::with_capacity(puts.len()), 0);
        for (put, seen) in puts.iter().zip(seen) {
            match self.slots().stage_put(guard, put, *seen) {
                Err(WriteError::PoolFull { .. }) => break,
                result => staged.push(result),
            }
            bytes += put.value.len();
            if bytes >= BYTES_TOGETHER {
                break;
            }
        }
        staged
    }

    pub(crate) fn remove_one(&self, key: &[u8]) -> Result<bool, WriteError> {
        self.records().check_write(key, 0)?;
        let guard = self.pool().try_pin()?;
        loop {
            let Some(word) = self.slots().claims().wait_unclaimed_word(&guard, key)? else {
                // An error if damage may be why it is absent.
                return self.reads().word(&guard, key).map(|_| false).map_err(WriteError::from);
            };
            if self.slots().unlink(&guard, key, word)? {
                return Ok(self.slots().was_live(&guard, word));
            }
        }
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
        self.records().check_write(key, 0)?;
        let guard = self.pool().try_pin()?;
        loop {
            let seen = self.slots().claims().wait_unclaimed_word(&guard, key)?;
            let live = self.live_record_of(&guard, key, seen)?;
            let entry = live.map(|record| self.reads().entry(&guard, &record)).transpose()?;
            let done = match change(entry) {
                Change::Put { value, expires_at } => {
                    self.records().check_write(key, value.len())?;
                    self.slots().replace(
                        &guard,
                        seen,
                        &Draft::single(key, Source::Bytes(&value), expires_at),
                    )?
                }
                Change::Expire(at) if live.is_some_and(|record| record.body.expires_at != at) => {
                    let record = live.expect("just seen");
                    self.slots().replace(&guard, seen, &Draft::single(key, Source::of(&record), at))?
                }
                Change::Remove => match seen {
                    Some(word) => self.slots().unlink(&guard, key, word)?,
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
            None => self.reads().word(guard, key).map(|_| None),
            Some(word) => self.reads().live_record(guard, word),
        }
    }
}

#[cfg(test)]
#[path = "tests/single.rs"]
mod tests;
