//! The place of a data table, and the two buckets of a key in it.

use super::bucket::Bucket;
use terrace_medium::{BLOCK, Offset};

/// The largest table: 2^27 buckets, 32 GiB. So the buckets of 16 tables can be counted in 32 bits.
pub(super) const BUCKETS_LOG2_MAX: u32 = 27;
/// A key's second bucket is one of the 255 behind its first (or any other, in a smaller table).
pub(super) const WINDOW: u64 = 256;
/// Bits of a hash before those that choose the bucket: the cell of the directory, and ten that
/// slots of byte strings keep.
pub(super) const TOP_BITS: u32 = 14;

/// The place of a table: `| 63:48 check | 47:6 offset / 64 | 5:0 log2 of the buckets |`. Never 0.
///
/// Opening an index verifies the check, because writing buckets at a wrong place would destroy
/// other data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(u64);

const CHECK_AT: u32 = 48;
const START: u64 = (1 << CHECK_AT) - 64;

/// The check of a place's other bits. It covers them in pieces of two bytes, so one changed byte is
/// always detected.
fn check(bits: u64) -> u64 {
    const NOT_ZERO: u64 = 0x5e70;
    (bits ^ bits >> 16 ^ bits >> 32 ^ NOT_ZERO) & 0xffff
}

impl Place {
    pub(super) fn new(start: u64, log2: u32) -> Self {
        debug_assert!(start.is_multiple_of(64) && log2 <= BUCKETS_LOG2_MAX);
        let bits = start | u64::from(log2);
        Self(bits | check(bits) << CHECK_AT)
    }
    #[inline(always)]
    pub(super) const fn of(word: u64) -> Self {
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
    fn mask(self) -> u64 {
        !(u64::MAX << self.log2())
    }
    /// The first bucket of a key with this hash: its home.
    #[inline(always)]
    pub(super) fn home(self, hash: u64) -> u64 {
        // 63 minus the logarithm, modulo 64.
        hash << TOP_BITS >> 1 >> (!self.0 & 63)
    }
    /// The distance from a key's home to its second bucket, for a key with this tag. 0 only in a
    /// table of one bucket.
    #[inline(always)]
    pub(super) fn distance(self, tag: u8) -> u64 {
        let others = self.buckets().min(WINDOW) - 1;
        ((u64::from(tag) * others) >> 8) + u64::from(others != 0)
    }
    /// The second bucket of a key with this home and tag.
    #[inline(always)]
    pub(super) fn second(self, home: u64, tag: u8) -> u64 {
        (home + self.distance(tag)) & self.mask()
    }
    /// The home of a key with this tag that lies in its second bucket.
    #[inline(always)]
    pub(super) fn home_of_second(self, index: u64, tag: u8) -> u64 {
        index.wrapping_sub(self.distance(tag)) & self.mask()
    }
    /// The bucket `by` behind another, wrapping around.
    #[inline(always)]
    pub(super) fn behind(self, index: u64, by: u64) -> u64 {
        index.wrapping_add(by) & self.mask()
    }
    #[inline(always)]
    pub(super) fn bucket(self, index: u64) -> Offset<Bucket> {
        Offset::new(self.start() + index * BLOCK as u64)
    }
    pub(super) fn bytes(self) -> usize {
        self.buckets() as usize * BLOCK
    }
    /// Whether the word is as it was made, and can be a table in a region of `len` bytes.
    pub(super) fn is_sound(self, len: usize) -> bool {
        self.0 >> CHECK_AT == check(self.0 & ((1 << CHECK_AT) - 1))
            && self.log2() <= BUCKETS_LOG2_MAX
            && self.start() != 0
            && self.start() + self.bytes() as u64 <= len as u64
    }
}

#[cfg(test)]
#[path = "tests/place.rs"]
mod tests;
