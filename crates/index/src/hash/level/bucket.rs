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
mod tests {
    use super::super::shape::sealed::Shape;
    use super::*;
    use crate::key::NoRecords;
    use crate::{Bytes, U64};

    fn check_tokens_and_marks<K: Shape>() {
        let mut meta = Meta(0);
        for slot in 0..K::SLOTS {
            assert_eq!((meta.vacancy::<K>(), meta.load::<K>()), (Some(slot), slot as u32));
            meta = meta.with::<K>(slot);
            assert_eq!((meta.tokens::<K>(), meta.marks::<K>()), ((2 << slot) - 1, 0));
        }
        assert_eq!(meta.vacancy::<K>(), None);
        for slot in 0..K::SLOTS {
            let marked = meta.with_marked::<K>(slot);
            assert!((0..K::SLOTS).all(|other| marked.is_marked::<K>(other) == (other == slot)));
            assert_eq!(marked.tokens::<K>(), all_slots::<K>());
            let again = marked.with_marked::<K>(slot).with::<K>(slot);
            assert_eq!((again.tokens::<K>(), again.marks::<K>()), (all_slots::<K>(), 1 << slot));
            assert_eq!(marked.unmarked::<K>(slot).marks::<K>(), 0);
            assert_eq!(marked.without::<K>(slot).tokens::<K>(), all_slots::<K>() & !(1 << slot));
            assert_eq!(marked.without::<K>(slot).marks::<K>(), 0);
        }
        let with_upper = meta.with_upper::<K>();
        assert!(with_upper.uses_upper::<K>() && !meta.uses_upper::<K>() && with_upper.tokens::<K>() == 0);
        assert!(!with_upper.with::<K>(3).uses_upper::<K>(), "a unit that uses its own tier again");
        assert!(K::is_sealed(with_upper.0) && K::is_sealed(meta.0) && K::is_sealed(0));
    }

    #[test]
    fn each_slot_has_a_token_and_a_mark() {
        check_tokens_and_marks::<U64>();
        check_tokens_and_marks::<Bytes<NoRecords>>();
    }

    fn check_sequence<K: Shape>(changes: usize) {
        let mut seen = std::collections::HashSet::new();
        let mut meta = Meta(0);
        for _ in 0..changes {
            assert!(seen.insert(meta.0), "{:#x} came again", meta.0);
            meta = if meta.load::<K>() == 0 { meta.with::<K>(2) } else { meta.without::<K>(2) };
        }
    }

    #[test]
    fn meta_never_repeats_a_value() {
        check_sequence::<U64>(100_000);
        check_sequence::<Bytes<NoRecords>>(100_000);
    }
}
