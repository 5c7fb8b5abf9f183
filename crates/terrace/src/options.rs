//! Options for creating or opening a store.

use crate::background::{Background, Work};
use crate::clock::SystemClock;
use crate::{ByteSize, Clock, Durability, OpenError, Salvaged, Store};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terrace_direct::{Direct, Key, Settings};
use terrace_engine::Engine as AnyEngine;
use terrace_index::{Bytes, CacheBounds, PointIndex, Stored, hash};
#[cfg(feature = "art")]
use terrace_index::{RangeIndex, ordered};
use terrace_medium::{Dram, MappedMedium, Shm};
use terrace_pool::{Pool, PoolOptions};
use terrace_tier::PoolFiles;

/// The index of a store. Chosen when the store is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Index {
    /// A hash table with buckets of one cache line. Keys have no order.
    #[default]
    Clht,
    /// TurboHash: a hash table of small shards that are resized one by one, with buckets of 256
    /// bytes. Keys have no order.
    Turbo,
    /// Rewo-Hash: a cuckoo hash table with buckets of 256 bytes, the most compact: it grows when
    /// more than 92% is used, by splitting one of 16 large tables. Keys have no order.
    Rewo,
    /// Level hashing: a hash table of two levels with buckets of 128 bytes, which fills up before
    /// it grows, in place. Keys have no order.
    Level,
    /// Adaptive radix tree (P-ART). Keeps keys in order, so the store has ranges:
    /// [`Store::range`].
    Art,
}

impl Index {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Clht, Self::Turbo, Self::Rewo, Self::Level, Self::Art];

    /// Its name, as in commands and in [`Stats::index`](crate::Stats::index).
    pub fn name(self) -> &'static str {
        match self {
            Self::Clht => "clht",
            Self::Turbo => "turbo",
            Self::Rewo => "rewo",
            Self::Level => "level",
            Self::Art => "art",
        }
    }

    /// Whether this program was built with it: each but P-CLHT is a feature of this crate.
    pub fn is_built(self) -> bool {
        match self {
            Self::Clht => true,
            Self::Turbo => cfg!(feature = "turbo"),
            Self::Rewo => cfg!(feature = "rewo"),
            Self::Level => cfg!(feature = "level"),
            Self::Art => cfg!(feature = "art"),
        }
    }

    /// Whether it keeps keys in order, so that the store has ranges.
    pub fn is_ordered(self) -> bool {
        match self {
            Self::Clht | Self::Turbo | Self::Rewo | Self::Level => false,
            Self::Art => true,
        }
    }

    pub(crate) fn not_built(self) -> OpenError {
        OpenError::NotBuilt { feature: self.name() }
    }

    /// The index with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|index| index.name() == name)
    }
}

/// How a store keeps its entries. Chosen when the store is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// In a pool of memory that outlives the process.
    #[default]
    Direct,
    /// In files of a directory, in the order of their keys: for data larger than memory, durable on
    /// any disk.
    Wip,
    /// In DRAM and on a slower tier: the index and what is used often in DRAM, everything in files
    /// of a directory, or in a pool of persistent or CXL memory. For point reads and writes of data
    /// larger than DRAM.
    Tiered,
}

impl Engine {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Wip, Self::Tiered];

    /// Its name, as in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Wip => "wip",
            Self::Tiered => "tiered",
        }
    }

    /// The engine with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// The engine of the store in the directory at `path`; `None` if there is no store, or it does
    /// not tell.
    pub fn in_directory(path: impl AsRef<Path>) -> Option<Self> {
        Self::named(&crate::open::directory::engine_of(path.as_ref())?)
    }
}

/// Options for creating or opening a store; from [`Store::options`].
///
/// ```
/// use terrace::{ByteSize, Durability, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("app.pool");
/// let options = Store::options().path(&path).size(ByteSize::mib(8));
/// let options = options.durability(Durability::Process);
/// let store = options.create()?;
/// store.put(b"key", b"value")?;
/// store.close()?;
/// assert_eq!(options.open()?.get(b"key")?.unwrap(), b"value");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) path: Option<PathBuf>,
    anonymous: bool,
    pub(crate) engine: Engine,
    /// Whether the tier of a store that is created is a pool.
    tier_in_pool: bool,
    pub(crate) memory: ByteSize,
    pub(crate) sync_interval: Duration,
    pub(crate) merge_rate: Option<ByteSize>,
    pub(crate) open_tables: Option<u64>,
    pub(crate) read_aware: bool,
    size: ByteSize,
    max_size: Option<ByteSize>,
    pub(crate) durability: Durability,
    assume_persistent: bool,
    index: Option<Index>,
    expected_keys: u64,
    index_cache: (ByteSize, ByteSize),
    pub(crate) read_only: bool,
    shared: bool,
    end_stopped_after: Option<Duration>,
    salvage: bool,
    pub(crate) huge_pages: bool,
    verify_reads: bool,
    expiry_thread: bool,
    participants: Option<u32>,
    program: Option<String>,
    pub(crate) boot_id: Option<u128>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Whether to create the store, to open it, or either.
