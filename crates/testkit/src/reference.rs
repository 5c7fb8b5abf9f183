//! A simple, evidently correct ordered index: a `BTreeMap` behind a lock. Only the records of
//! byte-string keys are in its pool. It can be given a fault, to test the suites.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use terrace_index::{
    Bytes, ChangeError, Damage, Decision, Direction, Fencing, IndexStats, KeyKind, Place, PointIndex,
    RangeIndex, RecordKeys, StoreError, Stored, U64,
};
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard, Marker, Pool};

type Owned<K> = <<K as KeyKind>::Key as ToOwned>::Owned;

/// A kind of keys as a [`Place`] holds them.
pub trait PlacedKeys: KeyKind<Key: ToOwned> {
    /// The key as bytes, in the same order.
    fn bytes(key: &Self::Key) -> Box<[u8]>;
    /// The key of these bytes.
    fn key(bytes: &[u8]) -> Cow<'_, Self::Key>;
    /// What an index tells of the key.
    fn told(key: &Self::Key) -> Self::Told;
}

impl PlacedKeys for U64 {
    fn bytes(key: &u64) -> Box<[u8]> {
        Box::new(key.to_be_bytes())
    }
    fn key(bytes: &[u8]) -> Cow<'_, u64> {
        Cow::Owned(u64::from_be_bytes(bytes.try_into().expect("eight bytes")))
    }
    fn told(key: &u64) -> u64 {
        *key
    }
}

impl<R: RecordKeys> PlacedKeys for Bytes<R> {
    fn bytes(key: &[u8]) -> Box<[u8]> {
        key.into()
    }
    fn key(bytes: &[u8]) -> Cow<'_, [u8]> {
        Cow::Borrowed(bytes)
    }
    fn told(_: &[u8]) {}
}

/// A map of keys of kind `K`, for testing the suites.
pub struct Reference<M: MappedMedium, K: KeyKind>
where
    K::Key: ToOwned,
{
    pool: Pool<M>,
    map: RwLock<BTreeMap<Owned<K>, u64>>,
    confuse: Option<Confuse<K>>,
    garble: Option<Box<Garble<K>>>,
}

/// Takes a key for another.
type Confuse<K> = fn(&<K as KeyKind>::Key) -> Owned<K>;
/// Changes the words that a range visits, each with what it tells of its key.
type Garble<K> = dyn Fn(&mut Vec<Visited<K>>) + Send + Sync;
type Visited<K> = (<K as KeyKind>::Told, u64);

impl<M: MappedMedium, K: KeyKind> Reference<M, K>
where
    K::Key: ToOwned + Ord,
    Owned<K>: Ord + Send + Sync,
{
    /// An empty map; `pool` holds its records.
    pub fn new(pool: &Pool<M>) -> Self {
        Self { pool: pool.clone(), map: RwLock::default(), confuse: None, garble: None }
    }

    /// Makes it use another key in place of each key.
    pub fn confusing_keys(self, confuse: fn(&K::Key) -> Owned<K>) -> Self {
        Self { confuse: Some(confuse), ..self }
    }

    /// Makes its ranges visit other words.
    pub fn garbling_ranges(self, garble: impl Fn(&mut Vec<Visited<K>>) + Send + Sync + 'static) -> Self {
        Self { garble: Some(Box::new(garble)), ..self }
    }

    /// The key that it uses.
    fn used<'k>(&self, key: &'k K::Key) -> Cow<'k, K::Key> {
        self.confuse.map_or(Cow::Borrowed(key), |confuse| Cow::Owned(confuse(key)))
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Owned<K>, u64>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Owned<K>, u64>> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All words, in the order of their keys.
    fn words(&self) -> Vec<u64> {
        self.read().values().copied().collect()
    }
}

