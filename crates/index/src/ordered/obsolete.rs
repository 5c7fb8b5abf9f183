//! The marks of nodes that were replaced, in every tree that replaces nodes under locks.
//!
//! A writer that replaces a node marks it, then swaps the link to it, under the node's lock and its
//! parent's. A writer that gets the lock of a marked node afterwards knows that the node is no
//! longer in the tree, and starts again. If the thread that marked the node dies before the swap,
//! the node stays in the tree, marked. Its mark means nothing then: a writer that holds the lock of
//! the parent, which is in the tree, finds the link to the node there, and clears the mark.
//!
//! The mark carries the pool's generation, since a crash may keep a mark and lose the swap. It has
//! 16 bits: after a *cycle* of 65,535 generations the marks come again, and what has an old one
//! would count as of this generation. So the first open of a cycle clears all marks, before
//! anything else uses the tree.

use super::base::{Base, ROOT_CYCLE};
use super::keys::OrderedKind;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;

/// The mark of a generation of the pool.
pub(super) fn mark_of(generation: u32) -> u16 {
    (generation % u32::from(u16::MAX)) as u16 + 1
}

/// The cycle of a generation of the pool: no two generations of one have the same mark.
pub(super) fn cycle_of(generation: u32) -> u64 {
    u64::from(generation / u32::from(u16::MAX))
}

impl<M: MappedMedium, K: OrderedKind> Base<M, K> {
    /// Clears the marks of earlier cycles by `clear`, which writes back what it clears. Called by
    /// an open, before any other use.
    pub(super) fn begin_cycle_with(&self, clear: impl FnOnce()) {
        let (medium, region) = (self.pool.medium(), self.pool.region());
        let (cycle, known) = (cycle_of(self.pool.generation()), &self.root[1].0[ROOT_CYCLE]);
        if known.load(medium, Relaxed) == cycle {
            return;
        }
        clear();
        // PERSIST: the cleared marks, before the cycle says that there are none. Until then, the
        // next open clears them again.
        region.fence();
        known.store(medium, cycle, Relaxed);
        region.persist(&self.root[1]);
    }
}

#[cfg(test)]
#[path = "tests/obsolete.rs"]
mod tests;
