//! Marks: which blocks a collection must leave alone.

use crate::allocator::heap::Heap;
use terrace_medium::MappedMedium;

/// Where a marked block lies.
pub(crate) enum BlockPlace {
    Slab,
    Granules,
    Nowhere,
}

impl<M: MappedMedium> Heap<M> {
    /// Where `offset` lies. Prefetches the memory that its mark needs.
    pub(crate) fn place_of(&self, offset: u64, size: Option<u64>) -> BlockPlace {
        let Some((unit, entry)) = self.units().entry_at(offset) else { return BlockPlace::Nowhere };
        let state = self.units().revalidated(unit, entry);
        let Some(number) = size.map_or(state.class(), |size| self.units().classes.of(size)) else {
            return BlockPlace::Granules;
        };
        match self.units().class_serving(state, number) {
            Some(class) => {
                self.units().prefetch_mark(unit, class, offset);
                BlockPlace::Slab
            }
            None => {
                self.units().quarantine_if_contradicted(unit, state, offset);
                BlockPlace::Nowhere
            }
        }
    }

    /// Marks the block of a slab around `offset`.
    pub(crate) fn mark_small_block(&self, offset: u64) {
        if let Some((unit, _)) = self.units().entry_at(offset) {
            self.units().mark_block(unit, offset);
        }
    }

    /// Marks an extent. Returns whether there can be one.
    pub(crate) fn mark_large_block(&self, offset: u64, bytes: u64) -> bool {
        bytes != 0 && self.granules.mark_extent(offset, bytes)
    }

    /// Marks the block at `offset`, which was allocated for `bytes` bytes.
    pub(crate) fn mark(&self, offset: u64, bytes: u64) {
        match self.place_of(offset, Some(bytes)) {
            BlockPlace::Slab => self.mark_small_block(offset),
            BlockPlace::Granules => _ = self.mark_large_block(offset, bytes),
            BlockPlace::Nowhere => {}
        }
    }
}
