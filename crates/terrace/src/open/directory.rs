//! Stores on a disk.

use crate::options::{Engine, How, Options};
use crate::{ByteSize, Durability, Index, KeyRange, OpenError, Store, WriteError};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use terrace_disk::{BoundedFiles, Directory, DiskError};
use terrace_engine::{Engine as AnyEngine, OnDisk, Salvage};
use terrace_index::{PointIndex, Stored, hash};
use terrace_medium::files::{Files, SystemFiles};
use terrace_medium::{Dram, MappedMedium};
use terrace_tier::PoolFiles;
use terrace_tiered::{Tiered, TieredError};
use terrace_wip::{Settings, Wip};

/// Bounds of the tables that a store keeps open for reads.
const OPEN_TABLES_MIN: u64 = 16;
const OPEN_TABLES_MAX: u64 = 4096;

/// Bytes of memory that a store in a directory needs at least.
const MEMORY_MIN: u64 = 4 << 20;
/// Bytes of DRAM that a store over DRAM and files needs at least.
const DRAM_MIN: u64 = 16 << 20;

impl Options {
    pub(crate) fn disk_engine(&self, how: How) -> Result<Arc<dyn AnyEngine>, OpenError> {
        let path = self.path.as_deref().ok_or(OpenError::NoPath)?;
        if !self.read_only {
            crate::open::salvage::finish(path).map_err(DiskError::room("finish the repair of", path))?;
        }
        let exists = Wip::exists(&system(), path)?;
        let creates = match how {
            How::Open => false,
            How::Create => true,
            How::OpenOrCreate => !exists,
        };
        // An existing store knows its own.
        let engine = Engine::in_directory(path).filter(|_| exists).unwrap_or(self.engine);
        let is_tiered = engine == Engine::Tiered;
        match is_tiered {
            true => self.tiered_on(self.bounded_files().into(), u64::MAX, path, creates),
            false => self.wip_engine(path, creates),
        }
    }

    /// Files of which few are open.
    fn bounded_files(&self) -> BoundedFiles {
        BoundedFiles::new(SystemFiles, self.open_tables.unwrap_or_else(most_open_tables))
    }

    fn interval_ms(&self) -> u64 {
        u64::try_from(self.sync_interval.as_millis()).unwrap_or(u64::MAX)
    }

    fn wip_engine(&self, path: &Path, creates: bool) -> Result<Arc<dyn AnyEngine>, OpenError> {
        if self.durability == Durability::None {
            return Err(OpenError::Durability(self.durability));
        }
        let memory = self.memory.as_bytes();
        if memory < MEMORY_MIN {
            let what = format!("a store needs at least {}", terrace_pool::Bytes(MEMORY_MIN));
            return Err(OpenError::Dram { dram: memory, what });
        }
        let mut settings = Settings::with_memory(memory, Arc::clone(&self.clock), chance());
        settings.durability = self.durability;
        settings.read_only = self.read_only;
        settings.read_aware = self.read_aware;
        settings.interval_ms = self.interval_ms();
        let files = self.bounded_files();
        let opened = match creates {
            true => Wip::create(files, path, settings),
            false => Wip::open(files, path, settings),
        };
        Ok(Arc::new(opened?))
    }

    /// The store over DRAM and the files of a pool.
    pub(crate) fn tiered_in<M: MappedMedium>(
        &self,
        files: PoolFiles<M>,
        how: How,
    ) -> Result<Arc<dyn AnyEngine>, OpenError> {
        let path = self.path.as_deref().ok_or(OpenError::NoPath)?;
        let (room, files) = (files.pool().size(), Arc::from(files));
        let creates = !matches!(how, How::Open) && !Directory::exists(&files, path)?;
        self.tiered_on(files, room, path, creates)
    }

    /// Opens the store over DRAM and files, which have `room` bytes.
    fn tiered_on(
        &self,
        files: Arc<dyn Files>,
        room: u64,
        path: &Path,
        creates: bool,
    ) -> Result<Arc<dyn AnyEngine>, OpenError> {
        match self.index_of_tiers() {
            Index::Clht => {
                self.tiered_with::<hash::Clht<Dram, terrace_tiered::Kind>>(files, room, path, creates)
            }
            #[cfg(feature = "turbo")]
            Index::Turbo => {
                self.tiered_with::<hash::Turbo<Dram, terrace_tiered::Kind>>(files, room, path, creates)
            }
            #[cfg(feature = "rewo")]
            Index::Rewo => {
                self.tiered_with::<hash::Rewo<Dram, terrace_tiered::Kind>>(files, room, path, creates)
            }
            #[cfg(feature = "level")]
            Index::Level => {
                self.tiered_with::<hash::Level<Dram, terrace_tiered::Kind>>(files, room, path, creates)
            }
            Index::Art => Err(OpenError::IndexOfTiers(Index::Art)),
            #[cfg(not(all(feature = "turbo", feature = "rewo", feature = "level")))]
            index => Err(index.not_built()),
        }
    }

