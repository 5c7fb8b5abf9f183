//! Errors of operations on a store.

use crate::{Cursor, Durability, Place};
use crate::{KEY_MAX, VALUE_MAX};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use terrace_disk::DiskError;
use terrace_index::{ChangeError, Damage, StoreError};
use terrace_pool::{Bytes, Forked, PoolFull};

/// A store could not be opened in its pool.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The index could not be created or found.
    Index(StoreError),
    /// The pool contains no store, and it is open read-only.
    Empty,
    /// The content at this offset is not that of a store.
    Damaged {
        /// Where, in bytes from the start of the pool.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(error) => error.fmt(f),
            Self::Empty => write!(f, "the pool contains no store"),
            Self::Damaged { offset, what } => write!(f, "the pool is damaged at offset {offset:#x}: {what}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl<E: Into<StoreError>> From<E> for OpenError {
    fn from(error: E) -> Self {
        Self::Index(error.into())
    }
}

/// A read failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// The data does not match its checksums. Other keys are not affected.
    Corrupt {
        /// Where.
        place: Place,
        /// What is wrong there.
        what: &'static str,
    },
    /// A scan met records that do not match their checksums, or damage to an ordered index, which
    /// may hide records. It has visited all other records up to `next`, where it can continue.
    Skipped {
        /// Number of records that it skipped; 0 if the index is damaged, which may hide any number.
        records: u64,
        /// Where the first damage lies.
        place: Place,
        /// What is wrong there.
        what: &'static str,
        /// The cursor to continue with.
        next: Cursor,
    },
    /// A file of the store could not be read.
    Io {
        /// The file.
        file: Arc<Path>,
        /// Bytes from its start.
        offset: u64,
        /// The error that the operating system reported.
        kind: io::ErrorKind,
    },
    /// A file of the store cannot be opened, because so many are open. The store is sound.
    Descriptors {
        /// The file.
        file: Arc<Path>,
        /// Which limit it is, and what to do.
        what: &'static str,
    },
    /// The store was opened by the process that this one was forked from.
    Forked,
    /// The store's index keeps no order, so it has no ranges.
    Unordered {
        /// The name of the index.
        index: &'static str,
    },
    /// The cursor is none that a scan of this store returns: it comes from a store with an index of
    /// another sort.
    InvalidCursor,
    /// The key belongs to a hash slot that this node of a cluster does not own, or no longer.
    NotOwner {
        /// The slot.
        slot: u16,
    },
    /// This node of a cluster cannot answer for any key now; the reason.
    Unavailable(String),
}

