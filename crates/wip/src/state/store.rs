//! What readers, writers and jobs share: the parts of a store, and its locks.
//!
//! # Locks
//! In this order: the manifest's, the writer's, the structure's. The manifest's is held for the
//! sync of an edit and for the change of the state that follows from it, so edits and states have
//! one order. The writer's is held for no sync, but when the store is cleared or buckets are
//! joined. The structure's is held for a change of the state alone.

use crate::memtable::MemTable;
use crate::state::bell::Bell;
use crate::state::snapshots::Snapshots;
use crate::state::structure::Structure;
use crate::state::table::LEVELS;
use crate::state::{Bucket, State};
use arc_swap::{ArcSwap, Guard};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_disk::{Directory, Item, Log, TableCache};
use terrace_engine::Removals;
use terrace_engine::Standing;
use terrace_engine::Watches;
use terrace_engine::WriteError;
use terrace_engine::{Clock, Durability};
use terrace_medium::files::Files;

/// How a store is opened.
#[derive(Clone)]
pub struct Settings {
    /// Bytes of memory for MemTables and the block cache together.
    pub memory: u64,
    /// Bytes at which a MemTable is frozen, at most; drawn from half of it up for each.
    pub memtable_bytes: u64,
    /// Tables of a level that are merged into one of the next (the paper's T).
    pub fanout: u64,
    /// Buckets that a full one is split into (the paper's N).
    pub split_into: usize,
    /// Whether levels that are read often are compacted first (thesis 2.3.7).
    pub read_aware: bool,
    /// Whether blocks are compressed by LZ4.
    pub compress: bool,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// Bytes of log from which on the MemTables that keep its tail are flushed.
    pub log_bytes: u64,
    /// What a write survives when it returns, at first.
    pub durability: Durability,
    /// With [`Durability::Interval`], milliseconds after which the log is synced.
    pub interval_ms: u64,
    /// Whether nothing is changed.
    pub read_only: bool,
    /// Tells what has expired.
    pub clock: Arc<dyn Clock>,
    /// A number that nobody can guess, another one each time.
    pub chance: u64,
}

impl Settings {
    /// Settings for so many bytes of memory.
    pub fn with_memory(memory: u64, clock: Arc<dyn Clock>, chance: u64) -> Self {
        Self {
            memory,
            memtable_bytes: (memory / 48).clamp(64 << 10, 2 << 20),
            fanout: 8,
            split_into: 8,
            read_aware: true,
            compress: true,
            segment_bytes: 64 << 20,
            log_bytes: memory.clamp(128 << 20, 2 << 30),
            durability: Durability::Process,
            interval_ms: 1000,
            read_only: false,
            clock,
            chance,
        }
    }

    /// Bytes that a store keeps for removals and jobs, at first: a segment's worth of flushes.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.segment_bytes.min(self.log_bytes / 2)
    }

    /// Bytes of tables of a full bucket: of each level, as many tables as are merged into one of
    /// the next (thesis 2.3.5).
    pub(crate) fn bucket_bytes(&self) -> u64 {
        let of_level = |level| self.memtable_bytes * self.fanout.pow(level + 1);
        (0..LEVELS as u32).map(of_level).sum()
    }
}

/// The state that the store has, under the writer's lock.
pub(crate) type Present = Guard<Arc<State>>;

/// What the writer keeps.
pub(crate) struct Writer {
    pub(crate) next_seq: u64,
    /// What comes before values in the log; kept for its memory.
    pub(crate) heads: Vec<u8>,
}

