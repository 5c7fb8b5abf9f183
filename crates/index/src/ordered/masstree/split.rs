//! Splits of nodes, and what a death in one leaves.

use super::super::keys::OrderedKind;
use super::entry::Entry;
use super::head::Shape;
use super::node::{Content, NODE_BYTES, Node};
use super::ops::Masstree;
use super::permutation::WIDTH;
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, PoolFull};

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// A new node, durable at the next fence.
    pub(super) fn build(&self, guard: &Guard<'_, M>, content: &Content<'_>) -> Result<u64, PoolFull> {
        let fresh = guard.alloc(NODE_BYTES)?;
        fresh.stream_lines(0, &content.image());
        self.count_node(guard, content.shape.level(), 1);
        // PERSIST: the caller fences before it links the node.
        Ok(fresh.fenced_later().into_offset())
    }

    /// Counts a node that was built or retired, for statistics.
    pub(super) fn count_node(&self, guard: &Guard<'_, M>, level: usize, by: i64) {
        self.tree.count().add_figure(guard.slot_index(), usize::from(level > 0), by);
    }

    /// Retires a node that was unlinked.
    pub(super) fn retire(&self, guard: &Guard<'_, M>, node: Node<'_>) {
        let level = node.shape(self.tree.pool.medium()).level();
        self.count_node(guard, level, -1);
        guard.retire(node.offset(self.tree.pool.region()), NODE_BYTES);
    }

    /// Frees a node that was never linked.
    pub(super) fn discard(&self, guard: &Guard<'_, M>, offset: u64, level: usize) {
        self.count_node(guard, level, -1);
        guard.free(offset, NODE_BYTES);
    }

    /// Splits a full node in two and adds an entry. Returns the new node, the right one, which no
    /// parent knows yet. All is durable. Called under the lock.
    pub(super) fn split<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        (node, level): (Node<'g>, usize),
        (position, slice, word): (usize, u64, u64),
    ) -> Result<Node<'g>, PoolFull> {
        let (region, medium) = (self.tree.pool.region(), self.tree.pool.medium());
        let permutation = node.permutation(medium);
        let mut all: Vec<(u64, u64)> = Vec::with_capacity(WIDTH + 1);
        all.extend(permutation.slots().map(|slot| (node.slice(medium, slot), node.word_at(medium, slot))));
        all.insert(position, (slice, word));
        let next = node.next(medium);
        // The last entry that came was the highest, and this one is, too.
        let is_rising = position == permutation.len() && permutation.slot(position - 1) == position - 1;
        let at = split_at(&all, is_rising);
        let low = all[at].0;
        let shape = node.shape(medium);
        let content = Content {
            shape: Shape::new(level, shape.depth(), shape.counted()),
            next,
            high: node.high(medium),
            low,
            // It may become the heir of the left one, and of the entries that lead there.
            last_entry: low.max(node.last_entry(medium)),
            entries: &all[at..],
        };
        let right = self.build(guard, &content)?;
        // PERSIST: the new node before the link to it. A crash in between leaves a block that the
        // collector reclaims.
        region.fence();
        let left = if position < at { at - 1 } else { at };
        self.part_at(node, left, (low, Entry::node(0, level, right)));
        // PERSIST: link, high slice and permutation, which lie in one line, before the parent's
        // entry, and before anything is built upon them.
        region.persist(node.head());
        if position < at {
            self.put(node, position, (slice, word));
            // PERSIST: the permutation with the new entry.
            region.fence();
        }
        self.tree.count().add_figure(guard.slot_index(), super::ops::SPLITS, 1);
        Ok(Node::at(region, right).expect("a block of the pool"))
    }

    /// Leaves the first so many entries to a node, and gives the others up to a new next one
    /// (invariant 5).
    fn part_at(&self, node: Node<'_>, left: usize, (high, next): (u64, Entry)) {
        let medium = self.tree.pool.medium();
        let old = node.permutation(medium);
        let new = old.cut(left);
        let state = node.state(medium).splitting();
        node.set_state(medium, state.changing(old, new));
        if node.next(medium).is_none() {
            node.set_high(medium, high);
            node.set_next(medium, next);
        } else {
            node.set_next(medium, next);
            node.set_high(medium, high);
        }
        node.set_permutation(medium, new);
        node.set_state(medium, state.changing(new, new).with_splitting(false));
    }

    /// Completes or undoes a split whose thread has died, or that a crash has cut off. Called under
    /// the lock.
    #[cold]
    pub(super) fn mend(&self, guard: &Guard<'_, M>, node: Node<'_>, level: usize) -> Result<(), Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let next = node.next(medium);
        let state = node.state(medium);
        if !next.is_none() {
            let right = tree.node_of(node, (0, next), level)?;
            let (low, high) = (right.low(medium), node.high(medium));
            if low > node.low(medium) && low < high {
                // The high slice is the old one: no key was ever led to the new node.
                node.set_next(medium, right.next(medium));
                // PERSIST: no link leads to the new node, before its memory is used again.
                tree.pool.region().persist(node.head());
                self.retire(guard, right);
            } else if low == high {
                let old = node.permutation(medium);
                let left = old.slots().take_while(|&slot| node.slice(medium, slot) < high).count();
                let new = old.cut(left);
                node.set_state(medium, state.changing(old, new));
                node.set_permutation(medium, new);
            }
        }
        let permutation = node.permutation(medium);
        node.set_state(medium, state.changing(permutation, permutation).with_splitting(false));
        // PERSIST: the node is whole before anything is built upon it.
        tree.pool.region().persist(node.head());
        Ok(())
    }
}

/// Where entries in order are parted: near their middle, but before the last of them if they come
/// in order, and not between two with the same slice.
fn split_at(all: &[(u64, u64)], is_rising: bool) -> usize {
    let is_border = |at: &usize| all[at - 1].0 != all[*at].0;
    if is_rising && is_border(&(all.len() - 1)) {
        return all.len() - 1;
    }
    let middle = all.len() / 2;
    let borders = (1..all.len()).filter(is_border);
    borders.min_by_key(|at| at.abs_diff(middle)).expect("more than one slice in a full node")
}