#[derive(Clone, Copy)]
pub(crate) enum How {
    Create,
    Open,
    OpenOrCreate,
}

impl Options {
    pub(crate) fn new() -> Self {
        Self {
            path: None,
            anonymous: false,
            engine: Engine::default(),
            tier_in_pool: false,
            memory: ByteSize::mib(256),
            sync_interval: Duration::from_secs(1),
            merge_rate: None,
            open_tables: None,
            read_aware: true,
            size: ByteSize::gib(1),
            max_size: None,
            durability: Durability::Process,
            assume_persistent: false,
            index: None,
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

    /// Sets the pool's file, or a device-DAX device.
    pub fn path(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(path.as_ref().into());
        self
    }

    /// Sets the engine of a store that is created. An existing store knows its own.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Sets the directory of a store on a disk: the path, and [`Engine::Wip`] unless another engine
    /// was set that lies in a directory.
    ///
    /// ```
    /// use terrace::{ByteSize, Durability, Store};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let options = Store::options().directory(&path).memory(ByteSize::mib(32));
    /// let options = options.durability(Durability::Power);
    /// let store = options.create()?;
    /// store.put("key", "value")?;
    /// store.close()?;
    /// assert_eq!(options.open()?.get("key")?.unwrap(), b"value");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn directory(self, path: impl AsRef<Path>) -> Self {
        let engine = if self.engine == Engine::Direct { Engine::Wip } else { self.engine };
        self.path(path).engine(engine)
    }

    /// Sets the pool of a store over DRAM and a pool, such as one on persistent or CXL memory: the
    /// path, and [`Engine::Tiered`]. [`Options::memory`] is what it has of DRAM, and
    /// [`Options::size`] that of the pool.
    ///
    /// ```
    /// use terrace::{ByteSize, Store};
    ///
    /// # let directory = tempfile::tempdir_in("/dev/shm")?;
    /// # let path = directory.path().join("tier.pool");
    /// let options = Store::options().tier_pool(&path).size(ByteSize::mib(64));
    /// let options = options.memory(ByteSize::mib(16));
    /// let store = options.create()?;
    /// store.put("key", "value")?;
    /// store.close()?;
    /// assert_eq!(options.open()?.get("key")?.unwrap(), b"value");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tier_pool(self, path: impl AsRef<Path>) -> Self {
        Self { tier_in_pool: true, ..self.path(path).engine(Engine::Tiered) }
    }

    /// Sets how much memory a store on a disk uses for what is not in tables yet and for a cache of
    /// what is, or a store over two tiers for all that it has in DRAM; default 256 MiB.
    pub fn memory(mut self, size: ByteSize) -> Self {
        self.memory = size;
        self
    }

    /// Sets how often a store on a disk with [`Durability::Interval`] makes its writes durable;
    /// default every second.
    pub fn sync_interval(mut self, interval: Duration) -> Self {
        self.sync_interval = interval;
        self
    }

    /// Bytes a second that merges of a store on a disk read, and write about as many, at most. A
    /// merge that is held up makes reads slower, and data takes more room. Flushes are not limited:
    /// writes wait for them. Without a limit if 0, which is the default.
    pub fn merge_rate(mut self, bytes_per_second: ByteSize) -> Self {
        self.merge_rate = Some(bytes_per_second).filter(|rate| rate.as_bytes() > 0);
        self
    }

    /// How many tables a store on a disk keeps open for reads, about, at most. Others are opened
    /// when they are read. By default a quarter of the files that the process may have open when it
    /// opens the store (`ulimit -n`), but at least 16, and at most 4,096.
    pub fn open_tables(mut self, most: u64) -> Self {
        self.open_tables = Some(most.max(1));
        self
    }

    /// Whether a store on a disk merges first what is read often; default true. For measurements.
    #[doc(hidden)]
    pub fn read_aware(mut self, aware: bool) -> Self {
        self.read_aware = aware;
        self
    }

