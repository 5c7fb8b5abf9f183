//! How the trees among the baselines hold their keys.

use super::{Space, SpaceFull};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{LINE, Medium};

/// A kind of keys, and the word that stands for a key in a node of a B+-tree. No word is 0.
pub trait KeyForm: Send + Sync + 'static {
    /// A key.
    type Key: ?Sized;
    /// A copy of a key.
    type Owned: Borrow<Self::Key> + Send + Sync;

    /// The word of a key. What it refers to is durable on return.
    fn store<M: Medium>(space: &Space<M>, key: &Self::Key) -> Result<u64, SpaceFull>;

    /// The key of a word.
    fn read<M: Medium>(space: &Space<M>, word: u64) -> Self::Owned;

    /// How `key` compares with the key of a word.
    fn compare<M: Medium>(space: &Space<M>, key: &Self::Key, word: u64) -> Ordering;

    /// The bytes of a key, which sort as the keys do.
    fn bytes(key: &Self::Key) -> impl AsRef<[u8]>;
}

/// 8-byte integers, held inline. A node holds them inverted, so that empty memory is no key; a
/// B+-tree cannot store the key of all ones.
#[derive(Clone, Copy, Debug)]
pub enum IntegerKeys {}

impl KeyForm for IntegerKeys {
    type Key = u64;
    type Owned = u64;

    #[inline(always)]
    fn store<M: Medium>(_: &Space<M>, &key: &u64) -> Result<u64, SpaceFull> {
        assert_ne!(key, u64::MAX, "this tree cannot hold the key of all ones");
        Ok(!key)
    }

    #[inline(always)]
    fn read<M: Medium>(_: &Space<M>, word: u64) -> u64 {
        !word
    }

    #[inline(always)]
    fn compare<M: Medium>(_: &Space<M>, key: &u64, word: u64) -> Ordering {
        key.cmp(&!word)
    }

    fn bytes(key: &u64) -> impl AsRef<[u8]> {
        key.to_be_bytes()
    }
}

/// Byte strings in records of their own. A word is the offset of a record, so each comparison reads
/// one.
///
/// ```text
/// | length in bytes | bytes 0 to 7, the first one highest | bytes 8 to 15 | ... |
/// ```
#[derive(Clone, Copy, Debug)]
pub enum StringKeys {}

impl KeyForm for StringKeys {
    type Key = [u8];
    type Owned = Vec<u8>;

    fn store<M: Medium>(space: &Space<M>, key: &[u8]) -> Result<u64, SpaceFull> {
        let bytes = string_bytes(key.len());
        let at = space.alloc_aligned(bytes, alignment(bytes))?;
        write_string(space, at, key);
        space.region().write_back_bytes(at, bytes as usize);
        // PERSIST: the record before a node names it; else a crash leaves a key of garbage.
        space.region().fence();
        Ok(at)
    }

    fn read<M: Medium>(space: &Space<M>, word: u64) -> Vec<u8> {
        let length = space.load(word) as usize;
        let words = (0..length.div_ceil(8) as u64).map(|nth| space.load(word + 8 + 8 * nth));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_be_bytes).collect();
        bytes.truncate(length);
        bytes
    }

    #[inline]
    fn compare<M: Medium>(space: &Space<M>, key: &[u8], word: u64) -> Ordering {
        compare_string(space, key, word)
    }

    fn bytes(key: &[u8]) -> impl AsRef<[u8]> {
        key
    }
}

/// Bytes of a stored string.
pub(super) fn string_bytes(length: usize) -> u64 {
    8 + length.next_multiple_of(8) as u64
}

/// The alignment at which memory of at most a line lies in one line.
pub(super) fn alignment(bytes: u64) -> u64 {
    bytes.next_power_of_two().clamp(8, LINE as u64)
}

/// Up to 8 bytes, the first one highest, and zeros after the last.
#[inline(always)]
fn packed(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(word)
}

/// Stores a string in memory that no other thread reads yet.
pub(super) fn write_string<M: Medium>(space: &Space<M>, at: u64, string: &[u8]) {
    space.word(at).store(space.medium(), string.len() as u64, Relaxed);
    for (nth, bytes) in (1..).zip(string.chunks(8)) {
        space.word(at + 8 * nth).store(space.medium(), packed(bytes), Relaxed);
    }
}

/// How `string` compares with the one stored at `at`.
pub(super) fn compare_string<M: Medium>(space: &Space<M>, string: &[u8], at: u64) -> Ordering {
    let length = space.load(at);
    let mut stored = (0..length.div_ceil(8)).map(|nth| space.load(at + 8 + 8 * nth));
    // Zeros fill the last word. So a string and one that it begins have equal words as far as both
    // go, and the length decides.
    let words = string.chunks(8).map(packed);
    let differ = words.zip(&mut stored).map(|(ours, theirs)| ours.cmp(&theirs));
    differ.into_iter().find(|order| order.is_ne()).unwrap_or((string.len() as u64).cmp(&length))
}
