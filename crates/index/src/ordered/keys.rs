//! The order of keys, and the leaves of trees.

use super::link::is_offset;
use super::sp::{Borders, IntegerLows};
use crate::{Bytes, KeyKind, RecordKeys, U64};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::{Guard, PoolFull};

/// The longest key of an ordered index, in bytes.
pub const KEY_MAX: usize = 1 << 16;

/// A kind of keys that ordered indexes can keep: integers in the order of their values, byte
/// strings byte by byte, a string before the strings that it begins. Sealed: [`U64`] and [`Bytes`].
pub trait OrderedKind: KeyKind + sealed::Order {}
impl<K: sealed::Order> OrderedKind for K {}

/// The bytes of a key, in which order it is compared: an integer's are big-endian.
#[derive(Clone)]
pub enum KeyBytes<'g> {
    Integer([u8; 8]),
    String(&'g [u8]),
}

impl std::ops::Deref for KeyBytes<'_> {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Integer(bytes) => bytes,
            Self::String(bytes) => bytes,
        }
    }
}

/// What a search reads at a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The word of the key.
    Word(u64),
    /// The leaf of another key.
    Other,
}

pub(crate) mod sealed {
    use super::{Found, Guard, KeyBytes, KeyKind, MappedMedium, PoolFull};

    /// How a tree reads keys and leaves.
    pub trait Order: KeyKind {
        /// Stored in the root, so that a tree of one kind is never read as the other.
        const TAG: u64;
        /// Bytes of a leaf that belongs to the index: a pair of key and word. 0 if the word itself
        /// is the offset of a record, which the index does not own.
        const LEAF_BYTES: usize;

        /// The byte at `level`; `None` at the key's end.
        fn byte(key: &Self::Key, level: usize) -> Option<u8>;
        fn bytes(key: &Self::Key) -> KeyBytes<'_>;
        /// The key of these bytes; `None` if no key has them.
        fn owned(bytes: &[u8]) -> Option<Self::Owned>;
        /// A key that owns its bytes.
        type Owned: std::borrow::Borrow<Self::Key>;
        /// The same keys where each word is a node that begins with the key.
        type Borders: super::OrderedKind<Key = Self::Key>;
        /// The same keys as bytes, where each word is what DRAM has of a node that begins with the
        /// key.
        type Lows: super::OrderedKind<Key = [u8]>;

        /// Whether the index may hold this word.
        fn is_word(word: u64) -> bool;
        /// The word at a leaf if it is the key's.
        fn find<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64, key: &Self::Key) -> Found;
        /// The leaf's key; `None` if there is no sound leaf.
        fn key_of<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, leaf: u64) -> Option<KeyBytes<'g>>;
        /// The leaf's word.
        fn word_of<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64) -> u64;
        /// What a range tells of a key with this head, its first eight bytes.
        fn told_of(head: u64) -> Self::Told;
        /// What a range tells of the leaf's key.
        fn told<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64) -> Self::Told;
        /// Whether a leaf of another key is sound, so that it is not this key's, damaged.
        fn is_sound<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64) -> bool;
        /// Prefetches what [`Order::find`] reads.
        fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64);
        /// A leaf for a key and its word, written back and not fenced. The caller links it, or
        /// frees it by [`Order::free`].
        fn make<M: MappedMedium>(guard: &Guard<'_, M>, key: &Self::Key, word: u64) -> Result<u64, PoolFull>;

        /// Frees a leaf that was never linked.
        fn free<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64) {
            if Self::LEAF_BYTES > 0 {
                guard.free(leaf, Self::LEAF_BYTES);
            }
        }
        /// Retires a leaf that was unlinked.
        fn retire<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64) {
            if Self::LEAF_BYTES > 0 {
                guard.retire(leaf, Self::LEAF_BYTES);
            }
        }
    }
}

/// The key of which a tree with inline integers has the head, its first eight bytes, and the word;
/// `None` if there is no sound record.
#[inline(always)]
pub(super) fn key_of_entry<'g, M: MappedMedium, K: OrderedKind>(
    guard: &'g Guard<'_, M>,
    (head, word): (u64, u64),
) -> Option<KeyBytes<'g>> {
    match K::LEAF_BYTES > 0 {
        true => Some(KeyBytes::Integer(head.to_be_bytes())),
        false => K::key_of(guard, word),
    }
}

/// The word of a pair at `leaf`.
#[inline(always)]
pub(super) fn pair_word<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, leaf: u64) -> Option<&'g Word> {
    guard.pool().region().get(Offset::new(leaf + 8))
}

