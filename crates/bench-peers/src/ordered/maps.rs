//! The ordered maps that are compared: two traits for all of them, and their implementations for
//! Rust's.
//!
//! Every operation is written as a user of that map would write it for single keys: if a map needs
//! a guard, each operation takes one. A map that cannot change a value in place gets one that can
//! be: an atomic word.

use super::keys::{Keys, Numbered, fold};
use congee::{U64Congee, epoch};
use crossbeam_skiplist::SkipMap;
use masstree::{MassTree, RangeBound};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound::{Included, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use terrace_bench::IntegerKeys;

/// A tree, ours or a peer's, that threads share.
pub(super) trait Tree<K: Keys>: Sync {
    /// The value of `key`.
    fn get(&self, key: &K::Key) -> Option<u64>;
    /// Adds an absent key.
    fn insert(&self, key: &K::Key, value: u64) -> bool;
    /// Replaces the value of a present key.
    fn update(&self, key: &K::Key, value: u64) -> bool;
    /// Reads `most` keys and their values from `from` on, in order. Returns how many there were.
    fn scan(&self, from: &K::Key, most: usize) -> usize;
}

/// A tree in the memory of the process.
pub(super) trait Map<K: Keys>: Tree<K> {
    /// An empty map that will hold `keys` keys, in memory that is already touched if it is the
    /// map's own.
    fn new(keys: u64) -> Self;
    /// Removes a present key.
    fn remove(&self, key: &K::Key) -> bool;
    /// Number of the keys that are present. A map that cannot get them together gets them one by
    /// one.
    fn get_many(&self, keys: &[Numbered<K>]) -> usize {
        keys.iter().filter(|(_, key)| self.get(key.borrow()).is_some()).count()
    }
}

/// The owned form of a key, which a map of Rust holds.
type Owned<K> = <<K as terrace_bench::KeyForm>::Key as ToOwned>::Owned;

fn bytes_of<K: Keys>(key: &K::Key) -> impl AsRef<[u8]> {
    K::bytes(key)
}

pub(super) struct Congee(U64Congee<usize>);

impl Tree<IntegerKeys> for Congee {
    #[inline]
    fn get(&self, key: &u64) -> Option<u64> {
        self.0.get(*key, &epoch::pin()).map(|value| value as u64)
    }
    #[inline]
    fn insert(&self, key: &u64, value: u64) -> bool {
        matches!(self.0.insert(*key, value as usize, &epoch::pin()), Ok(None))
    }
    #[inline]
    fn update(&self, key: &u64, value: u64) -> bool {
        matches!(self.0.insert(*key, value as usize, &epoch::pin()), Ok(Some(_)))
    }
    #[inline]
    fn scan(&self, from: &u64, most: usize) -> usize {
        let mut entries = [([0; 8], 0); SCAN_MOST];
        let found = self.0.range(*from, u64::MAX, &mut entries[..most], &epoch::pin());
        let folded = entries[..found].iter().map(|(key, value)| u64::from_be_bytes(*key) ^ *value as u64);
        black_box(folded.fold(0, |all, one| all ^ one));
        found
    }
}

/// Entries of a scan at most.
pub(super) const SCAN_MOST: usize = 100;

impl Map<IntegerKeys> for Congee {
    fn new(_: u64) -> Self {
        Self(U64Congee::new())
    }
    #[inline]
    fn remove(&self, key: &u64) -> bool {
        self.0.remove(*key, &epoch::pin()).is_some()
    }
}

/// The crate `masstree`.
pub(super) struct Masstree(MassTree<u64>);

impl<K: Keys> Tree<K> for Masstree {
    #[inline]
    fn get(&self, key: &K::Key) -> Option<u64> {
        self.0.get_with_guard(bytes_of::<K>(key).as_ref(), &self.0.guard())
    }
    #[inline]
    fn insert(&self, key: &K::Key, value: u64) -> bool {
        self.0.insert_with_guard(bytes_of::<K>(key).as_ref(), value, &self.0.guard()).is_none()
    }
    #[inline]
    fn update(&self, key: &K::Key, value: u64) -> bool {
        self.0.insert_with_guard(bytes_of::<K>(key).as_ref(), value, &self.0.guard()).is_some()
    }
    #[inline]
    fn scan(&self, from: &K::Key, most: usize) -> usize {
        let (mut found, mut all) = (0, 0);
        let each = |key: &[u8], value| {
            (found, all) = (found + 1, all ^ fold(key) ^ value);
            found < most
        };
        let from = bytes_of::<K>(from);
        let from = RangeBound::Included(from.as_ref());
        self.0.scan_intra_leaf_batch(from, RangeBound::Unbounded, each, &self.0.guard());
        black_box(all);
        found
    }
}

impl<K: Keys> Map<K> for Masstree {
    fn new(_: u64) -> Self {
        Self(MassTree::new())
    }
    #[inline]
    fn remove(&self, key: &K::Key) -> bool {
        matches!(self.0.remove_with_guard(bytes_of::<K>(key).as_ref(), &self.0.guard()), Ok(Some(_)))
    }
}

/// crossbeam's skip list.
pub(super) struct SkipList<K: Keys>(SkipMap<Owned<K>, AtomicU64>);

impl<K: Keys> Tree<K> for SkipList<K> {
    #[inline]
    fn get(&self, key: &K::Key) -> Option<u64> {
        self.0.get(key).map(|entry| entry.value().load(Relaxed))
    }
    #[inline]
    fn insert(&self, key: &K::Key, value: u64) -> bool {
        let entry = self.0.get_or_insert(key.to_owned(), AtomicU64::new(value));
        entry.value().load(Relaxed) == value
    }
    #[inline]
    fn update(&self, key: &K::Key, value: u64) -> bool {
        self.0.get(key).map(|entry| entry.value().store(value, Relaxed)).is_some()
    }
    #[inline]
    fn scan(&self, from: &K::Key, most: usize) -> usize {
        let (mut found, mut all) = (0, 0);
        for entry in self.0.range((Included(from), Unbounded)).take(most) {
            let key = fold(bytes_of::<K>(entry.key().borrow()).as_ref());
            (found, all) = (found + 1, all ^ key ^ entry.value().load(Relaxed));
        }
        black_box(all);
        found
    }
}

impl<K: Keys> Map<K> for SkipList<K>
where
    Owned<K>: 'static,
{
    fn new(_: u64) -> Self {
        Self(SkipMap::new())
    }
    #[inline]
    fn remove(&self, key: &K::Key) -> bool {
        self.0.remove(key).is_some()
    }
}

/// The standard library's B-tree under its lock of one writer or many readers.
pub(super) struct Locked<K: Keys>(RwLock<BTreeMap<Owned<K>, u64>>);

impl<K: Keys> Locked<K> {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Owned<K>, u64>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Owned<K>, u64>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Keys> Tree<K> for Locked<K> {
    #[inline]
    fn get(&self, key: &K::Key) -> Option<u64> {
        self.read().get(key).copied()
    }
    #[inline]
    fn insert(&self, key: &K::Key, value: u64) -> bool {
        self.write().insert(key.to_owned(), value).is_none()
    }
    #[inline]
    fn update(&self, key: &K::Key, value: u64) -> bool {
        self.write().get_mut(key).map(|old| *old = value).is_some()
    }
    #[inline]
    fn scan(&self, from: &K::Key, most: usize) -> usize {
        let (mut found, mut all) = (0, 0);
        for (key, value) in self.read().range::<K::Key, _>((Included(from), Unbounded)).take(most) {
            (found, all) = (found + 1, all ^ fold(bytes_of::<K>(key.borrow()).as_ref()) ^ value);
        }
        black_box(all);
        found
    }
}

impl<K: Keys> Map<K> for Locked<K> {
    fn new(_: u64) -> Self {
        Self(RwLock::default())
    }
    #[inline]
    fn remove(&self, key: &K::Key) -> bool {
        self.write().remove(key).is_some()
    }
}
