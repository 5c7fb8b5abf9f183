//! The index of a store, of any kind.
//!
//! The engine calls its index through a table of functions, so that the engine is compiled once per
//! medium, not once per index and medium.

use std::ops::{Bound, ControlFlow};
use terrace_index::{
    CacheStats, ChangeError, Damage, Deferred, Direction, IndexStats, KeyKind, LayerStats, Place, PointIndex,
    RangeIndex, Stored, Swapped,
};
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard, Marker};

/// An index of byte keys in a pool on `M`. Each method calls the method of [`PointIndex`] or
/// [`Stored`] with its name.
#[allow(missing_docs, clippy::len_without_is_empty, reason = "each calls the method with its name")]
pub trait Table<M: MappedMedium>: Send + Sync {
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
    ) -> Result<Swapped, ChangeError>;
    fn compare_and_swap_deferred(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        expected: Option<u64>,
        new: Option<u64>,
        deferred: &mut Deferred,
    ) -> Result<Swapped, ChangeError>;
    fn persist_deferred(&self, guard: &Guard<'_, M>, deferred: Deferred);
    fn len(&self) -> u64;
    fn scan(&self, guard: &Guard<'_, M>, from: &Place, at_least: usize, each: &mut dyn FnMut(u64)) -> Place;
    fn random_place(&self, guard: &Guard<'_, M>, draw: u64) -> Place;
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
    fn layers(&self) -> Option<LayerStats>;
    fn damage(&self) -> Option<Damage>;
    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding>;
    /// Its ranges, if it is an index by order.
    fn ordered(&self) -> Option<&dyn Ranges<M>>;
}

/// An index by order. Its method calls that of [`RangeIndex`] with its name.
#[allow(missing_docs, reason = "it calls the method with its name")]
pub trait Ranges<M: MappedMedium> {
    fn range(
        &self,
        guard: &Guard<'_, M>,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        expected: usize,
        each: &mut dyn FnMut(u64) -> ControlFlow<()>,
    );
}

impl<M: MappedMedium, I: RangeIndex<Medium = M>> Ranges<M> for I
where
    I::Kind: KeyKind<Key = [u8], Told = ()>,
{
    fn range(
        &self,
        guard: &Guard<'_, M>,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        expected: usize,
        each: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) {
        RangeIndex::range(self, guard, from, to, direction, expected, |(), word| each(word));
    }
}

/// An index as a [`Table`].
pub struct Indexed<M, I> {
    /// The index.
    pub index: I,
    /// How its ranges are found; there is no such conversion for any `I`.
    pub ranges: fn(&I) -> Option<&dyn Ranges<M>>,
}

impl<M: MappedMedium, I> Table<M> for Indexed<M, I>
where
    I: PointIndex<Medium = M> + Stored<Medium = M>,
    I::Kind: KeyKind<Key = [u8]>,
{
    fn name(&self) -> &'static str {
        I::NAME
    }
    fn fences_per_insert(&self) -> u32 {
        I::FENCES_PER_INSERT
    }
    fn get(&self, guard: &Guard<'_, M>, key: &[u8]) -> Option<u64> {
        self.index.get(guard, key)
    }
    fn get_sound(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Option<u64>, Damage> {
        self.index.get_sound(guard, key)
    }
    fn get_many(&self, guard: &Guard<'_, M>, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<u64>)) {
        self.index.get_many(guard, keys.iter().copied(), each);
    }
    fn compare_and_swap(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        expected: Option<u64>,
        new: Option<u64>,
    ) -> Result<Swapped, ChangeError> {
        self.index.compare_and_swap(guard, key, expected, new)
    }
    fn compare_and_swap_deferred(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        expected: Option<u64>,
        new: Option<u64>,
        deferred: &mut Deferred,
    ) -> Result<Swapped, ChangeError> {
        self.index.compare_and_swap_deferred(guard, key, expected, new, deferred)
    }
    fn persist_deferred(&self, guard: &Guard<'_, M>, deferred: Deferred) {
        self.index.persist_deferred(guard, deferred);
    }
    fn len(&self) -> u64 {
        self.index.len()
    }
    fn scan(&self, guard: &Guard<'_, M>, from: &Place, at_least: usize, each: &mut dyn FnMut(u64)) -> Place {
        self.index.scan(guard, from, at_least, each)
    }
    fn random_place(&self, guard: &Guard<'_, M>, draw: u64) -> Place {
        self.index.random_place(guard, draw)
    }
    fn for_each(&self, guard: &Guard<'_, M>, each: &mut dyn FnMut(u64)) {
        self.index.for_each(guard, each);
    }
    fn trace(
        &self,
        guard: &Guard<'_, M>,
        marker: &mut Marker<'_>,
        each: &mut dyn FnMut(&mut Marker<'_>, u64),
    ) {
        self.index.trace(guard, marker, each);
    }
    fn maintain(&self, guard: &Guard<'_, M>) -> bool {
        self.index.maintain(guard)
    }
    fn stats(&self, guard: &Guard<'_, M>) -> IndexStats {
        self.index.stats(guard)
    }
    fn cache(&self) -> Option<CacheStats> {
        self.index.cache()
    }
    fn layers(&self) -> Option<LayerStats> {
        self.index.layers()
    }
    fn damage(&self) -> Option<Damage> {
        self.index.damage()
    }
    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.index.verify(guard)
    }
    fn ordered(&self) -> Option<&dyn Ranges<M>> {
        (self.ranges)(&self.index)
    }
}
