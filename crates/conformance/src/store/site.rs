//! The place of a store under test.

use std::sync::Arc;
use tempfile::TempDir;
use terrace::{ByteSize, Durability, ManualClock, OpenError, Options, Store};
use terrace_medium::MappedMedium;

type Open = fn(&Options) -> Result<Store, OpenError>;
type Opens = Box<dyn Fn(&Options) -> Result<Store, OpenError>>;

/// A place for one store, with a manual clock. Removed on drop.
pub struct Site {
    options: Options,
    clock: Arc<ManualClock>,
    open: Opens,
    directory: Option<TempDir>,
}

impl Site {
    /// The initial time of the clock, in Unix milliseconds.
    pub const STARTED: u64 = 1_000_000;

    /// Memory of this process.
    pub fn anonymous() -> Self {
        Self::at(|options, _| options.anonymous(), None, Options::create)
    }

    /// A place of the caller's, which opens the store there with a clock. `persists`: whether the
    /// store survives being closed.
    pub fn over(persists: bool, open: impl Fn(Arc<ManualClock>) -> Store + 'static) -> Self {
        let mut site = Self::in_shm(|options, _| options, Options::create);
        let clock = Arc::clone(&site.clock);
        site.open = Box::new(move |_| Ok(open(Arc::clone(&clock))));
        site.directory = site.directory.filter(|_| persists);
        site
    }

    /// A file in shared memory, used as the medium `M`.
    pub fn on<M: MappedMedium>() -> Self {
        Self::in_file(|options| options.assume_persistent(true), Options::open_or_create_on::<M>)
    }

    /// A directory of files, with little memory, so that it has tables.
    pub fn disk() -> Self {
        let memory = |options: Options| options.engine(terrace::Engine::Wip).memory(ByteSize::mib(4));
        Self::in_file(memory, Options::open_or_create)
    }

    /// DRAM and a directory of files, with little DRAM.
    pub fn tiered() -> Self {
        let dram = |options: Options| options.engine(terrace::Engine::Tiered).memory(ByteSize::mib(16));
        Self::in_file(dram, Options::open_or_create)
    }

    /// As [`Site::tiered`] and [`Site::tiered_in_pool`], with this index.
    pub fn tiered_with(index: terrace::Index, in_pool: bool) -> Self {
        let make = move |options: Options, path: &std::path::Path| match in_pool {
            true => Self::tier(options, path).index(index),
            false => {
                options.path(path).engine(terrace::Engine::Tiered).memory(ByteSize::mib(16)).index(index)
            }
        };
        Self::in_shm(make, Options::open_or_create)
    }

    /// As [`Site::tiered_in_pool`], with the medium `M` below the pool.
    pub fn tiered_on<M: MappedMedium>() -> Self {
        let power = |options: Options, path: &std::path::Path| {
            Self::tier(options, path).durability(Durability::Power).assume_persistent(true)
        };
        Self::in_shm(power, Options::open_or_create_on::<M>)
    }

    fn tier(options: Options, path: &std::path::Path) -> Options {
        options.tier_pool(path).memory(ByteSize::mib(16)).size(ByteSize::mib(256))
    }

    /// A file in shared memory, with further options. `open` opens the store, or creates it if
    /// there is none.
    pub fn in_file(more: impl FnOnce(Options) -> Options, open: Open) -> Self {
        Self::in_shm(|options, path| more(options.path(path)), open)
    }

    fn in_shm(place: impl FnOnce(Options, &std::path::Path) -> Options, open: Open) -> Self {
        let directory = tempfile::Builder::new().prefix("terrace-test").tempdir_in("/dev/shm");
        let directory = directory.expect("a directory in /dev/shm");
        Self::at(place, Some(directory), open)
    }

    fn at(
        place: impl FnOnce(Options, &std::path::Path) -> Options,
        directory: Option<TempDir>,
        open: Open,
    ) -> Self {
        let clock = Arc::new(ManualClock::at(Self::STARTED));
        let options = Store::options().size(ByteSize::mib(64)).expiry_thread(false).huge_pages(false);
        let path = directory.as_ref().map(|directory| directory.path().join("test.pool"));
        let options = place(options.clock(clock.clone()), &path.unwrap_or_default());
        Self { options, clock, open: Box::new(open), directory }
    }

    /// Opens the store; the first time, creates it.
    ///
    /// # Panics
    /// If that fails.
    pub fn open(&self) -> Store {
        (self.open)(&self.options).unwrap_or_else(|error| panic!("the store does not open: {error}"))
    }

    /// Whether the store survives being closed.
    pub fn persists(&self) -> bool {
        self.directory.is_some()
    }

    /// The store's clock.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }
}
