//! The baselines as compared trees: FAST & FAIR and WOART.

use super::Outcome;
use super::keys::Keys;
use super::maps::Tree;
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::Arc;
use terrace_bench::{OrderedBaseline, Space};
use terrace_medium::{Mapping, Medium};

/// A baseline in memory of its own.
pub(super) struct Theirs<K, M, B> {
    pub(super) tree: B,
    pub(super) space: Arc<Space<M>>,
    keys: PhantomData<fn() -> K>,
}

impl<K: Keys, M: Medium, B: OrderedBaseline<M, K>> Theirs<K, M, B> {
    /// An empty tree for `keys` keys.
    pub(super) fn new(keys: u64, medium: impl FnOnce(Mapping) -> M) -> Outcome<Self> {
        let space = Arc::new(Space::anonymous((64 << 20) + keys * (256 + K::RECORD_BYTES), medium)?);
        Ok(Self { tree: B::create(space.clone())?, space, keys: PhantomData })
    }
}

impl<K: Keys, M: Medium, B: OrderedBaseline<M, K>> Tree<K> for Theirs<K, M, B> {
    fn get(&self, key: &K::Key) -> Option<u64> {
        self.tree.get(key)
    }
    fn insert(&self, key: &K::Key, value: u64) -> bool {
        self.tree.insert(key, value) == Ok(true)
    }
    fn update(&self, key: &K::Key, value: u64) -> bool {
        self.tree.update(key, value)
    }
    fn scan(&self, from: &K::Key, most: usize) -> usize {
        let (mut found, mut all) = (0, 0);
        self.tree.scan(from, most, &mut |value| (found, all) = (found + 1, all ^ value));
        black_box(all);
        found
    }
}
