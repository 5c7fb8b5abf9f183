//! The store: its parts, and its locks.
//!
//! # Locks
//! In this order: that of the thread that reorganises, that of the one that flushes, the
//! manifest's, stripes in the order of their places, a seat's, the residents', that of unsynced
//! large values. The log has its own below all. The manifest's is held for the sync of an edit.
//! Nobody waits for room, or for the disk, with a stripe locked, but to read a cold record that
//! came into the way.

use crate::cache::Division;
use crate::open::TieredError;
use crate::shortage::Shortage;
use crate::space::memory::Memory;
use crate::space::record::LargeValue;
use crate::space::shares::Shares;
use crate::space::stripes::Stripes;
use crate::tier::edit::Name;
use crate::tier::read::{Blocks, Held};
use arc_swap::ArcSwap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use terrace_disk::{Directory, DiskError, Log, Manifest, Position, Tail};
use terrace_engine::Removals;
use terrace_engine::Retry;
use terrace_engine::Standing;
use terrace_engine::Watches;
use terrace_engine::{Clock, Durability, WriteError};
use terrace_index::Place;
use terrace_medium::files::{Files, StoredFile};

/// How a store is opened.
#[derive(Clone)]
pub struct Settings {
    /// How DRAM is divided.
    pub shares: Shares,
    /// Stripes of keys' locks: a power of two.
    pub stripes: usize,
    /// Keys that the index has room for at first.
    pub expected_keys: u64,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// Bytes of log from which on the blocks that keep its tail go to the tier.
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
    /// Settings for so many bytes of DRAM.
    pub fn with_dram(dram: u64, clock: Arc<dyn Clock>, chance: u64) -> Self {
        Self {
            shares: Shares::of(dram),
            stripes: 2048,
            expected_keys: 0,
            segment_bytes: (dram / 8).clamp(1 << 20, 64 << 20),
            log_bytes: (dram / 2).clamp(8 << 20, 4 << 30),
            durability: Durability::Process,
            interval_ms: 1000,
            read_only: false,
            clock,
            chance,
        }
    }
}

/// A store over DRAM and a slower tier, after HeterMM.
pub struct Tiered {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) directory: Directory,
    pub(crate) settings: Settings,
    pub(crate) memory: ArcSwap<Memory>,
    /// Makes the memory of an empty store.
    pub(crate) make: Make,
    pub(crate) blocks: Arc<Blocks>,
    /// Records that indexes have read when they grew.
    pub(crate) index_reads: Arc<AtomicU64>,
    pub(crate) stripes: Stripes,
    pub(crate) log: Log,
    /// Where the log ended when the store was opened, and what was torn behind that.
    pub(crate) log_start: Position,
    pub(crate) tail: Option<Tail>,
    pub(crate) next_seq: AtomicU64,
    /// The number of the next write when a thread last had nothing to do.
    pub(crate) seen_seq: AtomicU64,
    /// Everything with a lower number is gone.
    pub(crate) cleared_at: AtomicU64,
    /// Whether the open has not ended: DRAM does not have yet what the log and the tier have.
    pub(crate) is_recovering: AtomicBool,
    /// Whether a store without a log has let go of that of before.
    pub(crate) has_left_log: AtomicBool,
    pub(crate) manifest: Mutex<Option<Manifest>>,
    pub(crate) removals: Removals,
    pub(crate) watches: Arc<Watches>,
    /// Held by the thread that flushes, and by the one that reorganises.
    pub(crate) flushing: Mutex<()>,
    /// What has become of the background's flushes, and of its rewrites.
    pub(crate) flushes: Retry,
    pub(crate) rewrites: Retry,
    pub(crate) reorganising: Mutex<()>,
    /// What the last flush lacked, the last rewrite for a removal, and the last record of the log.
    pub(crate) unsealed: Shortage,
    pub(crate) unreclaimed: Shortage,
    pub(crate) unlogged: Shortage,
    /// Signalled when pages have become free.
    pub(crate) freed: Condvar,
    pub(crate) freed_lock: Mutex<()>,
    /// The number of the next file: the generation of a block, or a large value.
    pub(crate) next_file: AtomicU64,
    /// Large values that no live record names, and the numbers of their writes. They go once the
    /// log has these no more: until then an open looks for them.
    pub(crate) doomed: Mutex<Vec<(LargeValue, u64)>>,
    /// Bytes of those that have come since the log began a segment for them, and the number below
    /// which records are to be sealed for that.
    pub(crate) doomed_bytes: AtomicU64,
    pub(crate) seal_below: AtomicU64,
    /// Files of blocks that did not come into use. They may still be there, or come back when power
    /// fails.
    pub(crate) strays: Mutex<Vec<Name>>,
    pub(crate) division: Division,
    /// Looks at records when the division was thought over last.
    pub(crate) divided_at: AtomicU64,
    /// Where the sweep goes on.
    pub(crate) swept: Mutex<Place>,
    /// Files of large values that were written since the last sync of the log, by their numbers.
    pub(crate) unsynced: RwLock<Vec<(u64, Arc<dyn StoredFile>)>>,
    pub(crate) standing: Standing,
    pub(crate) synced_at: AtomicU64,
    pub(crate) chance: AtomicU64,
    pub(crate) counters: Counters,
    /// What the open has found damaged or lost.
    pub(crate) warnings: Vec<String>,
}