/// A write failed; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The key is longer than 64 KiB.
    KeyTooLong,
    /// The value is longer than 512 MiB.
    ValueTooLong,
    /// The writes that are to happen at one instant have more than 4 GiB together.
    BatchTooLong,
    /// The pool has no room. Reads and removals still work.
    PoolFull {
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes of the pool.
        size: u64,
        /// Bytes of the longest free range, if the value would have needed a range of its own.
        longest: Option<u64>,
        /// Bytes that become free once the readers that may still see them have finished.
        waiting: u64,
    },
    /// The pool of a cluster's memory node has no room. Reads and removals still work.
    MemoryNodeFull {
        /// Bytes of the pool that are free, and kept for the logs of serving nodes.
        free: u64,
        /// Bytes of the pool.
        size: u64,
    },
    /// The store uses more memory than its limit, and no key can be evicted. Reads and removals
    /// still work.
    MemoryLimit {
        /// Bytes that it may use.
        limit: u64,
    },
    /// The index of a store over DRAM and files has no room for more keys. Reads still work.
    DramFull {
        /// The keys that it has.
        keys: u64,
        /// Bytes of DRAM.
        dram: u64,
    },
    /// The store is open read-only.
    ReadOnly,
    /// The data to change does not match its checksums. A put or a removal of the key replaces it.
    Corrupt {
        /// Where.
        place: Place,
        /// What is wrong there.
        what: &'static str,
    },
    /// A file of the store could not be read or written.
    Io {
        /// The file.
        file: Arc<Path>,
        /// Bytes from its start.
        offset: u64,
        /// The error that the operating system reported.
        kind: io::ErrorKind,
    },
    /// As [`ReadError::Descriptors`].
    Descriptors {
        /// The file.
        file: Arc<Path>,
        /// Which limit it is, and what to do.
        what: &'static str,
    },
    /// The write asks for more durability than the store provides.
    Durability {
        /// What was asked for.
        asked: Durability,
        /// The most that the store provides.
        most: Durability,
    },
    /// The store was opened by the process that this one was forked from.
    Forked,
    /// As [`ReadError::Unordered`].
    Unordered {
        /// The name of the index.
        index: &'static str,
    },
    /// As [`ReadError::InvalidCursor`], for a scan that is part of the write.
    InvalidCursor,
    /// As [`ReadError::NotOwner`].
    NotOwner {
        /// The slot.
        slot: u16,
    },
    /// As [`ReadError::Unavailable`].
    Unavailable(String),
    /// Nobody knows whether the write was made, for this reason.
    Unknown(String),
    /// The write is larger than this engine takes, or changes keys at one instant that it cannot; a
    /// sentence about it.
    OverLimit(String),
    /// The store lies in a pool, and only one on a disk has the operation.
    NotOnDisk,
    /// A checkpoint cannot be made: something is at its path, or in its way. The reason.
    Checkpoint(String),
    /// Writes are disabled, because something in this program failed; the reason.
    Stopped(String),
}

/// Whether I/O was put off: see `terrace_disk::cold`.
fn is_put_off(kind: io::ErrorKind) -> bool {
    kind == io::ErrorKind::WouldBlock
}

impl ReadError {
    /// Whether the read would have waited for a slower tier, on a thread that must not.
    pub fn is_put_off(&self) -> bool {
        matches!(self, Self::Io { kind, .. } if is_put_off(*kind))
    }
}

impl WriteError {
    /// Whether a file system or a quota had no room.
    pub fn lacks_room(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { kind: StorageFull | QuotaExceeded, .. })
    }

    /// As [`ReadError::is_put_off`].
    pub fn is_put_off(&self) -> bool {
        matches!(self, Self::Io { kind, .. } if is_put_off(*kind))
    }
}

impl From<ReadError> for WriteError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Corrupt { place, what } | ReadError::Skipped { place, what, .. } => {
                Self::Corrupt { place, what }
            }
            ReadError::Io { file, offset, kind } => Self::Io { file, offset, kind },
            ReadError::Descriptors { file, what } => Self::Descriptors { file, what },
            ReadError::Forked => Self::Forked,
            ReadError::Unordered { index } => Self::Unordered { index },
            ReadError::InvalidCursor => Self::InvalidCursor,
            ReadError::NotOwner { slot } => Self::NotOwner { slot },
            ReadError::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

impl From<Forked> for ReadError {
    fn from(Forked: Forked) -> Self {
        Self::Forked
    }
}

impl From<Forked> for WriteError {
    fn from(Forked: Forked) -> Self {
        Self::Forked
    }
}

impl From<PoolFull> for WriteError {
    fn from(full: PoolFull) -> Self {
        Self::PoolFull {
            wanted: full.wanted,
            size: full.size,
            longest: full.longest,
            waiting: full.waiting_bytes,
        }
    }
}

impl From<ChangeError> for WriteError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Full(full) => full.into(),
            ChangeError::Damaged(Damage { offset, what }) => {
                Self::Corrupt { place: Place::Pool(offset), what }
            }
        }
    }
}

/// Bytes of DRAM that a key takes where the index has half of it, at most.
pub const DRAM_PER_KEY: u64 = 32;

