//! The words that every bucket has: lock and link.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Line, Medium, Offset, Word};

pub(super) const LOCK: usize = 0;
pub(super) const LINK: usize = 7;

const NEXT: u64 = (1 << 38) - 1;
const VALID_SHIFT: u32 = 38;
const MOVED: u64 = 1 << 41;
const VERSION_ONE: u64 = 1 << 42;

/// The link word of a bucket, loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(pub(super) u64);

impl Link {
    #[inline(always)]
    pub(super) fn next(self) -> Offset<Line> {
        Offset::new((self.0 & NEXT) << 6)
    }
    #[inline(always)]
    pub(super) fn has_moved(self) -> bool {
        self.0 & MOVED != 0
    }
    #[inline(always)]
    pub(super) fn is_valid(self, pair: usize) -> bool {
        self.0 & valid_bit(pair) != 0
    }
    /// A bit for each valid pair.
    #[inline(always)]
    pub(super) fn valid_pairs(self) -> u64 {
        self.0 >> VALID_SHIFT & 0b111
    }
    pub(super) fn with_next(self, next: Offset<Line>) -> Self {
        debug_assert!(next.raw().is_multiple_of(64));
        Self(self.0 & !NEXT | next.raw() >> 6)
    }
    #[inline(always)]
    pub(super) fn with_pair(self, pair: usize) -> Self {
        Self((self.0 | valid_bit(pair)).wrapping_add(VERSION_ONE))
    }
    #[inline(always)]
    pub(super) fn without_pair(self, pair: usize) -> Self {
        Self(self.0 & !valid_bit(pair))
    }
    pub(super) fn moved(self) -> Self {
        Self(self.0 | MOVED)
    }
}

#[inline(always)]
fn valid_bit(pair: usize) -> u64 {
    1 << (VALID_SHIFT + pair as u32)
}

#[inline(always)]
pub(super) fn lock_word(bucket: &Line) -> &Word {
    &bucket.0[LOCK]
}

/// The link of a bucket.
///
/// ORDER: Acquire: pairs with the Release of [`store_link`]. A reader sees what the link publishes:
/// pairs, a next bucket, a moved group.
#[inline(always)]
pub(super) fn link<M: Medium>(medium: &M, bucket: &Line) -> Link {
    Link(bucket.0[LINK].load(medium, Acquire))
}

/// The link again, after the loads of key and word. Those were Acquire loads, so this one stays
/// behind them.
#[inline(always)]
pub(super) fn link_again<M: Medium>(medium: &M, bucket: &Line) -> Link {
    Link(bucket.0[LINK].load(medium, Relaxed))
}

/// Stores the link of a bucket.
///
/// ORDER: Release: a thread that sees the link sees everything stored before it.
#[inline(always)]
pub(super) fn store_link<M: Medium>(medium: &M, bucket: &Line, link: Link) {
    bucket.0[LINK].store(medium, link.0, Release);
}

#[cfg(test)]
#[path = "tests/bucket.rs"]
mod tests;
