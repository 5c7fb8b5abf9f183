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

pub(crate) mod flush;
pub(crate) mod join;
pub(crate) mod merging;
pub(crate) mod refill;
pub(crate) mod split;

use crate::jobs::merging::Merging;
use crate::state::garbage::Content;
use crate::state::store::Wip;
use crate::state::{Bucket, LEVELS, State};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terrace_disk::{Lent, Need};
use terrace_engine::Retry;
use terrace_engine::{Draft, need_of};
use terrace_engine::{Rest, WriteError};

/// Tables of a level from which on reads can bring its compaction forward (thesis 2.3.7).
const MIN_COUNT: usize = 4;
/// Tables of a level that is compacted before all others.
pub(crate) const MAX_COUNT: usize = 20;
/// Merges that take turns at most.
const WAITING_MAX: usize = 4;
/// Milliseconds without a write after which the store counts as idle.
const IDLE_MS: u64 = 10_000;
/// Bytes that are written between two delays of a millisecond when flushes are furthest behind.
const PACE: u64 = 64 << 10;
/// How much more reads count than the number of tables.
const READ_WEIGHT: f64 = 10.0;

/// The jobs of a store.
pub(crate) struct Jobs {
    state: Mutex<Known>,
    /// Something has changed: there may be work, or room.
    changed: Condvar,
    /// What has become of the last flush, and of the last merge.
    pub(crate) flushes: Retry,
    pub(crate) merges: Retry,
}

struct Known {
    /// Merges that no thread works on at the moment.
    waiting: VecDeque<Merging>,
    /// Buckets that have a merge or a division, and buckets that are being flushed.
    merging: BTreeSet<u64>,
    flushing: BTreeSet<u64>,
    /// Buckets with a damaged table: their tables stay as they are, for a salvage.
    damaged: BTreeSet<u64>,
    /// The number of the last write, and since when it has been the last, as far as known.
    quiet: (u64, u64),
    /// Counts announcements.
    announced: u64,
    /// The room that merges have got, as long as they need it.
    lent: Option<Lent>,
}

impl Known {
    /// Gives the room back once no merge is under way, or one has failed in spite of it.
    fn end_loan(&mut self, has_failed: bool) {
        if has_failed || self.merging.is_empty() {
            self.lent = None;
        }
    }

    /// Whether a merge of the bucket may begin.
    fn is_free(&self, id: u64) -> bool {
        !self.merging.contains(&id) && !self.damaged.contains(&id)
    }
}

impl Default for Jobs {
    fn default() -> Self {
        let known = Known {
            waiting: VecDeque::new(),
            merging: BTreeSet::new(),
            flushing: BTreeSet::new(),
            damaged: BTreeSet::new(),
            quiet: (0, 0),
            announced: 0,
            lent: None,
        };
        let (flushes, merges) = (Retry::default(), Retry::default());
        Self { state: Mutex::new(known), changed: Condvar::new(), flushes, merges }
    }
}

impl Jobs {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait for work or for room.
    pub(crate) fn announce(&self) {
        self.known().announced += 1;
        self.changed.notify_all();
    }

    /// Waits for an announcement, for `time` at most.
    pub(crate) fn wait(&self, time: Duration) {
        let known = self.known();
        let before = known.announced;
        let _ = self.changed.wait_timeout_while(known, time, |known| known.announced == before);
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
    pub(crate) fn release(&self, id: u64) {
        self.known().merging.remove(&id);
        self.announce();
    }

    /// Whether a table of the bucket is damaged, so that it is merged no more.
    pub(crate) fn is_damaged(&self, id: u64) -> bool {
        self.known().damaged.contains(&id)
    }
}

impl Wip {
    /// [`Wip::step_flush`], unless that has failed a moment ago.
    pub(crate) fn retry_flush(&self) -> Result<Rest, WriteError> {
        match self.jobs.flushes.too_early(self.settings.clock.now_ms()) {
            Some(_) => Ok(Rest::Idle),
            None => self.step_flush(),
        }
    }

    /// [`Wip::step_merge`], unless a merge has failed a moment ago.
    pub(crate) fn retry_merge(&self) -> Result<Rest, WriteError> {
        if self.jobs.merges.too_early(self.settings.clock.now_ms()).is_some() {
            return Ok(Rest::Idle);
        }
        let done = self.step_merge()?;
        if done == Rest::Idle {
            // What has failed is not to be done any more.
            self.jobs.merges.succeed();
        }
        Ok(done)
    }