    fn tiered_with<I>(
        &self,
        files: Arc<dyn Files>,
        room: u64,
        path: &Path,
        creates: bool,
    ) -> Result<Arc<dyn AnyEngine>, OpenError>
    where
        I: PointIndex<Medium = Dram, Kind = terrace_tiered::Kind> + Stored<Medium = Dram> + 'static,
    {
        let dram = self.memory.as_bytes();
        if dram < DRAM_MIN {
            let what = format!("a store needs at least {}", terrace_pool::Bytes(DRAM_MIN));
            return Err(OpenError::Dram { dram, what });
        }
        // Blocks and log of a tier that is not much larger than the DRAM fit into the tier.
        let mut settings =
            terrace_tiered::Settings::with_dram(dram.min(room / 4), Arc::clone(&self.clock), chance());
        settings.durability = self.durability;
        settings.read_only = self.read_only;
        settings.interval_ms = self.interval_ms();
        let huge_pages = self.huge_pages;
        let pool: terrace_tiered::MakePool = Box::new(move || {
            terrace_pool::PoolOptions::anonymous().size(dram).huge_pages(huge_pages).create()
        });
        let opened = match creates {
            true => Tiered::create::<I>(files, path, settings, pool),
            false => Tiered::open::<I>(files, path, settings, pool),
        };
        let store = opened.map_err(|error| match error {
            TieredError::Disk(error) => error.into(),
            TieredError::Pool(error) => error.into(),
            error => OpenError::Dram { dram, what: error.to_string() },
        })?;
        Ok(Arc::new(store))
    }
}

/// The operating system's files.
fn system() -> Arc<dyn Files> {
    Arc::new(SystemFiles)
}

/// How many tables a store keeps open for reads: a part of what the process may have open.
fn most_open_tables() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    (limit.unwrap_or(u64::MAX) / 4).clamp(OPEN_TABLES_MIN, OPEN_TABLES_MAX)
}

/// A number that nobody can guess, for seeds of hash tables and the store's identity: the standard
/// library's are random.
fn chance() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The name of the engine of the store in the directory at `path`. Where its identity is damaged,
/// the other files tell.
pub(crate) fn engine_of(path: &Path) -> Option<String> {
    match Directory::engine_of(&system(), path) {
        Err(DiskError::Corrupt { .. }) => {
            let names =
                std::fs::read_dir(path).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let of_file = |name: String| match name.rsplit_once('.')?.1 {
                "block" | "large" => Some(Engine::Tiered.name().into()),
                "table" => Some(Engine::Wip.name().into()),
                _ => None,
            };
            names.into_iter().find_map(of_file)
        }
        named => named.ok(),
    }
}

/// The notice of the process that has the store at `path` open.
pub(crate) fn notice(path: &Path) -> Option<String> {
    Directory::notice(&system(), path)
}

/// Visits what is sound of the store of this engine at `path`, and what is not. What has to be
/// noted meanwhile has `memory` bytes.
pub(crate) fn salvage(
    engine: Engine,
    path: &Path,
    memory: ByteSize,
    each: &mut Salvage<'_>,
) -> Result<(), OpenError> {
    Ok(match engine {
        Engine::Tiered => terrace_tiered::salvage(&system(), path, memory.as_bytes(), each),
        _ => Wip::salvage_from(&system(), path, each),
    }?)
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

    /// The end of the log that an open of a store in a directory has found torn, and dropped, in
    /// one sentence. `None` unless sound records lie in it: a crash of the machine may leave such,
    /// and so may damage.
    pub fn torn_tail(&self) -> Option<String> {
        let tail = self.engine().on_disk()?.torn_tail().filter(|tail| tail.records > 0)?;
        Some(tail.to_string())
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
    /// A file cannot be written, the store lies in a pool, or its pool keeps nothing through a loss
    /// of power.
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

    /// How many tables a store on a disk keeps open for reads, about, at most; `None` of any other.
    pub fn open_tables(&self) -> Option<u64> {
        self.engine().on_disk()?.most_open()
    }

    /// Sets what a write of a store on a disk survives from now on, when it has returned.
    ///
    /// # Errors
    /// [`Durability::None`], more than the store's pool keeps, or the store lies in a pool alone.
    pub fn set_durability(&self, durability: Durability) -> Result<(), WriteError> {
        if durability == Durability::None {
            return Err(WriteError::Durability { asked: durability, most: Durability::Power });
        }
        let most = self.disk()?.most();
        if durability > most {
            return Err(WriteError::Durability { asked: durability, most });
        }
        self.disk()?.set_durability(durability);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_tables_are_a_part_of_what_may_be_open() {
        assert!((OPEN_TABLES_MIN..=OPEN_TABLES_MAX).contains(&most_open_tables()));
        let place = tempfile::tempdir().unwrap();
        let options = Store::options().directory(place.path().join("store")).memory(ByteSize::mib(4));
        assert_eq!(options.clone().create().unwrap().open_tables(), Some(most_open_tables()));
        assert_eq!(options.open_tables(5).open().unwrap().open_tables(), Some(5));
        let in_memory = Store::options().anonymous().size(ByteSize::mib(1)).create().unwrap();
        assert_eq!(in_memory.open_tables(), None);
    }
}
