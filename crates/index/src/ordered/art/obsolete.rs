//! Marks of nodes that were replaced, and what a death between mark and swap leaves.
//!
//! A writer that replaces a node marks it, then swaps the link to it, under the node's lock and its
//! parent's. A writer that gets the lock of a marked node afterwards knows that the node is no
//! longer in the tree, and starts again. If the thread that marked the node dies before the swap,
//! the node stays in the tree, marked. Its mark means nothing then: a writer that holds the lock of
//! the parent, which is in the tree, finds the link to the node there, and clears the mark.
//!
//! The mark carries the pool's generation, since a crash may keep a mark and lose the swap. So do
//! hints and counts, which are never persisted (see `node`). It has 16 bits: after a *cycle* of
//! 65,535 generations the marks come again, and what has an old one would count as of this
//! generation. So the first open of a cycle clears all marks, before anything else uses the tree.

use super::super::keys::OrderedKind;
use super::node::Node;
use super::root::{Holder, ROOT_CYCLE};
use super::tree::Tree;
use crate::Damage;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::{Guard, Locked};

/// The mark of a generation of the pool.
pub(super) fn mark_of(generation: u32) -> u16 {
    (generation % u32::from(u16::MAX)) as u16 + 1
}

/// The cycle of a generation of the pool: no two generations of one have the same mark.
fn cycle_of(generation: u32) -> u64 {
    u64::from(generation / u32::from(u16::MAX))
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// Clears the marks of earlier cycles. Called by an open, before any other use.
    pub(super) fn begin_cycle(&self) {
        let (medium, region) = (self.pool.medium(), self.pool.region());
        let (cycle, known) = (cycle_of(self.pool.generation()), &self.root[1].0[ROOT_CYCLE]);
        if known.load(medium, Relaxed) == cycle {
            return;
        }
        let mut links = vec![(self.root_link(), 0)];
        while let Some((word, base)) = links.pop() {
            let link = self.follow_locked(word);
            if !link.is_node() {
                continue;
            }
            // What lies behind a damaged link is not used.
            let Ok((node, level)) = self.node_to_write(word, link, base) else { continue };
            let holder = Holder::node(node, level);
            holder.set_shape(medium, holder.shape(medium).with_obsolete(0));
            node.forget_marked(medium);
            node.marked_lines().iter().for_each(|line| region.write_back(line));
            links.extend(std::iter::once(node.here()).chain(node.links()).map(|word| (word, level + 1)));
        }
        // PERSIST: the cleared marks, before the cycle says that there are none. Until then, the
        // next open clears them again.
        region.fence();
        known.store(medium, cycle, Relaxed);
        region.persist(&self.root[1]);
    }

    /// Whether a node is marked. The root never is.
    #[inline(always)]
    pub(super) fn is_obsolete(&self, holder: Holder<'_>) -> bool {
        holder.node.is_some_and(|node| node.shape(self.pool.medium()).obsolete() == self.mark)
    }

    /// Marks a node, before its link is swapped. Called under both locks.
    pub(super) fn set_obsolete(&self, node: Node<'_>, level: usize) {
        let (holder, medium) = (Holder::node(node, level), self.pool.medium());
        holder.set_shape(medium.point("art.mark"), holder.shape(medium).with_obsolete(self.mark));
    }

    /// Takes the lock of a holder; `None` if it is marked.
    #[inline(always)]
    pub(super) fn lock<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        holder: Holder<'g>,
    ) -> Result<Option<Locked<'g, M>>, Damage> {
        if let Some(node) = holder.node {
            self.check_node(node, holder.base - 1)?;
        }
        let lock = holder.lock.acquire(guard);
        Ok((!self.is_obsolete(holder)).then_some(lock))
    }

    /// Takes the lock of a node whose link lies in a holder that is locked and in the tree. So the
    /// node is in the tree, too, and a mark is from a dead thread. The caller has checked the node.
    pub(super) fn lock_below<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        node: Node<'g>,
        level: usize,
    ) -> Locked<'g, M> {
        let (holder, medium) = (Holder::node(node, level), self.pool.medium());
        let lock = holder.lock.acquire(guard);
        if self.is_obsolete(holder) {
            holder.set_shape(medium, holder.shape(medium).with_obsolete(0));
        }
        lock
    }

    /// Clears the marks that dead threads left on the way to `key`: goes down from the root, and
    /// holds the lock of each node until it has that of the next.
    #[cold]
    pub(super) fn clear_marks(&self, guard: &Guard<'_, M>, key: &K::Key) {
        let mut holder = self.root_holder();
        let mut held = holder.lock.acquire(guard);
        let mut word: &Word = self.root_link();
        loop {
            let link = self.follow_locked(word);
            let below = if link.is_node() { self.node_to_write(word, link, holder.base).ok() } else { None };
            let Some((node, level)) = below else { return };
            let next = self.lock_below(guard, node, level);
            held.release();
            (held, holder) = (next, Holder::node(node, level));
            match self.next_link(node, level, key) {
                Some((next, _)) => word = next,
                None => return,
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/obsolete.rs"]
mod tests;
