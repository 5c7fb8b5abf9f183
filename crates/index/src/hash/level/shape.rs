//! The common interface of the two bucket shapes: find, read, write and rebuild a slot; and the two
//! positions of a key.

use super::bucket::{Bucket, Image, Meta};
use crate::KeyKind;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A kind of key with a bucket shape for Level hashing. Sealed: [`U64`](crate::U64) and
/// [`Bytes`](crate::Bytes).
pub trait BucketShape: KeyKind + sealed::Shape {}
impl<K: sealed::Shape> BucketShape for K {}

/// Bits of a key's tag.
pub(super) const TAG_BITS: u32 = super::super::packed::HASH_BITS;

/// A part of the hash that is independent of its first bits.
#[inline(always)]
pub(super) fn tag_of(hash: u64) -> u64 {
    hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> (64 - TAG_BITS)
}

/// The difference between the two positions of a key with this tag: each is the other XOR this. So
/// a slot with a key's tag determines the other bucket of its tier without the key.
#[inline(always)]
pub(super) fn between(tag: u64) -> u64 {
    (2 * tag + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The two positions of a key: the hash functions of the paper.
#[inline(always)]
pub(super) fn positions(hash: u64) -> [u64; 2] {
    [hash, hash ^ between(tag_of(hash))]
}

/// A key to look for.
pub struct Probe<'k, K: KeyKind + ?Sized> {
    pub(super) key: &'k K::Key,
    pub(super) hash: u64,
    pub(super) tag: u64,
    pub(super) positions: [u64; 2],
}

impl<'k, K: KeyKind> Probe<'k, K> {
    #[inline(always)]
    pub(super) fn new(key: &'k K::Key, seed: u64) -> Self {
        let hash = K::hash(key, seed);
        Self { key, hash, tag: tag_of(hash), positions: positions(hash) }
    }
}

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `u64` keys: the key. Byte strings: the whole slot.
    pub(super) key: u64,
    /// `u64` keys: the word. Byte strings: the record's offset; its lowest bit is set if the slot
    /// is damaged.
    pub(super) word: u64,
}

/// The result of looking for a key in a bucket.
pub enum Found {
    /// The key is in this slot, with this word; and the meta word at that time.
    Here(usize, u64, Meta),
    /// The key is absent; this was the meta word at that time.
    Missing(Meta),
}

pub(super) mod sealed {
    use super::{Bucket, Entry, Found, Guard, Image, KeyKind, MappedMedium, Probe};

    /// A bucket shape. Methods that store are called under the unit's lock.
    pub trait Shape: KeyKind + Sized {
        /// Slots of a bucket.
        const SLOTS: usize;
        /// Stored in the root, so that a table of one shape is never read as the other.
        const KIND: u64;

        /// The next meta word after `before`, with these bits, one more than two for each slot. It
        /// differs each time.
        fn seal(bits: u64, before: u64) -> u64;
        /// Whether a meta word is as it was sealed.
        fn is_sealed(meta: u64) -> bool;
        /// Whether the index may hold this word.
        fn is_word(word: u64) -> bool;
        /// The line of a slot.
        fn line_of(slot: usize) -> usize;
        /// Looks for a key in one bucket. Key and word are one atomic snapshot.
        fn find<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, probe: &Probe<'_, Self>) -> Found;
        /// The word of a damaged record or slot that may be the key's.
        fn suspect<M: MappedMedium>(
            _guard: &Guard<'_, M>,
            _bucket: &Bucket,
            _probe: &Probe<'_, Self>,
        ) -> Option<u64> {
            None
        }
        /// Prefetches what [`Shape::find`] will read besides the bucket.
        fn prefetch<M: MappedMedium>(_guard: &Guard<'_, M>, _bucket: &Bucket, _probe: &Probe<'_, Self>) {}
        /// The entry of a slot, as one atomic snapshot; `None` without a token.
        fn read<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize) -> Option<Entry>;
        /// Writes key and word into a slot without a key.
        fn write<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry);
        /// Gives the key of a slot another word, by one store.
        fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry);
        /// Writes an entry into the image of an unpublished bucket.
        fn put_in_image(image: &mut Image, slot: usize, entry: Entry);
        /// The key's tag.
        fn tag(entry: Entry, seed: u64) -> u64;
        /// The whole hash, from the key; `None` if its record is unsound.
        fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64>;
        /// Prefetches what [`Shape::hash_of`] will read.
        fn prefetch_record<M: MappedMedium>(_guard: &Guard<'_, M>, _entry: Entry) {}
        /// The entry of a probe's key with `word`.
        fn entry(probe: &Probe<'_, Self>, word: u64) -> Entry;
        /// Whether two entries have the same key.
        fn same_key<M: MappedMedium>(guard: &Guard<'_, M>, one: Entry, other: Entry) -> bool;
    }
}

#[cfg(test)]
#[path = "tests/shape.rs"]
mod tests;
