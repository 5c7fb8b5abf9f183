//! The root and the tables: where buckets are.

use terrace_medium::{Line, Offset};

/// Buckets that move together: eight lines, two media blocks. A resize pays two fences and one write-back a group, so a smaller group
/// would cost more than the 1.3 fences an insert that growth may cost; a larger one would make a writer wait longer.
pub(super) const GROUP: u64 = 8;
/// The smallest table: one group.
pub(super) const LOG2_MIN: u32 = 3;
/// The largest: 16 TiB of lines.
pub(super) const LOG2_MAX: u32 = 38;

/// The root block: two lines. Line 0 is read by every operation and written only by resizes.
///
/// ```text
///   line 0 | lock | current | next | seed | stripes | kind | resizes | 0 |
///   line 1 | count mode | base | frontier | 0 ... |                          (see count.rs)
/// ```
pub(super) type Root = [Line; 2];

pub(super) const ROOT_LOCK: usize = 0;
pub(super) const ROOT_CURRENT: usize = 1;
pub(super) const ROOT_NEXT: usize = 2;
pub(super) const ROOT_SEED: usize = 3;
pub(super) const ROOT_STRIPES: usize = 4;
pub(super) const ROOT_KIND: usize = 5;
pub(super) const ROOT_RESIZES: usize = 6;

/// Words of a table's header line, which follows its buckets. Both are estimates that may be lost in a crash.
pub(super) const HEADER_OVERFLOW: usize = 0;
pub(super) const HEADER_CURSOR: usize = 1;

/// A table, as the root names it: its offset, a multiple of 64, with the binary logarithm of its buckets in the low six bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table(u64);

impl Table {
    pub(super) fn new(start: u64, log2: u32) -> Self {
        debug_assert!(start.is_multiple_of(64) && (LOG2_MIN..=LOG2_MAX).contains(&log2));
        Self(start | u64::from(log2))
    }
    #[inline(always)]
    pub(super) fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    pub(super) fn word(self) -> u64 {
        self.0
    }
    #[inline(always)]
    pub(super) fn start(self) -> u64 {
        self.0 & !63
    }
    #[inline(always)]
    pub(super) fn log2(self) -> u32 {
        (self.0 & 63) as u32
    }
    #[inline(always)]
    pub(super) fn buckets(self) -> u64 {
        1 << self.log2()
    }
    #[inline(always)]
    pub(super) fn groups(self) -> u64 {
        self.buckets() / GROUP
    }
    /// The bucket that a hash belongs to.
    #[inline(always)]
    pub(super) fn index(self, hash: u64) -> u64 {
        hash >> (64 - self.log2())
    }
    /// The first hash of a bucket.
    #[inline(always)]
    pub(super) fn first_hash(self, index: u64) -> u64 {
        index << (64 - self.log2())
    }
    #[inline(always)]
    pub(super) fn bucket(self, index: u64) -> Offset<Line> {
        Offset::new(self.start()).element(index)
    }
    /// The bucket whose link tells whether the group of bucket `index` has moved.
    #[inline(always)]
    pub(super) fn leader(self, index: u64) -> Offset<Line> {
        self.bucket(index & !(GROUP - 1))
    }
    #[inline(always)]
    pub(super) fn header(self) -> Offset<Line> {
        self.bucket(self.buckets())
    }
    /// Bytes of the table's block.
    pub(super) fn bytes(self) -> usize {
        Self::bytes_for(self.log2())
    }
    pub(super) fn bytes_for(log2: u32) -> usize {
        ((1usize << log2) + 1) * 64
    }
    /// Whether the word can be a table of a region of `len` bytes at all.
    pub(super) fn is_sound(self, len: usize) -> bool {
        (LOG2_MIN..=LOG2_MAX).contains(&self.log2())
            && self.start() != 0
            && self.start().checked_add(self.bytes() as u64).is_some_and(|end| end <= len as u64)
    }
}

/// Both tables at one instant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    pub(super) current: Table,
    pub(super) next: Option<Table>,
}