    /// Flushes a frozen MemTable, if there is one that no thread flushes.
    pub(crate) fn step_flush(&self) -> Result<Rest, WriteError> {
        let Some((bucket, is_parent)) = self.take_flush() else { return Ok(Rest::Idle) };
        let flushed = self.with_reserve(|| self.flush(&bucket, is_parent));
        match &flushed {
            Ok(()) => self.jobs.flushes.succeed(),
            Err(error) => self.jobs.flushes.fail(self.settings.clock.now_ms(), error),
        }
        self.jobs.known().flushing.remove(&bucket.id);
        self.jobs.announce();
        flushed.map(|()| Rest::More)
    }

    /// The bucket with the largest frozen MemTable that no thread flushes, and whether it is a
    /// parent.
    fn take_flush(&self) -> Option<(Arc<Bucket>, bool)> {
        let mut known = self.jobs.known();
        let state = self.state.load();
        let parents = state.buckets.iter().filter_map(|bucket| bucket.parent.as_ref());
        let all =
            state.buckets.iter().map(|bucket| (bucket, false)).chain(parents.map(|parent| (parent, true)));
        let waiting =
            all.filter(|(bucket, _)| !bucket.frozen.is_empty() && !known.flushing.contains(&bucket.id));
        let (bucket, is_parent) = waiting.max_by_key(|(bucket, _)| bucket.frozen[0].memory())?;
        known.flushing.insert(bucket.id);
        Some((Arc::clone(bucket), is_parent))
    }

    /// Does a step of a merge, a division, or the beginning of a split, or joins buckets.
    pub(crate) fn step_merge(&self) -> Result<Rest, WriteError> {
        let done = self.step_some_merge();
        done.inspect_err(|error| self.jobs.merges.fail(self.settings.clock.now_ms(), error))
    }

