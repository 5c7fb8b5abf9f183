//! The words that every bucket has: meta and tags; and which slot to fill.

use super::shape::Buckets;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{BLOCK, Line, Medium, Word};

/// A bucket: one media block.
pub(super) type Bucket = [Line; 4];
const _: () = assert!(size_of::<Bucket>() == BLOCK);

/// A bucket that nobody sees yet.
pub(super) type Image = [[u64; 8]; 4];

const META: usize = 0;
/// The first word of the tags. All lie in the line of the meta word.
pub(super) const TAGS: usize = 1;

#[inline(always)]
pub(super) fn word(bucket: &Bucket, index: usize) -> &Word {
    // Below 32 it is always; so the compiler knows it.
    &Line::words(bucket)[index % 32]
}

/// The meta word of a bucket, loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta(pub(super) u64);

/// A bit for each slot.
#[inline(always)]
pub(super) const fn all_slots<K: Buckets>() -> u64 {
    (1 << K::SLOTS) - 1
}

impl Meta {
    /// The slots that hold a key.
    #[inline(always)]
    pub(super) fn live<K: Buckets>(self) -> u64 {
        self.0 & all_slots::<K>()
    }
    /// Those that held one.
    #[inline(always)]
    pub(super) fn deleted<K: Buckets>(self) -> u64 {
        self.0 >> K::SLOTS & all_slots::<K>()
    }
    #[inline(always)]
    pub(super) fn empty<K: Buckets>(self) -> u64 {
        !(self.0 | self.0 >> K::SLOTS) & all_slots::<K>()
    }
    /// Whether no path ends here.
    #[inline(always)]
    pub(super) fn is_full<K: Buckets>(self) -> bool {
        self.empty::<K>() == 0
    }
    #[inline(always)]
    pub(super) fn with_live<K: Buckets>(self, slot: usize) -> Self {
        self.becoming::<K>(self.live::<K>() | 1 << slot, self.deleted::<K>() & !(1 << slot))
    }
    #[inline(always)]
    pub(super) fn with_deleted<K: Buckets>(self, slot: usize) -> Self {
        self.becoming::<K>(self.live::<K>() & !(1 << slot), self.deleted::<K>() | 1 << slot)
    }
    #[inline(always)]
    pub(super) fn becoming<K: Buckets>(self, live: u64, deleted: u64) -> Self {
        Self(K::seal(live | deleted << K::SLOTS, self.0))
    }
}

/// ORDER: Acquire: pairs with the Release of [`store_meta`]: slots and tags that it declares live are seen.
#[inline(always)]
pub(super) fn meta<M: Medium>(medium: &M, bucket: &Bucket) -> Meta {
    Meta(bucket[0].0[META].load(medium, Acquire))
}

/// The meta word again, after loads of a slot with Acquire, before which this one cannot move.
#[inline(always)]
pub(super) fn meta_again<M: Medium>(medium: &M, bucket: &Bucket) -> Meta {
    Meta(bucket[0].0[META].load(medium, Relaxed))
}

/// ORDER: Release: whoever sees it sees the slots and tags stored before it.
#[inline(always)]
pub(super) fn store_meta<M: Medium>(medium: &M, bucket: &Bucket, meta: Meta) {
    bucket[0].0[META].store(medium, meta.0, Release);
}

#[inline(always)]
pub(super) fn tag_of<M: Medium>(medium: &M, bucket: &Bucket, slot: usize) -> u8 {
    (bucket[0].0[TAGS + slot / 8].load(medium, Acquire) >> (8 * (slot % 8))) as u8
}

/// Only the shard's lock holder stores tags, so those beside it stay as they are.
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

/// The bit for a tag in the word that says which tags have passed a bucket.
#[inline(always)]
pub(super) fn pass_bit<K: Buckets>(tag: u8) -> u64 {
    1 << (K::PASSED_AT + ((u32::from(tag) * K::PASSED_BITS) >> 8))
}

/// Whether a path of this tag goes on behind a bucket that had this meta word: it is full, and a key with such a tag has passed it.
#[inline(always)]
pub(super) fn goes_on<M: Medium, K: Buckets>(medium: &M, bucket: &Bucket, meta: Meta, tag: u8) -> bool {
    // One branch, which hardly ever goes the other way: whether a bucket is full alone would often be foretold wrong.
    meta.is_full::<K>() & has_passed::<M, K>(medium, bucket, tag)
}

#[inline(always)]
pub(super) fn has_passed<M: Medium, K: Buckets>(medium: &M, bucket: &Bucket, tag: u8) -> bool {
    // ORDER: Relaxed: a key keeps its slot, so one that must be found was said to have passed before the search began. What the next bucket holds is ordered by its meta word.
    bucket[0].0[K::PASSED].load(medium, Relaxed) & pass_bit::<K>(tag) != 0
}

