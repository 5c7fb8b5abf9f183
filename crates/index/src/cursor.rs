//! Cursors: the place where a scan continues, in the form of the index and in that of callers and
//! clients.
//!
//! Many clients keep a cursor in a double (JavaScript, PHP, Lua), which is exact only below 2^53. A
//! scan from a rounded cursor repeats keys, skips keys, or never ends. So this is the contract of
//! every scan:
//!
//! 1. A cursor is below [`CURSOR_LIMIT`], 2^53. A larger number is no cursor, and the scan refuses
//!    it.
//! 2. Cursor 0 begins a scan. As the result of a scan, 0 is the end.
//! 3. Any other number below the limit is a valid cursor, whether a scan returned it or not. A scan
//!    from it visits every key from there to the end, and ends.
//! 4. A cursor holds everything that the scan needs. It stays valid after a restart, on any
//!    connection, and through resizes.
//! 5. A hash index scans in the order of [`Position`]s. It returns only positions whose lower
//!    [`UNUSED_BITS`] are 0, so a cursor is the upper 53 bits of a position and loses nothing. An
//!    index may stop only between units that it visits whole (a bucket, a home). Keys that share
//!    the upper bits of their hashes share a unit. Each index asserts at compile time that its
//!    largest table has no more units than cursors can distinguish.
//!
//! An ordered index would scan in the order of its keys, and a key does not fit into 53 bits. Only
//! this file makes and reads cursors, so such an index changes this file and nothing above it.

/// A place in a scan: the first hash that has not been visited. It means the same for every table
/// size. 0 is the start; as the result of a scan it is the end.
pub type Position = u64;

/// A place in a scan of an index. A scan starts anywhere and returns where it stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Before all keys.
    #[default]
    Start,
    /// A place in an index by hash.
    Hash(Position),
    /// Behind this key, present or not, in an index by order. An integer is eight big-endian bytes.
    After(Box<[u8]>),
    /// Behind all keys.
    End,
}

impl Place {
    /// Whether nothing is left to visit.
    pub fn is_end(&self) -> bool {
        *self == Self::End
    }

    /// Scans a hash index from here with `scan`, from one position to another.
    ///
    /// # Panics
    /// If this is a place in an index by order.
    #[inline]
    pub(crate) fn scan(&self, scan: impl FnOnce(Position) -> Position) -> Self {
        match self {
            Self::Start => Self::at(scan(0)),
            Self::Hash(position) => Self::at(scan(*position)),
            Self::End => Self::End,
            Self::After(_) => panic!("a hash index has no place behind a key"),
        }
    }

    /// The place where a scan of a hash index stopped: at `position`, or at the end if that is 0.
    #[inline]
    pub fn at(position: Position) -> Self {
        if position == 0 { Self::End } else { Self::Hash(position) }
    }
}

/// A place in a scan as callers and clients keep it, below [`CURSOR_LIMIT`]. 0 is the start and the
/// end.
pub type Cursor = u64;

/// Number of bits that distinguish positions.
pub const POSITION_BITS: u32 = 53;

/// Lower bits of a position that every scan leaves 0.
pub const UNUSED_BITS: u32 = Position::BITS - POSITION_BITS;

/// Cursors are below this.
pub const CURSOR_LIMIT: Cursor = 1 << POSITION_BITS;

/// The cursor of the place where a scan stopped.
#[inline]
pub fn cursor_at(position: Position) -> Cursor {
    debug_assert_eq!(position & ((1 << UNUSED_BITS) - 1), 0, "a scan stopped inside a unit: {position:#x}");
    position >> UNUSED_BITS
}

/// The place of a cursor; `None` if the number is no cursor.
#[inline]
pub fn position_of(cursor: Cursor) -> Option<Position> {
    (cursor < CURSOR_LIMIT).then_some(cursor << UNUSED_BITS)
}

#[cfg(test)]
#[path = "tests/cursor.rs"]
mod tests;
