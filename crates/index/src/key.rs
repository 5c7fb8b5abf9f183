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

/// For tests: a record is one word, which is its key. Where that is 0 there is none.
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
    /// The record of a key. All of its line is the same.
    pub(crate) fn put<M: MappedMedium>(guard: &Guard<'_, M>, key: u64) -> u64 {
        let fresh = guard.alloc(64).expect("room for a record");
        fresh.stream_lines(0, &[[key; 8]]);
        fresh.persist().into_offset()
    }

    /// Leaves nothing of a record.
    pub(crate) fn wipe<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64) {
        guard.pool().region().stream_lines(offset, &[[0; 8]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pools of any age have keys where these hashes say.
    #[test]
    fn hashes_are_the_same_for_ever() {
        let integers = [(0, 0), (1, 0), (0, 1), (u64::MAX, 11), (0x0123_4567_89ab_cdef, 0x7e44_ace0)];
        let expected =
            [0, 0x9e37_79b9_7f4a_7c15, 0x9e37_79b9_7f4a_7c15, 0x0b51_32f7_77c8_5309, 0x3e12_b73a_5bc4_18ee];
        assert_eq!(integers.map(|(key, seed)| U64::hash(&key, seed)), expected);
        let hash = |key: &[u8], seed| Bytes::<WordRecords>::hash(key, seed);
        let strings = [hash(b"", 0), hash(b"terrace", 0), hash(b"terrace", 11), hash(&[0xa5; 300], 1)];
        assert_eq!(
            strings,
            [0x2d06_8005_38d3_94c2, 0xcddc_9e8e_f76e_d303, 0x7146_0077_8412_d6a3, 0xc2e2_70c7_1aa7_fdc2]
        );
    }
}