/// Makes an empty memory, whose index has room for so many keys.
pub(crate) type Make = Box<dyn Fn(u64) -> Result<Memory, TieredError> + Send + Sync>;

/// Numbers since the store was opened.
#[derive(Default)]
pub(crate) struct Counters {
    /// Bytes of keys and values that were written by users.
    pub(crate) written: AtomicU64,
    /// Bytes of keys and values that live records have, about.
    pub(crate) data: AtomicU64,
    /// Live records with an expiry, about.
    pub(crate) expiring: AtomicU64,
    pub(crate) expired: AtomicU64,
    /// Reads of the tier.
    pub(crate) cold_reads: AtomicU64,
    /// Writes in place and to new places.
    pub(crate) in_place: AtomicU64,
    pub(crate) appended: AtomicU64,
    /// Bytes that flushes and rewrites wrote to the tier.
    pub(crate) flushed_bytes: AtomicU64,
    pub(crate) rewritten_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) rewrites: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) stalled_ms: AtomicU64,
    pub(crate) skipped: AtomicU64,
}

impl Tiered {
    pub(crate) fn id(&self) -> u64 {
        self.directory.identity().store
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The memory that the store has now. Writers ask for it with their stripes locked.
    #[inline(always)]
    pub(crate) fn memory(&self) -> arc_swap::Guard<Arc<Memory>> {
        self.memory.load()
    }

    pub(crate) fn has_expired(&self, expires_at: Option<u64>) -> bool {
        expires_at.is_some_and(|at| self.settings.clock.has_come(at))
    }

    /// A number that nobody can guess.
    pub(crate) fn draw(&self) -> u64 {
        terrace_engine::mix(self.chance.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed))
    }

    pub(crate) fn manifest(&self) -> MutexGuard<'_, Option<Manifest>> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The block with this number on the tier.
    pub(crate) fn block(&self, number: u64) -> Option<Held> {
        self.blocks.get(number as usize)?.load_full()
    }

    /// All blocks on the tier.
    pub(crate) fn all_blocks(&self) -> impl Iterator<Item = Held> + '_ {
        let end = self.memory().pages.numbers.end() as usize;
        self.blocks[..end].iter().filter_map(|block| block.load_full())
    }

    /// Makes every write so far durable.
    pub(crate) fn sync_log(&self) -> Result<(), WriteError> {
        if self.settings.durability == Durability::None {
            return self.sync_large();
        }
        let synced = self.with_large_synced(|| self.log.sync(self.log.end()))?;
        synced.map_err(|error| self.standing.failed(error))
    }

    /// Syncs the files of large values that the log may name.
    pub(crate) fn sync_large(&self) -> Result<(), WriteError> {
        self.with_large_synced(|| ())
    }

    /// Syncs the files of large values that the log may name, and runs `sync`, which may make any
    /// record of the log durable. No large value comes into the log meanwhile; other threads may
    /// sync it, so that writers that wait for their records share a sync.
    pub(crate) fn with_large_synced<T>(&self, sync: impl FnOnce() -> T) -> Result<T, WriteError> {
        loop {
            let unsynced = self.unsynced.read().unwrap_or_else(PoisonError::into_inner);
            if !unsynced.is_empty() {
                drop(unsynced);
                self.sync_large_files()?;
                continue;
            }
            return Ok(sync());
        }
    }

    fn sync_large_files(&self) -> Result<(), WriteError> {
        let mut unsynced = self.unsynced.write().unwrap_or_else(PoisonError::into_inner);
        if unsynced.is_empty() {
            return Ok(());
        }
        let room = |error| self.standing.failed(DiskError::room("sync", self.path())(error));
        unsynced
            .iter()
            .try_for_each(|(_, file)| terrace_medium::files::StoredFile::sync(&**file))
            .map_err(room)?;
        self.files.sync_directory(self.path()).map_err(room)?;
        unsynced.clear();
        Ok(())
    }

    /// Waits until pages were freed, for `time` at most.
    pub(crate) fn wait_for_pages(&self, time: Duration) {
        let lock = self.freed_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.freed.wait_timeout(lock, time);
    }
}
