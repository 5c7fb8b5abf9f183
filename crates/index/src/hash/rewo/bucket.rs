//! The words that every bucket has: meta and tags; and which slot to fill.

use super::shape::Nests;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{BLOCK, Line, Medium, Word};

/// A bucket: one media block.
pub(super) type Bucket = [Line; 4];
const _: () = assert!(size_of::<Bucket>() == BLOCK);

const META: usize = 0;
/// The first word of the tags. All lie in the line of the meta word.
pub(super) const TAGS: usize = 1;

#[inline(always)]
pub(super) fn word(bucket: &Bucket, index: usize) -> &Word {
    &bucket[index / 8].0[index % 8]
}

/// The meta word of a bucket, loaded: `| ... | sequence | lock | valid, a bit a slot |`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Meta(pub(super) u64);

/// Which slots of a bucket are locked, since their keys are on their way to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// None.
    None,
    /// This one: its key is evicted to its second bucket.
    Slot(usize),
    /// All whose keys move to the new table of a resize.
    Moving,
}

/// A bit for each slot.
#[inline(always)]
pub(super) const fn all_slots<K: Nests>() -> u64 {
    (1 << K::SLOTS) - 1
}

const fn mark_all<K: Nests>() -> u64 {
    (1 << K::MARK_BITS) - 1
}

impl Meta {
    #[inline(always)]
    pub(super) fn valid<K: Nests>(self) -> u64 {
        self.0 & all_slots::<K>()
    }
    #[inline(always)]
    pub(super) fn free<K: Nests>(self) -> u64 {
        !self.0 & all_slots::<K>()
    }
    #[inline(always)]
    pub(super) fn keys<K: Nests>(self) -> u32 {
        self.valid::<K>().count_ones()
    }
    #[inline(always)]
    pub(super) fn mark<K: Nests>(self) -> Mark {
        match self.0 >> K::SLOTS & mark_all::<K>() {
            0 => Mark::None,
            mark if mark == mark_all::<K>() => Mark::Moving,
            mark => Mark::Slot(mark as usize - 1),
        }
    }
    /// The word that follows this one.
    #[inline(always)]
    pub(super) fn becoming<K: Nests>(self, valid: u64, mark: Mark) -> Self {
        let mark = match mark {
            Mark::None => 0,
            Mark::Slot(slot) => slot as u64 + 1,
            Mark::Moving => mark_all::<K>(),
        };
        Self(K::seal(valid | mark << K::SLOTS, self.0))
    }
    #[inline(always)]
    pub(super) fn with<K: Nests>(self, slot: usize) -> Self {
        self.becoming::<K>(self.valid::<K>() | 1 << slot, self.mark::<K>())
    }
    #[inline(always)]
    pub(super) fn without<K: Nests>(self, slots: u64) -> Self {
        self.becoming::<K>(self.valid::<K>() & !slots, self.mark::<K>())
    }
}

/// ORDER: Acquire: pairs with the Release of [`store_meta`]: slots and tags that it declares valid are seen, and of a key that it declares gone the
/// copy that it went to.
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

/// Only the holder of the bucket's lock stores tags, so those beside it stay as they are.
#[inline(always)]
pub(super) fn store_tag<M: Medium>(medium: &M, bucket: &Bucket, slot: usize, tag: u8) {
    let word = &bucket[0].0[TAGS + slot / 8];
    let at = 8 * (slot % 8);
    let tags = word.load(medium, Relaxed) & !(0xff << at) | u64::from(tag) << at;
    // ORDER: Release: behind the store of the meta word that freed the slot.
    word.store(medium, tags, Release);
}

/// The bit for a tag in the word that says which tags have passed a bucket.
#[inline(always)]
fn pass_bit<K: Nests>(tag: u8) -> u64 {
    1 << (K::PASSED_AT + ((u32::from(tag) * K::PASSED_BITS) >> 8))
}

/// Whether a key with such a tag whose first bucket this is may be in its second.
#[inline(always)]
pub(super) fn has_passed<M: Medium, K: Nests>(medium: &M, bucket: &Bucket, tag: u8) -> bool {
    // ORDER: Relaxed: behind the search in this bucket by the Acquire of its loads: a key that it missed since it has moved on is said to have, and its copy is seen.
    bucket[0].0[K::PASSED].load(medium, Relaxed) & pass_bit::<K>(tag) != 0
}

/// Says that a key with this tag, whose first bucket this is, lies in its second, or will.
#[inline(always)]
pub(super) fn store_passed<M: Medium, K: Nests>(medium: &M, bucket: &Bucket, tag: u8) {
    let word = &bucket[0].0[K::PASSED];
    // ORDER: Release: behind the note of `announce`, by which survivors make it durable. The meta words that move the key come behind it by their own Release.
    word.store(medium, word.load(medium, Relaxed) | pass_bit::<K>(tag), Release);
}

/// The line, of those behind the first, in which a slot for a key with this tag is looked for.
#[inline(always)]
pub(super) fn line_for(tag: u8) -> usize {
    1 + usize::from(tag & 0xf) % 3
}

/// The line that a slot lies in.
#[inline(always)]
pub(super) fn line_of<K: Nests>(slot: usize) -> usize {
    (K::FIRST + slot * K::WORDS) / 8
}

/// Which of the slots `free`, one at least, to fill with a key that has this tag: the first line, which every search reads, before the one that the tag chooses, which
/// a search can fetch together with it, before the others.
#[inline(always)]
pub(super) fn choose<K: Nests>(free: u64, tag: u8) -> usize {
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

    fn slots_come_and_go<K: Nests>() {
        let mut meta = Meta(0);
        for slot in 0..K::SLOTS {
            assert_eq!(meta.free::<K>().count_ones() as usize, K::SLOTS - slot);
            let (before, marked) = (meta, meta.becoming::<K>(meta.valid::<K>(), Mark::Slot(slot)));
            assert_eq!((marked.mark::<K>(), marked.valid::<K>()), (Mark::Slot(slot), meta.valid::<K>()));
            meta = marked.with::<K>(slot);
            assert_eq!((meta.valid::<K>(), meta.mark::<K>()), ((2 << slot) - 1, Mark::Slot(slot)));
            assert_eq!(meta.without::<K>(1 << slot).valid::<K>(), before.valid::<K>());
            meta = meta.becoming::<K>(meta.valid::<K>(), Mark::None);
            assert!(K::is_sealed(meta.0) && meta.keys::<K>() as usize == slot + 1);
        }
        let moving = meta.becoming::<K>(meta.valid::<K>(), Mark::Moving);
        assert_eq!((moving.mark::<K>(), moving.valid::<K>()), (Mark::Moving, all_slots::<K>()));
    }

    #[test]
    fn slots_are_valid_and_locked_each_by_itself() {
        slots_come_and_go::<U64>();
        slots_come_and_go::<Bytes<NoRecords>>();
    }

    fn changes_raise_the_sequence<K: Nests>() {
        let mut meta = Meta(0);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            meta = meta.with::<K>(3).without::<K>(1 << 3);
            assert!(seen.insert(meta.0), "a word came back");
        }
    }

    fn passes<K: Nests>() {
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
    fn no_meta_word_comes_back_soon() {
        changes_raise_the_sequence::<U64>();
        changes_raise_the_sequence::<Bytes<NoRecords>>();
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
        // By the last four bits, which do not tell how far the second bucket is.
        assert_eq!([0, 1, 2, 3, 14, 15, 16, 0xf2].map(line_for), [1, 2, 3, 1, 3, 1, 1, 3]);
    }
}