const INVALID_CURSOR: &str = "invalid cursor: begin the scan again from the start";

fn unordered(f: &mut fmt::Formatter<'_>, index: &str) -> fmt::Result {
    write!(
        f,
        "the store's index `{index}` keeps no order of keys, so it has no ranges; create a store with an ordered \
         index (`masstree`, `art`, `hot`, `bwtree` or `sptree`) and copy the entries into it"
    )
}

fn not_owner(f: &mut fmt::Formatter<'_>, slot: u16) -> fmt::Result {
    write!(f, "another node of the cluster owns slot {slot}; send the command to it")
}

fn unavailable(f: &mut fmt::Formatter<'_>, why: &str) -> fmt::Result {
    write!(f, "this node of the cluster cannot answer now: {why}; try again, or ask another node")
}

fn corrupt(f: &mut fmt::Formatter<'_>, place: &Place, what: &str) -> fmt::Result {
    let damaged = match place {
        Place::Pool(_) => "pool",
        Place::File { .. } => "store",
    };
    write!(f, "the {damaged} is damaged at {place}: {what}; run `terrace check` for all damage")
}

fn failed(f: &mut fmt::Formatter<'_>, file: &Path, offset: u64, kind: io::ErrorKind) -> fmt::Result {
    if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        let file = file.display();
        return write!(f, "the disk has no room for {file}: {kind}; writes go on when there is some");
    }
    write!(f, "I/O error at offset {offset:#x} of {}: {kind}", file.display())
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt { place, what } => corrupt(f, place, what),
            Self::Skipped { records: 0, place, what, .. } => {
                write!(f, "entries may be missing: ")?;
                corrupt(f, place, what)
            }
            Self::Skipped { records: 1, place, what, .. } => {
                write!(f, "1 record was skipped: ")?;
                corrupt(f, place, what)
            }
            Self::Skipped { records, place, what, .. } => {
                write!(f, "{records} records were skipped: ")?;
                corrupt(f, place, what)
            }
            Self::Io { file, offset, kind } => failed(f, file, *offset, *kind),
            Self::Descriptors { file, what } => write!(f, "cannot open {}: {what}", file.display()),
            Self::Forked => Forked.fmt(f),
            Self::Unordered { index } => unordered(f, index),
            Self::InvalidCursor => write!(f, "{INVALID_CURSOR}"),
            Self::NotOwner { slot } => not_owner(f, *slot),
            Self::Unavailable(why) => unavailable(f, why),
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyTooLong => write!(f, "the key is longer than {} KiB", KEY_MAX >> 10),
            Self::ValueTooLong => write!(f, "the value is longer than {} MiB", VALUE_MAX >> 20),
            Self::BatchTooLong => write!(f, "the batch has more than 4 GiB; divide it"),
            Self::PoolFull { wanted, size, longest, waiting } => {
                write!(f, "the pool is full: no room for {} in {}", Bytes(*wanted), Bytes(*size))?;
                if let Some(longest) = longest {
                    write!(f, " in one piece (the longest free range has {})", Bytes(*longest))?;
                }
                if *waiting > 0 {
                    write!(f, " ({} are waiting for readers to finish)", Bytes(*waiting))?;
                }
                write!(f, "; grow it, or remove keys")
            }
            Self::MemoryNodeFull { free, size } => write!(
                f,
                "the memory node's pool of {} is full: {} were free then, and kept for the logs of serving nodes; \
                 remove keys of 8 MiB, or start the memory node again with a larger --size",
                Bytes(*size),
                Bytes(*free)
            ),
            Self::MemoryLimit { limit } => write!(
                f,
                "the store uses more than its limit of {}, and no key can be evicted; raise the limit, choose a policy \
                 that evicts, or remove keys",
                Bytes(*limit)
            ),
            Self::DramFull { keys, dram } => write!(
                f,
                "DRAM is full: {} have room for about {keys} keys; open the store with more, {DRAM_PER_KEY} bytes a \
                 key, or remove keys",
                Bytes(*dram)
            ),
            Self::ReadOnly => write!(f, "the store is open read-only"),
            Self::Corrupt { place, what } => corrupt(f, place, what),
            Self::Io { file, offset, kind } => failed(f, file, *offset, *kind),
            Self::Descriptors { file, what } => write!(f, "cannot open {}: {what}", file.display()),
            Self::Durability { asked, most: Durability::None } => write!(
                f,
                "the store was opened with durability `none`, and keeps no log; open it again with `{asked}`"
            ),
            Self::Durability { asked, most } => write!(
                f,
                "the write asks for durability `{asked}`, but the store provides at most `{most}`; open it with more"
            ),
            Self::Forked => Forked.fmt(f),
            Self::Unordered { index } => unordered(f, index),
            Self::InvalidCursor => write!(f, "{INVALID_CURSOR}"),
            Self::NotOwner { slot } => not_owner(f, *slot),
            Self::Unavailable(why) => unavailable(f, why),
            Self::Unknown(why) => {
                write!(f, "{why}; the write may have been done or not: read before you repeat it")
            }
            Self::OverLimit(why) => f.write_str(why),
            Self::NotOnDisk => write!(f, "the store lies in a pool; only a store in a directory can do this"),
            Self::Checkpoint(why) => write!(f, "no checkpoint was made: {why}"),
            Self::Stopped(why) => write!(f, "writes are disabled: {why}; open the store again"),
        }
    }
}

