//! The store.
//!
//! `Inner` owns the engine and the background threads; below it stands the engine alone. [`Store`]
//! is a handle of it, and each file here has the operations of one purpose: `read.rs`, `write.rs`,
//! `modify.rs` (one key's entry, changed), `transact.rs` (several keys at one instant),
//! `ranges.rs`, `iter.rs`, `watch.rs`, and `durability.rs`. Handles of their own have `disk.rs`,
//! `opening.rs`, `eviction.rs`, `sharing.rs` and `upkeep.rs`.

mod disk;
mod durability;
mod eviction;
mod iter;
mod modify;
mod opening;
mod ranges;
mod read;
mod sharing;
mod transact;
mod upkeep;
mod watch;
mod write;

pub use disk::Disk;
pub use eviction::Evictor;
pub use iter::{Iter, Keys};
pub use opening::Opening;
pub use sharing::Sharing;
pub use upkeep::Upkeep;
pub use watch::Watch;

use crate::CloseError;
use crate::background::Background;
use crate::salvaged::Salvaged;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use terrace_engine::{Durably, Engine, Pooled};

/// A key-value store in a pool.
///
/// Clones are handles of the same store; it is closed when the last one is dropped. All operations
/// may be called from any thread. Each happens at one instant, and when it has returned, it
/// survives what the store's [`Durability`](crate::Durability) says. An expired entry is absent for
/// all of them.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
    /// How durable a write of this handle is when it returns.
    how: Durably,
}

/// A reference to a [`Store`] that does not keep it open.
#[derive(Clone)]
pub struct WeakStore {
    inner: Weak<Inner>,
    how: Durably,
}

impl WeakStore {
    /// The store, if it is open.
    pub fn upgrade(&self) -> Option<Store> {
        Some(Store { inner: self.inner.upgrade()?, how: self.how })
    }
}

impl std::fmt::Debug for WeakStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakStore")
    }
}

/// What all handles share. It stands on the engine, and knows nothing of its kind.
struct Inner {
    // Dropped before `engine`, so that no thread runs when the pool is closed.
    background: Background,
    engine: Arc<dyn Engine>,
    path: Option<PathBuf>,
    salvaged: Option<Salvaged>,
}

impl Inner {
    /// The operations of a store in a pool.
    fn pooled(&self) -> Option<&dyn Pooled> {
        self.engine.pooled()
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("path", &self.inner.path)
            .field("records", &self.len())
            .finish_non_exhaustive()
    }
}

impl Store {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        background: Background,
        path: Option<PathBuf>,
        salvaged: Option<Salvaged>,
    ) -> Self {
        let inner = Arc::new(Inner { background, engine, path, salvaged });
        Self { inner, how: Durably::Store }
    }

    /// A reference that does not keep the store open.
    pub fn downgrade(&self) -> WeakStore {
        WeakStore { inner: Arc::downgrade(&self.inner), how: self.how }
    }

    /// Another handle of this store, whose writes return once they are visible; [`Store::settle`]
    /// makes them durable, together with others. In a pool, they are durable at once.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// let later = store.deferring();
    /// later.put("a", "1")?;
    /// later.put("b", "2")?;
    /// store.settle(store.ticket())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn deferring(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), how: Durably::Later }
    }

    /// The pool's file; `None` for anonymous memory.
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// Closes the store. Returns whether everything reached its file; dropping the last handle does
    /// the same without a result.
    ///
    /// # Errors
    /// Another handle exists; it closes the store when it is dropped. Or, in a shared store, a
    /// thread of the store has waited for two seconds for another process, which is stopped: the
    /// error names that process, and the store is closed when the thread ends. Or this process is a
    /// child of the one that has opened the store: only that one can close it.
    pub fn close(self) -> Result<(), CloseError> {
        if let Err(forked) = self.inner.background.check_process() {
            return Err(CloseError::Failed(Box::new(forked)));
        }
        let mut inner = Arc::into_inner(self.inner).ok_or(CloseError::StillOpen)?;
        if let Some(holder) = inner.background.end() {
            return Err(CloseError::BlockedBy(holder));
        }
        drop(inner.background);
        Ok(inner.engine.close()?)
    }
}