/// What readers, writers and jobs share. It owns the directory, the log, the manifest, the present
/// state and the writer's lock. It knows neither the operations of the engine nor which job is due.
pub(crate) struct Store {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) directory: Directory,
    pub(crate) settings: Settings,
    pub(crate) cache: Arc<TableCache>,
    pub(crate) log: Log,
    /// The end of the last record that was appended to the log.
    pub(crate) appended: AtomicU64,
    pub(crate) state: ArcSwap<State>,
    /// The number of the last write that readers see.
    pub(crate) visible: AtomicU64,
    /// Everything with a lower number is gone.
    pub(crate) cleared_at: AtomicU64,
    pub(crate) snapshots: Snapshots,
    pub(crate) removals: Removals,
    pub(crate) watches: Arc<Watches>,
    /// Something has changed: there may be work, or room.
    pub(crate) bell: Bell,
    pub(crate) structure: Structure,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) standing: Standing,
    /// The last number that was drawn.
    pub(crate) chance: AtomicU64,
    /// While the store is opened, the number below which all items lie in tables and MemTables.
    pub(crate) refilled: AtomicU64,
    pub(crate) counters: Counters,
}

/// Numbers since the store was opened.
#[derive(Default)]
pub(crate) struct Counters {
    /// Bytes of keys and values that were written by users.
    pub(crate) written: AtomicU64,
    /// Writes that waited for flushes or merges, and for how many milliseconds.
    pub(crate) stalls: AtomicU64,
    pub(crate) stalled_ms: AtomicU64,
    /// Writes that were delayed by a millisecond, as flushes fell behind.
    pub(crate) delays: AtomicU64,
    /// Bytes that flushes and merges wrote to tables since the store was created, and before it was
    /// opened.
    pub(crate) tables: AtomicU64,
    pub(crate) tables_before: u64,
    /// Bytes of items that merges have read.
    pub(crate) merged: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) splits: AtomicU64,
    pub(crate) joins: AtomicU64,
    /// Records that scans and ranges have left out because of damage, each time they met it.
    pub(crate) skipped: AtomicU64,
}

impl Store {
    /// The number of the store, which all its files name.
    pub(crate) fn id(&self) -> u64 {
        self.directory.identity().store
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that nobody can guess.
    pub(crate) fn draw(&self) -> u64 {
        let drawn = self.chance.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        terrace_engine::mix(drawn)
    }

    /// An empty MemTable, and the bytes at which it is frozen.
    pub(crate) fn new_memtable(&self) -> (MemTable, u64) {
        let half = self.settings.memtable_bytes / 2;
        (MemTable::new(self.draw()), half + self.draw() % (half + 1))
    }

    /// Freezes the active MemTable of a bucket, and gives it an empty one. Called under the
    /// writer's lock.
    pub(crate) fn freeze(&self, _: &mut Writer, id: u64) {
        let (fresh, freeze_at) = self.new_memtable();
        self.structure.change(&self.state, |state| {
            let nth = state.position(id)?;
            let mut bucket = Bucket::clone(&state.buckets[nth]);
            if bucket.active.is_empty() {
                return None;
            }
            let full = std::mem::replace(&mut bucket.active, Arc::new(fresh));
            bucket.frozen.push(full);
            bucket.freeze_at = freeze_at;
            Some(state.with(bucket))
        });
        self.bell.ring();
    }

    /// Adds an item to the MemTable of its bucket, which is frozen first if it has no room. `state`
    /// is the present state, and stays so: what is frozen takes no more items.
    pub(crate) fn add_item(&self, writer: &mut Writer, state: &mut Present, item: &Item<'_>) {
        if state.bucket(item.key).active.add(item) {
            return;
        }
        self.freeze(writer, state.bucket(item.key).id);
        *state = self.state.load();
        let is_added = state.bucket(item.key).active.add(item);
        assert!(is_added, "an empty MemTable has room for an item");
    }

    /// Whether no key of these has been written behind the number `since`. Called under the
    /// writer's lock. May say no for a key that has not: then the caller tries again.
    pub(crate) fn are_unchanged<'k>(
        &self,
        state: &State,
        since: u64,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        self.cleared_at.load(Relaxed) <= since
            && keys.all(|key| !state.bucket(key).may_have_changed(key, since))
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

    /// Bytes of frozen MemTables from which on writes wait.
    pub(crate) fn frozen_max(&self) -> u64 {
        self.settings.memory / 4
    }

    /// Bytes of MemTables that are to be flushed.
    pub(crate) fn frozen_bytes(&self) -> u64 {
        self.state.load().frozen_bytes
    }
}
