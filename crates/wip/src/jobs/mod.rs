//! Background work: which job comes next, and how jobs go on step by step.
//!
//! - A *flush* writes the oldest frozen MemTable of a bucket to a table of its first level.
//! - A *merge* makes one table of the next level of all tables of a level, or of those of the last
//!   level one table in their place.
//! - A *collection* merges all tables of a bucket that has much garbage (`garbage`).
//! - A *division* ends the split of a bucket: it merges all its tables into one for each of the
//!   buckets that it was split into.
//!
//! - A *join* puts one bucket in the place of two small ones (`join`).
//!
//! A thread does a step of some job: a flush as a whole, or about a MiB of a merge. Between two
//! steps any thread may go on with the job. A bucket has one merge or division at a time, and one
//! flush.
//!
//! From below: `output`; `flush`, `merging`, `split`, `join`; `known`, `choice`; this file; and
//! `refill`, which an open calls.

pub(crate) mod choice;
pub(crate) mod flush;
pub(crate) mod join;
pub(crate) mod known;
pub(crate) mod merging;
pub(crate) mod output;
pub(crate) mod refill;
pub(crate) mod split;

use crate::jobs::choice::MAX_COUNT;
use crate::jobs::flush::flush;
use crate::jobs::join::join;
use crate::jobs::known::Known;
use crate::jobs::merging::Merging;
use crate::jobs::split::begin_split;
use crate::state::garbage::Content;
use crate::state::store::Store;
use crate::state::{Bucket, State};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terrace_engine::Retry;
use terrace_engine::{Rest, WriteError};

/// Merges that take turns at most.
const WAITING_MAX: usize = 4;

/// The jobs of a store: it owns what is known of those that were begun. Below it stands the
/// [`Store`] that each call gets, and the files of this folder that do one job each.
#[derive(Default)]
pub(crate) struct Jobs {
    known: Mutex<Known>,
    /// What has become of the last flush, and of the last merge.
    pub(crate) flushes: Retry,
    pub(crate) merges: Retry,
}

impl Jobs {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a merge of a bucket. Returns false if it has one.
    pub(crate) fn claim(&self, id: u64) -> bool {
        self.known().merging.insert(id)
    }

    /// Notes a job of two buckets. Returns false if one of them has a job.
    pub(crate) fn claim_both(&self, one: u64, other: u64) -> bool {
        let mut known = self.known();
        let is_free = |id| known.is_free(id) && !known.flushing.contains(&id);
        let are_free = is_free(one) && is_free(other);
        if are_free {
            known.merging.extend([one, other]);
        }
        are_free
    }

    /// Ends what [`Jobs::claim`] has noted.
    pub(crate) fn release(&self, store: &Store, id: u64) {
        let was_noted = self.known().merging.remove(&id);
        debug_assert!(was_noted, "the bucket has a job until its thread ends it");
        store.bell.ring();
    }

    /// Whether a table of the bucket is damaged, so that it is merged no more.
    pub(crate) fn is_damaged(&self, id: u64) -> bool {
        self.known().damaged.contains(&id)
    }
}

impl Jobs {
    /// [`Jobs::step_flush`], unless that has failed a moment ago.
    pub(crate) fn retry_flush(&self, store: &Store) -> Result<Rest, WriteError> {
        match self.flushes.too_early(store.settings.clock.now_ms()) {
            Some(_) => Ok(Rest::Idle),
            None => self.step_flush(store),
        }
    }

    /// [`Jobs::step_merge`], unless a merge has failed a moment ago.
    pub(crate) fn retry_merge(&self, store: &Store) -> Result<Rest, WriteError> {
        if self.merges.too_early(store.settings.clock.now_ms()).is_some() {
            return Ok(Rest::Idle);
        }
        let done = self.step_merge(store)?;
        if done == Rest::Idle {
            // What has failed is not to be done any more.
            self.merges.succeed();
        }
        Ok(done)
    }

    /// Flushes a frozen MemTable, if there is one that no thread flushes.
    pub(crate) fn step_flush(&self, store: &Store) -> Result<Rest, WriteError> {
        let Some((bucket, is_parent)) = self.take_flush(store) else { return Ok(Rest::Idle) };
        let flushed = store.with_reserve(|| flush(store, &bucket, is_parent));
        match &flushed {
            Ok(()) => self.flushes.succeed(),
            Err(error) => self.flushes.fail(store.settings.clock.now_ms(), error),
        }
        self.known().flushing.remove(&bucket.id);
        store.bell.ring();
        flushed.map(|()| Rest::More)
    }

