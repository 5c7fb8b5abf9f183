//! How to make or open a store.

use crate::background::{Background, Work};
use crate::clock::SystemClock;
use crate::{ByteSize, Clock, Durability, OpenError, Salvaged, Store};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terrace_engine::direct::{self, Direct, Key, Settings};
use terrace_engine::{Engine, OpenError as EngineError};
use terrace_index::{Bytes, CacheBounds, PointIndex, Stored, hash};
use terrace_medium::{Dram, MappedMedium, Shm};
use terrace_pool::{Pool, PoolOptions};

/// Which index a store has. Chosen when it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Index {
    /// A hash table of one cache line a bucket: no order among the keys.
    #[default]
    Clht,
    /// TurboHash: a hash table of small shards that are resized one by one, 256 bytes a bucket. No order among the keys.
    Turbo,
    /// Rewo-Hash: a cuckoo hash table, the fullest: 256 bytes a bucket, more than 92% of it used before it grows, by halving one of 16 large tables. No order among the keys.
    Rewo,
    /// Level hashing: a hash table of two levels, which is full before it grows and grows in place, 128 bytes a bucket. No order among the keys.
    Level,
}

impl Index {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Clht, Self::Turbo, Self::Rewo, Self::Level];

    /// Its name, as commands and [`Stats::index`](crate::Stats::index) know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clht => "clht",
            Self::Turbo => "turbo",
            Self::Rewo => "rewo",
            Self::Level => "level",
        }
    }

    /// Whether this program was built with it: each but P-CLHT is a feature of this crate.
    pub fn is_built(self) -> bool {
        match self {
            Self::Clht => true,
            Self::Turbo => cfg!(feature = "turbo"),
            Self::Rewo => cfg!(feature = "rewo"),
            Self::Level => cfg!(feature = "level"),
        }
    }

    fn not_built(self) -> OpenError {
        OpenError::NotBuilt { feature: self.name() }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|index| index.name() == name)
    }
}

/// How to make or open a store; from [`Store::options`].
///
/// ```
/// use terrace::{ByteSize, Durability, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("app.pool");
/// let options = Store::options().path(&path).size(ByteSize::mib(8)).durability(Durability::Process);
/// let store = options.create()?;
/// store.put(b"key", b"value")?;
/// store.close()?;
/// assert_eq!(options.open()?.get(b"key")?.unwrap(), b"value");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Options {
    path: Option<PathBuf>,
    anonymous: bool,
    size: ByteSize,
    max_size: Option<ByteSize>,
    durability: Durability,
    assume_persistent: bool,
    index: Index,
    expected_keys: u64,
    index_cache: (ByteSize, ByteSize),
    read_only: bool,
    shared: bool,
    end_stopped_after: Option<Duration>,
    salvage: bool,
    huge_pages: bool,
    verify_reads: bool,
    expiry_thread: bool,
    participants: Option<u32>,
    program: Option<String>,
    boot_id: Option<u128>,
    clock: Arc<dyn Clock>,
}

/// Make it, open it, or whichever fits.
#[derive(Clone, Copy)]
enum How {
    Create,
    Open,
    OpenOrCreate,
}

impl Options {
    pub(crate) fn new() -> Self {
        Self {
            path: None,
            anonymous: false,
            size: ByteSize::gib(1),
            max_size: None,
            durability: Durability::Process,
            assume_persistent: false,
            index: Index::default(),
            expected_keys: 1000,
            index_cache: (ByteSize::bytes(0), ByteSize::bytes(0)),
            read_only: false,
            shared: false,
            end_stopped_after: None,
            salvage: false,
            huge_pages: true,
            verify_reads: true,
            expiry_thread: true,
            participants: None,
            program: None,
            boot_id: None,
            clock: Arc::new(SystemClock),
        }
    }

    /// The pool's file, or a device-DAX device.
    pub fn path(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(path.as_ref().into());
        self
    }

