//! Stores on a disk.

use crate::options::{Engine, How, Options};
use crate::{Durability, KeyRange, OpenError, Store, WriteError};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use terrace_disk::Directory;
use terrace_engine::wip::{Settings, Wip};
use terrace_engine::{Engine as AnyEngine, OnDisk, Salvage};
use terrace_medium::files::SystemFiles;

impl Options {
    /// Whether the store lies in files: a directory does, whatever the option.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.engine == Engine::Wip || self.path.as_deref().is_some_and(Path::is_dir)
    }

    pub(crate) fn disk_engine(&self, how: How) -> Result<Arc<dyn AnyEngine>, OpenError> {
        let path = self.path.as_deref().ok_or(OpenError::NoPath)?;
        if self.durability == Durability::None {
            return Err(OpenError::Durability(self.durability));
        }
        // Seeds of hash tables, and the store's identity: the standard library's are random.
        let chance = RandomState::new().hash_one(std::process::id());
        let memory = self.memory.as_bytes();
        let mut settings = Settings::with_memory(memory, Arc::clone(&self.clock), chance);
        settings.durability = self.durability;
        settings.read_only = self.read_only;
        settings.read_aware = self.read_aware;
        settings.interval_ms = u64::try_from(self.sync_interval.as_millis()).unwrap_or(u64::MAX);
        let open = || Wip::open(SystemFiles, path, settings.clone());
        let create = || Wip::create(SystemFiles, path, settings.clone());
        let store = match how {
            How::Open => open(),
            How::Create => create(),
            How::OpenOrCreate if Wip::exists(&SystemFiles, path)? => open(),
            How::OpenOrCreate => create(),
        }?;
        Ok(Arc::new(store))
    }
}

/// The notice of the process that has the store at `path` open.
pub(crate) fn notice(path: &Path) -> Option<String> {
    Directory::notice(&SystemFiles, path)
}

/// Visits what is sound of the store at `path`, and what is not.
pub(crate) fn salvage(path: &Path, each: &mut Salvage<'_>) -> Result<(), OpenError> {
    Ok(Wip::salvage_from(&SystemFiles, path, each)?)
}

impl Store {
    /// The operations of a store on a disk.
    ///
    /// # Errors
    /// The store lies in a pool.
    fn disk(&self) -> Result<&dyn OnDisk, WriteError> {
        self.engine().on_disk().ok_or(WriteError::NotOnDisk)
    }

    /// Whether the store lies in the files of a directory, not in a pool.
    pub fn is_on_disk(&self) -> bool {
        self.engine().on_disk().is_some()
    }

    /// Writes what is only in memory and in the log to tables. Not needed for durability; the next
    /// open is faster after it.
    ///
    /// # Errors
    /// A file cannot be written, or the store lies in a pool.
    pub fn flush(&self) -> Result<(), WriteError> {
        self.disk()?.flush()
    }

    /// Makes every write so far survive a loss of power, whatever the store's durability.
    ///
    /// # Errors
    /// A file cannot be written, or the store lies in a pool.
    pub fn sync(&self) -> Result<(), WriteError> {
        self.disk()?.sync()
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
        self.disk()?.checkpoint(directory.as_ref())
    }

    /// Merges all tables that have keys of this range, so that what was overwritten or removed
    /// takes no room. Writes all data of the range anew.
    ///
    /// # Errors
    /// A file cannot be read or written, or the store lies in a pool.
    pub fn compact_range(&self, keys: impl KeyRange) -> Result<(), WriteError> {
        let (from, to) = keys.bounds();
        self.disk()?.compact(from, to)
    }

    /// Sets what a write of a store on a disk survives from now on, when it has returned.
    ///
    /// # Errors
    /// [`Durability::None`], or the store lies in a pool.
    pub fn set_durability(&self, durability: Durability) -> Result<(), WriteError> {
        if durability == Durability::None {
            return Err(WriteError::Durability { asked: durability, most: Durability::Power });
        }
        self.disk()?.set_durability(durability);
        Ok(())
    }
}
