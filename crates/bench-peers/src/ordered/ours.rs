//! Our trees as compared ones, over integers and over the smallest records.

use super::keys::{Keys, Numbered};
use super::maps::{Map, Tree};
use std::borrow::Borrow;
use std::hint::black_box;
use std::ops::Bound::{Included, Unbounded};
use std::ops::ControlFlow;
use terrace_bench::touch;
use terrace_index::ordered::{self, OrderedKind};
use terrace_index::{Direction, Inserted, PointIndex, RangeIndex, Stored};
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::{Pool, PoolOptions};

/// One of our trees, over any medium and kind of keys.
pub(super) trait Ours: 'static {
    /// Its name in tables, and in the choice of rows.
    const NAME: &'static str;
    /// The tree itself.
    type Index<M: MappedMedium, K: OrderedKind>: RangeIndex<Medium = M, Kind = K> + Stored<Medium = M>;
}

macro_rules! ours {
    ($($tree:ident: $name:literal)*) => {
        $(
            pub(super) enum $tree {}

            impl Ours for $tree {
                const NAME: &'static str = $name;
                type Index<M: MappedMedium, K: OrderedKind> = ordered::$tree<M, K>;
            }
        )*

        /// The names of our trees, in the order of the rows.
        pub(super) const TREES: [&str; 5] = [$($name),*];
    };
}
ours!(Art: "art" Hot: "hot" Masstree: "masstree" BwTree: "bwtree" SpTree: "sptree");

/// A tree of ours on a medium.
pub(super) struct OurMap<T: Ours, K: Keys, M: MappedMedium = Dram> {
    pub(super) index: T::Index<M, K::Kind>,
}

/// Bytes of memory for a tree of `keys` keys, with what its changes retire.
pub(super) fn pool_bytes<K: Keys>(keys: u64) -> u64 {
    (128 << 20) + keys * (64 + K::RECORD_BYTES)
}

impl<T: Ours, K: Keys, M: MappedMedium> OurMap<T, K, M> {
    /// An empty tree in a pool.
    pub(super) fn on(pool: &Pool<M>) -> Self {
        Self { index: T::Index::create(pool, "tree", 0).expect("room for an index") }
    }

    /// An empty tree for `keys` keys in anonymous memory.
    pub(super) fn anonymous(keys: u64, is_huge: bool) -> Self {
        let options = PoolOptions::anonymous().size(pool_bytes::<K>(keys)).huge_pages(is_huge);
        Self::on(&options.create().expect("memory for a pool"))
    }

    /// Removes a present key.
    #[inline]
    pub(super) fn remove_key(&self, key: &K::Key) -> bool {
        let guard = self.index.pool().pin();
        self.index.remove(&guard, key).map(|word| K::retire(&guard, word)).is_some()
    }
}

impl<T: Ours, K: Keys, M: MappedMedium> Tree<K> for OurMap<T, K, M> {
    #[inline]
    fn get(&self, key: &K::Key) -> Option<u64> {
        let guard = self.index.pool().pin();
        self.index.get(&guard, key).map(|word| K::value(&guard, word))
    }
    #[inline]
    fn insert(&self, key: &K::Key, value: u64) -> bool {
        let guard = self.index.pool().pin();
        let word = K::word(&guard, key, value);
        matches!(self.index.insert(&guard, key, word), Ok(Inserted::New))
    }
    #[inline]
    fn update(&self, key: &K::Key, value: u64) -> bool {
        let guard = self.index.pool().pin();
        let old = self.index.update(&guard, key, K::word(&guard, key, value));
        old.map(|old| K::retire(&guard, old)).is_some()
    }
    #[inline]
    fn scan(&self, from: &K::Key, most: usize) -> usize {
        let guard = self.index.pool().pin();
        let (mut found, mut all) = (0, 0);
        let each = |told, word| {
            (found, all) = (found + 1, all ^ K::seen(&guard, told, word));
            if found < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.index.range(&guard, Included(from), Unbounded, Direction::Forward, most, each);
        black_box(all);
        found
    }
}

impl<T: Ours, K: Keys> Map<K> for OurMap<T, K> {
    fn new(keys: u64) -> Self {
        let map = Self::anonymous(keys, true);
        touch(map.index.pool().region());
        map
    }
    #[inline]
    fn remove(&self, key: &K::Key) -> bool {
        self.remove_key(key)
    }
    fn get_many(&self, keys: &[Numbered<K>]) -> usize {
        let (guard, mut found, mut all) = (self.index.pool().pin(), 0, 0);
        self.index.get_many(&guard, keys.iter().map(|(_, key)| key.borrow()), |_, word| {
            if let Some(word) = word {
                (found, all) = (found + 1, all ^ K::value(&guard, word));
            }
        });
        black_box(all);
        found
    }
}
