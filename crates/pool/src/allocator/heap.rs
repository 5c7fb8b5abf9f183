//! The heap: takes and frees blocks.

use crate::allocator::granules::Granules;
use crate::allocator::units::Units;
use crate::base::Base;
use terrace_medium::MappedMedium;

/// The blocks of an open pool, in slabs and in runs of granules. Owns the lists of slabs, the
/// reserve and the caches in thread slots, all of which lie in the pool; stands on [`Granules`].
/// What it is told to free is free at once: it knows of no reader.
pub(crate) struct Heap<M: MappedMedium> {
    pub(crate) granules: Granules<M>,
}

impl<M: MappedMedium> Heap<M> {
    pub(crate) fn new(base: Base<M>) -> Self {
        Self { granules: Granules { units: Units::new(base) } }
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<M> {
        &self.granules.units.base
    }

    #[inline(always)]
    pub(crate) fn units(&self) -> &Units<M> {
        &self.granules.units
    }

    #[inline(always)]
    pub(crate) fn medium(&self) -> &M {
        self.granules.units.medium()
    }
}
