//! An index of any type, on any medium, with any kind of keys, as an object.
//!
//! Suites call indexes through the traits of this file. So they are compiled once, in this crate,
//! and not again for each index, medium and kind of keys.

use super::place::{End, PoolFile};
use super::subject::{Index, NAME};
use std::any::Any;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use terrace_index::{
    ChangeError, Damage, Deferred, Direction, IndexStats, Inserted, KeyKind, Place, PointIndex, RangeIndex,
    StoreError, Swapped,
};
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard, Marker, Pool};
use terrace_testkit::{KeySort, TestKey, TestKeys};

/// An index. Each method calls the method of `PointIndex` or `Stored` with its name, unless it
/// says otherwise.
pub(super) trait AnyIndex: Send + Sync {
    fn index_type(&self) -> &'static dyn IndexType;
    /// Another handle to the index's pool.
    fn pool(&self) -> Box<dyn AnyPool>;
    /// Pins the thread.
    fn pin(&self) -> Box<dyn Pinned + '_>;
    /// The key's hash in this pool.
    fn hash(&self, key: &TestKey) -> u64;
    fn len(&self) -> u64;
    fn is_empty(&self) -> bool;
    fn damage(&self) -> Option<Damage>;
    /// Collects leaked memory, as the background work of a store does.
    fn collect(&self);
}

/// The operations of a pinned thread on an index, and on the words of its keys. Each method calls
/// the method of `PointIndex`, `Stored` or `TestKeys` with its name.
pub(super) trait Pinned {
    fn get(&self, key: &TestKey) -> Option<u64>;
    fn get_sound(&self, key: &TestKey) -> Result<Option<u64>, Damage>;
    fn get_many(&self, keys: &[TestKey], each: &mut dyn FnMut(usize, Option<u64>));
    fn insert(&self, key: &TestKey, word: u64) -> Result<Inserted, ChangeError>;
    fn update(&self, key: &TestKey, word: u64) -> Option<u64>;
    fn upsert(&self, key: &TestKey, word: u64) -> Result<Option<u64>, ChangeError>;
    fn remove(&self, key: &TestKey) -> Option<u64>;
    fn compare_and_swap(
        &self,
        key: &TestKey,
        expected: Option<u64>,
        new: Option<u64>,
    ) -> Result<Swapped, ChangeError>;
    fn compare_and_swap_deferred(
        &self,
        key: &TestKey,
        expected: Option<u64>,
        new: Option<u64>,
        deferred: &mut Deferred,
    ) -> Result<Swapped, ChangeError>;
    fn persist_deferred(&self, deferred: Deferred);
    /// Scans on from `place` and moves it. Returns whether it is at the end.
    fn scan(&self, place: &mut Place, at_least: usize, each: &mut dyn FnMut(u64)) -> bool;
    fn random_place(&self, draw: u64) -> Place;
    fn for_each(&self, each: &mut dyn FnMut(u64));
    fn maintain(&self) -> bool;
    fn stats(&self) -> IndexStats;
    fn verify(&self) -> Vec<Finding>;

    fn word(&self, key: &TestKey, number: u64, version: u64) -> Result<u64, ChangeError>;
    fn read(&self, word: u64) -> (u64, u64);
    fn free_word(&self, word: u64, seen: bool);
}

/// An ordered index.
pub(super) trait AnyOrdered: AnyIndex {
    /// See [`RangeIndex::range`]. Pins the thread. `each` gets the key, if it is an integer, and
    /// the word.
    fn range(
        &self,
        from: Bound<&TestKey>,
        to: Bound<&TestKey>,
        direction: Direction,
        expected: usize,
        each: &mut dyn FnMut(Option<u64>, u64) -> ControlFlow<()>,
    );
}

/// A pool.
pub(super) trait AnyPool: Any {
    /// Ends a process that has the pool open, and no other handle to it.
    fn end(self: Box<Self>, how: End);
}

impl<M: MappedMedium> AnyPool for Pool<M> {
    fn end(self: Box<Self>, how: End) {
        how.of(*self);
    }
}

/// A type of index.
pub(super) trait IndexType {
    fn name(&self) -> &'static str;
    fn keys(&self) -> KeySort;
    fn create_pool(&self, place: &PoolFile) -> Box<dyn AnyPool>;
    fn open_pool(&self, place: &PoolFile) -> Box<dyn AnyPool>;
    /// Creates the smallest index, under the name [`NAME`].
    fn create(&self, pool: &dyn AnyPool) -> Arc<dyn AnyIndex>;
    fn recover(&self, pool: &dyn AnyPool, name: &str) -> Result<Option<Arc<dyn AnyIndex>>, StoreError>;
}

/// The type `I`.
pub(super) struct Of<I>(PhantomData<fn() -> I>);

impl<I: Index> Of<I>
where
    I::Kind: TestKeys,
{
    pub(super) const TYPE: &'static dyn IndexType = &Self(PhantomData);

    fn pool(pool: &dyn AnyPool) -> &Pool<Medium<I>> {
        (pool as &dyn Any).downcast_ref().expect("a pool on the medium of the index")
    }
}

impl<I: Index> IndexType for Of<I>
where
    I::Kind: TestKeys,
{
    fn name(&self) -> &'static str {
        I::NAME
    }
    fn keys(&self) -> KeySort {
        I::Kind::SORT
    }
    fn create_pool(&self, place: &PoolFile) -> Box<dyn AnyPool> {
        Box::new(place.create::<Medium<I>>())
    }
    fn open_pool(&self, place: &PoolFile) -> Box<dyn AnyPool> {
        Box::new(place.open::<Medium<I>>())
    }
    fn create(&self, pool: &dyn AnyPool) -> Arc<dyn AnyIndex> {
        Arc::new(I::create(Self::pool(pool), NAME, 0).expect("room for an index"))
    }
    fn recover(&self, pool: &dyn AnyPool, name: &str) -> Result<Option<Arc<dyn AnyIndex>>, StoreError> {
        Ok(I::recover(Self::pool(pool), name)?.map(|index| Arc::new(index) as _))
    }
}

