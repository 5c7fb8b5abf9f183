//! The common interface of the two bucket shapes: find, read and write a slot, and compute its
//! key's other bucket.

use super::bucket::Bucket;
use super::place::Place;
use crate::KeyKind;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A kind of key with a bucket shape for Rewo-Hash. Sealed: [`U64`](crate::U64) and
/// [`Bytes`](crate::Bytes).
pub trait BucketShape: KeyKind + sealed::Shape {}
impl<K: sealed::Shape> BucketShape for K {}

/// A key to look for.
pub struct Probe<'k, K: KeyKind + ?Sized> {
    pub(super) key: &'k K::Key,
    pub(super) hash: u64,
}

impl<'k, K: KeyKind> Probe<'k, K> {
    #[inline(always)]
    pub(super) fn new(key: &'k K::Key, seed: u64) -> Self {
        Self { key, hash: K::hash(key, seed) }
    }
    #[inline(always)]
    pub(super) fn tag(&self) -> u8 {
        self.hash as u8
    }
}

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub(super) tag: u8,
    /// `u64` keys: the key. Byte strings: the whole slot.
    pub(super) key: u64,
    /// `u64` keys: the word. Byte strings: the record's offset; its lowest bit is set if the slot
    /// is damaged.
    pub(super) word: u64,
}

/// The cell of the directory for a hash, or for the top of one.
#[inline(always)]
pub(super) fn cell_of(hash: u64) -> usize {
    (hash >> 60) as usize
}

pub(super) mod sealed {
    use super::{Bucket, Entry, Guard, KeyKind, MappedMedium, Place, Probe};

    /// A bucket shape. Methods that store are called under the bucket's lock.
    pub trait Shape: KeyKind + Sized {
        /// Slots of a bucket.
        const SLOTS: usize;
        /// The first word of the first slot.
        const FIRST: usize;
        /// Words of a slot.
        const WORDS: usize;
        /// The word with the overflow bits, the first of its bits, and their number.
        const OVERFLOW: usize;
        /// See [`Shape::OVERFLOW`].
        const OVERFLOW_AT: u32;
        /// See [`Shape::OVERFLOW`].
        const OVERFLOW_BITS: u32;
        /// Bits of the meta word with the number of the locked slot.
        const SLOT_LOCK_BITS: u32;
        /// Stored in the root, so that a table of one shape is never read as the other.
        const KIND: u64;

        /// The next meta word after `before`, with these valid and lock bits.
        fn seal(bits: u64, before: u64) -> u64;
        /// Whether a meta word is as it was sealed.
        fn is_sealed(meta: u64) -> bool;
        /// Whether the index may hold this word.
        fn is_word(word: u64) -> bool;
        /// Looks for a key in one bucket. Key and word are one atomic snapshot.
        fn find<M: MappedMedium>(
            guard: &Guard<'_, M>,
            bucket: &Bucket,
            probe: &Probe<'_, Self>,
        ) -> Option<(usize, u64)>;
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
        /// The entry of a slot, as one atomic snapshot; `None` if it is not valid.
        fn read<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize) -> Option<Entry>;
        /// Writes key and word into a slot without a key.
        fn write<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry);
        /// Gives the key of a slot another word, by one store. The bucket stays the key's first or
        /// second, whatever the entry says.
        fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry);
        /// The entry of a probe's key with `word`, in its first or its second bucket.
        fn entry(probe: &Probe<'_, Self>, word: u64, is_second: bool) -> Entry;
        /// The entry in the form for the key's first or second bucket.
        fn placed(entry: Entry, is_second: bool) -> Entry;
        /// Whether the entry, in bucket `index`, lies in its key's second bucket.
        fn is_second(entry: Entry, place: Place, index: u64, seed: u64) -> bool;
        /// The hash, of which at least the top 4 bits are correct.
        fn top(entry: Entry, seed: u64) -> u64;
        /// The whole hash, from the key; `None` if its record is unsound.
        fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64>;
        /// A number that is equal for entries with the same key, and for few others.
        fn sort_key(entry: Entry) -> u64;
        /// The word by which the cache distinguishes keys.
        fn cache_word(probe: &Probe<'_, Self>) -> u64;
        /// Whether a word that the cache has under [`Shape::cache_word`] is the key's.
        fn is_word_of<M: MappedMedium>(guard: &Guard<'_, M>, word: u64, probe: &Probe<'_, Self>) -> bool;
        /// Whether two entries have the same key.
        fn same_key<M: MappedMedium>(guard: &Guard<'_, M>, one: Entry, other: Entry) -> bool;
        /// Whether the entry is not as it was written.
        #[inline(always)]
        fn is_damaged(_entry: Entry) -> bool {
            false
        }
    }
}
