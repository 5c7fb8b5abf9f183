//! What is measured of every store.

use super::Outcome;
use std::path::Path;

/// Bytes of memory of a store, for blocks and for what is not in tables yet.
pub(super) const MEMORY: usize = 96 << 20;
/// Threads of a store for flushes and merges; ours has as many.
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
pub(super) const BACKGROUND: usize = 2;

/// A write: a value, or `None` to delete the key.
pub(super) type Write<'a> = (&'a [u8], Option<&'a [u8]>);
/// Visits an entry of a range.
pub(super) type Each<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

/// Bytes on the disk, and what it took; since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Bytes written to tables; `None` if the store does not count them.
    pub(super) tables_written: Option<u64>,
    /// Bytes written to the log.
    pub(super) log_written: u64,
    /// Bytes of all tables now.
    pub(super) table_bytes: u64,
    /// Blocks that were read from files; `None` if the store does not count them.
    pub(super) blocks_read: Option<u64>,
    /// Buckets that were split; ours alone has them.
    pub(super) splits: u64,
}

/// An ordered store in files. It is closed when it is dropped.
pub(super) trait Stored: Send + Sync {
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
pub(super) enum Side {
    Ours,
    /// Ours, without regard to reads when it chooses what to merge (thesis 2.3.7).
    Unaware,
    RocksDb,
    /// RocksDB with buffers of 2 MiB over a first level of 8 MiB, so that it has as many levels as
    /// stores of a thousand times the size have.
    Deep,
    Fjall,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Unaware => "unaware of reads",
            Self::RocksDb => "RocksDB",
            Self::Deep => "RocksDB deep",
            Self::Fjall => "fjall",
        }
    }

    /// Whether this program was built with it.
    pub(super) fn is_built(self) -> bool {
        match self {
            Self::Ours | Self::Unaware => true,
            Self::RocksDb | Self::Deep => cfg!(feature = "rocksdb"),
            Self::Fjall => cfg!(feature = "fjall"),
        }
    }

    /// Opens the store in `directory`, or creates it there. `is_synced`: each write survives a loss
    /// of power when it returns.
    pub(super) fn open(self, directory: &Path, is_synced: bool) -> Outcome<Box<dyn Stored>> {
        match self {
            Self::Ours => super::ours::open(directory, MEMORY, is_synced, true),
            Self::Unaware => super::ours::open(directory, MEMORY, is_synced, false),
            #[cfg(feature = "rocksdb")]
            Self::RocksDb | Self::Deep => super::rocks::open(directory, self == Self::Deep, is_synced),
            #[cfg(feature = "fjall")]
            Self::Fjall => super::fjall::open(directory, is_synced),
            #[allow(unreachable_patterns, reason = "which are reachable depends on the features")]
            _ => Err(format!("this program was built without {}", self.name()).into()),
        }
    }
}
