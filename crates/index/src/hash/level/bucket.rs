//! The words that every bucket has: meta and lock.

use super::shape::BucketShape;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{Line, Medium, Word};

/// A bucket: two lines, half a media block.
pub(super) type Bucket = [Line; 2];
pub(super) const BUCKET: usize = 128;
const _: () = assert!(size_of::<Bucket>() == BUCKET);

/// An unpublished bucket.
pub(super) type Image = [[u64; 8]; 2];

pub(super) const META: usize = 0;
pub(super) const LOCK: usize = 1;

#[inline(always)]
pub(super) fn word(bucket: &Bucket, index: usize) -> &Word {
    &bucket[index / 8].0[index % 8]
}

#[inline(always)]
pub(super) fn lock_word(bucket: &Bucket) -> &Word {
    &bucket[0].0[LOCK]
}

/// The meta word of a bucket, loaded: a token and a duplicate mark for each slot, and whether the
/// unit uses the upper tiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta(pub(super) u64);

/// A bit for each slot.
#[inline(always)]
pub(super) const fn all_slots<K: BucketShape>() -> u64 {
    (1 << K::SLOTS) - 1
}

/// Set in the lowest tier's bucket: its unit uses the two upper tiers, and this bucket is empty.
const fn upper_bit<K: BucketShape>() -> u64 {
    1 << (2 * K::SLOTS)
}

impl Meta {
    /// The slots that hold a key.
    #[inline(always)]
    pub(super) fn tokens<K: BucketShape>(self) -> u64 {
        self.0 & all_slots::<K>()
    }
    /// The slots whose key may lie in another slot, too.
    #[inline(always)]
    pub(super) fn marks<K: BucketShape>(self) -> u64 {
        self.0 >> K::SLOTS & all_slots::<K>()
    }
    #[inline(always)]
    pub(super) fn is_marked<K: BucketShape>(self, slot: usize) -> bool {
        self.marks::<K>() >> slot & 1 == 1
    }
    #[inline(always)]
    pub(super) fn uses_upper<K: BucketShape>(self) -> bool {
        self.0 & upper_bit::<K>() != 0
    }
    /// Number of slots that hold a key.
    #[inline(always)]
    pub(super) fn load<K: BucketShape>(self) -> u32 {
        self.tokens::<K>().count_ones()
    }
    /// The first vacant slot.
    #[inline(always)]
    pub(super) fn vacancy<K: BucketShape>(self) -> Option<usize> {
        let vacant = !self.0 & all_slots::<K>();
        (vacant != 0).then(|| vacant.trailing_zeros() as usize)
    }
    #[inline(always)]
    pub(super) fn with<K: BucketShape>(self, slot: usize) -> Self {
        self.becoming::<K>(self.tokens::<K>() | 1 << slot, self.marks::<K>())
    }
    /// Adds a key that may lie in another slot, too.
    pub(super) fn with_marked<K: BucketShape>(self, slot: usize) -> Self {
        self.becoming::<K>(self.tokens::<K>() | 1 << slot, self.marks::<K>() | 1 << slot)
    }
    pub(super) fn unmarked<K: BucketShape>(self, slot: usize) -> Self {
        self.becoming::<K>(self.tokens::<K>(), self.marks::<K>() & !(1 << slot))
    }
    #[inline(always)]
    pub(super) fn without<K: BucketShape>(self, slot: usize) -> Self {
        self.becoming::<K>(self.tokens::<K>() & !(1 << slot), self.marks::<K>() & !(1 << slot))
    }
    /// The next meta word, with these tokens and marks, for a unit that uses its own tier.
    #[inline(always)]
    pub(super) fn becoming<K: BucketShape>(self, tokens: u64, marks: u64) -> Self {
        Self(K::seal(tokens | marks << K::SLOTS, self.0))
    }
    /// The next meta word, of an empty bucket whose unit uses the upper tiers.
    pub(super) fn with_upper<K: BucketShape>(self) -> Self {
        Self(K::seal(upper_bit::<K>(), self.0))
    }
}

/// The meta word.
///
/// ORDER: Acquire: pairs with the Release of [`store_meta`]: slots with a token are visible. Later
/// loads stay behind this one.
#[inline(always)]
pub(super) fn meta<M: Medium>(medium: &M, bucket: &Bucket) -> Meta {
    Meta(bucket[0].0[META].load(medium, Acquire))
}

/// Stores the meta word.
///
/// ORDER: Release: a thread that sees it sees the slots stored before it.
#[inline(always)]
pub(super) fn store_meta<M: Medium>(medium: &M, bucket: &Bucket, meta: Meta) {
    bucket[0].0[META].store(medium.point("level.meta"), meta.0, Release);
}

#[cfg(test)]
#[path = "tests/bucket.rs"]
mod tests;
