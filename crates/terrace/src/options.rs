//! Options for creating or opening a store: the settings alone. `open` makes a store of them.

use crate::clock::SystemClock;
use crate::index::{Engine, Index};
use crate::{ByteSize, Clock, Durability};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Options for creating or opening a store; from [`Store::options`](crate::Store::options).
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
    pub(crate) anonymous: bool,
    pub(crate) engine: Engine,
    /// Whether the tier of a store that is created is a pool.
    pub(crate) tier_in_pool: bool,
    pub(crate) memory: ByteSize,
    pub(crate) sync_interval: Duration,
    pub(crate) merge_rate: Option<ByteSize>,
    pub(crate) open_tables: Option<u64>,
    pub(crate) read_aware: bool,
    pub(crate) size: ByteSize,
    pub(crate) max_size: Option<ByteSize>,
    pub(crate) durability: Durability,
    pub(crate) assume_persistent: bool,
    pub(crate) index: Option<Index>,
    pub(crate) expected_keys: u64,
    pub(crate) index_cache: (ByteSize, ByteSize),
    /// `None`: as the medium needs.
    pub(crate) index_dram: Option<ByteSize>,
    pub(crate) read_only: bool,
    pub(crate) shared: bool,
    pub(crate) end_stopped_after: Option<Duration>,
    pub(crate) salvage: bool,
    pub(crate) huge_pages: bool,
    pub(crate) verify_reads: bool,
    pub(crate) expiry_thread: bool,
    pub(crate) participants: Option<u32>,
    pub(crate) program: Option<String>,
    pub(crate) boot_id: Option<u128>,
    pub(crate) clock: Arc<dyn Clock>,
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
            index_dram: None,
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
    /// whose keys have no order: a tree compares whole keys, which an open does not read.
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

    /// Sets how much memory of this process the layers of [`Index::SpTree`] above its nodes in the
    /// pool may use at most; 0: none. Default: an eighth of the pool, but at least 1 MiB, with
    /// [`Durability::Power`]; otherwise none, as the pool is as fast as memory. They are never
    /// needed for a right answer. A [shared](Options::shared) store, and any other index, has none.
    ///
    /// ```
    /// use terrace::{ByteSize, Index, Store};
    ///
    /// let options = Store::options().anonymous().index(Index::SpTree);
    /// let store = options.index_dram(ByteSize::mib(64)).create()?;
    /// store.put(b"key", b"value")?;
    /// assert!(store.get(b"key")?.is_some());
    /// let layers = store.stats().index.unwrap().layers.expect("this index can have them");
    /// println!("searches are served by {layers}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn index_dram(mut self, size: ByteSize) -> Self {
        self.index_dram = Some(size);
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
    /// `<name>.damaged-<generation>`. [`Opening::salvaged`](crate::Opening::salvaged) reports what
    /// was dropped.
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
    /// [`Upkeep::sweep_expired`](crate::Upkeep::sweep_expired). Readers never see expired entries,
    /// either way.
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
}
