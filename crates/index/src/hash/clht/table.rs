//! The root and the tables: where buckets are.

use terrace_medium::{Line, Offset};

/// Buckets that move together: eight lines, two media blocks. A resize pays two fences and one
/// write-back a group. A smaller group would exceed the 1.3 fences an insert that growth may cost;
/// a larger one would make a writer wait longer.
pub(super) const GROUP: u64 = 8;
/// The smallest table: one group.
pub(super) const LOG2_MIN: u32 = 3;
/// The largest table: 16 TiB of lines.
pub(super) const LOG2_MAX: u32 = 38;

/// The root block: two lines. Every operation reads line 0; only resizes write it.
///
/// ```text
///   line 0 | lock | current | next | seed | stripes | kind | resizes | check of seed and stripes |
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
pub(super) const ROOT_CHECK: usize = 7;

/// The value of [`ROOT_CHECK`]. It differs for any other seed and for any other place of the
/// stripes.
pub(super) fn root_check(seed: u64, stripes: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (seed ^ ODD).rotate_left(29) ^ stripes.wrapping_mul(ODD)
}

/// Words of a table's header line, which follows its buckets. Both are estimates that a crash may
/// lose.
pub(super) const HEADER_OVERFLOW: usize = 0;
pub(super) const HEADER_CURSOR: usize = 1;

/// A table, as the root names it: `| 63:48 check | 47:6 offset / 64 | 5:0 log2 of its buckets |`.
///
/// Opening an index verifies the check, because writing buckets at a wrong place would destroy
/// other data. Operations do not, because only resizes change these words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table(u64);

const CHECK_AT: u32 = 48;
const START: u64 = (1 << CHECK_AT) - 64;

/// The check of a table's other bits. It covers them in pieces of two bytes, so one changed byte is
/// always detected.
fn check(bits: u64) -> u64 {
    const NOT_ZERO: u64 = 0x7ab1;
    (bits ^ bits >> 16 ^ bits >> 32 ^ NOT_ZERO) & 0xffff
}

impl Table {
    pub(super) fn new(start: u64, log2: u32) -> Self {
        debug_assert!(start.is_multiple_of(64) && (LOG2_MIN..=LOG2_MAX).contains(&log2));
        let bits = start | u64::from(log2);
        Self(bits | check(bits) << CHECK_AT)
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
        self.0 & START
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
    /// The bucket of a hash.
    #[inline(always)]
    pub(super) fn index(self, hash: u64) -> u64 {
        hash >> (64 - self.log2())
    }
    /// The first hash of a bucket; 0 for the one behind the last.
    #[inline(always)]
    pub(super) fn first_hash(self, index: u64) -> u64 {
        index << (64 - self.log2())
    }
    #[inline(always)]
    pub(super) fn bucket(self, index: u64) -> Offset<Line> {
        Offset::new(self.start()).element(index)
    }
    /// The bucket whose link says whether the group of bucket `index` has moved.
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
    /// Whether the word is as it was made, and can be a table in a region of `len` bytes.
    pub(super) fn is_sound(self, len: usize) -> bool {
        self.0 >> CHECK_AT == check(self.0 & ((1 << CHECK_AT) - 1))
            && (LOG2_MIN..=LOG2_MAX).contains(&self.log2())
            && self.start() != 0
            && self.start().checked_add(self.bytes() as u64).is_some_and(|end| end <= len as u64)
    }
}

/// Both tables at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct View {
    pub(super) current: Table,
    pub(super) next: Option<Table>,
}

#[cfg(test)]
#[path = "tests/table.rs"]
mod tests;
