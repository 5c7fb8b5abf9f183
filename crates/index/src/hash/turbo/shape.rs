//! What the two bucket shapes have in common: a slot can be found, read, written, and drawn anew.

use super::bucket::{Bucket, Image, Meta};
use crate::KeyKind;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A kind of key that TurboHash has a bucket shape for. Sealed: [`U64`](crate::U64) and [`Bytes`](crate::Bytes).
pub trait Buckets: KeyKind + sealed::Shape {}
impl<K: sealed::Shape> Buckets for K {}

/// A key that is looked for.
pub struct Probe<'k, K: KeyKind + ?Sized> {
    pub(super) key: &'k K::Key,
    /// The part of its hash behind the bits that choose the shard.
    pub(super) inner: u64,
    pub(super) tag: u8,
}

impl<'k, K: KeyKind> Probe<'k, K> {
    #[inline(always)]
    pub(super) fn new(key: &'k K::Key, hash: u64, inner: u64) -> Self {
        Self { key, inner, tag: hash as u8 }
    }
}

/// What a slot holds, as it lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub(super) tag: u8,
    /// `u64` keys: the key. Byte strings: the whole slot.
    pub(super) key: u64,
    /// `u64` keys: the word. Byte strings: the record's offset, its lowest bit set if the slot is damaged.
    pub(super) word: u64,
}

/// What a bucket says about a key.
pub enum Found {
    /// It lies in this slot, with this word.
    Here(usize, u64),
    /// It does not; this was the meta word when it was looked for.
    Missing(Meta),
}

pub(super) mod sealed {
    use super::{Bucket, Entry, Found, Guard, Image, KeyKind, MappedMedium, Probe};
    use std::ops::ControlFlow;

    /// One bucket shape. Methods that store are called under the shard's lock.
    pub trait Shape: KeyKind + Sized {
        /// Slots of a bucket.
        const SLOTS: usize;
        /// The first word of the first slot.
        const FIRST: usize;
        /// Words of a slot.
        const WORDS: usize;
        /// The word that says which tags have passed the bucket, and its bits for that: the first, and how many.
        const PASSED: usize;
        /// See [`Shape::PASSED`].
        const PASSED_AT: u32;
        /// See [`Shape::PASSED`].
        const PASSED_BITS: u32;
        /// Written into the root, so that a table of one shape is never read as the other.
        const KIND: u64;

        /// The meta word with these live and deleted bits that follows `before`.
        fn seal(bits: u64, before: u64) -> u64;
        /// Whether a meta word is as it was sealed.
        fn is_sealed(meta: u64) -> bool;
        /// Whether the index may hold this word.
        fn is_word(word: u64) -> bool;
        /// Looks for a key in one bucket. Key and word are one atomic snapshot.
        fn find<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, probe: &Probe<'_, Self>) -> Found;
        /// As [`Shape::find`], but only what the first slot with the key's tag says; `None` if that is not enough. Nearly always it is, and then it is in fewer
        /// instructions, without a loop.
        #[inline(always)]
        fn glance<M: MappedMedium>(
            guard: &Guard<'_, M>,
            bucket: &Bucket,
            probe: &Probe<'_, Self>,
        ) -> Option<Found> {
            Some(Self::find(guard, bucket, probe))
        }
        /// A record that may be the key's, though the bucket does not say so because something is damaged.
        fn suspect<M: MappedMedium>(
            _guard: &Guard<'_, M>,
            _bucket: &Bucket,
            _probe: &Probe<'_, Self>,
        ) -> Option<u64> {
            None
        }
        /// Fetches what [`Shape::find`] will read besides the bucket.
        fn prefetch<M: MappedMedium>(_guard: &Guard<'_, M>, _bucket: &Bucket, _probe: &Probe<'_, Self>) {}
        /// Every key of a bucket, each one atomic snapshot.
        fn for_each<M: MappedMedium>(
            guard: &Guard<'_, M>,
            bucket: &Bucket,
            each: impl FnMut(usize, Entry) -> ControlFlow<()>,
        );
        /// Writes key and word into a slot that holds none.
        fn write<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry);
        /// Gives the key of a slot another word, by one store.
        fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Bucket, slot: usize, entry: Entry);
        /// Writes an entry into the image of a bucket that nobody sees yet.
        fn draw(image: &mut Image, slot: usize, entry: Entry);
        /// As much of the part of the hash behind the shard's bits as tells the home in a shard of any size.
        fn inner(entry: Entry, seed: u64, shard_bits: u32) -> u64;
        /// The whole hash, from the key; `None` if its record is unsound.
        fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64>;
        /// Whether it is not as it was written.
        #[inline(always)]
        fn is_damaged(_entry: Entry) -> bool {
            false
        }
        /// What an entry for this key holds.
        fn entry(probe: &Probe<'_, Self>, word: u64) -> Entry;
        /// Whether two entries have the same key.
        fn same_key<M: MappedMedium>(guard: &Guard<'_, M>, one: Entry, other: Entry) -> bool;
    }
}
