//! A simple, evidently correct ordered index: a `BTreeMap` behind a lock. Only the records of
//! byte-string keys are in its pool.

use crate::TestKeys;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use terrace_index::cursor::UNUSED_BITS;
use terrace_index::{
    Damage, Decision, Direction, Fencing, IndexStats, KeyKind, PointIndex, Position, RangeIndex,
};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker, Pool, PoolFull};

type Owned<K> = <<K as KeyKind>::Key as ToOwned>::Owned;

/// A map of keys of kind `K`, for testing the suites.
pub struct Reference<M: MappedMedium, K: KeyKind>
where
    K::Key: ToOwned,
{
    pool: Pool<M>,
    map: RwLock<BTreeMap<Owned<K>, u64>>,
}

impl<M: MappedMedium, K: KeyKind> Reference<M, K>
where
    K::Key: ToOwned + Ord,
    Owned<K>: Ord + Send + Sync,
{
    /// An empty map; `pool` holds its records.
    pub fn new(pool: &Pool<M>) -> Self {
        Self { pool: pool.clone(), map: RwLock::default() }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Owned<K>, u64>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Owned<K>, u64>> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The words from the `skip`th key on.
    fn words(&self, skip: usize) -> Vec<u64> {
        self.read().values().skip(skip).copied().collect()
    }
}

impl<M: MappedMedium, K: TestKeys> PointIndex for Reference<M, K>
where
    K::Key: ToOwned + Ord,
    Owned<K>: Ord + Send + Sync,
{
    type Medium = M;
    type Kind = K;
    const NAME: &'static str = "reference";
    const FENCES_PER_INSERT: u32 = 0;

    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    fn get(&self, _: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        self.read().get(key).copied()
    }

    fn get_sound(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        Ok(self.get(guard, key))
    }

    fn get_many<'k>(
        &self,
        guard: &Guard<'_, M>,
        keys: impl IntoIterator<Item = &'k K::Key>,
        mut each: impl FnMut(usize, Option<u64>),
    ) where
        K::Key: 'k,
    {
        keys.into_iter().enumerate().for_each(|(place, key)| each(place, self.get(guard, key)));
    }

    fn change(
        &self,
        _: &Guard<'_, M>,
        key: &K::Key,
        _: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, PoolFull> {
        let mut map = self.write();
        let before = map.get(key).copied();
        match decide(before) {
            Decision::Keep => None,
            Decision::Set(Some(word)) => map.insert(key.to_owned(), word),
            Decision::Set(None) => map.remove(key),
        };
        Ok(before)
    }

    fn len(&self) -> u64 {
        self.read().len() as u64
    }

    /// A position is the number of keys before it, in the upper bits. That works while the map does
    /// not change.
    fn scan(&self, _: &Guard<'_, M>, from: Position, at_least: usize, mut each: impl FnMut(u64)) -> Position {
        let before = (from >> UNUSED_BITS) as usize;
        let words = self.words(before);
        words.iter().take(at_least).for_each(|&word| each(word));
        if words.len() > at_least { ((before + at_least) as u64) << UNUSED_BITS } else { 0 }
    }

    fn trace(&self, _: &Guard<'_, M>, marker: &mut Marker<'_>, mut each: impl FnMut(&mut Marker<'_>, u64)) {
        self.words(0).into_iter().for_each(|word| each(marker, word));
    }

    fn maintain(&self, _: &Guard<'_, M>) -> bool {
        false
    }

    fn stats(&self, _: &Guard<'_, M>) -> IndexStats {
        IndexStats { keys: self.len(), slots: self.len(), ..IndexStats::default() }
    }

    fn damage(&self) -> Option<Damage> {
        None
    }
}

impl<M: MappedMedium, K: TestKeys> RangeIndex for Reference<M, K>
where
    K::Key: ToOwned + Ord,
    Owned<K>: Ord + Send + Sync,
{
    fn range(
        &self,
        _: &Guard<'_, M>,
        from: Bound<&K::Key>,
        to: Bound<&K::Key>,
        direction: Direction,
        mut each: impl FnMut(u64) -> ControlFlow<()>,
    ) {
        let after = |key: &K::Key| match from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        let before = |key: &K::Key| match to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        };
        // `BTreeMap::range` panics if the ends are reversed; this does not, and may be slow.
        let within = |(key, word): (&Owned<K>, &u64)| {
            let key: &K::Key = key.borrow();
            (after(key) && before(key)).then_some(*word)
        };
        let mut words: Vec<u64> = self.read().iter().filter_map(within).collect();
        if direction == Direction::Backward {
            words.reverse();
        }
        let _ = words.into_iter().try_for_each(&mut each);
    }
}