    /// The bucket with the largest frozen MemTable that no thread flushes, and whether it is a
    /// parent.
    fn take_flush(&self, store: &Store) -> Option<(Arc<Bucket>, bool)> {
        let mut known = self.known();
        let state = store.state.load();
        let parents = state.buckets.iter().filter_map(|bucket| bucket.parent.as_ref());
        let all =
            state.buckets.iter().map(|bucket| (bucket, false)).chain(parents.map(|parent| (parent, true)));
        let waiting =
            all.filter(|(bucket, _)| !bucket.frozen.is_empty() && !known.flushing.contains(&bucket.id));
        let (bucket, is_parent) = waiting.max_by_key(|(bucket, _)| bucket.frozen[0].memory())?;
        let is_new = known.flushing.insert(bucket.id);
        debug_assert!(is_new, "a bucket has one flush at a time");
        Some((Arc::clone(bucket), is_parent))
    }

    /// Does a step of a merge, a division, or the beginning of a split, or joins buckets.
    pub(crate) fn step_merge(&self, store: &Store) -> Result<Rest, WriteError> {
        let done = self.step_some_merge(store);
        done.inspect_err(|error| self.merges.fail(store.settings.clock.now_ms(), error))
    }

    fn step_some_merge(&self, store: &Store) -> Result<Rest, WriteError> {
        let Some(mut merging) = store.with_reserve(|| self.take_merge(store))? else {
            return self.step_join(store);
        };
        let done = merging.go_on(store);
        if let Ok(true) = done {
            self.merges.succeed();
        }
        let mut known = self.known();
        let had_reserve = known.lent.is_some();
        match done {
            Ok(false) => known.waiting.push_back(merging),
            ref done => {
                let id = merging.bucket_id();
                known.merging.remove(&id);
                if let Err(WriteError::Corrupt { .. }) = done {
                    known.damaged.insert(id);
                }
                known.end_loan(done.is_err());
                drop(known);
                store.bell.ring();
                store.fit_reserve();
            }
        }
        match done {
            // With the room that is kept it has failed, too: it waits before it tries again.
            Err(error) if had_reserve => Err(error),
            Err(error) => {
                // It begins anew, in the room that it has now.
                let lent = store.standing.reserve_for(store.log.reserve(), &error).ok_or(error)?;
                self.known().lent = Some(lent);
                Ok(Rest::More)
            }
            Ok(_) => Ok(Rest::More),
        }
    }

    /// What is done when no merge is to be done: joins buckets if nobody writes.
    fn step_join(&self, store: &Store) -> Result<Rest, WriteError> {
        let mut known = self.known();
        known.end_loan(false);
        let is_quiet = known.is_quiet(store);
        drop(known);
        let has_joined = is_quiet && self.join_some(store)?;
        Ok(if has_joined { Rest::More } else { Rest::Idle })
    }

    /// A merge that was begun, or another one. Those that were begun take turns, and small ones may
    /// join them at any time.
    fn take_merge(&self, store: &Store) -> Result<Option<Merging>, WriteError> {
        if let Some(full) = self.full_bucket(store) {
            let begun = begin_split(store, &full);
            self.known().merging.remove(&full.id);
            begun?;
        }
        let is_short = !store.log.reserve().is_kept();
        let mut known = self.known();
        let state = store.state.load();
        let chosen = match known.waiting.len() {
            0 => choice::next_division(&state, &known)
                .or_else(|| choice::next_whole(store, &state, &known, Content::is_urgent))
                // Where room is short, a merge of a level might find none for what it keeps.
                .or_else(|| is_short.then(|| choice::next_collection(store, &state, &mut known)).flatten())
                .or_else(|| choice::next_merge(store, &state, &known))
                .or_else(|| choice::next_collection(store, &state, &mut known)),
            1..WAITING_MAX => choice::next_merge(store, &state, &known).filter(Merging::is_small),
            _ => None,
        };
        Ok(match chosen {
            Some(chosen) => {
                let is_new = known.merging.insert(chosen.bucket_id());
                debug_assert!(is_new, "a bucket has one merge at a time");
                Some(chosen)
            }
            None => known.waiting.pop_front(),
        })
    }