type Medium<I> = <I as PointIndex>::Medium;

impl<I: Index> AnyIndex for I
where
    I::Kind: TestKeys,
{
    fn index_type(&self) -> &'static dyn IndexType {
        Of::<I>::TYPE
    }
    fn pool(&self) -> Box<dyn AnyPool> {
        Box::new(PointIndex::pool(self).clone())
    }
    fn pin(&self) -> Box<dyn Pinned + '_> {
        Box::new(Pin { index: self, guard: PointIndex::pool(self).pin() })
    }
    fn hash(&self, key: &TestKey) -> u64 {
        I::Kind::hash(I::Kind::of(key), PointIndex::pool(self).hash_seed())
    }
    fn len(&self) -> u64 {
        PointIndex::len(self)
    }
    fn is_empty(&self) -> bool {
        PointIndex::is_empty(self)
    }
    fn damage(&self) -> Option<Damage> {
        PointIndex::damage(self)
    }
    fn collect(&self) {
        let pool = PointIndex::pool(self);
        pool.collect(&mut |marker: &mut Marker<'_>| {
            let guard = pool.pin();
            self.trace(&guard, marker, |marker, word| I::Kind::mark(&guard, marker, word));
        });
    }
}

impl<I: Index + RangeIndex> AnyOrdered for I
where
    I::Kind: TestKeys,
{
    fn range(
        &self,
        from: Bound<&TestKey>,
        to: Bound<&TestKey>,
        direction: Direction,
        expected: usize,
        each: &mut dyn FnMut(Option<u64>, u64) -> ControlFlow<()>,
    ) {
        let guard = PointIndex::pool(self).pin();
        let each = |told, word| each(I::Kind::told(told), word);
        let (from, to) = (from.map(I::Kind::of), to.map(I::Kind::of));
        RangeIndex::range(self, &guard, from, to, direction, expected, each);
    }
}

/// A pinned thread at an index.
struct Pin<'p, I: PointIndex> {
    index: &'p I,
    guard: Guard<'p, I::Medium>,
}

impl<I: Index> Pinned for Pin<'_, I>
where
    I::Kind: TestKeys,
{
    fn get(&self, key: &TestKey) -> Option<u64> {
        self.index.get(&self.guard, I::Kind::of(key))
    }
    fn get_sound(&self, key: &TestKey) -> Result<Option<u64>, Damage> {
        self.index.get_sound(&self.guard, I::Kind::of(key))
    }
    fn get_many(&self, keys: &[TestKey], each: &mut dyn FnMut(usize, Option<u64>)) {
        self.index.get_many(&self.guard, keys.iter().map(I::Kind::of), each);
    }
    fn insert(&self, key: &TestKey, word: u64) -> Result<Inserted, ChangeError> {
        self.index.insert(&self.guard, I::Kind::of(key), word)
    }
    fn update(&self, key: &TestKey, word: u64) -> Option<u64> {
        self.index.update(&self.guard, I::Kind::of(key), word)
    }
    fn upsert(&self, key: &TestKey, word: u64) -> Result<Option<u64>, ChangeError> {
        self.index.upsert(&self.guard, I::Kind::of(key), word)
    }
    fn remove(&self, key: &TestKey) -> Option<u64> {
        self.index.remove(&self.guard, I::Kind::of(key))
    }
    fn compare_and_swap(
        &self,
        key: &TestKey,
        expected: Option<u64>,
        new: Option<u64>,
    ) -> Result<Swapped, ChangeError> {
        self.index.compare_and_swap(&self.guard, I::Kind::of(key), expected, new)
    }
    fn compare_and_swap_deferred(
        &self,
        key: &TestKey,
        expected: Option<u64>,
        new: Option<u64>,
        deferred: &mut Deferred,
    ) -> Result<Swapped, ChangeError> {
        self.index.compare_and_swap_deferred(&self.guard, I::Kind::of(key), expected, new, deferred)
    }
    fn persist_deferred(&self, deferred: Deferred) {
        self.index.persist_deferred(&self.guard, deferred);
    }
    fn scan(&self, place: &mut Place, at_least: usize, each: &mut dyn FnMut(u64)) -> bool {
        *place = self.index.scan(&self.guard, place, at_least, each);
        place.is_end()
    }
    fn random_place(&self, draw: u64) -> Place {
        self.index.random_place(&self.guard, draw)
    }
    fn for_each(&self, each: &mut dyn FnMut(u64)) {
        self.index.for_each(&self.guard, each);
    }
    fn maintain(&self) -> bool {
        self.index.maintain(&self.guard)
    }
    fn stats(&self) -> IndexStats {
        self.index.stats(&self.guard)
    }
    fn verify(&self) -> Vec<Finding> {
        self.index.verify(&self.guard)
    }

    fn word(&self, key: &TestKey, number: u64, version: u64) -> Result<u64, ChangeError> {
        Ok(I::Kind::word(&self.guard, I::Kind::of(key), number, version)?)
    }
    fn read(&self, word: u64) -> (u64, u64) {
        I::Kind::read(&self.guard, word)
    }
    fn free_word(&self, word: u64, seen: bool) {
        I::Kind::free_word(&self.guard, word, seen);
    }
}