impl<M: MappedMedium, K: PlacedKeys> PointIndex for Reference<M, K>
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
        self.read().get(&*self.used(key)).copied()
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
    ) -> Result<Option<u64>, ChangeError> {
        let (mut map, key) = (self.write(), self.used(key));
        let before = map.get(&*key).copied();
        match decide(before) {
            Decision::Keep => None,
            Decision::Set(Some(word)) => map.insert(key.into_owned(), word),
            Decision::Set(None) => map.remove(&*key),
        };
        Ok(before)
    }

    fn len(&self) -> u64 {
        self.read().len() as u64
    }

    fn scan(&self, _: &Guard<'_, M>, from: &Place, at_least: usize, mut each: impl FnMut(u64)) -> Place {
        let start = match from {
            Place::Start => Bound::Unbounded,
            Place::After(bytes) => Bound::Excluded(K::key(bytes)),
            Place::End => return Place::End,
            Place::Hash(_) => panic!("an ordered index has no place by hash"),
        };
        let start = start.as_ref().map(|key| &**key);
        let (mut words, mut last) = (Vec::new(), Place::End);
        for (key, word) in self.read().range::<K::Key, _>((start, Bound::Unbounded)).take(at_least.max(1)) {
            words.push(*word);
            if words.len() == at_least.max(1) {
                last = Place::After(K::bytes(key.borrow()));
            }
        }
        words.into_iter().for_each(&mut each);
        last
    }

    fn random_place(&self, _: &Guard<'_, M>, draw: u64) -> Place {
        let map = self.read();
        match draw.checked_rem(map.len() as u64 + 1) {
            None | Some(0) => Place::Start,
            Some(nth) => {
                let key = map.keys().nth(nth as usize - 1).expect("below the number of keys");
                Place::After(K::bytes(key.borrow()))
            }
        }
    }

    fn trace(&self, _: &Guard<'_, M>, marker: &mut Marker<'_>, mut each: impl FnMut(&mut Marker<'_>, u64)) {
        self.words().into_iter().for_each(|word| each(marker, word));
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

impl<M: MappedMedium, K: PlacedKeys> RangeIndex for Reference<M, K>
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
        _expected: usize,
        mut each: impl FnMut(K::Told, u64) -> ControlFlow<()>,
    ) {
        let (from, to) = (from.map(|key| self.used(key)), to.map(|key| self.used(key)));
        let after = |key: &K::Key| match &from {
            Bound::Included(from) => key >= &**from,
            Bound::Excluded(from) => key > &**from,
            Bound::Unbounded => true,
        };
        let before = |key: &K::Key| match &to {
            Bound::Included(to) => key <= &**to,
            Bound::Excluded(to) => key < &**to,
            Bound::Unbounded => true,
        };
        // `BTreeMap::range` panics if the ends are reversed; this does not, and may be slow.
        let within = |(key, word): (&Owned<K>, &u64)| {
            let key: &K::Key = key.borrow();
            (after(key) && before(key)).then(|| (K::told(key), *word))
        };
        let mut found: Vec<Visited<K>> = self.read().iter().filter_map(within).collect();
        if direction == Direction::Backward {
            found.reverse();
        }
        if let Some(garble) = &self.garble {
            garble(&mut found);
        }
        let _ = found.into_iter().try_for_each(|(told, word)| each(told, word));
    }
}

/// Nothing of the map is stored: a store that is opened again begins empty.
impl<M: MappedMedium, K: PlacedKeys> Stored for Reference<M, K>
where
    K::Key: ToOwned + Ord,
    Owned<K>: Ord + Send + Sync,
{
    type Medium = M;

    fn create(pool: &Pool<M>, _name: &str, _capacity: u64) -> Result<Self, StoreError> {
        Ok(Self::new(pool))
    }

    fn recover(_pool: &Pool<M>, _name: &str) -> Result<Option<Self>, StoreError> {
        Ok(None)
    }

    fn verify(&self, _: &Guard<'_, M>) -> Vec<Finding> {
        Vec::new()
    }
}
