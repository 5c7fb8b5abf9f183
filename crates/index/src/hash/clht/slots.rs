//! What the two bucket shapes have in common: an entry can be found, published, replaced, cleared and moved.

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

/// A key being looked for: with its hash, and as the buckets of one table would hold it.
pub struct Probe<'k, K: KeyKind + ?Sized> {
    pub(super) key: &'k K::Key,
    pub(super) hash: u64,
    pub(super) tag: u64,
}

/// A kind of key that CLHT has a bucket shape for. Sealed: [`U64`](crate::U64) and [`Bytes`](crate::Bytes).
pub trait Slots: KeyKind + shape::Shape {}
impl<K: shape::Shape> Slots for K {}

pub(super) mod shape {
    use super::{Entry, Guard, KeyKind, Line, MappedMedium, Probe, Table};

    /// One bucket shape. Methods that store are called under the chain's lock.
    pub trait Shape: KeyKind + Sized {
        /// Entries a bucket has room for.
        const SLOTS: usize;
        /// Written into the root, so that a table of one shape is never read as the other.
        const TAG: u64;
        /// Buckets of overflow a thousand main buckets at which the table grows.
        const OVERFLOW_PERMILLE: u64;
        /// Keys a thousand main buckets for which a presized table is made.
        const KEYS_PERMILLE: u64;

        /// `key` as buckets of `table` would hold it.
        fn probe(key: &Self::Key, hash: u64, table: Table) -> Probe<'_, Self>;
        /// Whether the index may hold this word.
        fn is_word(word: u64) -> bool;
        /// The slot that holds the key and its word, as one atomic snapshot.
        fn find<M: MappedMedium>(
            guard: &Guard<'_, M>,
            bucket: &Line,
            probe: &Probe<'_, Self>,
        ) -> Option<(usize, u64)>;
        /// A record that may be the key's, though its bytes do not say so because they are damaged.
        fn suspect<M: MappedMedium>(
            _guard: &Guard<'_, M>,
            _bucket: &Line,
            _probe: &Probe<'_, Self>,
        ) -> Option<u64> {
            None
        }
        /// Fetches what [`Shape::find`] will read besides the bucket.
        fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, probe: &Probe<'_, Self>);
        /// What slot `slot` holds. Without the chain's lock the word is one that was there together with a key; [`Entry::key`] may be that of the next one.
        fn read<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize) -> Option<Entry>;
        /// A slot that holds nothing.
        fn vacancy<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line) -> Option<usize>;
        /// Puts an entry into a vacant slot, visible at once as a whole.
        fn publish<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize, entry: Entry);
        /// Gives the entry of a slot another word.
        fn replace<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize, entry: Entry);
        /// Takes the entry of a slot away.
        fn clear<M: MappedMedium>(guard: &Guard<'_, M>, bucket: &Line, slot: usize);
        /// Writes an entry into the image of a bucket that nobody sees yet.
        fn draw(image: &mut [u64; 8], slot: usize, entry: Entry);
        /// As much of the entry's hash as placing it in `to` takes, and the entry as buckets of `to` hold it. It lies in bucket `index` of
        /// `from`. `None` if the record that would tell is unsound.
        fn relocate<M: MappedMedium>(
            guard: &Guard<'_, M>,
            entry: Entry,
            from: (Table, u64),
            to: Table,
            seed: u64,
        ) -> Option<(u64, Entry)>;
        /// Fetches what [`Shape::relocate`] will read of the entry's record, if it will.
        fn prefetch_to_relocate<M: MappedMedium>(_guard: &Guard<'_, M>, _entry: Entry) {}
        /// Whether [`Shape::relocate`] reads records.
        fn relocates_by_record(_from: Table, _to: Table) -> bool {
            false
        }
        /// The entry's whole hash, from its key; `None` if its record is unsound.
        fn hash_of<M: MappedMedium>(guard: &Guard<'_, M>, entry: Entry, seed: u64) -> Option<u64>;
        /// What an entry with this hash has as [`Entry::key`] in `table`.
        fn key_in(hash: u64, entry: Entry, table: Table) -> u64;
        /// Whether two entries of one chain have the same key.
        fn same_key<M: MappedMedium>(guard: &Guard<'_, M>, one: Entry, other: Entry) -> bool;
        /// The entry that a probe for a key and its word make.
        fn entry(probe: &Probe<'_, Self>, word: u64) -> Entry;
    }
}
