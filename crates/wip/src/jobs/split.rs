//! The beginning of a split: a full bucket gives way to several, which take its writes at once
//! (thesis 2.3.5).
//!
//! The splitters come from samples of the keys of each table. One edit of the manifest names the
//! new buckets and their parent. From then on the new buckets take all writes; reads look into the
//! parent behind them. Its MemTables are flushed as any others, and then a *division* merges all
//! its tables into one for each of the new buckets (`jobs`), whose oldest it becomes.
//!
//! # Crashes
//! - Before the edit is durable, nothing has happened.
//! - After it, the log's items come to the new buckets, which is where they belong: a MemTable of a
//!   new bucket is newer than the parent's tables. The next open begins the division anew.
//! - The division's edit ends the parent and adds the tables at once.

use crate::state::edit::{Edit, NewBucket};
use crate::state::store::Store;
use crate::state::{Bucket, State};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::WriteError;

/// Splits a bucket. Called by the thread that has its job.
pub(crate) fn begin_split(store: &Store, full: &Arc<Bucket>) -> Result<(), WriteError> {
    let splitters = splitters(store, full);
    if splitters.is_empty() {
        // All keys are the same, or the samples are.
        return Ok(());
    }
    debug_assert!(splitters.is_sorted_by(|one, next| one < next), "splitters are in order");
    debug_assert!(splitters.first().is_some_and(|first| **first > *full.low), "no child is empty");
    assert!(full.parent.is_none(), "the parent of a bucket is divided before the bucket is split");
    let lows: Vec<Vec<u8>> = std::iter::once(full.low.to_vec()).chain(splitters).collect();
    let new = |low: Vec<u8>| NewBucket { id: store.structure.number(), low, parent: Some(full.id) };
    let edit = Edit { buckets: lows.into_iter().map(new).collect(), ..Edit::default() };
    let mut manifest = store.structure.lock();
    if store.state.load().position(full.id).is_none() {
        // The store was cleared.
        return Ok(());
    }
    store.write_edit(&mut manifest, &edit)?;
    // No write may fall between the parent's last and the children's first.
    let _writer = store.writer();
    store.structure.change(&store.state, |state| Some(split_state(store, state, full.id, &edit.buckets)));
    store.counters.splits.fetch_add(1, Relaxed);
    Ok(())
}

fn split_state(store: &Store, state: &State, id: u64, new: &[NewBucket]) -> State {
    let nth = state.position(id).expect("no other thread removes it: it has a job");
    let mut parent = Bucket::clone(&state.buckets[nth]);
    if !parent.active.is_empty() {
        let (fresh, _) = store.new_memtable();
        let active = std::mem::replace(&mut parent.active, Arc::new(fresh));
        parent.frozen.push(active);
    }
    let flushed = parent.flushed;
    let parent = Arc::new(parent);
    let children = new.iter().map(|new| {
        let mut child = Bucket::new(new.id, &new.low, store.new_memtable(), flushed);
        child.parent = Some(Arc::clone(&parent));
        Arc::new(child)
    });
    let mut buckets = state.buckets.clone();
    buckets.splice(nth..=nth, children);
    State::new(buckets)
}

/// Keys that divide a bucket's data evenly: of all samples, weighted by the bytes that each
/// stands for.
fn splitters(store: &Store, bucket: &Bucket) -> Vec<Vec<u8>> {
    let mut samples: Vec<(&[u8], u64)> = Vec::new();
    for (_, table) in bucket.tables() {
        let properties = table.properties();
        let weight = properties.data_bytes / (properties.samples.len() as u64 + 1);
        samples.extend(properties.samples.iter().map(|key| (&key[..], weight.max(1))));
    }
    samples.sort_unstable();
    let all: u64 = samples.iter().map(|(_, weight)| weight).sum();
    let parts = store.settings.split_into as u64;
    let (mut splitters, mut sum) = (Vec::<Vec<u8>>::new(), 0);
    for (key, weight) in samples {
        sum += weight;
        let is_due = sum * parts >= all * (splitters.len() as u64 + 1);
        let is_new = *key > *bucket.low && splitters.last().is_none_or(|last| **last < *key);
        if is_due && is_new && splitters.len() as u64 + 1 < parts {
            splitters.push(key.to_vec());
        }
    }
    splitters
}
