//! The words that every bucket has, meta and tags; and the choice of a slot to fill.

use super::shape::BucketShape;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{BLOCK, Line, Medium, Word};

/// A bucket: one media block.
pub(super) type Bucket = [Line; 4];
const _: () = assert!(size_of::<Bucket>() == BLOCK);

/// An unpublished bucket.
pub(super) type Image = [[u64; 8]; 4];

const META: usize = 0;
/// The first word of the tags. All tags lie in the meta word's line.
pub(super) const TAGS: usize = 1;

#[inline(always)]
pub(super) fn word(bucket: &Bucket, index: usize) -> &Word {
    // The index is always below 32; this tells the compiler.
    &Line::words(bucket)[index % 32]
}

/// The meta word of a bucket, loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta(pub(super) u64);

/// A bit for each slot.
#[inline(always)]
pub(super) const fn all_slots<K: BucketShape>() -> u64 {
    (1 << K::SLOTS) - 1
}

impl Meta {
    /// The slots that hold a key.
    #[inline(always)]
    pub(super) fn live<K: BucketShape>(self) -> u64 {
        self.0 & all_slots::<K>()
    }
    /// The slots that held a key which was removed.
    #[inline(always)]
    pub(super) fn deleted<K: BucketShape>(self) -> u64 {
        self.0 >> K::SLOTS & all_slots::<K>()
    }
    #[inline(always)]
    pub(super) fn empty<K: BucketShape>(self) -> u64 {
        !(self.0 | self.0 >> K::SLOTS) & all_slots::<K>()
    }
    /// Whether no search ends here because of an empty slot.
    #[inline(always)]
    pub(super) fn is_full<K: BucketShape>(self) -> bool {
        self.empty::<K>() == 0
    }
    #[inline(always)]
    pub(super) fn with_live<K: BucketShape>(self, slot: usize) -> Self {
        self.becoming::<K>(self.live::<K>() | 1 << slot, self.deleted::<K>() & !(1 << slot))
    }
    #[inline(always)]
    pub(super) fn with_deleted<K: BucketShape>(self, slot: usize) -> Self {
        self.becoming::<K>(self.live::<K>() & !(1 << slot), self.deleted::<K>() | 1 << slot)
    }
    #[inline(always)]
    pub(super) fn becoming<K: BucketShape>(self, live: u64, deleted: u64) -> Self {
        Self(K::seal(live | deleted << K::SLOTS, self.0))
    }
}

/// The meta word.
///
/// ORDER: Acquire: pairs with the Release of [`store_meta`]. The slots and tags that it declares
/// live are visible.
#[inline(always)]
pub(super) fn meta<M: Medium>(medium: &M, bucket: &Bucket) -> Meta {
    Meta(bucket[0].0[META].load(medium, Acquire))
}

/// The meta word again, after loads of a slot with Acquire, behind which this one stays.
#[inline(always)]
pub(super) fn meta_again<M: Medium>(medium: &M, bucket: &Bucket) -> Meta {
    Meta(bucket[0].0[META].load(medium, Relaxed))
}

/// Stores the meta word.
///
/// ORDER: Release: a thread that sees it sees the slots and tags stored before it.
#[inline(always)]
pub(super) fn store_meta<M: Medium>(medium: &M, bucket: &Bucket, meta: Meta) {
    bucket[0].0[META].store(medium, meta.0, Release);
}

#[inline(always)]
pub(super) fn tag_of<M: Medium>(medium: &M, bucket: &Bucket, slot: usize) -> u8 {
    (bucket[0].0[TAGS + slot / 8].load(medium, Acquire) >> (8 * (slot % 8))) as u8
}

/// Stores a tag. Only the holder of the shard's lock does so, thus the tags beside it do not
/// change.
#[inline(always)]
pub(super) fn store_tag<M: Medium>(medium: &M, bucket: &Bucket, slot: usize, tag: u8) {
    let word = &bucket[0].0[TAGS + slot / 8];
    // ORDER: Release: behind the store of the meta word that freed the slot.
    word.store(medium, with_tag(word.load(medium, Relaxed), slot, tag), Release);
}

#[inline(always)]
pub(super) fn with_tag(tags: u64, slot: usize, tag: u8) -> u64 {
    let at = 8 * (slot % 8);
    tags & !(0xff << at) | u64::from(tag) << at
}

/// The overflow bit for a tag.
#[inline(always)]
pub(super) fn overflow_bit<K: BucketShape>(tag: u8) -> u64 {
    1 << (K::OVERFLOW_AT + ((u32::from(tag) * K::OVERFLOW_BITS) >> 8))
}

/// Whether a search for this tag continues behind a bucket that had this meta word: the bucket is
/// full, and the tag's overflow bit is set.
#[inline(always)]
pub(super) fn continues<M: Medium, K: BucketShape>(medium: &M, bucket: &Bucket, meta: Meta, tag: u8) -> bool {
    // One branch that is rarely taken: whether a bucket is full would often be mispredicted.
    meta.is_full::<K>() & has_overflowed::<M, K>(medium, bucket, tag)
}

#[inline(always)]
pub(super) fn has_overflowed<M: Medium, K: BucketShape>(medium: &M, bucket: &Bucket, tag: u8) -> bool {
    // ORDER: Relaxed: a key keeps its slot, so the overflow bits of a key that must be found were
    // set before the search began. The next bucket's meta word orders its content.
    bucket[0].0[K::OVERFLOW].load(medium, Relaxed) & overflow_bit::<K>(tag) != 0
}

/// Sets the overflow bit of a tag: a key with this tag lies behind the bucket, or will.
#[inline(always)]
pub(super) fn store_overflow<M: Medium, K: BucketShape>(medium: &M, bucket: &Bucket, tag: u8) {
    let word = &bucket[0].0[K::OVERFLOW];
    // ORDER: Release: behind the store of `set_pending`, by which survivors persist the bucket. The
    // meta word that adds the key stays behind this by its own Release.
    word.store(medium, word.load(medium, Relaxed) | overflow_bit::<K>(tag), Release);
}

/// The line, after the first, in which a free slot for a key with this tag is preferred.
#[inline(always)]
pub(super) fn line_for(tag: u8) -> usize {
    1 + ((usize::from(tag) * 3) >> 8)
}

/// The line of a slot.
#[inline(always)]
pub(super) fn line_of<K: BucketShape>(slot: usize) -> usize {
    (K::FIRST + slot * K::WORDS) / 8
}

/// Chooses one of the slots `free`, at least one, for a key with this tag.
#[inline(always)]
pub(super) fn choose<K: BucketShape>(free: u64, tag: u8) -> usize {
    let slots_before = |line: usize| (8 * line).saturating_sub(K::FIRST) / K::WORDS;
    let in_line =
        |line: usize| (u64::MAX << slots_before(line)) & !(u64::MAX << slots_before(line + 1)) & free;
    let first = [in_line(0), in_line(line_for(tag)), free].into_iter().find(|&slots| slots != 0);
    first.unwrap_or(free).trailing_zeros() as usize
}

#[cfg(test)]
#[path = "tests/bucket.rs"]
mod tests;
