//! The processes that share an open pool, as a part: it recovers what dead ones left.

use crate::allocator::heap::Heap;
use crate::allocator::units::Units;
use crate::base::Base;
use crate::reclaim::epoch::Epochs;
use crate::reclaim::limbo::Limbo;
use crate::sharing::protect::{WriteProtection, WriteWindow};
use terrace_medium::MappedMedium;

/// An open pool among its participants. Owns whether this process may store to the zones; stands on
/// [`Limbo`], and with that on all of the memory. The only part below the pool itself that can
/// recover a dead participant.
pub(crate) struct Peers<M: MappedMedium> {
    pub(crate) limbo: Limbo<M>,
    pub(crate) protected: WriteProtection,
}

impl<M: MappedMedium> Peers<M> {
    pub(crate) fn new(limbo: Limbo<M>) -> Self {
        Self { limbo, protected: WriteProtection::default() }
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<M> {
        self.limbo.base()
    }

    #[inline(always)]
    pub(crate) fn units(&self) -> &Units<M> {
        self.limbo.units()
    }

    #[inline(always)]
    pub(crate) fn heap(&self) -> &Heap<M> {
        self.limbo.heap()
    }

    #[inline(always)]
    pub(crate) fn epochs(&self) -> &Epochs<M> {
        &self.limbo.epochs
    }

    #[inline(always)]
    pub(crate) fn medium(&self) -> &M {
        self.limbo.medium()
    }

    /// Permits stores to the zones while the result exists, for recovery in a read-only
    /// participant.
    pub(crate) fn allow_stores(&self) -> WriteWindow<'_, M> {
        self.protected.open_window(self.base())
    }
}
