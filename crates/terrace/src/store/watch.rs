//! Waiting for changes of keys.

use super::Store;
use crate::WatchError;
use std::time::Duration;
use terrace_engine::WatchHandle;

impl Store {
    /// A watch of the keys that begin with `prefix`, for changes by any process or thread. Create
    /// the watch first, then read, then wait: then no change is missed.
    ///
    /// It reports that something has changed, not what: read the keys again. Only the first 40
    /// bytes of the prefix count, so a change of another key that shares them is reported as well.
    /// An expired key has changed once it has been removed, usually within a second. A write costs
    /// nothing extra while there is no watch.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let store = terrace::Store::options().anonymous().create()?;
    /// let mut watch = store.watch(b"job:")?;
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| store.put(b"job:7", b"ready"));
    ///     while store.get(b"job:7")?.is_none() {
    ///         watch.wait(Duration::from_secs(60));
    ///     }
    ///     Ok::<(), terrace::ReadError>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The pool's watches, usually 64 over all processes, are all in use.
    pub fn watch(&self, prefix: impl AsRef<[u8]>) -> Result<Watch, WatchError> {
        let prefix = prefix.as_ref();
        Ok(Watch { watching: self.inner.engine.watch(prefix)?, _store: self.clone() })
    }
}

/// Reports changes of keys with a prefix; from [`Store::watch`]. It is a handle of the store and
/// keeps it open.
pub struct Watch {
    watching: Box<dyn WatchHandle>,
    _store: Store,
}

impl Watch {
    /// Whether a key has changed since the watch was created, or since the last report. Never
    /// waits.
    pub fn has_changed(&mut self) -> bool {
        self.watching.has_changed()
    }

    /// Waits until a key has changed since the watch was created, or since the last report, for
    /// `time` at most. Returns whether one has.
    pub fn wait(&mut self, time: Duration) -> bool {
        self.watching.wait(time)
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
