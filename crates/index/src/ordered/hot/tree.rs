//! The tree below its operations: its handles, the nodes behind its links, and their locks.
//!
//! Locks are taken from the leaves upwards, and a lock is waited for only while those of nodes
//! further down are held. A node's first position never changes, and positions ascend along every
//! path. So locks are taken in the order of falling positions, and no threads wait for each other.

use super::super::base::Base;
use super::super::keys::OrderedKind;
use super::super::link::Link;
use super::node::{NODE, Node};
use super::path::Path;
use super::root::{Growth, Holder};
use crate::Damage;
use std::ops::Deref;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::{Guard, Locked};

/// The nodes, their locks and the links between them: what readers need, and what a writer needs
/// to find the place of a change. It owns the handles that every tree has. It knows no change of a
/// key; `Hot` above it does.
pub(super) struct Tree<M: MappedMedium, K> {
    pub(super) base: Base<M, K>,
    pub(super) growth: Growth,
}

impl<M: MappedMedium, K> Deref for Tree<M, K> {
    type Target = Base<M, K>;
    #[inline(always)]
    fn deref(&self) -> &Base<M, K> {
        &self.base
    }
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    pub(super) fn root_holder(&self) -> Holder<'_> {
        Holder::root(&self.root)
    }

    pub(super) fn holder<'g>(&'g self, node: Node<'g>) -> Holder<'g> {
        Holder::node(self.pool.region(), node)
    }

    /// The node behind a link. All its positions are `least` or more: so no path is endless.
    #[inline(always)]
    pub(super) fn node_behind<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        word: &Word,
        link: Link,
        least: u32,
    ) -> Result<Node<'g>, Damage> {
        if link.is_sound()
            && link.kind() == NODE
            && let Some(node) = Node::at(guard, link.offset())
            && node.first() >= least
        {
            return Ok(node);
        }
        Err(self.damaged_link(word))
    }

    /// As [`Tree::node_behind`], and its content fits its check.
    pub(super) fn whole_node_behind<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        word: &Word,
        link: Link,
        least: u32,
    ) -> Result<Node<'g>, Damage> {
        let node = self.node_behind(guard, word, link, least)?;
        self.check_node(node)?;
        Ok(node)
    }

    /// Checks a node before it is written to, or a change depends on its content: the pool's own
    /// metadata never must be written to, as a node.
    pub(super) fn check_node(&self, node: Node<'_>) -> Result<(), Damage> {
        if node.offset >= self.pool.layout().zones && node.is_whole() {
            return Ok(());
        }
        Err(self.record_damage(node.offset, "a node does not fit its check"))
    }

    /// Whether a node is marked. The root never is.
    pub(super) fn is_obsolete(&self, holder: Holder<'_>) -> bool {
        holder.node.is_some() && holder.shape(self.pool.medium()).obsolete() == self.mark
    }

    /// Takes the lock of a holder whose node was checked; `None` if it is marked.
    pub(super) fn lock<'g>(&'g self, guard: &'g Guard<'_, M>, holder: Holder<'g>) -> Option<Locked<'g, M>> {
        let lock = holder.lock.acquire(guard);
        (!self.is_obsolete(holder)).then_some(lock)
    }

    /// Marks a node, before its link is swapped. Called under both locks.
    pub(super) fn set_obsolete(&self, node: Node<'_>) {
        let (holder, medium) = (self.holder(node), self.pool.medium());
        holder.set_shape(medium.point("hot.mark"), holder.shape(medium).with_obsolete(self.mark));
    }

    /// Clears the marks that dead threads left on a path, from the root downwards: a node whose
    /// link lies in a node of the tree is in the tree, too. Takes two locks at a time, the lower
    /// first.
    #[cold]
    pub(super) fn clear_marks(&self, guard: &Guard<'_, M>, path: &Path<'_>) {
        for (depth, step) in path.steps.iter().enumerate() {
            if self.check_node(step.node).is_err() {
                return;
            }
            let (holder, above) = (self.holder(step.node), self.holder_above(path, depth));
            let _lock = holder.lock.acquire(guard);
            let Some(_above) = self.lock(guard, above) else { return };
            if self.follow_locked(step.word) != step.link {
                return;
            }
            let medium = self.pool.medium();
            if self.is_obsolete(holder) {
                holder.set_shape(medium, holder.shape(medium).with_obsolete(0));
            }
        }
    }

    /// What holds the link to the node at this depth of a path.
    pub(super) fn holder_above<'g>(&'g self, path: &Path<'g>, depth: usize) -> Holder<'g> {
        match depth.checked_sub(1) {
            Some(above) => self.holder(path.steps[above].node),
            None => self.root_holder(),
        }
    }

    /// Clears the marks of earlier cycles. Called by an open, before any other use.
    pub(super) fn begin_cycle(&self) {
        self.begin_cycle_with(|| self.clear_all_marks(&self.pool.pin()));
    }

    fn clear_all_marks(&self, guard: &Guard<'_, M>) {
        let (medium, region) = (self.pool.medium(), self.pool.region());
        let mut links = vec![(self.root_link(), 0)];
        while let Some((word, least)) = links.pop() {
            let link = self.follow_locked(word);
            if !link.is_node() {
                continue;
            }
            // What lies behind a damaged link is not used.
            let Ok(node) = self.whole_node_behind(guard, word, link, least) else { continue };
            let holder = self.holder(node);
            holder.set_shape(medium, holder.shape(medium).with_obsolete(0));
            region.write_back(node.shape_word(region));
            links.extend((0..node.len()).map(|entry| (node.link(region, entry), node.first() + 1)));
        }
    }
}

#[cfg(test)]
#[path = "tests/tree.rs"]
mod tests;
