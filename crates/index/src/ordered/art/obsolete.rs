//! Nodes that were replaced: their locks, and their marks (see `ordered/obsolete`). Counts, which
//! are never persisted, carry the mark of their generation, too (see `node`).

use super::super::keys::OrderedKind;
use super::node::Node;
use super::root::Holder;
use super::tree::Tree;
use crate::Damage;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::{Guard, Locked};

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// Clears the marks of earlier cycles. Called by an open, before any other use.
    pub(super) fn begin_cycle(&self) {
        self.begin_cycle_with(|| self.clear_all_marks());
    }

    fn clear_all_marks(&self) {
        let (medium, region) = (self.pool.medium(), self.pool.region());
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
            node.forget_count(medium);
            region.write_back(node.marked_line());
            links.extend(std::iter::once(node.here()).chain(node.links()).map(|word| (word, level + 1)));
        }
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