    /// Memory of this process, gone with it: for caches and tests. It can be made, not opened.
    pub fn anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// How large a store that is made is; 1 GiB if not said. One that is opened keeps its size.
    pub fn size(mut self, size: ByteSize) -> Self {
        self.size = size;
        self
    }

    /// How large it can grow while it is open. Costs addresses only; if not said, 16 times its size, and 64 GiB at least.
    pub fn max_size(mut self, size: ByteSize) -> Self {
        self.max_size = Some(size);
        self
    }

    /// What it keeps through which crash; [`Durability::Process`] if not said.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether to take the caller's word that the file's memory survives a power cut where the kernel does not say so. For tests and
    /// measurements of [`Durability::Power`] on ordinary memory.
    pub fn assume_persistent(mut self, assume: bool) -> Self {
        self.assume_persistent = assume;
        self
    }

    /// The index of a store that is made.
    pub fn index(mut self, index: Index) -> Self {
        self.index = index;
        self
    }

    /// About how many keys a store that is made will have, so that its index need not grow on the way.
    pub fn expected_keys(mut self, keys: u64) -> Self {
        self.expected_keys = keys;
        self
    }

    /// How much memory of this process [`Index::Rewo`] may use as a cache of keys, so that a search of one that is cached does not read the index in the pool: this much at least, and at most so much. In between its size
    /// follows what it spares. None if not said: where the pool is as fast as memory, a cache only costs. A store that is [shared](Options::shared), and any other index, has none.
    ///
    /// ```
    /// use terrace::{ByteSize, Index, Store};
    ///
    /// let options = Store::options().anonymous().index(Index::Rewo).index_cache(ByteSize::mib(1), ByteSize::mib(64));
    /// let store = options.create()?;
    /// store.put(b"key", b"value")?;
    /// assert!(store.get(b"key")?.is_some());
    /// assert_eq!(store.stats().index.unwrap().cache.unwrap().misses, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn index_cache(mut self, least: ByteSize, most: ByteSize) -> Self {
        self.index_cache = (least, most);
        self
    }

    /// Whether to leave the file as it is, to the last byte. A store that is [shared](Options::shared) is left as it is, too, but its pool keeps account of who reads, so
    /// the file has to be writable; the part of it that holds data is mapped so that this process cannot store to it.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether other processes may have the store open at the same time, if they ask for the same. All of them read and write at the speed of memory, and any of them may
    /// be killed at any instruction: the others go on.
    ///
    /// ```
    /// use terrace::Store;
    ///
    /// # let directory = tempfile::tempdir_in("/dev/shm")?;
    /// # let path = directory.path().join("app.pool");
    /// let options = Store::options().path(&path).shared(true);
    /// let one = options.open_or_create()?;
    /// // In another process:
    /// let other = options.open_or_create()?;
    /// one.put(b"key", b"value")?;
    /// assert_eq!(other.get(b"key")?.unwrap(), b"value");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// How many processes can have a store that is made open at one time, 4096 at most; if not said, 64, or 16 in one below 64 MiB and 4 in one below 1 MiB.
    pub fn participants(mut self, participants: u32) -> Self {
        self.participants = Some(participants);
        self
    }

    /// Ends (SIGKILL) any other process that shares the store and has stood still for so long, stopped by a signal or in a debugger. Never, if not said: such a process
    /// keeps its locks, and nothing that is given back after it stopped inside the store is used again, so the store fills up. It says so with [`log`](https://docs.rs/log), as a warning.
    pub fn end_stopped_after(mut self, time: Duration) -> Self {
        self.end_stopped_after = Some(time);
        self
    }

    /// Whether to save what can be proved from a pool that cannot be trusted: damaged, cut short, or in use when the machine went down.
    /// [`Options::open`] then copies every record whose checksums hold to a new pool, puts that in the old one's place and renames the old one
    /// to `<name>.damaged-<generation>`. [`Store::salvaged`] says what was dropped.
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// Whether to use huge pages where the kernel has them: a read from a large store then takes half the time. Yes if not said.
    pub fn huge_pages(mut self, use_them: bool) -> Self {
        self.huge_pages = use_them;
        self
    }

    /// Whether to compare each record that is read with its checksum. Yes if not said.
    pub fn verify_reads(mut self, verify: bool) -> Self {
        self.verify_reads = verify;
        self
    }

    /// Whether a thread of the store removes entries that have expired. Yes if not said; otherwise call
    /// [`Store::sweep_expired`]. They are never seen, either way.
    pub fn expiry_thread(mut self, thread: bool) -> Self {
        self.expiry_thread = thread;
        self
    }

    /// What this program is called when it keeps others from the pool; if not said, the name of its file.
    pub fn program(mut self, name: &str) -> Self {
        self.program = Some(name.into());
        self
    }

    /// Opens as if this were another start of the kernel. For tests.
    #[doc(hidden)]
    pub fn boot_id(mut self, id: u128) -> Self {
        self.boot_id = Some(id);
        self
    }

    /// Where the time comes from; the machine's clock if not said. For tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Makes a store. There must be nothing at its path.
    pub fn create(&self) -> Result<Store, OpenError> {
        self.start(How::Create)
    }

    /// Opens the store that is there.
    pub fn open(&self) -> Result<Store, OpenError> {
        self.start(How::Open)
    }

    /// Opens the store that is there, or makes one.
    pub fn open_or_create(&self) -> Result<Store, OpenError> {
        self.start(How::OpenOrCreate)
    }

    /// As [`Options::open_or_create`], on a medium that a test has made.
    #[doc(hidden)]
    pub fn open_or_create_on<M: MappedMedium>(&self) -> Result<Store, OpenError> {
        self.attend(self.engine_on::<M>(How::OpenOrCreate)?, None)
    }

    fn start(&self, how: How) -> Result<Store, OpenError> {
        if !self.salvage || self.read_only {
            return self.attend(self.engine(how)?, None);
        }
        let is_there = |path: &&Path| !self.anonymous && !matches!(how, How::Create) && path.exists();
        let damaged = self.path.as_deref().filter(is_there);
        let salvaged = damaged.map(|path| crate::salvage::salvage(self, path)).transpose()?;
        // What is there now can be trusted.
        let trusting = self.clone().salvage(false);
        trusting.attend(trusting.engine(how)?, salvaged)
    }

    /// Starts the threads that a store needs.
    fn attend(&self, engine: Arc<dyn Engine>, salvaged: Option<Salvaged>) -> Result<Store, OpenError> {
        let writes = !self.read_only;
        let work = Work {
            collect: writes && engine.pooled().is_some_and(|pool| pool.needs_collection()),
            // Who only reads leaves that to those who write: nobody who reads waits for the dead.
            take_over: writes && self.shared,
            end_stopped: self.end_stopped_after.filter(|_| self.shared),
            sweep: writes && self.expiry_thread,
            huge_pages: self.huge_pages && writes,
        };
        let background = Background::start(&engine, work).map_err(OpenError::Thread)?;
        let path = if self.anonymous { None } else { self.path.clone() };
        Ok(Store::start(engine, background, path, salvaged))
    }

    /// Opens the damaged pool for reading only.
    pub(crate) fn damaged_engine(&self) -> Result<Arc<dyn Engine>, OpenError> {
        self.engine(How::Open)
    }

    /// The same store, made new at `path`.
    pub(crate) fn successor(&self, path: &Path, index: Index, size: u64, keys: u64) -> Self {
        let same = self.clone().index(index).path(path).salvage(false).expiry_thread(false).huge_pages(false);
        same.size(ByteSize::bytes(size)).expected_keys(keys)
    }

    fn engine(&self, how: How) -> Result<Arc<dyn Engine>, OpenError> {
        match (self.anonymous, self.durability) {
            (true, _) => self.engine_on::<Dram>(how),
            (false, Durability::None | Durability::Process) => self.engine_on::<Shm>(how),
            #[cfg(feature = "power")]
            (false, Durability::Power) => self.engine_on::<terrace_medium::Pmem>(how),
            #[cfg(not(feature = "power"))]
            (false, Durability::Power) => Err(OpenError::NotBuilt { feature: "power" }),
            (false, asked) => Err(OpenError::Durability(asked)),
        }
    }

    /// What a store on this medium promises.
    fn promised<M: MappedMedium>(&self) -> Durability {
        match self.anonymous {
            true => Durability::None,
            false if M::VOLATILE_CACHE => Durability::Power,
            false => Durability::Process,
        }
    }

    fn engine_on<M: MappedMedium>(&self, how: How) -> Result<Arc<dyn Engine>, OpenError> {
        if !matches!(how, How::Open) && !self.index.is_built() {
            return Err(self.index.not_built());
        }
        let options = self.pool_options()?;
        let pool = match how {
            How::Create => options.create::<M>(),
            How::Open => options.open::<M>(),
            How::OpenOrCreate => options.open_or_create::<M>(),
        }?;
        let (least, most) = self.index_cache;
        let settings = Settings {
            expected_keys: self.expected_keys,
            index_cache: CacheBounds { min: least.as_bytes(), max: most.as_bytes() },
            verify_reads: self.verify_reads,
            read_only: self.read_only,
            durability: self.promised::<M>(),
            clock: self.clock.clone(),
        };
        // A pool that has a store knows its index.
        match direct::index_in(&pool).map_or(Some(self.index), |name| Index::named(&name)) {
            #[cfg(feature = "turbo")]
            Some(Index::Turbo) => self.direct::<hash::Turbo<M, Bytes<Key>>, M>(pool, settings),
            #[cfg(feature = "rewo")]
            Some(Index::Rewo) => self.direct::<hash::Rewo<M, Bytes<Key>>, M>(pool, settings),
            #[cfg(feature = "level")]
            Some(Index::Level) => self.direct::<hash::Level<M, Bytes<Key>>, M>(pool, settings),
            // With an index that this release does not know, it says so.
            Some(Index::Clht) | None => self.direct::<hash::Clht<M, Bytes<Key>>, M>(pool, settings),
            #[cfg(not(all(feature = "turbo", feature = "rewo", feature = "level")))]
            Some(index) => Err(index.not_built()),
        }
    }

    fn direct<I, M>(&self, pool: Pool<M>, settings: Settings) -> Result<Arc<dyn Engine>, OpenError>
    where
        M: MappedMedium,
        I: PointIndex<Medium = M, Kind = direct::Kind> + Stored<Medium = M> + 'static,
    {
        let engine = Direct::open::<I>(pool, settings).map_err(|error| self.contents(error))?;
        Ok(Arc::new(engine))
    }

    fn contents(&self, error: EngineError) -> OpenError {
        OpenError::Contents { pool: self.path.clone().unwrap_or_default(), what: error.to_string() }
    }

    fn pool_options(&self) -> Result<PoolOptions, OpenError> {
        let mut options = match &self.path {
            _ if self.anonymous => PoolOptions::anonymous(),
            Some(path) => PoolOptions::at(path),
            None => return Err(OpenError::NoPath),
        };
        options = options
            .size(self.size.as_bytes())
            .huge_pages(self.huge_pages)
            .assume_persistent(self.assume_persistent)
            // Who reads what others write to has a place among them, and announces what it reads.
            .read_only(self.read_only && !self.shared)
            .shared(self.shared)
            .salvage(self.salvage);
        if let Some(participants) = self.participants {
            options = options.participants(participants);
        }
        if let Some(max_size) = self.max_size {
            options = options.max_size(max_size.as_bytes());
        }
        if let Some(id) = self.boot_id {
            options = options.boot_id(id);
        }
        if let Some(program) = &self.program {
            options = options.program(program);
        }
        Ok(options)
    }
}
