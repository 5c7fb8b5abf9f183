//! Errors of a store as a whole, and of an increment.

use crate::index::Index;
use std::fmt;
use std::io::{self, ErrorKind};
use terrace_disk::DiskError;
use terrace_engine::{Durability, WriteError};
use terrace_pool::Holder;

/// A store could not be created or opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Neither a path nor anonymous memory was chosen.
    NoPath,
    /// The pool could not be created or opened.
    Pool(terrace_pool::OpenError),
    /// The pool could be opened, but its content is no store, or is damaged.
    Contents {
        /// The pool.
        pool: std::path::PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The salvaged records could not be written to a new pool.
    Salvage {
        /// The damaged pool. It is unchanged.
        pool: std::path::PathBuf,
        /// What went wrong.
        what: String,
    },
    /// This program was built without a feature of the `terrace` crate that the store needs.
    NotBuilt {
        /// The feature.
        feature: &'static str,
    },
    /// A store of this kind cannot provide this durability.
    Durability(Durability),
    /// A store on a disk could not be created or opened.
    Disk(DiskError),
    /// A store over DRAM and files has too little DRAM, or does not fit into it; why.
    Dram {
        /// Bytes of DRAM.
        dram: u64,
        /// What does not fit.
        what: String,
    },
    /// A store over two tiers cannot have this index.
    IndexOfTiers(Index),
    /// A thread of the store could not be started.
    Thread(io::Error),
}

impl OpenError {
    /// The refusal of an index that this program was built without.
    pub(crate) fn not_built(index: Index) -> Self {
        Self::NotBuilt { feature: index.name() }
    }

    /// Whether another process has the store open. That process may be about to exit.
    pub fn is_in_use(&self) -> bool {
        match self {
            Self::Pool(error) => matches!(error.problem, terrace_pool::Problem::InUse(_)),
            Self::Disk(error) => matches!(error, DiskError::Locked { .. }),
            _ => false,
        }
    }

    /// Whether there is no store at the path.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Pool(error) => matches!(error.problem, terrace_pool::Problem::Missing),
            Self::Disk(error) => matches!(error, DiskError::NoStore { .. }),
            _ => false,
        }
    }

    /// Whether this user may not open the store in this way: not at all, or not for writing.
    pub fn is_denied(&self) -> bool {
        let is_denied = |kind| matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem);
        match self {
            Self::Pool(error) => matches!(
                error.problem,
                terrace_pool::Problem::Denied(_) | terrace_pool::Problem::ReadOnlyFileSystem
            ),
            Self::Disk(DiskError::Io { error, .. }) => is_denied(error.kind()),
            _ => false,
        }
    }

    /// Whether the pool can only be read by sharing it, because it cannot be read without changing
    /// it: it lies on hugetlbfs or on a device.
    pub fn is_shared_only(&self) -> bool {
        matches!(self, Self::Pool(error) if matches!(error.problem, terrace_pool::Problem::NotReadable))
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPath => write!(f, "no pool was named\n  choose a path, or anonymous memory"),
            Self::Pool(error) => error.fmt(f),
            Self::Contents { pool, what } => write!(
                f,
                "the pool {} cannot be used: {what}\n  keep what its checksums prove with --salvage, or restore it \
                 from a backup",
                pool.display()
            ),
            Self::Salvage { pool, what } => {
                write!(
                    f,
                    "the store at {} could not be salvaged and was left as it is: {what}",
                    pool.display()
                )
            }
            Self::NotBuilt { feature } => write!(
                f,
                "this program was built without `{feature}`\n  build it with the feature `{feature}` of the \
                 crate `terrace`"
            ),
            Self::Durability(asked) => {
                write!(
                    f,
                    "a store of this kind cannot have the durability `{asked}`\n  a pool has `process` or `power`, a \
                 directory `interval` too"
                )
            }
            Self::Disk(error) => error.fmt(f),
            Self::Dram { dram, what } => {
                write!(f, "{} of DRAM do not suffice: {what}\n  give it more", terrace_pool::Bytes(*dram))
            }
            Self::IndexOfTiers(index) => write!(
                f,
                "a store over two tiers cannot have the index {}; turbo, clht, level and rewo can",
                index.name()
            ),
            Self::Thread(error) => write!(f, "a background thread could not be started: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pool(error) => error.source(),
            Self::Thread(error) => Some(error),
            Self::Disk(error) => error.source(),
            _ => None,
        }
    }
}

impl From<DiskError> for OpenError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

impl From<terrace_pool::OpenError> for OpenError {
    fn from(error: terrace_pool::OpenError) -> Self {
        Self::Pool(error)
    }
}

/// A store was not closed cleanly. The next open treats this as a crash: the data is as safe as the
/// store's durability says.
#[derive(Debug)]
#[non_exhaustive]
pub enum CloseError {
    /// Another handle of the store exists; the store is closed when the last one is dropped.
    StillOpen,
    /// A thread of the store has waited for two seconds for this process, which shares the pool and
    /// is stopped. The store is closed when that thread ends.
    BlockedBy(Holder),
    /// Writing the data back failed.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StillOpen => write!(f, "the store is still in use by this program and was not closed"),
            Self::BlockedBy(holder) => write!(
                f,
                "the store could not be closed: a thread of this program waits for {holder}\n  let that process \
                 continue, or kill it: the others then recover what it held"
            ),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CloseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<terrace_engine::CloseError> for CloseError {
    fn from(error: terrace_engine::CloseError) -> Self {
        match error {
            terrace_engine::CloseError::Failed(error) => Self::Failed(error),
            _ => Self::StillOpen,
        }
    }
}

/// A store was not grown; its size is unchanged.
#[derive(Debug)]
#[non_exhaustive]
pub enum GrowError {
    /// The store does not lie in a pool: it takes as much space as its data needs.
    NoPool,
    /// The pool could not grow.
    Pool(terrace_pool::GrowError),
}

impl fmt::Display for GrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPool => {
                write!(f, "the store does not lie in a pool: it takes as much space as its data needs")
            }
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GrowError {}

impl From<terrace_pool::GrowError> for GrowError {
    fn from(error: terrace_pool::GrowError) -> Self {
        Self::Pool(error)
    }
}

/// A counter was not incremented; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IncrementError {
    /// The value is not a decimal 64-bit integer.
    NotAnInteger,
    /// The sum exceeds 64 bits.
    Overflow,
    /// Writing the sum failed.
    Write(WriteError),
}

impl fmt::Display for IncrementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnInteger => write!(f, "the value is not an integer or out of range"),
            Self::Overflow => write!(f, "the increment would overflow 64 bits"),
            Self::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for IncrementError {}

impl From<WriteError> for IncrementError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}
