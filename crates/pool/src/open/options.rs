//! Options for creating or opening a pool.

use crate::format::layout::{Geometry, MAX_POOL};
use crate::reclaim::barrier::Pins;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Where a pool lies.
pub(crate) enum Location {
    Anonymous,
    Path(PathBuf),
    File(File),
}

/// Options for creating or opening a pool.
///
/// ```
/// use terrace_medium::Shm;
/// use terrace_pool::PoolOptions;
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("first.pool");
/// let options = PoolOptions::at(path).size(4 << 20).label("a first pool");
/// let pool = options.create::<Shm>()?;
/// assert_eq!(pool.size(), 4 << 20);
/// pool.close()?;
/// assert_eq!(options.open::<Shm>()?.generation(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The medium determines the durability: [`Pmem`](terrace_medium::Pmem), or any other with a
/// volatile cache, gives `power`; the others give `process`.
pub struct PoolOptions {
    pub(crate) place: Location,
    pub(crate) size: u64,
    pub(crate) max_size: Option<u64>,
    pub(crate) geometry: Option<Geometry>,
    pub(crate) participants: Option<u32>,
    pub(crate) label: String,
    pub(crate) program: Option<String>,
    pub(crate) huge_pages: bool,
    pub(crate) assume_persistent: bool,
    pub(crate) read_only: bool,
    pub(crate) shared: bool,
    pub(crate) salvage: bool,
    pub(crate) hash_seed: Option<u64>,
    pub(crate) boot_id: Option<u128>,
    pub(crate) reproducible: bool,
    pub(crate) pins: Pins,
}

impl PoolOptions {
    /// A pool in the file or device-DAX device `path`.
    pub fn at(path: impl AsRef<Path>) -> Self {
        Self::new(Location::Path(path.as_ref().into()))
    }

    /// A pool in a file that is already open, such as a memfd. Another handle to the same open file
    /// description is not kept out by the lock.
    pub fn in_file(file: File) -> Self {
        Self::new(Location::File(file))
    }

    /// A pool in memory that ends with the process. It can be created, not opened.
    pub fn anonymous() -> Self {
        Self::new(Location::Anonymous)
    }

    fn new(place: Location) -> Self {
        Self {
            place,
            size: 1 << 30,
            max_size: None,
            geometry: None,
            participants: None,
            label: String::new(),
            program: None,
            huge_pages: false,
            assume_persistent: false,
            read_only: false,
            shared: false,
            salvage: false,
            hash_seed: None,
            boot_id: None,
            reproducible: false,
            pins: Pins::Light,
        }
    }

    /// Size of a new pool in bytes, rounded down to whole pages; default 1 GiB. An existing pool
    /// keeps its size.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Bytes that the pool can grow to while it is open. Costs only addresses. Default: 16 times
    /// its size, at least 64 GiB.
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.max_size = Some(bytes);
        self
    }

    /// How many items of each kind a new pool has room for. The default depends on its size.
    pub fn geometry(mut self, geometry: Geometry) -> Self {
        self.geometry = Some(geometry);
        self
    }

    /// How many processes can have a new pool open at a time, at most 4096. The default is the
    /// geometry's.
    pub fn participants(mut self, participants: u32) -> Self {
        self.participants = Some(participants);
        self
    }

    /// A text of up to 63 bytes that a new pool stores.
    pub fn label(mut self, label: &str) -> Self {
        self.label = label.into();
        self
    }

    /// The name by which other processes' messages call this program. Default: the name of its
    /// file.
    pub fn program(mut self, name: &str) -> Self {
        self.program = Some(name.into());
        self
    }

    /// Whether to request huge pages.
    pub fn huge_pages(mut self, ask: bool) -> Self {
        self.huge_pages = ask;
        self
    }

    /// Whether to assume that the file's memory survives a power loss where the kernel does not say
    /// so. For tests and measurements of `power` on ordinary memory, and for persistent CXL memory
    /// behind tmpfs. Such a pool is not trusted after a crash of the machine.
    pub fn assume_persistent(mut self, assume: bool) -> Self {
        self.assume_persistent = assume;
        self
    }

    /// Whether to leave every byte of the file unchanged. Stores of this process to the pool stay
    /// private to it.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether other processes may have the pool open at the same time; all of them must set this.
    /// Any of them may die at any time, and the others continue.
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// Whether to open, read-only, a pool that is cut short or was in use when the machine crashed.
    /// The caller must verify by checksums whatever it reads.
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// The hash seed of a new pool, so that a test is reproducible; random by default.
    pub fn hash_seed(mut self, seed: u64) -> Self {
        self.hash_seed = Some(seed);
        self
    }

    /// Opens as after a reboot that gave this boot id. For tests.
    #[doc(hidden)]
    pub fn boot_id(mut self, id: u128) -> Self {
        self.boot_id = Some(id);
        self
    }

    /// Omits from the pool what differs between runs (its identifier, times, process ids), so that
    /// equal runs leave equal bytes. Used with [`PoolOptions::hash_seed`] and
    /// [`PoolOptions::boot_id`]. For tests.
    #[doc(hidden)]
    pub fn reproducible(mut self) -> Self {
        (self.reproducible, self.pins) = (true, Pins::Heavy);
        self
    }

    /// Omits the barrier of pins, whatever the kernel offers. Either the medium stands in for the
    /// barrier in all threads ([`terrace_medium::Order::GlobalBarrier`]), or threads run one at a
    /// time. For tests.
    #[doc(hidden)]
    pub fn as_if_light(mut self) -> Self {
        self.pins = Pins::AsIfLight;
        self
    }

    /// Bytes of addresses to reserve for a pool of `size` bytes.
    pub(crate) fn reserve(&self, size: u64) -> u64 {
        let most = self.max_size.unwrap_or_else(|| size.saturating_mul(16).max(64 << 30));
        most.max(size).min(MAX_POOL)
    }

    /// The pool's name in error messages.
    pub(crate) fn name(&self) -> PathBuf {
        match &self.place {
            Location::Path(path) => path.clone(),
            Location::File(_) => "(an open file)".into(),
            Location::Anonymous => "(anonymous memory)".into(),
        }
    }

    pub(crate) fn program_name(&self) -> String {
        let own = || Some(std::env::current_exe().ok()?.file_name()?.to_string_lossy().into_owned());
        self.program.clone().or_else(own).unwrap_or_default()
    }

    /// Whether other processes may join while it is open.
    pub(crate) fn shares(&self) -> bool {
        self.shared && self.writes() && !matches!(self.place, Location::Anonymous)
    }

    pub(crate) fn writes(&self) -> bool {
        !self.read_only && !self.salvage
    }
}
