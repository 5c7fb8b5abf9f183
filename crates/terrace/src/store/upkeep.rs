//! Upkeep of a store: statistics, checks, growth, and the work that its threads do by themselves.

use super::{Inner, Store};
use crate::{ByteSize, GrowError, HugePages, Report, Stats};
use terrace_pool::Forked;

impl Store {
    /// Statistics of the store. In a child of the process that has opened it, all are 0.
    pub fn stats(&self) -> Stats {
        match self.inner.background.check_process() {
            Ok(()) => self.inner.engine.stats(),
            Err(Forked) => Stats::new(0, 0, 0),
        }
    }

    /// Checks everything in the store against its checksums and invariants. No other thread may
    /// write meanwhile. Waits for the store's own threads, and pauses them.
    ///
    /// In a child of the process that has opened the store, nothing is checked, and the one finding
    /// says so. If other processes have the store open, or this thread holds an entry of it, only
    /// the records are checked, while others work; the report says so. Calls `progress` with the
    /// number of records checked and of all records.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        let inner = &*self.inner;
        if let Err(forked) = inner.background.check_process() {
            return Report::in_child(forked);
        }
        // The concurrent check needs no pause, and a thread of the store may be waiting for a
        // stopped process.
        if inner.engine.keeps_entries() || !inner.other_processes().is_empty() {
            return inner.engine.check_records(progress);
        }
        let _paused = inner.background.pause();
        inner.engine.check(progress)
    }

    /// The work that the store's threads do in the background, for callers that do it themselves.
    pub fn upkeep(&self) -> Upkeep<'_> {
        Upkeep { inner: &self.inner }
    }
}

/// The work that a store in a pool has beside reads and writes; from [`Store::upkeep`]. The store's
/// threads do it, unless [`Options`](crate::Options) turn them off.
///
/// ```
/// let store = terrace::Store::options().anonymous().expiry_thread(false).create()?;
/// assert_eq!(store.upkeep().sweep_expired(1000), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Upkeep<'s> {
    inner: &'s Inner,
}

impl Upkeep<'_> {
    /// Grows the pool to `size` bytes while it is in use, and returns its new size. No data moves.
    pub fn grow(&self, size: ByteSize) -> Result<ByteSize, GrowError> {
        let pool = self.inner.pooled().ok_or(GrowError::NoPool)?;
        Ok(pool.grow(size.as_bytes()).map(ByteSize::bytes)?)
    }

    /// The time that decides what has expired, in unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.inner.engine.now_ms()
    }

    /// Removes expired entries and returns how many. Reads at most `budget` entries, fewer if few
    /// expire. Call it repeatedly unless [`Options::expiry_thread`](crate::Options::expiry_thread)
    /// does so.
    pub fn sweep_expired(&self, budget: usize) -> u64 {
        self.inner.pooled().map_or(0, |pool| pool.sweep_expired(budget))
    }

    /// Moves a bounded number of entries together where much memory between them is unused. Returns
    /// whether that has freed memory. Call it repeatedly unless
    /// [`Options::expiry_thread`](crate::Options::expiry_thread) does so. A write that finds the
    /// pool full does as much of this as it needs.
    pub fn compact(&self) -> bool {
        self.inner.pooled().is_some_and(|pool| pool.compact())
    }

    /// Moves every entry, even where nothing is gained. For tests.
    #[doc(hidden)]
    pub fn move_all(&self) {
        self.inner.pooled().into_iter().for_each(|pool| pool.move_all());
    }

    /// How much of the pool lies on huge pages, as the kernel reports it. Reads a file of the
    /// kernel, so do not call it every second.
    pub fn huge_pages(&self) -> std::io::Result<HugePages> {
        self.inner.pooled().ok_or(std::io::ErrorKind::Unsupported)?.huge_pages()
    }

    /// Moves used memory to huge pages now, where the kernel can. Takes some seconds per GiB. With
    /// [`Options::huge_pages`](crate::Options::huge_pages), this happens in the background.
    pub fn collapse_huge_pages(&self) {
        let Some(pool) = self.inner.pooled() else { return };
        let mut from = Some(0);
        while let Some(at) = from {
            from = pool.collapse_step(at);
        }
    }

    /// Waits until the background collection after an unclean stop is complete.
    pub fn wait_until_collected(&self) {
        self.inner.background.wait_until_collected();
    }

    /// Recovers what dead processes held, and then counts the memory that the store can reach and
    /// that its pool has allocated. No other process may work meanwhile. For tests.
    #[doc(hidden)]
    pub fn memory(&self) -> terrace_engine::Memory {
        self.inner.recover_dead();
        let _paused = self.inner.background.pause();
        self.inner.pooled().expect("a store in a pool").memory()
    }
}

impl std::fmt::Debug for Upkeep<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Upkeep")
    }
}
