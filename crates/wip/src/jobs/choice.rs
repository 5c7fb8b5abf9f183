//! The choice of the next merge: which bucket, or which of its levels, is most worth it.

use crate::jobs::known::Known;
use crate::jobs::merging::Merging;
use crate::state::garbage::Content;
use crate::state::store::Store;
use crate::state::table::LEVELS;
use crate::state::{Bucket, State};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Tables of a level from which on reads can bring its compaction forward (thesis 2.3.7).
const MIN_COUNT: usize = 4;
/// Tables of a level that is compacted before all others.
pub(crate) const MAX_COUNT: usize = 20;
/// How much more reads count than the number of tables.
const READ_WEIGHT: f64 = 10.0;

/// A merge of all tables of the bucket that has most of what `is_worth` looks for.
pub(crate) fn next_whole(
    store: &Store,
    state: &State,
    known: &Known,
    is_worth: impl Fn(&Content, f64) -> bool,
) -> Option<Merging> {
    let free = state.buckets.iter().filter(|bucket| bucket.parent.is_none() && known.is_free(bucket.id));
    let now = store.settings.clock.now_ms();
    let bucket = free.into_iter().find(|bucket| is_worth(&bucket.content(), bucket.expired(now)))?;
    Some(Merging::whole(bucket))
}

/// A merge that makes room, when no other is due.
pub(crate) fn next_collection(store: &Store, state: &State, known: &mut Known) -> Option<Merging> {
    // Where room is short, less garbage is worth a merge.
    let is_idle = known.is_quiet(store) || !store.log.reserve().is_kept();
    next_whole(store, state, known, |content, expired| content.is_worth(expired, is_idle))
}

/// The division of a parent whose MemTables have been flushed.
pub(crate) fn next_division(state: &State, known: &Known) -> Option<Merging> {
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
pub(crate) fn next_merge(store: &Store, state: &State, known: &Known) -> Option<Merging> {
    let free = state.buckets.iter().filter(|bucket| known.is_free(bucket.id));
    let levels = free.flat_map(|bucket| (0..LEVELS).map(move |level| (bucket, level)));
    let eligible: Vec<Candidate<'_>> = levels
        .filter_map(|(bucket, level)| Candidate::new(bucket, level))
        .filter(|candidate| candidate.count >= least_tables(store, candidate))
        .collect();
    let mean =
        |of: fn(&Candidate<'_>) -> f64| eligible.iter().map(of).sum::<f64>() / eligible.len().max(1) as f64;
    let (reads, counts) = (mean(|one| one.reads), mean(|one| one.count as f64));
    let worth = |one: &Candidate<'_>| one.worth(reads, counts);
    let best = eligible.iter().max_by(|one, other| worth(one).total_cmp(&worth(other)))?;
    Some(Merging::of_level(best.bucket, best.level))
}

/// The tables from which on a level is merged.
fn least_tables(store: &Store, candidate: &Candidate<'_>) -> usize {
    let fanout = store.settings.fanout as usize;
    match candidate.level + 1 < LEVELS {
        true if store.settings.read_aware && candidate.reads > 0.0 => MIN_COUNT.min(fanout),
        true => fanout,
        // The bucket is split when its last level has so many full ones.
        false => MAX_COUNT.max(fanout + 1),
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