    fn step_some_merge(&self) -> Result<Rest, WriteError> {
        let Some(mut merging) = self.with_reserve(|| self.take_merge())? else {
            let mut known = self.jobs.known();
            known.end_loan(false);
            let is_quiet = self.is_quiet(&mut known);
            drop(known);
            let has_joined = is_quiet && self.join_some()?;
            return Ok(if has_joined { Rest::More } else { Rest::Idle });
        };
        let done = self.go_on(&mut merging);
        if let Ok(true) = done {
            self.jobs.merges.succeed();
        }
        let mut known = self.jobs.known();
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
                self.jobs.announce();
                self.fit_reserve();
            }
        }
        match done {
            // With the room that is kept it has failed, too: it waits before it tries again.
            Err(error) if had_reserve => Err(error),
            Err(error) => {
                // It begins anew, in the room that it has now.
                let lent = self.standing.reserve_for(self.log.reserve(), &error).ok_or(error)?;
                self.jobs.known().lent = Some(lent);
                Ok(Rest::More)
            }
            Ok(_) => Ok(Rest::More),
        }
    }

    /// Keeps as much for removals and jobs as is needed now. Room is free once a bucket was merged
    /// whole; until then its tables stay, and what it has left is written beside them.
    pub(crate) fn fit_reserve(&self) {
        let state = self.state.load();
        let largest = state.buckets.iter().map(|bucket| bucket.bytes()).max().unwrap_or(0);
        // Where it fails, there is less room.
        let _ = self.log.reserve().fit(largest / 4);
    }

    /// As [`Standing::with_reserve`](terrace_engine::Standing::with_reserve), with the log's.
    pub(crate) fn with_reserve<T>(
        &self,
        job: impl FnMut() -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        self.standing.with_reserve(self.log.reserve(), job)
    }

    /// A merge that was begun, or another one. Those that were begun take turns, and small ones may
    /// join them at any time.
    fn take_merge(&self) -> Result<Option<Merging>, WriteError> {
        if let Some(full) = self.full_bucket() {
            let begun = self.begin_split(&full);
            self.jobs.known().merging.remove(&full.id);
            begun?;
        }
        let is_short = !self.log.reserve().is_kept();
        let mut known = self.jobs.known();
        let state = self.state.load();
        let chosen = match known.waiting.len() {
            0 => self
                .next_division(&state, &known)
                .or_else(|| self.next_whole(&state, &known, Content::is_urgent))
                // Where room is short, a merge of a level might find none for what it keeps.
                .or_else(|| is_short.then(|| self.next_collection(&state, &mut known)).flatten())
                .or_else(|| self.next_merge(&state, &known))
                .or_else(|| self.next_collection(&state, &mut known)),
            1..WAITING_MAX => self.next_merge(&state, &known).filter(Merging::is_small),
            _ => None,
        };
        Ok(match chosen {
            Some(chosen) => {
                known.merging.insert(chosen.bucket_id());
                Some(chosen)
            }
            None => known.waiting.pop_front(),
        })
    }

    /// A merge of all tables of the bucket that has most of what `is_worth` looks for.
    fn next_whole(
        &self,
        state: &State,
        known: &Known,
        is_worth: impl Fn(&Content, f64) -> bool,
    ) -> Option<Merging> {
        let free = state.buckets.iter().filter(|bucket| bucket.parent.is_none() && known.is_free(bucket.id));
        let now = self.settings.clock.now_ms();
        let bucket = free.into_iter().find(|bucket| is_worth(&bucket.content(), bucket.expired(now)))?;
        Some(Merging::whole(bucket))
    }

    /// A merge that makes room, when no other is due.
    fn next_collection(&self, state: &State, known: &mut Known) -> Option<Merging> {
        // Where room is short, less garbage is worth a merge.
        let is_idle = self.is_quiet(known) || !self.log.reserve().is_kept();
        self.next_whole(state, known, |content, expired| content.is_worth(expired, is_idle))
    }

    /// Whether nobody has written for a while.
    fn is_quiet(&self, known: &mut Known) -> bool {
        let (now, written) = (self.settings.clock.now_ms(), self.visible.load(Relaxed));
        if known.quiet.0 != written || now < known.quiet.1 {
            known.quiet = (written, now);
        }
        now - known.quiet.1 >= IDLE_MS
    }

    /// A bucket that is to be split, noted as one that has a job.
    fn full_bucket(&self) -> Option<Arc<Bucket>> {
        let mut known = self.jobs.known();
        let state = self.state.load();
        let limit = self.settings.bucket_bytes();
        let full = state
            .buckets
            .iter()
            .find(|bucket| bucket.bytes() >= limit && bucket.parent.is_none() && known.is_free(bucket.id))?;
        known.merging.insert(full.id);
        Some(Arc::clone(full))
    }

    /// The division of a parent whose MemTables have been flushed.
    fn next_division(&self, state: &State, known: &Known) -> Option<Merging> {
        let parents = state.buckets.iter().filter_map(|bucket| bucket.parent.as_ref());
        let ready = parents.filter(|parent| parent.frozen.is_empty() && parent.active.is_empty());
        let parent = ready.into_iter().find(|parent| known.is_free(parent.id))?;
        let children = state
            .buckets
            .iter()
            .filter(|bucket| bucket.parent.as_ref().is_some_and(|other| other.id == parent.id));
        Some(Merging::division(parent, children.map(|child| (child.id, Arc::clone(&child.low))).collect()))
    }

    /// The merge of the level that is most worth it.
    fn next_merge(&self, state: &State, known: &Known) -> Option<Merging> {
        let free = state.buckets.iter().filter(|bucket| known.is_free(bucket.id));
        let levels = free.flat_map(|bucket| (0..LEVELS).map(move |level| (bucket, level)));
        let eligible: Vec<Candidate<'_>> = levels
            .filter_map(|(bucket, level)| Candidate::new(bucket, level))
            .filter(|candidate| candidate.count >= self.least_tables(candidate))
            .collect();
        let mean = |of: fn(&Candidate<'_>) -> f64| {
            eligible.iter().map(of).sum::<f64>() / eligible.len().max(1) as f64
        };
        let (reads, counts) = (mean(|one| one.reads), mean(|one| one.count as f64));
        let worth = |one: &Candidate<'_>| one.worth(reads, counts);
        let best = eligible.iter().max_by(|one, other| worth(one).total_cmp(&worth(other)))?;
        Some(Merging::of_level(best.bucket, best.level))
    }

    /// The tables from which on a level is merged.
    fn least_tables(&self, candidate: &Candidate<'_>) -> usize {
        let fanout = self.settings.fanout as usize;
        match candidate.level + 1 < LEVELS {
            true if self.settings.read_aware && candidate.reads > 0.0 => MIN_COUNT.min(fanout),
            true => fanout,
            // The bucket is split when its last level has so many full ones.
            false => MAX_COUNT.max(fanout + 1),
        }
    }

    /// Waits for room for a write: does a part of the background work that makes it, if no thread
    /// does.
    pub(crate) fn make_room(&self, drafts: &[Draft<'_>], bytes: usize) -> Result<(), WriteError> {
        let Some(first) = drafts.first() else { return Ok(()) };
        // What the log would refuse need not wait for flushes and merges, which fail as well.
        self.log.check_room(need_of(drafts)).map_err(|error| self.standing.failed(error))?;
        self.slow_down(bytes);
        if self.frozen_bytes() > self.frozen_max() {
            let began = self.settings.clock.now_ms();
            self.wait_for_room().or_else(|error| {
                // Removals are how a full disk gets room.
                let may_go_on =
                    need_of(drafts) == Need::Reserve && self.frozen_bytes() <= 2 * self.frozen_max();
                if may_go_on { self.standing.check_writable() } else { Err(error) }
            })?;
            self.counters.stalls.fetch_add(1, Relaxed);
            let took = self.settings.clock.now_ms().saturating_sub(began);
            self.counters.stalled_ms.fetch_add(took, Relaxed);
        }
        let mut is_first = true;
        let tables = || self.state.load().bucket(first.key).levels[0].tables.len();
        while is_first && tables() >= 2 * MAX_COUNT {
            is_first = false;
            // Where it fails, others tell: the write itself needs no merge.
            let _ = self.retry_merge();
        }
        Ok(())
    }

    /// Delays a write of so many bytes while flushes fall behind, the longer the more they do, so
    /// that no write has to wait for a whole flush.
    fn slow_down(&self, bytes: usize) {
        let free = self.frozen_max() / 2;
        let debt = self.frozen_bytes().saturating_sub(free);
        if debt == 0 {
            return;
        }
        let share = (bytes as u64).saturating_mul(debt.min(free)) / free.max(1);
        if self.owed.fetch_add(share, Relaxed) + share >= PACE {
            self.owed.store(0, Relaxed);
            self.counters.delays.fetch_add(1, Relaxed);
            self.jobs.wait(Duration::from_millis(1));
        }
    }

    fn wait_for_room(&self) -> Result<(), WriteError> {
        while self.frozen_bytes() > self.frozen_max() {
            self.standing.check_writable()?;
            if let Some(error) = self.jobs.flushes.too_early(self.settings.clock.now_ms())
                && !self.has_room_for_flush()
            {
                return Err(error);
            }
            if self.step_flush()? == Rest::Idle {
                self.jobs.wait(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// Whether the disk has room for a flush, as far as it can tell.
    fn has_room_for_flush(&self) -> bool {
        let state = self.state.load();
        let frozen = state.memtables().map(|memtable| memtable.memory()).max().unwrap_or(0);
        self.files.free_bytes(self.path()).is_ok_and(|free| free >= frozen)
    }

    /// Whether no MemTable waits for a flush, and no merge is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.frozen_bytes() == 0 && self.jobs.known().merging.is_empty()
    }

    /// Bytes of frozen MemTables from which on writes wait.
    pub(crate) fn frozen_max(&self) -> u64 {
        self.settings.memory / 4
    }

    /// Bytes of MemTables that are to be flushed.
    pub(crate) fn frozen_bytes(&self) -> u64 {
        self.state.load().frozen_bytes
    }
}

/// A level that may be merged.
struct Candidate<'s> {
    bucket: &'s Arc<Bucket>,
    level: usize,
    count: usize,
    reads: f64,
}

impl<'s> Candidate<'s> {
    fn new(bucket: &'s Arc<Bucket>, level: usize) -> Option<Self> {
        let count = bucket.levels[level].tables.len();
        let reads = bucket.levels[level].reads.load(Relaxed) as f64;
        (count > 1).then_some(Self { bucket, level, count, reads })
    }

    /// The paper's priority (2.3.7). `reads` and `counts` are the averages over all candidates.
    fn worth(&self, reads: f64, counts: f64) -> f64 {
        if self.count >= MAX_COUNT {
            return f64::INFINITY;
        }
        let by_reads = if reads > 0.0 { self.reads / reads } else { 0.0 };
        READ_WEIGHT * by_reads + self.count as f64 / counts
    }
}