#[inline(always)]
fn pair_key<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64) -> Option<u64> {
    let region = guard.pool().region();
    // ORDER: Relaxed: the tree has loaded the link with Acquire, and the key never changes.
    Some(region.get(Offset::<Word>::new(leaf))?.load(region.medium(), Relaxed))
}

/// Integers lie beside their word in a pair of the index's own: `| key | word |`. A change of the
/// word is one store.
impl sealed::Order for U64 {
    const TAG: u64 = u64::from_le_bytes(*b"treepair");
    const LEAF_BYTES: usize = 16;
    type Owned = u64;
    type Borders = Self;
    type Lows = Bytes<IntegerLows>;

    #[inline(always)]
    fn byte(key: &u64, level: usize) -> Option<u8> {
        (level < 8).then(|| (key >> (56 - 8 * level)) as u8)
    }

    #[inline(always)]
    fn bytes(key: &u64) -> KeyBytes<'_> {
        KeyBytes::Integer(key.to_be_bytes())
    }

    fn owned(bytes: &[u8]) -> Option<u64> {
        bytes.try_into().ok().map(u64::from_be_bytes)
    }

    #[inline(always)]
    fn is_word(_: u64) -> bool {
        true
    }

    #[inline(always)]
    fn find<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64, key: &u64) -> Found {
        if pair_key(guard, leaf) == Some(*key) {
            Found::Word(Self::word_of(guard, leaf))
        } else {
            Found::Other
        }
    }

    #[inline(always)]
    fn key_of<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, leaf: u64) -> Option<KeyBytes<'g>> {
        pair_key(guard, leaf).map(|key| KeyBytes::Integer(key.to_be_bytes()))
    }

    #[inline(always)]
    fn word_of<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64) -> u64 {
        // ORDER: Acquire: pairs with the Release of an update. A reader that sees the word sees
        // what its writer stored before.
        pair_word(guard, leaf).map_or(0, |word| word.load(guard.pool().medium(), Acquire))
    }

    #[inline(always)]
    fn told_of(head: u64) -> u64 {
        head
    }

    #[inline(always)]
    fn told<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64) -> u64 {
        pair_key(guard, leaf).unwrap_or(0)
    }

    fn is_sound<M: MappedMedium>(_: &Guard<'_, M>, _: u64) -> bool {
        true
    }

    #[inline(always)]
    fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64) {
        guard.pool().region().prefetch(leaf);
    }

    #[inline(always)]
    fn make<M: MappedMedium>(guard: &Guard<'_, M>, key: &u64, word: u64) -> Result<u64, PoolFull> {
        let fresh = guard.alloc(Self::LEAF_BYTES)?;
        let medium = guard.pool().medium();
        // ORDER: Relaxed: the store of the link publishes both.
        fresh.word(0).store(medium, *key, Relaxed);
        fresh.word(8).store(medium, word, Relaxed);
        // PERSIST: the pair before its link. The caller fences.
        fresh.write_back();
        Ok(fresh.fenced_later().into_offset())
    }
}

impl<R: RecordKeys> sealed::Order for Bytes<R> {
    const TAG: u64 = u64::from_le_bytes(*b"treestrs");
    const LEAF_BYTES: usize = 0;
    type Owned = Vec<u8>;
    type Borders = Bytes<Borders>;
    type Lows = Bytes<Borders>;

    #[inline(always)]
    fn byte(key: &[u8], level: usize) -> Option<u8> {
        key.get(level).copied()
    }

    #[inline(always)]
    fn bytes(key: &[u8]) -> KeyBytes<'_> {
        KeyBytes::String(key)
    }

    fn owned(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }

    #[inline(always)]
    fn is_word(word: u64) -> bool {
        is_offset(word)
    }

    #[inline(always)]
    fn find<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64, key: &[u8]) -> Found {
        if R::is(guard, leaf, key) { Found::Word(leaf) } else { Found::Other }
    }

    #[inline(always)]
    fn key_of<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, leaf: u64) -> Option<KeyBytes<'g>> {
        R::key(guard, leaf).map(KeyBytes::String)
    }

    #[inline(always)]
    fn word_of<M: MappedMedium>(_: &Guard<'_, M>, leaf: u64) -> u64 {
        leaf
    }

    #[inline(always)]
    fn told_of(_: u64) {}

    #[inline(always)]
    fn told<M: MappedMedium>(_: &Guard<'_, M>, _: u64) {}

    fn is_sound<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64) -> bool {
        R::is_sound(guard, leaf)
    }

    #[inline(always)]
    fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, leaf: u64) {
        R::prefetch(guard, leaf);
    }

    #[inline(always)]
    fn make<M: MappedMedium>(_: &Guard<'_, M>, _: &[u8], word: u64) -> Result<u64, PoolFull> {
        Ok(word)
    }
}
