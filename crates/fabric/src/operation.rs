//! Operations and how they end.

use crate::Error;
use std::fmt;

/// Names a region to the peer that it was made for. Its key is random, and gives access; so it is
/// not to be logged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionKey {
    pub(crate) key: u64,
    /// Where the fabric begins to count the region's bytes.
    pub(crate) base: u64,
}

impl RegionKey {
    /// The bytes to hand to the peer.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..].copy_from_slice(&self.base.to_le_bytes());
        bytes
    }

    /// The key that the peer gave these bytes of. Others name no region.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let (key, base) = bytes.split_at(8);
        let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("eight bytes"));
        Self { key: word(key), base: word(base) }
    }
}

impl fmt::Debug for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegionKey(..)")
    }
}

/// A byte in the memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The region.
    pub region: RegionKey,
    /// The byte, counted from the region's begin.
    pub offset: u64,
}

/// When a write is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Once the target's processors see the bytes. A power failure may lose them.
    Arrived,
    /// Once they survive a power failure of the target, if its memory can.
    Persistent,
}

/// What to do with the memory of the peer. It owns its buffer until it is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fills a buffer with the bytes from a place on. They are of several moments; over TCP even
    /// those of one word may be. So what is read proves itself, by a checksum or the like.
    Read {
        /// The first byte.
        from: Place,
        /// The buffer; its length is how many bytes.
        into: Vec<u8>,
    },
    /// Stores bytes from a place on, in any order. A reader may see a part of them.
    Write {
        /// The bytes.
        bytes: Vec<u8>,
        /// Where the first one goes.
        to: Place,
        /// When the operation is complete.
        until: Until,
    },
    /// Stores a word if the one there is the expected one.
    CompareAndSwap {
        /// An aligned word.
        at: Place,
        /// The expected word.
        expected: u64,
        /// The word to store.
        new: u64,
    },
    /// Adds to a word, wrapping around.
    FetchAdd {
        /// An aligned word.
        at: Place,
        /// The summand.
        add: u64,
    },
}

impl Operation {
    /// The first byte that it concerns.
    pub fn place(&self) -> Place {
        match self {
            Self::Read { from: place, .. }
            | Self::Write { to: place, .. }
            | Self::CompareAndSwap { at: place, .. }
            | Self::FetchAdd { at: place, .. } => *place,
        }
    }

    /// Number of bytes that it concerns.
    pub fn len(&self) -> usize {
        match self {
            Self::Read { into: buffer, .. } | Self::Write { bytes: buffer, .. } => buffer.len(),
            Self::CompareAndSwap { .. } | Self::FetchAdd { .. } => 8,
        }
    }

    /// Whether it concerns no byte, which is an error.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a connection can post it. `persists`: whether it knows when a write is persistent.
    pub(crate) fn check(&self, persists: bool) -> Result<(), Error> {
        let offset = self.place().offset;
        match self {
            Self::Write { until: Until::Persistent, .. } if !persists => Err(Error::NotPersistent),
            Self::CompareAndSwap { .. } | Self::FetchAdd { .. } if !offset.is_multiple_of(8) => {
                Err(Error::Unaligned(offset))
            }
            _ if self.is_empty() => Err(Error::Empty),
            _ => Ok(()),
        }
    }
}

/// An operation with the number by which its completion names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Chosen by the caller.
    pub number: u64,
    /// The operation.
    pub operation: Operation,
}

/// The end of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number that it was posted with.
    pub number: u64,
    /// How it ended.
    pub outcome: Result<Output, Failure>,
}

/// What an operation that was done leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The buffer of a read, filled, or that of a write.
    Buffer(Vec<u8>),
    /// The word that was there before an atomic operation.
    Before(u64),
}

/// Why an operation was not done, as far as is known. In either case the connection has ended. A
/// write or an atomic operation may have been done in part or whole, and may still be done later:
/// until the target has closed the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The target is there, and refused this operation or another one of the connection: its region
    /// was revoked, or does not reach so far, or does not permit it.
    Refused,
    /// The target did not answer: it is dead, stopped, cut off, or has closed the endpoint.
    Lost,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the target refused an operation; a region may have been revoked",
            Self::Lost => "the target does not answer",
        })
    }
}

impl std::error::Error for Failure {}
