//! Flushes: a frozen MemTable becomes a table of its bucket's first level.

use crate::jobs::MAX_COUNT;
use crate::jobs::merging::{Written, added};
use crate::state::edit::Edit;
use crate::state::store::Wip;
use crate::state::table;
use crate::state::{Bucket, State};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_disk::{DiskError, Kept, TableWriter};
use terrace_engine::WriteError;

impl Wip {
    /// Flushes the oldest frozen MemTable of a bucket, or of a parent.
    pub(crate) fn flush(&self, bucket: &Arc<Bucket>, is_parent: bool) -> Result<(), WriteError> {
        let Some(memtable) = bucket.frozen.first() else { return Ok(()) };
        let number = self.structure.number();
        let flushed = self.write_flush(bucket, number).and_then(|written| {
            // The log first: no table may have what the log could lose.
            self.sync_log()?;
            self.install_flush(bucket, is_parent, written)
        });
        match flushed {
            Ok(true) => {
                self.counters.flushes.fetch_add(1, Relaxed);
                debug_assert!(!memtable.is_empty());
                self.release_log()
            }
            not => {
                self.discard(number);
                not.map(drop)
            }
        }
    }

    /// Removes a table that did not come into use. After a failed edit the manifest may name it,
    /// and the store takes no more writes: then the next open decides.
    pub(crate) fn discard(&self, number: u64) {
        if !self.standing.is_stopped() {
            let _ = self.files.remove(&table::path_of(self.path(), number));
        }
    }

    /// Writes the table. `None` if no item is left.
    fn write_flush(&self, bucket: &Bucket, number: u64) -> Result<Option<Written>, WriteError> {
        let memtable = Arc::clone(&bucket.frozen[0]);
        let snapshots = self.snapshots.in_use(&self.visible);
        let is_last = bucket.tables().next().is_none() && bucket.parent.is_none();
        let now_ms = self.settings.clock.now_ms();
        let mut items = Kept::new(memtable.cursor(), snapshots, is_last, now_ms);
        items.seek_first()?;
        if items.item().is_none() {
            return Ok(None);
        }
        self.standing.check_place(&self.directory)?;
        let path = table::path_of(self.path(), number);
        let file = self.files.create(&path).map_err(DiskError::room("create", &path))?;
        let mut writer =
            TableWriter::new(&*file, &path, number, table::options_of(0, self.settings.compress, self.id()));
        while let Some(item) = items.item() {
            writer.add(&item)?;
            items.next()?;
        }
        writer.finish()?;
        file.sync_data().map_err(DiskError::room("sync", &path))?;
        let bytes = file.length().map_err(DiskError::room("read", &path))?;
        self.counters.tables.fetch_add(bytes, Relaxed);
        Ok(Some(Written { number, bytes, bucket: bucket.id }))
    }

    /// Puts the table in the place of the MemTable. Returns whether it is in use.
    fn install_flush(
        &self,
        bucket: &Bucket,
        is_parent: bool,
        written: Option<Written>,
    ) -> Result<bool, WriteError> {
        let tables = self.open_tables(written.as_slice())?;
        let memtable = &bucket.frozen[0];
        let mut manifest = self.structure.lock();
        let state = self.state.load();
        let mut buckets = state.buckets.iter().chain(state.parents());
        if !buckets.any(|other| other.id == bucket.id) {
            // The store was cleared.
            return Ok(false);
        }
        let flushed = memtable.last_seq() + 1;
        let edit = Edit {
            added: tables.iter().map(|(to, table)| added(*to, 0, table, false)).collect(),
            // What a parent has not flushed comes back to its children.
            flushed: if is_parent || bucket.parent.is_some() {
                Vec::new()
            } else {
                vec![(bucket.id, flushed)]
            },
            written: self.counters.tables.load(Relaxed),
            ..Edit::default()
        };
        self.write_edit(&mut manifest, &edit)?;
        self.structure.change(&self.state, |state| {
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
    pub(crate) fn release_log(&self) -> Result<(), WriteError> {
        // ORDER: Acquire: an item with a lower number is in a MemTable of the state loaded next, or
        // in a table.
        let visible = self.visible.load(Acquire);
        let state = self.state.load();
        let in_memory = state.memtables().filter_map(|memtable| memtable.first_seq()).min();
        let first = in_memory.unwrap_or(visible + 1).min(self.refilled.load(Relaxed));
        match self.log.release(first) {
            // What was to be flushed is flushed. The next flush tries again.
            Err(DiskError::Full { .. }) => Ok(()),
            released => released.map_err(|error| self.standing.failed(error)),
        }
    }

    /// Freezes the MemTables that keep the tail of a log that has become too long. Where room is
    /// short, any tail is too long once nothing else is to do: merges give the room back that its
    /// removals are about, and the log its own.
    pub(crate) fn shorten_log(&self) {
        let is_short = !self.log.reserve().is_kept() && self.is_at_rest();
        if self.log.bytes() <= self.settings.log_bytes && !is_short {
            return;
        }
        let mut writer = self.writer();
        let state: Arc<State> = self.state.load_full();
        let oldest = state.buckets.iter().filter(|bucket| bucket.frozen.is_empty());
        let oldest = oldest.min_by_key(|bucket| bucket.active.first_seq().unwrap_or(u64::MAX));
        let Some(bucket) = oldest.filter(|bucket| !bucket.active.is_empty()) else { return };
        let has_few_tables = bucket.levels[0].tables.len() < 2 * MAX_COUNT;
        if !is_short || has_few_tables || bucket.active.memory() >= bucket.freeze_at / 8 {
            self.freeze(&mut writer, bucket.id);
        }
    }
}
