//! The index of a store, of any kind.
//!
//! The engine calls its index through a table of functions, so that the engine is compiled once per
//! medium, not once per index and medium.

use super::store::Kind;
use terrace_index::{CacheStats, Damage, Deferred, IndexStats, PointIndex, Position, Stored, Swapped};
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard, Marker, PoolFull};

/// An index of byte keys in a pool on `M`. Each method calls the method of [`PointIndex`] or
/// [`Stored`] with its name.
pub(super) trait Table<M: MappedMedium>: Send + Sync {
    fn name(&self) -> &'static str;
    fn fences_per_insert(&self) -> u32;
    fn get(&self, guard: &Guard<'_, M>, key: &[u8]) -> Option<u64>;
    fn get_sound(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Option<u64>, Damage>;
    fn get_many(&self, guard: &Guard<'_, M>, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<u64>));
    fn compare_and_swap(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        expected: Option<u64>,
        new: Option<u64>,
    ) -> Result<Swapped, PoolFull>;
    fn compare_and_swap_deferred(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        expected: Option<u64>,
        new: Option<u64>,
        deferred: &mut Deferred,
    ) -> Result<Swapped, PoolFull>;
    fn persist_deferred(&self, guard: &Guard<'_, M>, deferred: Deferred);
    fn len(&self) -> u64;
    fn scan(
        &self,
        guard: &Guard<'_, M>,
        from: Position,
        at_least: usize,
        each: &mut dyn FnMut(u64),
    ) -> Position;
    fn for_each(&self, guard: &Guard<'_, M>, each: &mut dyn FnMut(u64));
    fn trace(
        &self,
        guard: &Guard<'_, M>,
        marker: &mut Marker<'_>,
        each: &mut dyn FnMut(&mut Marker<'_>, u64),
    );
    fn maintain(&self, guard: &Guard<'_, M>) -> bool;
    fn stats(&self, guard: &Guard<'_, M>) -> IndexStats;
    fn cache(&self) -> Option<CacheStats>;
    fn damage(&self) -> Option<Damage>;
    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding>;
}

impl<M: MappedMedium, I> Table<M> for I
where
    I: PointIndex<Medium = M, Kind = Kind> + Stored<Medium = M>,
{
    fn name(&self) -> &'static str {
        I::NAME
    }
    fn fences_per_insert(&self) -> u32 {
        I::FENCES_PER_INSERT
    }
    fn get(&self, guard: &Guard<'_, M>, key: &[u8]) -> Option<u64> {
        PointIndex::get(self, guard, key)
    }
    fn get_sound(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Option<u64>, Damage> {
        PointIndex::get_sound(self, guard, key)
    }
    fn get_many(&self, guard: &Guard<'_, M>, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<u64>)) {
        PointIndex::get_many(self, guard, keys.iter().copied(), each);
    }
    fn compare_and_swap(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        expected: Option<u64>,
        new: Option<u64>,
    ) -> Result<Swapped, PoolFull> {
        PointIndex::compare_and_swap(self, guard, key, expected, new)
    }
    fn compare_and_swap_deferred(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        expected: Option<u64>,
        new: Option<u64>,
        deferred: &mut Deferred,
    ) -> Result<Swapped, PoolFull> {
        PointIndex::compare_and_swap_deferred(self, guard, key, expected, new, deferred)
    }
    fn persist_deferred(&self, guard: &Guard<'_, M>, deferred: Deferred) {
        PointIndex::persist_deferred(self, guard, deferred);
    }
    fn len(&self) -> u64 {
        PointIndex::len(self)
    }
    fn scan(
        &self,
        guard: &Guard<'_, M>,
        from: Position,
        at_least: usize,
        each: &mut dyn FnMut(u64),
    ) -> Position {
        PointIndex::scan(self, guard, from, at_least, each)
    }
    fn for_each(&self, guard: &Guard<'_, M>, each: &mut dyn FnMut(u64)) {
        PointIndex::for_each(self, guard, each);
    }
    fn trace(
        &self,
        guard: &Guard<'_, M>,
        marker: &mut Marker<'_>,
        each: &mut dyn FnMut(&mut Marker<'_>, u64),
    ) {
        PointIndex::trace(self, guard, marker, each);
    }
    fn maintain(&self, guard: &Guard<'_, M>) -> bool {
        PointIndex::maintain(self, guard)
    }
    fn stats(&self, guard: &Guard<'_, M>) -> IndexStats {
        PointIndex::stats(self, guard)
    }
    fn cache(&self) -> Option<CacheStats> {
        PointIndex::cache(self)
    }
    fn damage(&self) -> Option<Damage> {
        PointIndex::damage(self)
    }
    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        Stored::verify(self, guard)
    }
}
