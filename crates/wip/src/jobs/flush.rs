//! Flushes: a frozen MemTable becomes a table of its bucket's first level.

use crate::jobs::output::{Written, discard, open_tables};
use crate::state::Bucket;
use crate::state::edit::{Added, Edit};
use crate::state::store::Store;
use crate::state::table;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_disk::{DiskError, Kept, TableWriter};
use terrace_engine::WriteError;

/// Flushes the oldest frozen MemTable of a bucket, or of a parent.
pub(crate) fn flush(store: &Store, bucket: &Arc<Bucket>, is_parent: bool) -> Result<(), WriteError> {
    let Some(memtable) = bucket.frozen.first() else { return Ok(()) };
    let number = store.structure.number();
    let flushed = write_flush(store, bucket, number).and_then(|written| {
        // The log first: no table may have what the log could lose.
        store.sync_log()?;
        install_flush(store, bucket, is_parent, written)
    });
    match flushed {
        Ok(true) => {
            store.counters.flushes.fetch_add(1, Relaxed);
            debug_assert!(!memtable.is_empty());
            release_log(store)
        }
        not => {
            discard(store, number);
            not.map(drop)
        }
    }
}

/// Writes the table. `None` if no item is left.
fn write_flush(store: &Store, bucket: &Bucket, number: u64) -> Result<Option<Written>, WriteError> {
    let memtable = Arc::clone(&bucket.frozen[0]);
    let snapshots = store.snapshots.in_use(&store.visible);
    let is_last = bucket.tables().next().is_none() && bucket.parent.is_none();
    let now_ms = store.settings.clock.now_ms();
    let mut items = Kept::new(memtable.cursor(), snapshots, is_last, now_ms);
    items.seek_first()?;
    if items.item().is_none() {
        return Ok(None);
    }
    store.standing.check_place(&store.directory)?;
    let path = table::path_of(store.path(), number);
    let file = store.files.create(&path).map_err(DiskError::room("create", &path))?;
    let mut writer =
        TableWriter::new(&*file, &path, number, table::options_of(0, store.settings.compress, store.id()));
    while let Some(item) = items.item() {
        writer.add(&item)?;
        items.next()?;
    }
    writer.finish()?;
    file.sync_data().map_err(DiskError::room("sync", &path))?;
    let bytes = file.length().map_err(DiskError::room("read", &path))?;
    store.counters.tables.fetch_add(bytes, Relaxed);
    Ok(Some(Written { number, bytes, bucket: bucket.id }))
}

/// Puts the table in the place of the MemTable. Returns whether it is in use.
fn install_flush(
    store: &Store,
    bucket: &Bucket,
    is_parent: bool,
    written: Option<Written>,
) -> Result<bool, WriteError> {
    let tables = open_tables(store, written.as_slice())?;
    let memtable = &bucket.frozen[0];
    let mut manifest = store.structure.lock();
    let state = store.state.load();
    let mut buckets = state.buckets.iter().chain(state.parents());
    if !buckets.any(|other| other.id == bucket.id) {
        // The store was cleared.
        return Ok(false);
    }
    debug_assert!(tables.len() <= 1, "a MemTable becomes one table at most");
    debug_assert!(memtable.last_seq() >= bucket.flushed, "the oldest MemTable goes first");
    let flushed = memtable.last_seq() + 1;
    let edit = Edit {
        added: tables.iter().map(|(to, table)| Added::of(*to, 0, table, false)).collect(),
        // What a parent has not flushed comes back to its children.
        flushed: if is_parent || bucket.parent.is_some() { Vec::new() } else { vec![(bucket.id, flushed)] },
        written: store.counters.tables.load(Relaxed),
        ..Edit::default()
    };
    store.write_edit(&mut manifest, &edit)?;
    store.structure.change(&store.state, |state| {
        let flush = |old: &Bucket| {
            let mut new = Bucket::clone(old);
            new.frozen.retain(|other| !Arc::ptr_eq(other, memtable));
            new.passed = new.passed.max(memtable.last_seq());
            new.levels[0].tables.extend(tables.iter().map(|(_, table)| Arc::clone(table)));
            if !edit.flushed.is_empty() {
                new.flushed = flushed;
            }
            Arc::new(new)
        };
        Some(state.map(bucket.id, flush))
    });
    Ok(!tables.is_empty())
}

/// Removes the log up to the first item that no table has.
pub(crate) fn release_log(store: &Store) -> Result<(), WriteError> {
    // ORDER: Acquire: an item with a lower number is in a MemTable of the state loaded next, or
    // in a table.
    let visible = store.visible.load(Acquire);
    let state = store.state.load();
    let in_memory = state.memtables().filter_map(|memtable| memtable.first_seq()).min();
    let first = in_memory.unwrap_or(visible + 1).min(store.refilled.load(Relaxed));
    match store.log.release(first) {
        // What was to be flushed is flushed. The next flush tries again.
        Err(DiskError::Full { .. }) => Ok(()),
        released => released.map_err(|error| store.standing.failed(error)),
    }
}
