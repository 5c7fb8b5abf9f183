//! A store on a disk.

use super::Store;
use crate::{KeyRange, WriteError};
use std::path::Path;

impl Store {
    /// Whether the store lies in the files of a directory, not in a pool.
    pub fn is_on_disk(&self) -> bool {
        self.inner.engine.on_disk().is_some()
    }

    /// The end of the log that an open of a store in a directory has found torn, and dropped, in
    /// one sentence. `None` unless sound records lie in it: a crash of the machine may leave such,
    /// and so may damage.
    pub fn torn_tail(&self) -> Option<String> {
        let tail = self.inner.engine.on_disk()?.torn_tail().filter(|tail| tail.records > 0)?;
        Some(tail.to_string())
    }

    /// Makes a copy of the store, as it is at one instant, in a new directory on the same file
    /// system. Takes milliseconds, and no room but for what the store removes later, since its
    /// files are links. The copy is a store like any other.
    ///
    /// ```
    /// use terrace::Store;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let (path, copy) = (directory.path().join("data"), directory.path().join("copy"));
    /// let store = Store::options().directory(&path).create()?;
    /// store.put("key", "then")?;
    /// store.checkpoint(&copy)?;
    /// store.put("key", "now")?;
    /// assert_eq!(Store::options().directory(&copy).open()?.get("key")?.unwrap(), b"then");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is something at `directory`, a file cannot be linked, or the store lies in a pool.
    pub fn checkpoint(&self, directory: impl AsRef<Path>) -> Result<(), WriteError> {
        self.inner.on_disk()?.checkpoint(directory.as_ref())
    }

    /// Merges all tables that have keys of this range, so that what was overwritten or removed
    /// takes no room. Writes all data of the range anew.
    ///
    /// # Errors
    /// A file cannot be read or written, or the store lies in a pool.
    pub fn compact_range(&self, keys: impl KeyRange) -> Result<(), WriteError> {
        let (from, to) = keys.bounds();
        self.inner.on_disk()?.compact(from, to)
    }

    /// How many tables a store on a disk keeps open for reads, about, at most; `None` of any other.
    pub fn open_tables(&self) -> Option<u64> {
        self.inner.engine.on_disk()?.most_open()
    }
}
