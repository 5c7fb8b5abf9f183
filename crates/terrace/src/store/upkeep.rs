//! Upkeep of a store: statistics, checks, memory, and the other processes that share it.

use super::Store;
use crate::background::is_another_stopped;
use crate::{ByteSize, GrowError, Holder, HugePages, Report, Stats};
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
        if inner.engine.keeps_entries() || !self.other_processes().is_empty() {
            return inner.engine.check_records(progress);
        }
        let _paused = inner.background.pause();
        inner.engine.check(progress)
    }

    /// Grows the pool to `size` bytes while it is in use, and returns its new size. No data moves.
    pub fn grow(&self, size: ByteSize) -> Result<ByteSize, GrowError> {
        let pool = self.inner.pooled().ok_or(GrowError::NoPool)?;
        Ok(pool.grow(size.as_bytes()).map(ByteSize::bytes)?)
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

    /// The other processes that share the store now: see
    /// [`Options::shared`](crate::Options::shared).
    pub fn other_processes(&self) -> Vec<Holder> {
        self.inner.pooled().map_or_else(Vec::new, |pool| pool.other_processes())
    }

    /// Posts `text` for processes that have not opened the store, and replaces an earlier notice;
    /// [`notices`](crate::notices) reads it. A server posts its addresses. The notice is valid
    /// while this process has the store open. Returns whether there was room: for
    /// [`NOTICE_MAX`](crate::NOTICE_MAX) bytes, and for the first 14 processes that share a store.
    pub fn post_notice(&self, text: &str) -> bool {
        let engine = &self.inner.engine;
        match engine.on_disk() {
            Some(disk) => text.len() <= crate::NOTICE_MAX && disk.post_notice(text),
            None => self.inner.pooled().is_some_and(|pool| pool.post_notice(text)),
        }
    }

    /// Recovers now what dead processes of a shared store held, including their memory. Returns the
    /// number of dead processes.
    ///
    /// A thread of the store does so ten times a second, so this is rarely needed. While this
    /// thread holds an entry, or another process is stopped and may hold one, the memory is left to
    /// that thread.
    pub fn recover_dead(&self) -> u32 {
        let Some(pool) = self.inner.pooled() else { return 0 };
        if self.inner.engine.keeps_entries() {
            return pool.recover_dead();
        }
        // A recovery that the store's own thread has begun is complete when this returns.
        let _paused = self.inner.background.pause();
        let dead = pool.recover_dead();
        if pool.needs_collection() {
            pool.collect(&|| is_another_stopped(&*self.inner.engine));
        }
        dead
    }

    /// Recovers what dead processes held, and then counts the memory that the store can reach and
    /// that its pool has allocated. No other process may work meanwhile. For tests.
    #[doc(hidden)]
    pub fn memory(&self) -> terrace_engine::Memory {
        self.recover_dead();
        let _paused = self.inner.background.pause();
        self.inner.pooled().expect("a store in a pool").memory()
    }

    /// Waits until the background collection after an unclean stop is complete.
    pub fn wait_until_collected(&self) {
        self.inner.background.wait_until_collected();
    }
}
