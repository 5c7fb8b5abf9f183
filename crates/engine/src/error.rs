//! What can go wrong with single operations, in the words of whoever asked for them.

use crate::direct::{KEY_MAX, VALUE_MAX};
use std::fmt;
use terrace_index::StoreError;
use terrace_pool::{Bytes, Forked, PoolFull};

/// The pool does not hold a store that can be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The index could not be made or found.
    Index(StoreError),
    /// There is no store in it, and it is open read-only.
    Empty,
    /// What lies at this offset is not what a store has there.
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
            Self::Empty => write!(f, "there is no store in it"),
            Self::Damaged { offset, what } => write!(f, "it is damaged at offset {offset:#x}: {what}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl<E: Into<StoreError>> From<E> for OpenError {
    fn from(error: E) -> Self {
        Self::Index(error.into())
    }
}

/// A read could not be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// What lies in the pool does not match its checksums. Other keys are not affected.
    Corrupt {
        /// Where, in bytes from the start of the pool.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A scan met records that do not match their checksums. It has visited all other records up to
    /// `next`, where it can continue.
    Skipped {
        /// How many records it has left out.
        records: u64,
        /// Where the first of them lies, in bytes from the start of the pool.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
        /// The cursor to go on with; 0 at the end.
        next: u64,
    },
    /// The store was opened by the process that this one was forked from.
    Forked,
    /// A scan was to go on from a number that no scan returns: see [`CURSOR_LIMIT`](crate::CURSOR_LIMIT).
    InvalidCursor,
}

/// A write was not done; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// Keys have 64 KiB at most.
    KeyTooLong,
    /// Values have 512 MiB at most.
    ValueTooLong,
    /// There is no room. Reads and removals go on.
    PoolFull {
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes of the pool.
        size: u64,
        /// Bytes of the longest piece that is free, if the value would have needed a piece of its own.
        longest: Option<u64>,
        /// Bytes that are free once the readers that may still see them have gone.
        waiting: u64,
    },
    /// The store is open read-only.
    ReadOnly,
    /// What was to be changed does not match its checksums. A put over it, or a removal, helps.
    Corrupt {
        /// Where, in bytes from the start of the pool.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The store was opened by the process that this one was forked from.
    Forked,
    /// As [`ReadError::InvalidCursor`], where a scan is part of what was to be written.
    InvalidCursor,
    /// Something in this program failed, so that nothing more is written; why.
    Stopped(String),
}

impl From<ReadError> for WriteError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Corrupt { offset, what } | ReadError::Skipped { offset, what, .. } => {
                Self::Corrupt { offset, what }
            }
            ReadError::Forked => Self::Forked,
            ReadError::InvalidCursor => Self::InvalidCursor,
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

const INVALID_CURSOR: &str = "invalid cursor: begin the scan again from 0";

fn corrupt(f: &mut fmt::Formatter<'_>, offset: u64, what: &str) -> fmt::Result {
    write!(f, "the pool is damaged at offset {offset:#x}: {what}; `terrace check` tells what else is")
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt { offset, what } => corrupt(f, *offset, what),
            Self::Skipped { records: 1, offset, what, .. } => {
                write!(f, "a record was left out, for ")?;
                corrupt(f, *offset, what)
            }
            Self::Skipped { records, offset, what, .. } => {
                write!(f, "{records} records were left out, for ")?;
                corrupt(f, *offset, what)
            }
            Self::Forked => Forked.fmt(f),
            Self::InvalidCursor => write!(f, "{INVALID_CURSOR}"),
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyTooLong => write!(f, "the key is longer than {} KiB", KEY_MAX >> 10),
            Self::ValueTooLong => write!(f, "the value is longer than {} MiB", VALUE_MAX >> 20),
            Self::PoolFull { wanted, size, longest, waiting } => {
                write!(f, "the pool is full: no room for {} in {}", Bytes(*wanted), Bytes(*size))?;
                if let Some(longest) = longest {
                    write!(f, " in one piece (the longest that is free has {})", Bytes(*longest))?;
                }
                if *waiting > 0 {
                    write!(f, " ({} waits for readers to finish)", Bytes(*waiting))?;
                }
                write!(f, "; grow it, or remove something")
            }
            Self::ReadOnly => write!(f, "the store is open read-only"),
            Self::Corrupt { offset, what } => corrupt(f, *offset, what),
            Self::Forked => Forked.fmt(f),
            Self::InvalidCursor => write!(f, "{INVALID_CURSOR}"),
            Self::Stopped(why) => write!(f, "nothing more is written: {why}; open the pool again"),
        }
    }
}

impl std::error::Error for ReadError {}
impl std::error::Error for WriteError {}