    /// A bucket that is to be split, noted as one that has a job.
    fn full_bucket(&self, store: &Store) -> Option<Arc<Bucket>> {
        let mut known = self.known();
        let state = store.state.load();
        let limit = store.settings.bucket_bytes();
        let full = state
            .buckets
            .iter()
            .find(|bucket| bucket.bytes() >= limit && bucket.parent.is_none() && known.is_free(bucket.id))?;
        known.merging.insert(full.id);
        Some(Arc::clone(full))
    }

    /// Whether no MemTable waits for a flush, and no merge is under way.
    pub(crate) fn is_at_rest(&self, store: &Store) -> bool {
        store.frozen_bytes() == 0 && self.known().merging.is_empty()
    }

    /// Freezes the MemTables that keep the tail of a log that has become too long. Where room is
    /// short, any tail is too long once nothing else is to do: merges give the room back that its
    /// removals are about, and the log its own.
    pub(crate) fn shorten_log(&self, store: &Store) {
        let is_short = !store.log.reserve().is_kept() && self.is_at_rest(store);
        if store.log.bytes() <= store.settings.log_bytes && !is_short {
            return;
        }
        let mut writer = store.writer();
        let state: Arc<State> = store.state.load_full();
        let oldest = state.buckets.iter().filter(|bucket| bucket.frozen.is_empty());
        let oldest = oldest.min_by_key(|bucket| bucket.active.first_seq().unwrap_or(u64::MAX));
        let Some(bucket) = oldest.filter(|bucket| !bucket.active.is_empty()) else { return };
        let has_few_tables = bucket.levels[0].tables.len() < 2 * MAX_COUNT;
        if !is_short || has_few_tables || bucket.active.memory() >= bucket.freeze_at / 8 {
            store.freeze(&mut writer, bucket.id);
        }
    }

    /// Joins the first neighbours that are worth it. Returns whether it has changed something.
    pub(crate) fn join_some(&self, store: &Store) -> Result<bool, WriteError> {
        let Some([low, high]) = self.claim_pair(store) else { return Ok(false) };
        let joined = join(store, &low, &high);
        self.release(store, low.id);
        self.release(store, high.id);
        joined
    }

    /// Neighbours that are to be joined, noted as such that have a job.
    fn claim_pair(&self, store: &Store) -> Option<[Arc<Bucket>; 2]> {
        let state = store.state.load();
        let mut pairs = join::pairs(store, &state);
        let [low, high] = pairs.find(|pair| self.claim_both(pair[0].id, pair[1].id))? else {
            return None;
        };
        Some([Arc::clone(low), Arc::clone(high)])
    }

    /// Merges all tables of a bucket into one.
    pub(crate) fn merge_whole(&self, store: &Store, id: u64) -> Result<(), WriteError> {
        self.end_split(store, id)?;
        while !self.claim(id) {
            // The job that it has goes on.
            self.step_merge(store)?;
        }
        let merged = merge_tables(store, id);
        self.release(store, id);
        merged
    }

    /// Waits until the bucket that this one was split from has been divided, and does what that
    /// needs: until then, part of its items lie there. A damaged one stays as it is.
    fn end_split(&self, store: &Store, id: u64) -> Result<(), WriteError> {
        loop {
            let state = store.state.load_full();
            let parent = state.position(id).and_then(|nth| state.buckets[nth].parent.as_ref());
            if parent.is_none_or(|parent| self.is_damaged(parent.id)) {
                return Ok(());
            }
            drop(state);
            if [self.step_flush(store)?, self.step_merge(store)?] == [Rest::Idle; 2] {
                store.bell.wait(Duration::from_millis(10));
            }
        }
    }
}

/// Merges all tables of a bucket into one. Called by the thread that has its job.
fn merge_tables(store: &Store, id: u64) -> Result<(), WriteError> {
    let state = store.state.load_full();
    let Some(nth) = state.position(id) else { return Ok(()) };
    if state.buckets[nth].tables().next().is_none() {
        return Ok(());
    }
    let mut merging = Merging::whole(&state.buckets[nth]);
    while !merging.go_on(store)? {}
    Ok(())
}
