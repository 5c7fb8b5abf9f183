//! What keys an index can have.

use std::marker::PhantomData;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A kind of key: how it is hashed and compared, and whether slots hold it inline.
pub trait KeyKind: Send + Sync + 'static {
    /// The key itself.
    type Key: ?Sized;
    /// Its hash. The same for ever: it decides where pools of any age hold the key.
    fn hash(key: &Self::Key, seed: u64) -> u64;
}

/// Every `u64`, 0 included, held inline beside its word.
pub struct U64;

impl KeyKind for U64 {
    type Key = u64;
    /// One multiplication, its two halves folded together (the mixer of wyhash), keyed with the pool's seed. Its top bits, which choose the
    /// bucket, depend on every bit of the key. One and not two: a get is limited by how many of them the processor overlaps, so by its instructions.
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
    /// XXH3 with 64 bits, seeded: specified, stable, fast on short keys.
    #[inline(always)]
    fn hash(key: &[u8], seed: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
    }
}

/// How to find the key of a record. The index's words are records' offsets: multiples of 8 below 2^44, never 0.
pub trait RecordKeys: Send + Sync + 'static {
    /// The key of the record at `offset`, or `None` if there is no sound record there.
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]>;
    /// Whether the record at `offset` can be believed as a whole. Asked where a key was not found although its slot may be there: of a present key's
    /// neighbours once in 4,096 comparisons at most.
    fn is_sound<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64) -> bool {
        Self::key(guard, offset).is_some()
    }
    /// Where to prefetch before [`RecordKeys::key`]; by default the record's first line.
    fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64) {
        guard.pool().region().prefetch(offset);
    }
}

/// For tests: there is no record anywhere.
#[cfg(test)]
pub(crate) struct NoRecords;

#[cfg(test)]
impl RecordKeys for NoRecords {
    fn key<'g, M: MappedMedium>(_: &'g Guard<'_, M>, _: u64) -> Option<&'g [u8]> {
        None
    }
}
