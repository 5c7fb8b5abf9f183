//! What every store can do, and how each is opened.

use super::Outcome;
use std::path::Path;

/// Threads of a store for flushes and merges; ours has as many.
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
pub(crate) const BACKGROUND: usize = 2;

/// How a store is set, whichever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Bytes of memory, for blocks and for what is not in tables yet.
    pub(crate) memory: usize,
    /// Whether each write survives a loss of power when it returns.
    pub(crate) is_synced: bool,
}

/// A write: a value, or `None` to delete the key.
pub(crate) type Write<'a> = (&'a [u8], Option<&'a [u8]>);
/// Visits an entry of a range.
pub(crate) type Each<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

/// Bytes on the disk, and what it took; since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Bytes written to tables; `None` if the store does not count them.
    pub(crate) tables_written: Option<u64>,
    /// Bytes written to the log.
    pub(crate) log_written: u64,
    /// Bytes of all tables now.
    pub(crate) table_bytes: u64,
    /// Blocks that were read from files; `None` if the store does not count them.
    pub(crate) blocks_read: Option<u64>,
    /// Buckets that were split; ours alone has them.
    pub(crate) splits: u64,
}

/// A store in files. It is closed when it is dropped.
pub(crate) trait Stored: Send + Sync {
    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()>;
    /// Makes all writes, at one instant.
    fn write(&self, batch: &[Write<'_>]) -> Outcome<()>;
    fn delete(&self, key: &[u8]) -> Outcome<()>;
    /// Calls `each` with the value, if there is one. Returns whether there is.
    fn get(&self, key: &[u8], each: &mut dyn FnMut(&[u8])) -> Outcome<bool>;
    /// Visits up to `most` entries, from `from` on upwards, or from `from` on downwards.
    fn range(&self, from: &[u8], is_forward: bool, most: usize, each: &mut Each<'_>) -> Outcome<()>;
    /// Values of several keys at one instant.
    fn snapshot(&self, keys: &[&[u8]]) -> Outcome<Vec<Option<Vec<u8>>>>;
    /// Writes to tables what is only in memory.
    fn flush(&self) -> Outcome<()>;
    fn figures(&self) -> Figures;
}

/// A store, and how it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    /// Ours over DRAM and files. It has no ranges.
    Tiered,
    /// Ours, without regard to reads when it chooses what to merge (thesis 2.3.7).
    Unaware,
    RocksDb,
    /// RocksDB with buffers of 2 MiB over a first level of 8 MiB, so that it has as many levels as
    /// stores of a thousand times the size have.
    Deep,
    Fjall,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours | Self::Tiered => "ours",
            Self::Unaware => "unaware of reads",
            Self::RocksDb => "RocksDB",
            Self::Deep => "RocksDB deep",
            Self::Fjall => "fjall",
        }
    }

    /// Whether this program was built with it.
    pub(crate) fn is_built(self) -> bool {
        match self {
            Self::Ours | Self::Tiered | Self::Unaware => true,
            Self::RocksDb | Self::Deep => cfg!(feature = "rocksdb"),
            Self::Fjall => cfg!(feature = "fjall"),
        }
    }

    /// Opens the store in `directory`, or creates it there.
    pub(crate) fn open(self, directory: &Path, setup: Setup) -> Outcome<Box<dyn Stored>> {
        match self {
            Self::Ours | Self::Tiered | Self::Unaware => super::ours::open(directory, self, setup),
            #[cfg(feature = "rocksdb")]
            Self::RocksDb | Self::Deep => super::rocks::open(directory, self == Self::Deep, setup),
            #[cfg(feature = "fjall")]
            Self::Fjall => super::fjall::open(directory, setup),
            #[allow(unreachable_patterns, reason = "which are reachable depends on the features")]
            _ => Err(format!("this program was built without {}", self.name()).into()),
        }
    }
}
