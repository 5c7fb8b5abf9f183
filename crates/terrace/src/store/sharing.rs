//! Other processes: those that share the store, and those that only look for it.

use super::{Inner, Store};
use crate::Holder;
use crate::background::is_another_stopped;

impl Store {
    /// The other processes that share the store, and what concerns them: see
    /// [`Options::shared`](crate::Options::shared).
    pub fn sharing(&self) -> Sharing<'_> {
        Sharing { inner: &self.inner }
    }
}

/// The processes that share a store; from [`Store::sharing`].
///
/// ```
/// let store = terrace::Store::options().anonymous().create()?;
/// assert!(store.sharing().other_processes().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Sharing<'s> {
    inner: &'s Inner,
}

impl Sharing<'_> {
    /// The other processes that have the store open now.
    pub fn other_processes(&self) -> Vec<Holder> {
        self.inner.other_processes()
    }

    /// Recovers now what dead processes of a shared store held, including their memory. Returns the
    /// number of dead processes.
    ///
    /// A thread of the store does so ten times a second, so this is rarely needed. While this
    /// thread holds an entry, or another process is stopped and may hold one, the memory is left to
    /// that thread.
    pub fn recover_dead(&self) -> u32 {
        self.inner.recover_dead()
    }

    /// Posts `text` for processes that have not opened the store, and replaces an earlier notice;
    /// [`notices`](crate::notices) reads it. A server posts its addresses. The notice is valid
    /// while this process has the store open. Returns whether there was room: for
    /// [`NOTICE_MAX`](crate::NOTICE_MAX) bytes, and for the first 14 processes that share a store.
    pub fn post_notice(&self, text: &str) -> bool {
        match self.inner.engine.on_disk() {
            Some(disk) => text.len() <= crate::NOTICE_MAX && disk.post_notice(text),
            None => self.inner.pooled().is_some_and(|pool| pool.post_notice(text)),
        }
    }
}

impl Inner {
    pub(super) fn other_processes(&self) -> Vec<Holder> {
        self.pooled().map_or_else(Vec::new, |pool| pool.other_processes())
    }

    pub(super) fn recover_dead(&self) -> u32 {
        let Some(pool) = self.pooled() else { return 0 };
        if self.engine.keeps_entries() {
            return pool.recover_dead();
        }
        // A recovery that the store's own thread has begun is complete when this returns.
        let _paused = self.background.pause();
        let dead = pool.recover_dead();
        if pool.needs_collection() {
            pool.collect(&|| is_another_stopped(&*self.engine));
        }
        dead
    }
}

impl std::fmt::Debug for Sharing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sharing")
    }
}
