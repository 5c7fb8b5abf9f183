//! Joining small neighbours: after many removals, buckets would take more memory than their data is
//! worth (thesis 2.3.5).
//!
//! Two neighbours are joined when nobody has written for a while, no other work is to be done, and
//! both together are far from a bucket's full size, so that the new one is not split again soon.
//! Their MemTables are flushed first. The new bucket has the tables of both, each in its level.
//! Their keys do not overlap, so the order of tables of one level does not matter.
//!
//! # Crashes
//! One edit of the manifest ends both and names the new bucket with all its tables. All items that
//! the log still has of both lie in those tables.

use crate::state::edit::{Added, Edit, NewBucket};
use crate::state::store::Store;
use crate::state::{Bucket, State};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::WriteError;

/// A joined bucket has at most this part of the bytes of a full one.
const PART: u64 = 16;

/// Neighbours that are small enough to be joined.
pub(crate) fn pairs<'s>(store: &Store, state: &'s State) -> impl Iterator<Item = &'s [Arc<Bucket>]> {
    let limit = store.settings.bucket_bytes() / PART;
    let is_small =
        move |bucket: &Bucket| bucket.parent.is_none() && bucket.frozen.is_empty() && bucket.bytes() <= limit;
    state.buckets.windows(2).filter(move |pair| {
        pair.iter().all(|bucket| is_small(bucket))
            && pair.iter().map(|bucket| bucket.bytes()).sum::<u64>() <= limit
    })
}

/// Joins two neighbours. Called by the thread that has the job of both. Returns whether it has
/// changed something.
pub(crate) fn join(store: &Store, low: &Arc<Bucket>, high: &Arc<Bucket>) -> Result<bool, WriteError> {
    let mut manifest = store.structure.lock();
    // No write may come to one of them while the edit is written.
    let mut writer = store.writer();
    let state = store.state.load_full();
    let present = |bucket: &Arc<Bucket>| {
        let nth = state.position(bucket.id)?;
        Some(&state.buckets[nth]).filter(|bucket| bucket.frozen.is_empty())
    };
    // The store may have been cleared, or a MemTable frozen.
    let (Some(low), Some(high)) = (present(low), present(high)) else { return Ok(false) };
    let busy = [low, high].into_iter().filter(|bucket| !bucket.active.is_empty());
    let busy: Vec<u64> = busy.map(|bucket| bucket.id).collect();
    if !busy.is_empty() {
        // They are joined once their items are flushed, if nobody writes meanwhile.
        busy.iter().for_each(|&id| store.freeze(&mut writer, id));
        return Ok(true);
    }
    let (id, flushed) = (store.structure.number(), writer.next_seq);
    let edit = joining(low, high, id, flushed);
    store.write_edit(&mut manifest, &edit)?;
    let joined = joined(store, low, high, id, flushed);
    store.structure.change(&store.state, |state| Some(with_joined(state, low.id, joined)));
    store.counters.joins.fetch_add(1, Relaxed);
    Ok(true)
}

fn joined(store: &Store, low: &Bucket, high: &Bucket, id: u64, flushed: u64) -> Bucket {
    debug_assert!(low.low < high.low, "the lower one comes first");
    debug_assert!(low.active.is_empty() && high.active.is_empty(), "their items lie in tables");
    let mut joined = Bucket::new(id, &low.low, store.new_memtable(), flushed);
    joined.passed = low.passed.max(high.passed);
    for bucket in [low, high] {
        for (level, of) in joined.levels.iter_mut().zip(&bucket.levels) {
            level.tables.extend(of.tables.iter().cloned());
        }
    }
    joined
}

/// The edit that puts one bucket in the place of two.
fn joining(low: &Bucket, high: &Bucket, id: u64, flushed: u64) -> Edit {
    let mut edit = Edit {
        buckets: vec![NewBucket { id, low: low.low.to_vec(), parent: None }],
        ended: vec![low.id, high.id],
        flushed: vec![(id, flushed)],
        ..Edit::default()
    };
    for bucket in [low, high] {
        for (level, of) in bucket.levels.iter().enumerate() {
            edit.added.extend(of.tables.iter().map(|table| Added::of(id, level, table, false)));
        }
    }
    edit
}

/// The state with `joined` in the place of the bucket `low` and the one behind it.
fn with_joined(state: &State, low: u64, joined: Bucket) -> State {
    let nth = state.position(low).expect("no other thread removes it: it has a job");
    assert!(nth + 1 < state.buckets.len(), "no other thread removes its neighbour");
    let mut buckets = state.buckets.clone();
    buckets.splice(nth..nth + 2, [Arc::new(joined)]);
    State::new(buckets)
}