/// Says that a key with this tag lies behind the bucket, or will.
#[inline(always)]
pub(super) fn store_passed<M: Medium, K: Buckets>(medium: &M, bucket: &Bucket, tag: u8) {
    let word = &bucket[0].0[K::PASSED];
    // ORDER: Release: behind the note of `set_pending`, by which survivors make it durable. The meta word that adds the key comes behind it by its own Release.
    word.store(medium, word.load(medium, Relaxed) | pass_bit::<K>(tag), Release);
}

/// The line, of those behind the first, in which a slot for a key with this tag is looked for.
#[inline(always)]
pub(super) fn line_for(tag: u8) -> usize {
    1 + ((usize::from(tag) * 3) >> 8)
}

/// The line that a slot lies in.
#[inline(always)]
pub(super) fn line_of<K: Buckets>(slot: usize) -> usize {
    (K::FIRST + slot * K::WORDS) / 8
}

/// Which of the slots `free`, one at least, to fill with a key that has this tag.
#[inline(always)]
pub(super) fn choose<K: Buckets>(free: u64, tag: u8) -> usize {
    let slots_before = |line: usize| (8 * line).saturating_sub(K::FIRST) / K::WORDS;
    let in_line =
        |line: usize| (u64::MAX << slots_before(line)) & !(u64::MAX << slots_before(line + 1)) & free;
    let first = [in_line(0), in_line(line_for(tag)), free].into_iter().find(|&slots| slots != 0);
    first.unwrap_or(free).trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::super::shape::sealed::Shape;
    use super::*;
    use crate::key::NoRecords;
    use crate::{Bytes, U64};

    fn slots_come_and_go<K: Buckets>() {
        let mut meta = Meta(0);
        for slot in 0..K::SLOTS {
            assert!(!meta.is_full::<K>());
            assert_eq!(meta.empty::<K>().count_ones() as usize, K::SLOTS - slot);
            meta = meta.with_live::<K>(slot);
            assert_eq!(meta.live::<K>(), (2 << slot) - 1);
        }
        assert!(meta.is_full::<K>());
        for slot in 0..K::SLOTS {
            let deleted = meta.with_deleted::<K>(slot);
            assert!(deleted.is_full::<K>(), "a deleted slot ends no path");
            assert_eq!(
                (deleted.live::<K>(), deleted.deleted::<K>()),
                (meta.live::<K>() & !(1 << slot), 1 << slot)
            );
            assert_eq!(deleted.with_live::<K>(slot).live::<K>(), meta.live::<K>());
        }
    }

    #[test]
    fn slots_are_live_and_deleted_each_by_itself() {
        slots_come_and_go::<U64>();
        slots_come_and_go::<Bytes<NoRecords>>();
    }

    #[test]
    fn every_change_of_pairs_raises_the_sequence() {
        let meta = Meta(0).with_live::<U64>(3).with_deleted::<U64>(3).with_live::<U64>(3);
        assert_eq!(meta.0, 3 << 28 | 1 << 3);
        let last = Meta(!0 << 28);
        assert_eq!(last.with_live::<U64>(0).0, 1, "it goes around and touches nothing else");
    }

    fn fills_its_first_line_then_the_tags_own<K: Shape>(in_first: usize, in_others: usize) {
        for tag in 0..=255u8 {
            let mut free = all_slots::<K>();
            let mut lines = Vec::new();
            while free != 0 {
                let slot = choose::<K>(free, tag);
                assert!(free >> slot & 1 == 1);
                free &= !(1 << slot);
                lines.push(line_of::<K>(slot));
            }
            assert!(lines[..in_first].iter().all(|&line| line == 0), "{lines:?}");
            assert!(lines[in_first..in_first + in_others].iter().all(|&line| line == line_for(tag)));
        }
    }

    #[test]
    fn a_bucket_is_filled_line_by_line() {
        fills_its_first_line_then_the_tags_own::<U64>(2, 4);
        fills_its_first_line_then_the_tags_own::<Bytes<NoRecords>>(3, 8);
        let lines: Vec<usize> = [0, 85, 86, 170, 171, 255].map(line_for).to_vec();
        assert_eq!(lines, [1, 1, 2, 2, 3, 3]);
    }

    fn passes<K: Buckets>() {
        let bits: Vec<u64> = (0..=255).map(pass_bit::<K>).collect();
        let all = bits.iter().fold(0, |all, bit| all | bit);
        assert_eq!((all.count_ones(), all.trailing_zeros()), (K::PASSED_BITS, K::PASSED_AT));
        let alike = |bit: &u64| bits.iter().filter(|other| *other == bit).count();
        assert!(bits.iter().all(|bit| alike(bit) <= 256usize.div_ceil(K::PASSED_BITS as usize)));
    }

    #[test]
    fn tags_are_spread_over_the_bits_of_those_that_passed() {
        passes::<U64>();
        passes::<Bytes<NoRecords>>();
    }

    #[test]
    fn a_tag_takes_its_own_byte() {
        assert_eq!(with_tag(!0, 9, 0x5a), 0xffff_ffff_ffff_5aff);
        assert_eq!(with_tag(0, 7, 0x5a), 0x5a << 56);
    }
}
