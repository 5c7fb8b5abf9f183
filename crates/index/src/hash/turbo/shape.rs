//! The common interface of the two bucket shapes: find, read, write and rebuild a slot.

use super::bucket::{Bucket, Image, Meta};
use crate::KeyKind;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A kind of key with a bucket shape for TurboHash. Sealed: [`U64`](crate::U64) and
/// [`Bytes`](crate::Bytes).
pub trait BucketShape: KeyKind + sealed::Shape {}
impl<K: sealed::Shape> BucketShape for K {}

/// A key to look for.
pub struct Probe<'k, K: KeyKind + ?Sized> {
    pub(super) key: &'k K::Key,
    /// The bits of its hash after those that choose the shard.
    pub(super) inner: u64,
    pub(super) tag: u8,
}

impl<'k, K: KeyKind> Probe<'k, K> {
    #[inline(always)]
    pub(super) fn new(key: &'k K::Key, hash: u64, inner: u64) -> Self {
        Self { key, inner, tag: hash as u8 }
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

/// The result of looking for a key in a bucket.
pub enum Found {
    /// The key is in this slot, with this word.
    Here(usize, u64),
    /// The key is absent; this was the meta word at that time.
    Missing(Meta),
}

pub(super) mod sealed {
    use super::{Bucket, Entry, Found, Guard, Image, KeyKind, MappedMedium, Probe};
    use std::ops::ControlFlow;

    /// A bucket shape. Methods that store are called under the shard's lock.
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
        /// Stored in the root, so that a table of one shape is never read as the other.
        const KIND: u64;

        /// The meta word with these live and deleted bits that follows `before`.
        fn seal(bits: u64, before: u64) -> u64;
        /// Whether a meta word is as it was sealed.
        fn is_sealed(meta: u64) -> bool;
        /// Whether the index may hold this word.
        fn is_word(word: u64) -> bool;
        /// Looks for a key in one bucket. Key and word are one atomic snapshot.
        fn find<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, probe: &Probe<'_, Self>) -> Found;
        /// As [`Shape::find`], but checks only the first slot with the key's tag; `None` if that
        /// does not decide. It nearly always does, in fewer instructions and without a loop.
        #[inline(always)]
        fn check_first_match<M: MappedMedium>(
            guard: &Guard<'_, M>,
            bucket: &Bucket,
            probe: &Probe<'_, Self>,
        ) -> Option<Found> {
            Some(Self::find(guard, bucket, probe))
        }
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
        /// Calls a function on every key of a bucket, each an atomic snapshot.
        fn for_each<M: MappedMedium>(
            guard: &Guard<'_, M>,
            bucket: &Bucket,
            each: impl FnMut(usize, Entry) -> ControlFlow<()>,
        );
        /// Writes key and word into a slot without a key.
        fn write<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry);
        /// Gives the key of a slot another word, by one store.
        fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry);
        /// Writes an entry into the image of an unpublished bucket.
        fn put_in_image(image: &mut Image, slot: usize, entry: Entry);
        /// The bits of the hash after the shard's that determine the home in a shard of any size.
        fn inner(entry: Entry, seed: u64, shard_bits: u32) -> u64;
        /// The whole hash, from the key; `None` if its record is unsound.
        fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64>;
        /// Whether the entry is not as it was written.
        #[inline(always)]
        fn is_damaged(_entry: Entry) -> bool {
            false
        }
        /// The entry of a probe's key with `word`.
        fn entry(probe: &Probe<'_, Self>, word: u64) -> Entry;
        /// Whether two entries have the same key.
        fn same_key<M: MappedMedium>(guard: &Guard<'_, M>, one: Entry, other: Entry) -> bool;
    }
}
