//! How to make or open a pool.

use crate::layout::{Geometry, MAX_POOL};
use crate::pool::Pins;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Where a pool lies.
pub(crate) enum Location {
    Anonymous,
    Path(PathBuf),
    File(File),
}

/// How to make or open a pool.
///
/// ```
/// use terrace_medium::Shm;
/// use terrace_pool::PoolOptions;
///
/// let directory = tempfile::tempdir()?;
/// let options = PoolOptions::at(directory.path().join("first.pool")).size(4 << 20).label("a first pool");
/// let pool = options.create::<Shm>()?;
/// assert_eq!(pool.size(), 4 << 20);
/// pool.close()?;
/// assert_eq!(options.open::<Shm>()?.generation(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What the pool keeps through which crash follows from the medium: [`Pmem`](terrace_medium::Pmem), or any with a volatile cache,
/// is durability `power`, the others are `process`.
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

    /// A pool in a file that is open already, such as a memfd. Who has another handle to the same open file is not kept out.
    pub fn in_file(file: File) -> Self {
        Self::new(Location::File(file))
    }

    /// A pool in memory that is gone with the process. It can be made, not opened.
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

    /// Bytes of a pool that is made, rounded down to whole pages; 1 GiB if not said. A pool that is opened keeps its size.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Bytes that it can grow to while it is open. Costs addresses only; if not said, 16 times its size, and 64 GiB at least.
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.max_size = Some(bytes);
        self
    }

    /// How many of each thing a pool that is made has room for; if not said, what suits its size.
    pub fn geometry(mut self, geometry: Geometry) -> Self {
        self.geometry = Some(geometry);
        self
    }

    /// How many processes can have a pool that is made open at one time, 4096 at most; if not said, what its geometry says.
    pub fn participants(mut self, participants: u32) -> Self {
        self.participants = Some(participants);
        self
    }

    /// A text of up to 63 bytes that a pool that is made keeps.
    pub fn label(mut self, label: &str) -> Self {
        self.label = label.into();
        self
    }

    /// What this program is called when it stands in someone's way; if not said, the name of its file.
    pub fn program(mut self, name: &str) -> Self {
        self.program = Some(name.into());
        self
    }

    /// Whether to ask for huge pages.
    pub fn huge_pages(mut self, ask: bool) -> Self {
        self.huge_pages = ask;
        self
    }

    /// Whether to take the caller's word that the file's memory survives a power cut, where the kernel does not say so. For tests and
    /// measurements of `power` on ordinary memory, and for persistent CXL memory behind tmpfs. Such a pool is not trusted
    /// after a crash of the machine.
    pub fn assume_persistent(mut self, assume: bool) -> Self {
        self.assume_persistent = assume;
        self
    }

    /// Whether to leave the file as it is, to the last byte. What this process stores in the pool all the same stays with it.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether other processes may have the pool open at the same time, if they ask for the same. Each may die at any time; the others go on.
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// Whether to open, read-only, a pool that is cut short or was in use when the machine went down. What is read from it has to be
    /// proved by checksums.
    pub fn salvage(mut self, salvage: bool) -> Self {
        self.salvage = salvage;
        self
    }

    /// The seed of the hashes of keys in a pool that is made, so that a test can be repeated; if not said, a random one.
    pub fn hash_seed(mut self, seed: u64) -> Self {
        self.hash_seed = Some(seed);
        self
    }

    /// Opens as if this were another start of the kernel. For tests.
    #[doc(hidden)]
    pub fn boot_id(mut self, id: u128) -> Self {
        self.boot_id = Some(id);
        self
    }

    /// Leaves out of the pool what is never the same twice (its name, times, process numbers), so that two runs that do the same leave the same
    /// bytes. With [`PoolOptions::hash_seed`] and [`PoolOptions::boot_id`]. For tests.
    #[doc(hidden)]
    pub fn reproducible(mut self) -> Self {
        (self.reproducible, self.pins) = (true, Pins::Heavy);
        self
    }

    /// Pins have no barrier of their own, whatever the kernel offers: the medium stands for the one in every thread ([`terrace_medium::Order::GlobalBarrier`]), or threads run one at a
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

    /// What the error messages call the pool.
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

    /// Whether others may come in while it is open.
    pub(crate) fn shares(&self) -> bool {
        self.shared && self.writes() && !matches!(self.place, Location::Anonymous)
    }

    pub(crate) fn writes(&self) -> bool {
        !self.read_only && !self.salvage
    }
}
