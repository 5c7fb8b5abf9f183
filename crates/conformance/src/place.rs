//! A pool in a file, so that any medium can be closed and reopened.

use tempfile::TempDir;
use terrace_medium::MappedMedium;
use terrace_pool::{Pool, PoolOptions};

const BYTES: u64 = 16 << 20;

/// A file in shared memory for one pool, removed on drop.
pub(super) struct PoolFile(TempDir);

impl PoolFile {
    pub(super) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("terrace-test").tempdir_in("/dev/shm");
        Self(directory.expect("a directory in /dev/shm"))
    }

    /// The hash seed is fixed, so that failures can be reproduced.
    fn options(&self) -> PoolOptions {
        let options = PoolOptions::at(self.0.path().join("pool"));
        options.size(BYTES).hash_seed(0x7e44_ace0).assume_persistent(true)
    }

    pub(super) fn create<M: MappedMedium>(&self) -> Pool<M> {
        self.options().create().expect("memory for a pool")
    }

    pub(super) fn open<M: MappedMedium>(&self) -> Pool<M> {
        self.options().open().expect("a sound pool")
    }
}

/// How a process closes its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Cleanly.
    Closed,
    /// As if it was killed.
    Killed,
}

impl End {
    pub(super) fn of<M: MappedMedium>(self, pool: Pool<M>) {
        match self {
            Self::Closed => pool.close().expect("the last handle"),
            Self::Killed => pool.abandon(),
        }
    }
}
