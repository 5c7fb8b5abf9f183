//! The kinds of keys that an index can have.

use std::marker::PhantomData;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A kind of key: how it is hashed and compared, and whether slots hold it inline.
pub trait KeyKind: Send + Sync + 'static {
    /// The key itself.
    type Key: ?Sized;
    /// What an index tells of a key in a range without reading its record: an integer, and nothing
    /// of a byte string.
    type Told: Copy;
    /// The key's hash. It never changes: it decides where pools of any age hold the key.
    fn hash(key: &Self::Key, seed: u64) -> u64;
}

/// Every `u64`, 0 included, held inline beside its word.
pub struct U64;

impl KeyKind for U64 {
    type Key = u64;
    type Told = u64;
    /// One multiplication whose halves are folded together (the mixer of wyhash), keyed with the
    /// pool's seed. Its top bits, which choose the bucket, depend on every bit of the key. A second
    /// multiplication would cost gets: their speed is limited by how many of them overlap in the
    /// processor, so by instructions.
    #[inline(always)]
    fn hash(key: &u64, seed: u64) -> u64 {
        let product = u128::from(*key ^ seed) * 0x9e37_79b9_7f4a_7c15;
        (product as u64) ^ (product >> 64) as u64
    }
}

/// Byte strings of any length, read from the records that the index's words point to.
pub struct Bytes<R>(PhantomData<fn() -> R>);

impl<R: RecordKeys> KeyKind for Bytes<R> {
    type Key = [u8];
    type Told = ();
    /// 64-bit XXH3, seeded: specified, stable, fast for short keys.
    #[inline(always)]
    fn hash(key: &[u8], seed: u64) -> u64 {
        R::hash(key, seed)
    }
}

/// Finds the keys of records. The index's words are offsets of records: multiples of 8 below 2^44,
/// never 0.
pub trait RecordKeys: Send + Sync + 'static {
    /// The key of the record at `offset`, or `None` if there is no sound record there.
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]>;
    /// Whether the record at `offset` has this key.
    #[inline(always)]
    fn is<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64, key: &[u8]) -> bool {
        Self::key(guard, offset) == Some(key)
    }
    /// The hash of a key, by default its 64-bit XXH3, seeded.
    #[inline(always)]
    fn hash(key: &[u8], seed: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
    }
    /// The hash of the key of the record at `offset`, or `None` if there is no sound record there.
    /// An index that moves keys asks for it.
    fn hash_at<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64, seed: u64) -> Option<u64> {
        Self::key(guard, offset).map(|key| Self::hash(key, seed))
    }
    /// Whether two records have the same key.
    fn is_same<M: MappedMedium>(guard: &Guard<'_, M>, one: u64, other: u64) -> bool {
        Self::key(guard, one) == Self::key(guard, other)
    }
    /// Whether the whole record at `offset` is sound. Called when a key was not found but its slot
    /// may be there: for at most one in 4,096 comparisons with other keys of a bucket.
    fn is_sound<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64) -> bool {
        Self::key(guard, offset).is_some()
    }
    /// Where to prefetch before [`RecordKeys::key`]; by default the record's first line.
    fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64) {
        guard.pool().region().prefetch(offset);
    }
}

/// For tests: no record exists.
#[cfg(test)]
pub(crate) struct NoRecords;

#[cfg(test)]
impl RecordKeys for NoRecords {
    fn key<'g, M: MappedMedium>(_: &'g Guard<'_, M>, _: u64) -> Option<&'g [u8]> {
        None
    }
}

/// For tests: a record is one word, its key; 0 is no record.
#[cfg(test)]
pub(crate) struct WordRecords;

#[cfg(test)]
impl RecordKeys for WordRecords {
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]> {
        guard.bytes(offset, 8).filter(|key| *key != [0; 8])
    }
}

#[cfg(test)]
impl WordRecords {
    /// Creates the record of a key. All words of its line are the same.
    pub(crate) fn put<M: MappedMedium>(guard: &Guard<'_, M>, key: u64) -> u64 {
        let fresh = guard.alloc(64).expect("room for a record");
        fresh.stream_lines(0, &[[key; 8]]);
        fresh.persist().into_offset()
    }

    /// Erases a record.
    pub(crate) fn erase<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64) {
        guard.pool().region().stream_lines(offset, &[[0; 8]]);
    }
}

#[cfg(test)]
#[path = "tests/key.rs"]
mod tests;
