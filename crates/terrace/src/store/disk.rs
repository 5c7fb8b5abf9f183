//! A store on a disk.

use super::{Inner, Store};
use crate::{Durability, KeyRange, WriteError};
use std::path::Path;
use terrace_engine::OnDisk;

impl Store {
    /// Whether the store lies in the files of a directory, not in a pool.
    pub fn is_on_disk(&self) -> bool {
        self.inner.engine.on_disk().is_some()
    }

    /// The operations that only a store on a disk has.
    ///
    /// # Errors
    /// The store lies in a pool.
    pub fn disk(&self) -> Result<Disk<'_>, WriteError> {
        Ok(Disk { engine: self.inner.on_disk()? })
    }
}

impl Inner {
    fn on_disk(&self) -> Result<&dyn OnDisk, WriteError> {
        self.engine.on_disk().ok_or(WriteError::NotOnDisk)
    }
}

/// The operations that only a store on a disk has; from [`Store::disk`].
///
/// ```
/// use terrace::Store;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// let store = Store::options().directory(&path).create()?;
/// store.put("key", "value")?;
/// store.disk()?.sync()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Disk<'s> {
    engine: &'s dyn OnDisk,
}

impl Disk<'_> {
    /// Sets what a write survives from now on, when it has returned.
    ///
    /// # Errors
    /// [`Durability::None`], or more than the store's pool keeps.
    pub fn set_durability(&self, durability: Durability) -> Result<(), WriteError> {
        if durability == Durability::None {
            return Err(WriteError::Durability { asked: durability, most: Durability::Power });
        }
        let most = self.engine.most();
        if durability > most {
            return Err(WriteError::Durability { asked: durability, most });
        }
        self.engine.set_durability(durability);
        Ok(())
    }

    /// Makes every write so far survive a loss of power, whatever the store's durability.
    ///
    /// # Errors
    /// A file cannot be written, or the store's pool keeps nothing through a loss of power.
    pub fn sync(&self) -> Result<(), WriteError> {
        self.engine.sync()
    }

    /// Writes what is only in memory and in the log to tables. Not needed for durability; the next
    /// open is faster after it.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn flush(&self) -> Result<(), WriteError> {
        self.engine.flush()
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
    /// store.disk()?.checkpoint(&copy)?;
    /// store.put("key", "now")?;
    /// assert_eq!(Store::options().directory(&copy).open()?.get("key")?.unwrap(), b"then");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is something at `directory`, or a file cannot be linked.
    pub fn checkpoint(&self, directory: impl AsRef<Path>) -> Result<(), WriteError> {
        self.engine.checkpoint(directory.as_ref())
    }

    /// Merges all tables that have keys of this range, so that what was overwritten or removed
    /// takes no room. Writes all data of the range anew.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn compact_range(&self, keys: impl KeyRange) -> Result<(), WriteError> {
        let (from, to) = keys.bounds();
        self.engine.compact(from, to)
    }

    /// How many tables the store keeps open for reads, about, at most; `None` of an engine without
    /// tables.
    pub fn open_tables(&self) -> Option<u64> {
        self.engine.most_open()
    }
}

impl std::fmt::Debug for Disk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}
