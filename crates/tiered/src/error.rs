//! Why a store could not be opened.

use terrace_disk::DiskError;
use terrace_engine::{OpenError, WriteError};

/// Why a store could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum TieredError {
    /// A file.
    Disk(DiskError),
    /// DRAM, or the index in it.
    Memory(OpenError),
    /// The pool in DRAM.
    Pool(terrace_pool::OpenError),
    /// The index does not fit into DRAM.
    Dram {
        /// The keys that the store has, at most.
        keys: u64,
        /// Bytes of DRAM that suffice for them.
        enough: u64,
    },
    /// The log has more than fits into DRAM, and the store is only read, so that nothing of it goes
    /// to the tier.
    Log {
        /// Bytes of the log.
        bytes: u64,
    },
    /// What the log has could not be written.
    Write(WriteError),
}

impl std::fmt::Display for TieredError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disk(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
            Self::Dram { keys, enough } => write!(
                f,
                "the index of its keys has no room, of which there are up to {keys}; {} are enough for these",
                terrace_pool::Bytes(*enough)
            ),
            Self::Log { bytes } => write!(
                f,
                "its log of {} has no room, and a store that is only read flushes nothing; open it for writing \
                 once, or with more",
                terrace_pool::Bytes(*bytes)
            ),
            Self::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TieredError {}

impl From<DiskError> for TieredError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

impl From<WriteError> for TieredError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

impl From<OpenError> for TieredError {
    fn from(error: OpenError) -> Self {
        Self::Memory(error)
    }
}