impl std::error::Error for ReadError {}
impl std::error::Error for WriteError {}

impl std::error::Error for CloseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::StillOpen => None,
            Self::Failed(error) => Some(&**error),
        }
    }
}

/// A store was not closed cleanly. Its durable data is safe; the next open treats this as a crash.
#[derive(Debug)]
#[non_exhaustive]
pub enum CloseError {
    /// Another handle of the store exists; the store is closed when the last one is dropped.
    StillOpen,
    /// Writing the data back failed.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StillOpen => write!(f, "the store is still in use by this program and was not closed"),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

impl From<terrace_pool::CloseError> for CloseError {
    fn from(error: terrace_pool::CloseError) -> Self {
        match error {
            terrace_pool::CloseError::StillOpen => Self::StillOpen,
            error => Self::Failed(Box::new(error)),
        }
    }
}

/// A watch could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchError {
    /// The store has reached its maximum number of watches, over all processes.
    TooMany(u32),
    /// The store was opened by the process that this one was forked from.
    Forked,
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(count) => write!(
                f,
                "the store has reached its maximum of {count} watches, over all processes; use one watch with a \
                 shorter prefix for several"
            ),
            Self::Forked => Forked.fmt(f),
        }
    }
}

impl std::error::Error for WatchError {}

impl From<terrace_pool::WatchError> for WatchError {
    fn from(error: terrace_pool::WatchError) -> Self {
        match error {
            terrace_pool::WatchError::TooMany(count) => Self::TooMany(count),
            _ => Self::Forked,
        }
    }
}

impl From<DiskError> for ReadError {
    fn from(error: DiskError) -> Self {
        let lacks = error.lacks_descriptors();
        match (error, lacks) {
            (DiskError::Io { path, .. }, Some(what)) => Self::Descriptors { file: path.into(), what },
            (DiskError::Io { path, error, .. } | DiskError::Full { path, error }, _) => {
                Self::Io { file: path.into(), offset: 0, kind: error.kind() }
            }
            (error, _) => {
                let (place, what) = crate::place_of(&error);
                Self::Corrupt { place, what }
            }
        }
    }
}

impl From<DiskError> for WriteError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::ReadOnly { .. } => Self::ReadOnly,
            DiskError::Moved { .. } => Self::Stopped(error.to_string()),
            error => ReadError::from(error).into(),
        }
    }
}