    /// Keeps the store in anonymous memory of this process, lost when it ends: for caches and
    /// tests. Such a store can be created, not opened.
    pub fn anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// Sets the size of a store that is created; default 1 GiB. An existing store keeps its size.
    pub fn size(mut self, size: ByteSize) -> Self {
        self.size = size;
        self
    }

    /// Sets how far the store can grow while it is open. Costs address space only; default 16 times
    /// its size, and at least 64 GiB.
    pub fn max_size(mut self, size: ByteSize) -> Self {
        self.max_size = Some(size);
        self
    }

    /// Sets what the store survives; default [`Durability::Process`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether to assume that the file's memory survives a loss of power although the kernel does
    /// not say so. For tests and measurements of [`Durability::Power`] on ordinary memory.
    pub fn assume_persistent(mut self, assume: bool) -> Self {
        self.assume_persistent = assume;
        self
    }

    /// Sets the index of a store that is created; default [`Index::Clht`]. A store over two tiers
    /// makes its index anew each time that it is opened, by default [`Index::Turbo`], and takes any
    /// but [`Index::Art`].
    pub fn index(mut self, index: Index) -> Self {
        self.index = Some(index);
        self
    }

    /// The index of a store over two tiers.
    pub(crate) fn index_of_tiers(&self) -> Index {
        self.index.unwrap_or(Index::Turbo)
    }

    /// Sets about how many keys a store that is created will have, so that its index need not grow
    /// for them.
    pub fn expected_keys(mut self, keys: u64) -> Self {
        self.expected_keys = keys;
        self
    }

