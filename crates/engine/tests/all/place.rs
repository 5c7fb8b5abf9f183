//! The places of stores on files in tests: a simulated disk, and a pool.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use terrace_medium::files::Files;
use terrace_medium::{MappedMedium, Pmem, Shm};
use terrace_pool::PoolOptions;
use terrace_testkit::simfs::SimFs;
use terrace_tier::PoolFiles;

/// A place for a store.
pub(crate) trait Place {
    type Files: Files + Into<Arc<dyn Files>>;
    /// Whether a crash takes nothing that a call has written.
    const KEEPS_ALL: bool;
    /// An empty one, with the directory `/data`.
    fn new() -> Self;
    fn files(&self) -> Self::Files;
    /// Crashes. Nothing has a file open.
    fn crash(&mut self, seed: u64);
}

/// A simulated disk, which loses power.
pub(crate) struct Disk(SimFs);

impl Place for Disk {
    type Files = SimFs;
    const KEEPS_ALL: bool = false;

    fn new() -> Self {
        Self(SimFs::new(["/data"]))
    }

    fn files(&self) -> SimFs {
        self.0.clone()
    }

    fn crash(&mut self, seed: u64) {
        self.0.crash(seed);
    }
}

/// A pool, whose process is killed.
pub(crate) struct InPool<M: MappedMedium> {
    directory: TempDir,
    files: Option<PoolFiles<M>>,
}

pub(crate) type InShm = InPool<Shm>;
pub(crate) type InPmem = InPool<Pmem>;

impl<M: MappedMedium> InPool<M> {
    fn options(&self) -> PoolOptions {
        let path: PathBuf = self.directory.path().join("pool");
        PoolOptions::at(path).size(32 << 20).assume_persistent(true)
    }
}

impl<M: MappedMedium> Place for InPool<M> {
    type Files = PoolFiles<M>;
    const KEEPS_ALL: bool = true;

    fn new() -> Self {
        let mut place = Self { directory: tempfile::tempdir_in("/dev/shm").unwrap(), files: None };
        let files = PoolFiles::create(place.options().create().unwrap(), Path::new("/")).unwrap();
        files.create_directory(Path::new("/data")).unwrap();
        place.files = Some(files);
        place
    }

    fn files(&self) -> PoolFiles<M> {
        self.files.clone().expect("open files")
    }

    fn crash(&mut self, _: u64) {
        let files = self.files.take().expect("open files");
        let pool = files.pool().clone();
        drop(files);
        pool.abandon();
        let pool = self.options().open().unwrap();
        let files = PoolFiles::open(pool, Path::new("/")).unwrap().expect("there are files");
        assert_eq!(files.check(), [] as [String; 0]);
        self.files = Some(files);
    }
}
