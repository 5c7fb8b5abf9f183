//! Filling the MemTables from the log when a store is opened, in bounded memory.
//!
//! Items come in the order of their sequence numbers, as when they were written, so a bucket's
//! MemTables are frozen and flushed meanwhile as at any other time. The log is released only up to
//! the items that were read: those behind them lie nowhere else.

use crate::jobs::Jobs;
use crate::state::store::Store;
use std::sync::atomic::Ordering::Relaxed;
use terrace_disk::{DiskError, Item, Record, Replayed, replay};
use terrace_engine::Rest;
use terrace_engine::read_drafts;

/// Adds the items of the log that no table has, as long as MemTables have room for them.
/// Returns what was replayed, and the number of the first item that had no room.
pub(crate) fn refill(store: &Store) -> Result<(Replayed, Option<u64>), DiskError> {
    let mut first_left = None;
    let mut each = |record: Record<'_>| {
        // A reader cannot flush: it keeps all in memory.
        if !store.settings.read_only && store.frozen_bytes() > store.frozen_max() {
            first_left.get_or_insert(record.first_seq);
        }
        if first_left.is_none() {
            refill_from(store, record)?;
        }
        Ok(true)
    };
    let replayed = replay(&store.files, store.path(), store.id(), &mut each)?;
    Ok((replayed, first_left))
}

/// Adds the items from the number `first` on, in a second pass over the log of `records`
/// records. It flushes what it fills: only now it is known that no item is a torn tail's.
pub(crate) fn refill_rest(store: &Store, jobs: &Jobs, first: u64, records: u64) -> Result<(), DiskError> {
    let mut may_flush = true;
    let mut each = |record: Record<'_>| {
        if record.first_seq < first {
            return Ok(true);
        }
        store.refilled.store(record.first_seq, Relaxed);
        while may_flush && store.frozen_bytes() > store.frozen_max() {
            // A full disk is no reason not to open: then what is left stays in memory.
            may_flush = jobs.step_flush(store).is_ok_and(|rest| rest == Rest::More);
        }
        refill_from(store, record).map(|()| true)
    };
    store.refilled.store(first, Relaxed);
    let replayed = replay(&store.files, store.path(), store.id(), &mut each)?;
    assert_eq!(replayed.records, records, "a log that nobody writes stays the same");
    store.refilled.store(u64::MAX, Relaxed);
    Ok(())
}

fn refill_from(store: &Store, record: Record<'_>) -> Result<(), DiskError> {
    let mut writer = store.writer();
    let mut state = store.state.load();
    for (draft, seq) in read_drafts(record.payload).zip(record.first_seq..) {
        let what = "a record of the log is none of this engine";
        let draft = draft
            .filter(|draft| !draft.is_reference)
            .ok_or_else(|| DiskError::corrupt(store.path(), 0, what))?;
        let bucket = state.bucket(draft.key);
        if seq < store.cleared_at.load(Relaxed) || seq < bucket.flushed {
            continue;
        }
        if bucket.active.memory() >= bucket.freeze_at {
            store.freeze(&mut writer, bucket.id);
            state = store.state.load();
        }
        let item = Item { key: draft.key, seq, content: draft.content };
        store.add_item(&mut writer, &mut state, &item);
    }
    Ok(())
}