    /// Bounds how much memory of this process [`Index::Rewo`] may use as a cache of keys: at least
    /// `least`, at most `most`. A search for a cached key does not read the index in the pool.
    /// Within these bounds, the size follows the benefit. Default: no cache, as a cache only costs
    /// where the pool is as fast as memory. A [shared](Options::shared) store, and any other index,
    /// has no cache.
    ///
    /// ```
    /// use terrace::{ByteSize, Index, Store};
    ///
    /// let options = Store::options().anonymous().index(Index::Rewo);
    /// let store = options.index_cache(ByteSize::mib(1), ByteSize::mib(64)).create()?;
    /// store.put(b"key", b"value")?;
    /// assert!(store.get(b"key")?.is_some());
    /// assert_eq!(store.stats().index.unwrap().cache.unwrap().misses, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn index_cache(mut self, least: ByteSize, most: ByteSize) -> Self {
        self.index_cache = (least, most);
        self
    }

    /// Whether to open the store for reading only, and leave the file unchanged to the last byte.
    /// The pool of a [shared](Options::shared) store keeps track of its readers, so its file must
    /// be writable; the part that holds data is mapped so that this process cannot store to it.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether other processes may have the store open at the same time, if they set this, too. All
    /// of them read and write at the speed of memory. Each may be killed at any instruction, and
    /// the others continue.
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

    /// Sets how many processes can have a store that is created open at one time, at most 4096.
    /// Default: 64; 16 below 64 MiB, and 4 below 1 MiB.
    pub fn participants(mut self, participants: u32) -> Self {
        self.participants = Some(participants);
        self
    }

    /// Kills (SIGKILL) any other process that shares the store and has been stopped, by a signal or
    /// in a debugger, for `time`. Each kill is logged as a warning with
    /// [`log`](https://docs.rs/log). Default: never. A stopped process keeps its locks, and no
    /// memory freed after it stopped inside the store is reused, so the store fills up.
    pub fn end_stopped_after(mut self, time: Duration) -> Self {
        self.end_stopped_after = Some(time);
        self
    }

    /// Whether to salvage a pool that cannot be trusted: damaged, truncated, or in use when the
    /// machine went down. [`Options::open`] then copies every record whose checksums match to a new
    /// pool, puts that in place of the old one and renames the old one to
    /// `<name>.damaged-<generation>`. [`Store::salvaged`] reports what was dropped.
    ///
    /// A store in a directory is checked first, and stays as it is if it is sound.
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// Whether to use huge pages where the kernel has them; default true. A read from a large store
    /// then takes half the time.
    pub fn huge_pages(mut self, use_them: bool) -> Self {
        self.huge_pages = use_them;
        self
    }

    /// Whether to compare each record that is read with its checksum; default true.
    pub fn verify_reads(mut self, verify: bool) -> Self {
        self.verify_reads = verify;
        self
    }

    /// Whether a thread of the store removes expired entries; default true. Otherwise call
    /// [`Store::sweep_expired`]. Readers never see expired entries, either way.
    pub fn expiry_thread(mut self, thread: bool) -> Self {
        self.expiry_thread = thread;
        self
    }

    /// Sets the name under which this program appears when another process finds the pool in use;
    /// default the name of its executable.
    pub fn program(mut self, name: &str) -> Self {
        self.program = Some(name.into());
        self
    }

    /// Opens as if after another boot of the machine. For tests.
    #[doc(hidden)]
    pub fn boot_id(mut self, id: u128) -> Self {
        self.boot_id = Some(id);
        self
    }

    /// Sets the source of time; default the system clock. For tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Creates a store.
    ///
    /// # Errors
    /// A file already exists at its path, or the pool could not be created.
    pub fn create(&self) -> Result<Store, OpenError> {
        self.start(How::Create)
    }

    /// Opens an existing store.
    ///
    /// # Errors
    /// There is no pool at the path, another process has it open, or it is damaged.
    pub fn open(&self) -> Result<Store, OpenError> {
        self.start(How::Open)
    }

    /// Opens the store at the path, or creates one.
    ///
    /// # Errors
    /// As [`Options::open`] and [`Options::create`].
    pub fn open_or_create(&self) -> Result<Store, OpenError> {
        self.start(How::OpenOrCreate)
    }

    /// As [`Options::open_or_create`], on a test's medium.
    #[doc(hidden)]
    pub fn open_or_create_on<M: MappedMedium>(&self) -> Result<Store, OpenError> {
        self.start_threads(self.engine_on::<M>(How::OpenOrCreate)?, None)
    }

    fn start(&self, how: How) -> Result<Store, OpenError> {
        if !self.salvage || self.read_only {
            return self.start_threads(self.opened(how)?, None);
        }
        let is_there = |path: &&Path| !self.anonymous && !matches!(how, How::Create) && path.exists();
        let is_damaged = |path: &&Path| !(path.is_dir() && self.is_sound());
        let damaged = self.path.as_deref().filter(is_there).filter(is_damaged);
        let salvaged = damaged.map(|path| crate::open::salvage::salvage(self, path)).transpose()?;
        // The pool that is there now can be trusted.
        let trusting = self.clone().salvage(false);
        trusting.start_threads(trusting.opened(how)?, salvaged)
    }

    /// Whether the store opens, and all of it is sound: then a salvage has nothing to do.
    fn is_sound(&self) -> bool {
        let opened = self.clone().salvage(false).read_only(true).open();
        opened.is_ok_and(|store| store.torn_tail().is_none() && store.check(&mut |_, _| {}).is_sound())
    }

    /// Starts the store's threads.
    pub(crate) fn start_threads(
        &self,
        engine: Arc<dyn AnyEngine>,
        salvaged: Option<Salvaged>,
    ) -> Result<Store, OpenError> {
        let writes = !self.read_only;
        let work = Work {
            collect: writes && engine.pooled().is_some_and(|pool| pool.needs_collection()),
            // A read-only process leaves recovery to the writers: no reader waits for a dead
            // process.
            recover_dead: writes && self.shared,
            end_stopped: self.end_stopped_after.filter(|_| self.shared),
            sweep: writes && self.expiry_thread && engine.chores().contains(&terrace_engine::Chore::Sweep),
            huge_pages: self.huge_pages && writes && engine.pooled().is_some(),
            disk: writes && engine.on_disk().is_some(),
            merge_rate: self.merge_rate.map(ByteSize::as_bytes),
        };
        let background = Background::start(&engine, work).map_err(OpenError::Thread)?;
        let path = if self.anonymous { None } else { self.path.clone() };
        Ok(Store::start(engine, background, path, salvaged))
    }

    /// Opens the damaged pool for reading only.
    pub(crate) fn damaged_engine(&self) -> Result<Arc<dyn AnyEngine>, OpenError> {
        self.opened(How::Open)
    }

    /// Options for creating the same store at `path`.
    pub(crate) fn successor(&self, path: &Path, index: Index, size: u64, keys: u64) -> Self {
        let same = self.clone().index(index).path(path).salvage(false).expiry_thread(false).huge_pages(false);
        same.size(ByteSize::bytes(size)).expected_keys(keys)
    }

    /// Whether the store lies in a directory: what is there counts before what is asked for.
    fn is_in_directory(&self) -> bool {
        let is_pool = |path: &Path| self.tier_in_pool || path.exists();
        match (self.path.as_deref(), self.engine) {
            (Some(path), _) if path.is_dir() => true,
            (_, Engine::Direct) => false,
            (Some(path), Engine::Tiered) => !is_pool(path),
            _ => true,
        }
    }

    fn opened(&self, how: How) -> Result<Arc<dyn AnyEngine>, OpenError> {
        if !self.anonymous && self.is_in_directory() {
            return self.disk_engine(how);
        }
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

    /// What a store on this medium survives.
    fn promised<M: MappedMedium>(&self) -> Durability {
        match self.anonymous {
            true => Durability::None,
            false if M::VOLATILE_CACHE => Durability::Power,
            false => Durability::Process,
        }
    }

    /// The files in a pool, if a store over DRAM and a pool lies there, or is to.
    fn files_of<M: MappedMedium>(&self, pool: &Pool<M>) -> Result<Option<PoolFiles<M>>, OpenError> {
        let Some(top) = self.path.as_deref().filter(|_| !self.anonymous) else {
            return Ok(None);
        };
        let refused = |error: std::io::Error| self.contents(&error);
        match PoolFiles::open(pool.clone(), top).map_err(refused)? {
            None if self.engine == Engine::Tiered && pool.roots().is_empty() && !pool.is_read_only() => {
                PoolFiles::create(pool.clone(), top).map(Some).map_err(refused)
            }
            files => Ok(files),
        }
    }

    fn engine_on<M: MappedMedium>(&self, how: How) -> Result<Arc<dyn AnyEngine>, OpenError> {
        let index = self.index.unwrap_or_default();
        if !matches!(how, How::Open) && !index.is_built() {
            return Err(index.not_built());
        }
        let options = self.pool_options()?;
        let pool = match how {
            How::Create => options.create::<M>(),
            How::Open => options.open::<M>(),
            How::OpenOrCreate => options.open_or_create::<M>(),
        }?;
        if let Some(files) = self.files_of(&pool)? {
            return self.tiered_in(files, how);
        }
        let (least, most) = self.index_cache;
        let settings = Settings {
            expected_keys: self.expected_keys,
            index_cache: CacheBounds { min: least.as_bytes(), max: most.as_bytes() },
            verify_reads: self.verify_reads,
            read_only: self.read_only,
            durability: self.promised::<M>(),
            clock: self.clock.clone(),
        };
        // The pool of an existing store names its index.
        match terrace_direct::index_in(&pool).map_or(Some(index), |name| Index::named(&name)) {
            #[cfg(feature = "turbo")]
            Some(Index::Turbo) => self.direct::<hash::Turbo<M, Bytes<Key>>, M>(pool, settings),
            #[cfg(feature = "rewo")]
            Some(Index::Rewo) => self.direct::<hash::Rewo<M, Bytes<Key>>, M>(pool, settings),
            #[cfg(feature = "level")]
            Some(Index::Level) => self.direct::<hash::Level<M, Bytes<Key>>, M>(pool, settings),
            #[cfg(feature = "art")]
            Some(Index::Art) => self.direct_ordered::<ordered::Art<M, Bytes<Key>>, M>(pool, settings),
            // If this release does not know the index, opening fails with its name.
            Some(Index::Clht) | None => self.direct::<hash::Clht<M, Bytes<Key>>, M>(pool, settings),
            #[cfg(not(all(feature = "turbo", feature = "rewo", feature = "level", feature = "art")))]
            Some(index) => Err(index.not_built()),
        }
    }

    fn direct<I, M>(&self, pool: Pool<M>, settings: Settings) -> Result<Arc<dyn AnyEngine>, OpenError>
    where
        M: MappedMedium,
        I: PointIndex<Medium = M, Kind = terrace_direct::Kind> + Stored<Medium = M> + 'static,
    {
        let engine = Direct::open::<I>(pool, settings).map_err(|error| self.contents(&error))?;
        Ok(Arc::new(engine))
    }

    #[cfg(feature = "art")]
    fn direct_ordered<I, M>(&self, pool: Pool<M>, settings: Settings) -> Result<Arc<dyn AnyEngine>, OpenError>
    where
        M: MappedMedium,
        I: RangeIndex<Medium = M, Kind = terrace_direct::Kind> + Stored<Medium = M> + 'static,
    {
        let engine = Direct::open_ordered::<I>(pool, settings).map_err(|error| self.contents(&error))?;
        Ok(Arc::new(engine))
    }

    fn contents(&self, error: &dyn std::error::Error) -> OpenError {
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
            // A reader that shares the store takes part in it and sets pins.
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
