//! The words that every bucket has, meta and tags; and the choice of a slot to fill.

use super::shape::BucketShape;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{BLOCK, Line, Medium, Word};

/// A bucket: one media block.
pub(super) type Bucket = [Line; 4];
const _: () = assert!(size_of::<Bucket>() == BLOCK);

const META: usize = 0;
/// The first word of the tags. All tags lie in the meta word's line.
pub(super) const TAGS: usize = 1;

#[inline(always)]
pub(super) fn word(bucket: &Bucket, index: usize) -> &Word {
    &bucket[index / 8].0[index % 8]
}

/// The meta word of a bucket, loaded: `| ... | sequence | lock | valid, a bit a slot |`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Meta(pub(super) u64);

/// Which slots of a bucket are locked, because their keys are moving to another bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotLock {
    /// None.
    None,
    /// This slot: its key is being evicted to its second bucket.
    Slot(usize),
    /// All slots whose keys move to the new table of a resize.
    Moving,
}

/// A bit for each slot.
#[inline(always)]
pub(super) const fn all_slots<K: BucketShape>() -> u64 {
    (1 << K::SLOTS) - 1
}

const fn slot_lock_all<K: BucketShape>() -> u64 {
    (1 << K::SLOT_LOCK_BITS) - 1
}

impl Meta {
    #[inline(always)]
    pub(super) fn valid<K: BucketShape>(self) -> u64 {
        self.0 & all_slots::<K>()
    }
    #[inline(always)]
    pub(super) fn free<K: BucketShape>(self) -> u64 {
        !self.0 & all_slots::<K>()
    }
    #[inline(always)]
    pub(super) fn keys<K: BucketShape>(self) -> u32 {
        self.valid::<K>().count_ones()
    }
    #[inline(always)]
    pub(super) fn slot_lock<K: BucketShape>(self) -> SlotLock {
        match self.0 >> K::SLOTS & slot_lock_all::<K>() {
            0 => SlotLock::None,
            mark if mark == slot_lock_all::<K>() => SlotLock::Moving,
            mark => SlotLock::Slot(mark as usize - 1),
        }
    }
    /// The next meta word, with these valid bits and this lock.
    #[inline(always)]
    pub(super) fn becoming<K: BucketShape>(self, valid: u64, lock: SlotLock) -> Self {
        let bits = match lock {
            SlotLock::None => 0,
            SlotLock::Slot(slot) => slot as u64 + 1,
            SlotLock::Moving => slot_lock_all::<K>(),
        };
        Self(K::seal(valid | bits << K::SLOTS, self.0))
    }
    #[inline(always)]
    pub(super) fn with<K: BucketShape>(self, slot: usize) -> Self {
        self.becoming::<K>(self.valid::<K>() | 1 << slot, self.slot_lock::<K>())
    }
    #[inline(always)]
    pub(super) fn without<K: BucketShape>(self, slots: u64) -> Self {
        self.becoming::<K>(self.valid::<K>() & !slots, self.slot_lock::<K>())
    }
}

/// The meta word.
///
/// ORDER: Acquire: pairs with the Release of [`store_meta`]. The slots and tags that it declares
/// valid are visible, and of a key that it declares gone, the copy elsewhere.
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

/// Stores a tag. Only the holder of the bucket's lock does so, thus the tags beside it do not
/// change.
#[inline(always)]
pub(super) fn store_tag<M: Medium>(medium: &M, bucket: &Bucket, slot: usize, tag: u8) {
    let word = &bucket[0].0[TAGS + slot / 8];
    let at = 8 * (slot % 8);
    let tags = word.load(medium, Relaxed) & !(0xff << at) | u64::from(tag) << at;
    // ORDER: Release: behind the store of the meta word that freed the slot.
    word.store(medium, tags, Release);
}

/// The overflow bit for a tag.
#[inline(always)]
fn overflow_bit<K: BucketShape>(tag: u8) -> u64 {
    1 << (K::OVERFLOW_AT + ((u32::from(tag) * K::OVERFLOW_BITS) >> 8))
}

/// Whether a key with this tag, whose first bucket this is, may be in its second.
#[inline(always)]
pub(super) fn has_overflowed<M: Medium, K: BucketShape>(medium: &M, bucket: &Bucket, tag: u8) -> bool {
    // ORDER: Relaxed: behind the search in this bucket by the Acquire of its loads. The overflow
    // bit of a key that the search missed because it moved is set, and its copy is visible.
    bucket[0].0[K::OVERFLOW].load(medium, Relaxed) & overflow_bit::<K>(tag) != 0
}

/// Sets the overflow bit of a tag: a key with this tag, whose first bucket this is, is or will be
/// in its second.
#[inline(always)]
pub(super) fn store_overflow<M: Medium, K: BucketShape>(medium: &M, bucket: &Bucket, tag: u8) {
    let word = &bucket[0].0[K::OVERFLOW];
    // ORDER: Release: behind the store of `announce`, by which survivors persist the bucket. The
    // meta words that move the key stay behind this by their own Release.
    word.store(medium, word.load(medium, Relaxed) | overflow_bit::<K>(tag), Release);
}

/// The line, after the first, in which a free slot for a key with this tag is preferred.
#[inline(always)]
pub(super) fn line_for(tag: u8) -> usize {
    1 + usize::from(tag & 0xf) % 3
}

/// The line of a slot.
#[inline(always)]
pub(super) fn line_of<K: BucketShape>(slot: usize) -> usize {
    (K::FIRST + slot * K::WORDS) / 8
}

/// Chooses one of the slots `free`, at least one, for a key with this tag: in the first line, which
/// every search reads; else in the line that the tag chooses, which a search can fetch together
/// with the first; else in another.
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
