//! Keys and words for tests of indexes: integers, and byte strings in a minimal record.

use std::borrow::Borrow;
use std::fmt::Debug;
use terrace_index::{Bytes, KeyKind, RecordKeys, U64};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker, PoolFull};

/// A key of any kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestKey {
    /// A key of the kind [`U64`].
    Integer(u64),
    /// A key of the kind [`Bytes`].
    String(Vec<u8>),
}

impl Debug for TestKey {
    /// At most the first bytes of a string, and its length.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 300;
        match self {
            Self::Integer(integer) => write!(f, "{integer:#x}"),
            Self::String(string) => {
                let shown = &string[..string.len().min(SHOWN)];
                write!(f, "b\"{}\" ({} bytes)", shown.escape_ascii(), string.len())
            }
        }
    }
}

/// The sort of a kind's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySort {
    /// Integers.
    Integers,
    /// Byte strings.
    Strings,
}

impl KeySort {
    /// See [`TestKeys::key`].
    pub fn key(self, n: u64) -> TestKey {
        match self {
            Self::Integers => TestKey::Integer(n),
            Self::Strings => TestKey::String(string_key(n)),
        }
    }
}

/// Lengths from 1 to 100 bytes, with common prefixes.
fn string_key(n: u64) -> Vec<u8> {
    const LONGEST: usize = 8 + 92 + 1;
    let mut key = Vec::with_capacity(LONGEST);
    key.extend_from_slice(&n.to_le_bytes()[..8 - n.leading_zeros() as usize / 8]);
    key.resize((key.len() + n as usize % 93).max(1), b'-');
    key.push(n.leading_zeros() as u8);
    key
}

/// A kind of key for which suites can make keys and words.
///
/// A word encodes a key's number and a version, so a test can tell from the word alone which key
/// and which write it belongs to.
pub trait TestKeys: KeyKind {
    /// A key that owns its bytes.
    type Owned: Borrow<Self::Key> + Clone + Debug + Send + Sync;
    /// The sort of the keys.
    const SORT: KeySort;
    /// The key for `n`; different for each `n`.
    fn key(n: u64) -> Self::Owned;
    /// A key of this kind.
    ///
    /// # Panics
    /// If it is of the other sort.
    fn of(key: &TestKey) -> &Self::Key;
    /// The key of which an index tells this, if that says it.
    fn told(told: Self::Told) -> Option<u64>;
    /// A word for the key with number `number` (below 2^40), at version `version` (below 2^24).
    fn word<M: MappedMedium>(
        guard: &Guard<'_, M>,
        key: &Self::Key,
        number: u64,
        version: u64,
    ) -> Result<u64, PoolFull>;
    /// The number and version of a word.
    fn read<M: MappedMedium>(guard: &Guard<'_, M>, word: u64) -> (u64, u64);
    /// Marks the memory of a word for the collector.
    fn mark<M: MappedMedium>(guard: &Guard<'_, M>, marker: &mut Marker<'_>, word: u64);
    /// Frees the memory of a word that no index contains any more (`seen`), or that none ever
    /// contained.
    fn free_word<M: MappedMedium>(guard: &Guard<'_, M>, word: u64, seen: bool);
}

impl TestKeys for U64 {
    type Owned = u64;
    const SORT: KeySort = KeySort::Integers;

    fn key(n: u64) -> u64 {
        n
    }

    fn of(key: &TestKey) -> &u64 {
        match key {
            TestKey::Integer(integer) => integer,
            TestKey::String(_) => panic!("{key:?} is no integer"),
        }
    }

    fn told(told: u64) -> Option<u64> {
        Some(told)
    }

    fn word<M: MappedMedium>(_: &Guard<'_, M>, _: &u64, number: u64, version: u64) -> Result<u64, PoolFull> {
        Ok(number << 24 | version)
    }

    fn read<M: MappedMedium>(_: &Guard<'_, M>, word: u64) -> (u64, u64) {
        (word >> 24, word & 0xff_ffff)
    }

    fn mark<M: MappedMedium>(_: &Guard<'_, M>, _: &mut Marker<'_>, _: u64) {}

    fn free_word<M: MappedMedium>(_: &Guard<'_, M>, _: u64, _: bool) {}
}

/// A record that begins with the key's number and version.
///
/// ```text
///   | MAGIC ^ length of the key | number | version | key ... |
/// ```
#[derive(Debug)]
pub struct TestRecord;

const MAGIC: u64 = 0x7465_7374_7265_6300;
const HEAD: usize = 24;

impl TestRecord {
    /// The words of the head, with the length in place of the first; `None` if this is not a
    /// record.
    fn head<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64) -> Option<[u64; 3]> {
        let head = guard.bytes(offset, HEAD)?;
        let word = |i: usize| u64::from_le_bytes(head[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        let length = word(0) ^ MAGIC;
        (length <= 1 << 16).then_some([length, word(1), word(2)])
    }
}

impl RecordKeys for TestRecord {
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]> {
        let [length, ..] = Self::head(guard, offset)?;
        guard.bytes(offset + HEAD as u64, length as usize)
    }
}

impl TestKeys for Bytes<TestRecord> {
    type Owned = Vec<u8>;
    const SORT: KeySort = KeySort::Strings;

    fn key(n: u64) -> Vec<u8> {
        string_key(n)
    }

    fn of(key: &TestKey) -> &[u8] {
        match key {
            TestKey::String(string) => string,
            TestKey::Integer(_) => panic!("{key:?} is no byte string"),
        }
    }

    fn told(_: ()) -> Option<u64> {
        None
    }

    fn word<M: MappedMedium>(
        guard: &Guard<'_, M>,
        key: &[u8],
        number: u64,
        version: u64,
    ) -> Result<u64, PoolFull> {
        let fresh = guard.alloc(HEAD + key.len())?;
        let head = [MAGIC ^ key.len() as u64, number, version];
        for (i, word) in head.into_iter().enumerate() {
            fresh.write(i * 8, &word.to_le_bytes());
        }
        fresh.write(HEAD, key);
        // PERSIST: the record before the index names it.
        Ok(fresh.persist().into_offset())
    }

    fn read<M: MappedMedium>(guard: &Guard<'_, M>, word: u64) -> (u64, u64) {
        let [_, number, version] = TestRecord::head(guard, word).expect("the word of a record");
        (number, version)
    }

    fn mark<M: MappedMedium>(guard: &Guard<'_, M>, marker: &mut Marker<'_>, word: u64) {
        if let Some([length, ..]) = TestRecord::head(guard, word) {
            marker.mark(word, HEAD + length as usize);
        }
    }

    fn free_word<M: MappedMedium>(guard: &Guard<'_, M>, word: u64, seen: bool) {
        let [length, ..] = TestRecord::head(guard, word).expect("the word of a record");
        let bytes = HEAD + length as usize;
        if seen { guard.retire(word, bytes) } else { guard.free(word, bytes) }
    }
}
