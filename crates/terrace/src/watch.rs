//! Waiting for keys to change.

use crate::{Store, WatchError};
use std::time::Duration;
use terrace_engine::Watching;

impl Store {
    /// A watch of the keys that begin with `prefix`, whichever process or thread changes them. Ask for it first, then read, then wait: so no change is missed.
    ///
    /// It says that something has changed, not what: read what you wanted to know. Of the prefix 40 bytes count, so of a longer one, keys that share these wake it, too. A key
    /// that expires has changed once it has been swept away, mostly within a second. Without anybody who watches, a write pays nothing for it.
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
    /// If the pool's watches are all in use, mostly 64, those of all processes counted.
    pub fn watch(&self, prefix: impl AsRef<[u8]>) -> Result<Watch, WatchError> {
        let prefix = prefix.as_ref();
        Ok(Watch { watching: self.engine().watch(prefix)?, _store: self.clone() })
    }
}

/// Says when keys with a prefix have changed; from [`Store::watch`]. It is a handle to the store: that stays open meanwhile.
pub struct Watch {
    watching: Box<dyn Watching>,
    _store: Store,
}

impl Watch {
    /// Whether something has changed since the watch was made, or since it last said so. Never waits.
    pub fn has_changed(&mut self) -> bool {
        self.watching.has_changed()
    }

    /// Waits until something has changed since the watch was made, or since it last said so, but for `time` at most. Whether something has.
    pub fn wait(&mut self, time: Duration) -> bool {
        self.watching.wait(time)
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
