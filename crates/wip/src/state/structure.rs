//! Changes of the structure: edits of the manifest, and the states that follow from them.

use crate::state::edit::{Added, Edit, NewBucket};
use crate::state::store::Store;
use crate::state::{Bucket, State};
use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_disk::Manifest;
use terrace_engine::WriteError;

/// Bytes of the manifest from which on it is written anew, if that makes it less than half as long.
const MANIFEST_BYTES: u64 = 1 << 20;

/// The manifest and the lock of the state.
pub(crate) struct Structure {
    /// `None` if the store is open read-only.
    manifest: Mutex<Option<Manifest>>,
    change: Mutex<()>,
    /// The next number of a table or a bucket.
    next_number: AtomicU64,
}

/// The manifest, locked.
pub(crate) type Locked<'s> = MutexGuard<'s, Option<Manifest>>;

impl Structure {
    pub(crate) fn new(manifest: Option<Manifest>, next_number: u64) -> Self {
        Self { manifest: Mutex::new(manifest), change: Mutex::default(), next_number: next_number.into() }
    }

    /// A number that no table and no bucket has.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Relaxed)
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the state that `change` makes of the present one, unless it makes none.
    pub(crate) fn change(&self, state: &ArcSwap<State>, change: impl FnOnce(&State) -> Option<State>) {
        let _locked = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(new) = change(&state.load()) {
            state.store(Arc::new(new));
        }
    }
}

impl Store {
    /// Makes an edit durable. A failure stops all writes: what the manifest has is unknown then.
    pub(crate) fn write_edit(&self, manifest: &mut Locked<'_>, edit: &Edit) -> Result<(), WriteError> {
        let manifest = manifest.as_mut().ok_or(WriteError::ReadOnly)?;
        self.standing.check_writable()?;
        self.standing.check_place(&self.directory)?;
        if manifest.bytes() > MANIFEST_BYTES {
            let whole = self.whole();
            if (whole.to_bytes().len() as u64) < MANIFEST_BYTES / 2 || manifest.bytes() > 64 * MANIFEST_BYTES
            {
                manifest
                    .rewrite(&mut std::iter::once(whole.to_bytes()))
                    .map_err(|error| self.standing.failed(error))?;
            }
        }
        manifest.append(&edit.to_bytes()).map_err(|error| self.standing.failed(error))
    }

    /// An edit that makes the present structure out of nothing. Called under the manifest's lock.
    pub(crate) fn whole(&self) -> Edit {
        let state = self.state.load();
        let mut edit = Edit { cleared: Some(self.cleared_at.load(Relaxed)), ..Edit::default() };
        let mut parents = BTreeMap::new();
        for bucket in &state.buckets {
            if let Some(parent) = &bucket.parent {
                parents.insert(parent.id, Arc::clone(parent));
            }
        }
        // A parent comes before its children, with the lowest key of the first one.
        for bucket in parents.values().chain(&state.buckets) {
            let parent = bucket.parent.as_ref().map(|parent| parent.id);
            edit.buckets.push(NewBucket { id: bucket.id, low: bucket.low.to_vec(), parent });
            for (level, tables) in bucket.levels.iter().enumerate() {
                edit.added
                    .extend(tables.tables.iter().map(|table| Added::of(bucket.id, level, table, false)));
            }
            edit.flushed.push((bucket.id, bucket.flushed));
        }
        edit.written = self.counters.tables.load(Relaxed);
        edit
    }

    /// Makes every write so far durable.
    pub(crate) fn sync_log(&self) -> Result<(), WriteError> {
        // ORDER: Acquire: pairs with the Release of `append`.
        let appended = self.appended.load(Acquire);
        let synced = self.log.sync(appended.max(self.log.end()));
        // If a record was taken out, so were all behind it.
        self.check_log(appended)?;
        synced.map_err(|error| self.standing.failed(error))
    }

    /// Stops all writes if the log lacks the record that ends at `end`. On a file system that
    /// writes to another place each time, it may have been taken out for lack of room; but readers
    /// see its items.
    pub(crate) fn check_log(&self, end: u64) -> Result<(), WriteError> {
        self.log.has(end).map_err(|error| {
            self.standing.stop(error.to_string());
            error.into()
        })
    }

    /// Removes everything. That makes room, so it gets what is kept for such.
    pub(crate) fn clear_all(&self) -> Result<(), WriteError> {
        self.with_reserve(|| self.try_clear())?;
        self.fit_reserve();
        Ok(())
    }

    /// Removes everything: one edit, and an empty state.
    fn try_clear(&self) -> Result<(), WriteError> {
        self.standing.check_writable()?;
        let mut manifest = self.structure.lock();
        let mut writer = self.writer();
        self.standing.check_writable()?;
        let (id, cleared_at) = (self.structure.number(), writer.next_seq);
        debug_assert!(cleared_at > self.visible.load(Relaxed), "all that is visible goes");
        let buckets = vec![NewBucket { id, low: Vec::new(), parent: None }];
        // The log first: after a crash a lower number would be given again.
        self.sync_log()?;
        let edit = Edit { cleared: Some(cleared_at), buckets, ..Edit::default() };
        self.write_edit(&mut manifest, &edit)?;
        self.clear_state(id, cleared_at);
        // The clear has a number of its own, so what was read before it is told from what was read
        // after it.
        writer.next_seq = cleared_at + 1;
        // ORDER: Release: a reader that sees this number sees the empty state.
        self.visible.store(cleared_at, Release);
        if let Some(end) = self.log.note_clear(cleared_at).map_err(|error| self.standing.failed(error))? {
            // ORDER: Release: as in `append`.
            self.appended.store(end, Release);
        }
        Ok(())
    }

    fn clear_state(&self, id: u64, cleared_at: u64) {
        let (fresh, freeze_at) = self.new_memtable();
        self.removals.count_all();
        self.cleared_at.store(cleared_at, Relaxed);
        self.structure.change(&self.state, |state| {
            let parents = state.buckets.iter().filter_map(|bucket| bucket.parent.as_ref());
            let all = state.buckets.iter().chain(parents);
            all.flat_map(|bucket| bucket.tables()).for_each(|(_, table)| table.remove());
            let bucket = Bucket::new(id, &[], (fresh, freeze_at), cleared_at);
            Some(State::new(vec![Arc::new(bucket)]))
        });
        self.watches.report_all();
    }
}
