//! The common interface of the two bucket shapes: find, publish, replace, clear and move an entry.

use super::table::Table;
use crate::KeyKind;
use terrace_medium::{Line, MappedMedium};
use terrace_pool::Guard;

/// A key as a bucket holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `u64` keys: the key. Byte strings: the tag.
    pub(super) key: u64,
    /// The index's word.
    pub(super) word: u64,
}

/// A key to look for: with its hash, and as the buckets of one table hold it.
pub struct Probe<'k, K: KeyKind + ?Sized> {
    pub(super) key: &'k K::Key,
    pub(super) hash: u64,
    pub(super) tag: u64,
}

/// A kind of key with a bucket shape for CLHT. Sealed: [`U64`](crate::U64) and
/// [`Bytes`](crate::Bytes).
pub trait BucketShape: KeyKind + sealed::Shape {}
impl<K: sealed::Shape> BucketShape for K {}

pub(super) mod sealed {
    use super::{Entry, Guard, KeyKind, Line, MappedMedium, Probe, Table};

    /// A bucket shape. Methods that store are called under the chain's lock.
    pub trait Shape: KeyKind + Sized {
        /// Entries of a bucket.
        const SLOTS: usize;
        /// Stored in the root, so that a table of one shape is never read as the other.
        const TAG: u64;
        /// Overflow buckets for a thousand main buckets at which the table grows.
        const OVERFLOW_PERMILLE: u64;
        /// Keys for a thousand main buckets in a presized table.
        const KEYS_PERMILLE: u64;

        /// `key` as buckets of `table` hold it.
        fn probe(key: &Self::Key, hash: u64, table: Table) -> Probe<'_, Self>;
        /// Whether the index may hold this word.
        fn is_word(word: u64) -> bool;
        /// The slot that holds the key, and its word, as one atomic snapshot.
        fn find<M: MappedMedium>(
            guard: &Guard<'_, M>,
            bucket: &Line,
            probe: &Probe<'_, Self>,
        ) -> Option<(usize, u64)>;
        /// The word of a damaged record that may be the key's.
        fn suspect<M: MappedMedium>(
            _guard: &Guard<'_, M>,
            _bucket: &Line,
            _probe: &Probe<'_, Self>,
        ) -> Option<u64> {
            None
        }
        /// Prefetches what [`Shape::find`] will read besides the bucket.
        fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, probe: &Probe<'_, Self>);
        /// The entry of slot `slot`. Without the chain's lock, the word was there together with
        /// some key; [`Entry::key`] may be that of a later entry.
        fn read<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize) -> Option<Entry>;
        /// A vacant slot.
        fn vacancy<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line) -> Option<usize>;
        /// Puts an entry into a vacant slot, visible atomically.
        fn publish<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize, entry: Entry);
        /// Gives the entry of a slot another word.
        fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize, entry: Entry);
        /// Removes the entry of a slot.
        fn clear<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize);
        /// Writes an entry into the image of an unpublished bucket.
        fn put_in_image(image: &mut [u64; 8], slot: usize, entry: Entry);
        /// The bits of the entry's hash that its placement in `to` needs, and the entry as buckets
        /// of `to` hold it. The entry lies in bucket `index` of `from`. `None` if the record with
        /// the missing bits is unsound.
        fn relocate<M: MappedMedium>(
            guard: &Guard<'_, M>,
            entry: Entry,
            from: (Table, u64),
            to: Table,
            seed: u64,
        ) -> Option<(u64, Entry)>;
        /// Prefetches the part of the entry's record that [`Shape::relocate`] will read, if it
        /// will.
        fn prefetch_to_relocate<M: MappedMedium>(_guard: &Guard<'_, M>, _entry: Entry) {}
        /// Whether [`Shape::relocate`] reads records.
        fn relocates_by_record(_from: Table, _to: Table) -> bool {
            false
        }
        /// The entry's whole hash, from its key; `None` if its record is unsound.
        fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64>;
        /// The value of [`Entry::key`] in `table` for an entry with this hash.
        fn key_in(hash: u64, entry: Entry, table: Table) -> u64;
        /// Whether two entries of one chain have the same key.
        fn same_key<M: MappedMedium>(guard: &Guard<'_, M>, one: Entry, other: Entry) -> bool;
        /// The entry of a probe's key with `word`.
        fn entry(probe: &Probe<'_, Self>, word: u64) -> Entry;
    }
}
