//! The keys that the trees are compared with: random integers, and YCSB's strings of 24 bytes.

use std::borrow::Borrow;
use std::ops::BitXor;
use terrace_bench::{IntegerKeys, KeyForm, StringKeys, spread, ycsb_key};
use terrace_index::ordered::OrderedKind;
use terrace_index::{Bytes, KeyKind, RecordKeys, U64};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// What an index tells of a key in a range.
type Told<K> = <<K as Keys>::Kind as KeyKind>::Told;

/// A key's number, and the key, made before it is used.
pub(super) type Numbered<K> = (u64, <K as Keys>::Drawn);

/// A kind of keys, for Terrace's trees, for the baselines and for the peers.
pub(super) trait Keys: KeyForm<Key: Ord + ToOwned<Owned: Ord + Send + Sync>> {
    /// Its name in tables.
    const NAME: &'static str;
    /// The bytes of a key and its value.
    const RECORD_BYTES: u64;
    /// A key that is made before it is used.
    type Drawn: Borrow<Self::Key> + Send + Sync;
    /// The kind in Terrace's indexes.
    type Kind: OrderedKind<Key = Self::Key>;

    /// The key with this number.
    fn key(number: u64) -> Self::Drawn;
    /// A word of an index for a key and its value.
    fn word<M: MappedMedium>(guard: &Guard<'_, M>, key: &Self::Key, value: u64) -> u64;
    /// The value of a word.
    fn value<M: MappedMedium>(guard: &Guard<'_, M>, word: u64) -> u64;
    /// Key and value of an entry of a range, folded.
    fn seen<M: MappedMedium>(guard: &Guard<'_, M>, told: Told<Self>, word: u64) -> u64;
    /// Frees a word that no index has any more, once no reader sees it.
    fn retire<M: MappedMedium>(guard: &Guard<'_, M>, word: u64);
}

impl Keys for IntegerKeys {
    const NAME: &'static str = "integers";
    const RECORD_BYTES: u64 = 16;
    type Drawn = u64;
    type Kind = U64;

    #[inline(always)]
    fn key(number: u64) -> u64 {
        spread(number)
    }
    #[inline(always)]
    fn word<M: MappedMedium>(_: &Guard<'_, M>, _: &u64, value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn value<M: MappedMedium>(_: &Guard<'_, M>, word: u64) -> u64 {
        word
    }
    #[inline(always)]
    fn seen<M: MappedMedium>(_: &Guard<'_, M>, told: u64, word: u64) -> u64 {
        told ^ word
    }
    fn retire<M: MappedMedium>(_: &Guard<'_, M>, _: u64) {}
}

/// Bytes of a string.
const STRING: usize = 24;

impl Keys for StringKeys {
    const NAME: &'static str = "strings";
    const RECORD_BYTES: u64 = STRING as u64 + 8;
    type Drawn = [u8; STRING];
    type Kind = Bytes<Record>;

    fn key(number: u64) -> [u8; STRING] {
        ycsb_key(number)
    }

    #[inline]
    fn word<M: MappedMedium>(guard: &Guard<'_, M>, key: &[u8], value: u64) -> u64 {
        Record::create(guard, key, value)
    }
    #[inline(always)]
    fn value<M: MappedMedium>(guard: &Guard<'_, M>, word: u64) -> u64 {
        Record::head(guard, word).map_or(0, |[_, value]| value)
    }
    #[inline(always)]
    fn seen<M: MappedMedium>(guard: &Guard<'_, M>, (): (), word: u64) -> u64 {
        let key = Record::key(guard, word).unwrap_or_default();
        Self::value(guard, word) ^ fold(key)
    }
    #[inline]
    fn retire<M: MappedMedium>(guard: &Guard<'_, M>, word: u64) {
        if let Some([length, _]) = Record::head(guard, word) {
            guard.retire(word, HEAD + length as usize);
        }
    }
}

/// A number that depends on all bytes.
#[inline(always)]
pub(super) fn fold(key: &[u8]) -> u64 {
    let words = key.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
    words.fold(key.len() as u64, BitXor::bitxor)
}

/// The smallest record: a byte string and a value of six bytes.
///
/// ```text
/// | length of the key, 2 bytes | value, 6 bytes | key |
/// ```
#[derive(Debug)]
pub(super) struct Record;

const HEAD: usize = 8;

impl Record {
    fn create<M: MappedMedium>(guard: &Guard<'_, M>, key: &[u8], value: u64) -> u64 {
        let record = guard.alloc(HEAD + key.len()).expect("room in the pool");
        record.write(0, &(value << 16 | key.len() as u64).to_le_bytes());
        record.write(HEAD, key);
        // PERSIST: the record before the index names it.
        record.persist().into_offset()
    }

    /// The length of the key, and the value.
    #[inline(always)]
    fn head<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64) -> Option<[u64; 2]> {
        let head = u64::from_le_bytes(guard.bytes(offset, HEAD)?.try_into().ok()?);
        Some([head & 0xffff, head >> 16])
    }
}

impl RecordKeys for Record {
    #[inline(always)]
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]> {
        let [length, _] = Self::head(guard, offset)?;
        guard.bytes(offset + HEAD as u64, length as usize)
    }
}
