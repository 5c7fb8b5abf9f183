//! The collector's walk, which also recounts the keys while writers continue.
//!
//! It goes along the nodes, from the left to the right. It counts a node's keys under its lock, and
//! notes its number there: a writer under that lock knows whether the walk has passed. The right
//! half of a split has the number of the left one, so the walk does not count it again. Nodes with
//! different numbers are not joined.

use super::super::keys::OrderedKind;
use super::border::block_of;
use super::node::{Node, node_bytes, slots_of};
use super::ops::{NODES, SpTree};
use super::tree::Tree;
use super::word::Entry;
use crate::{Damage, PointIndex};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker};

/// A walk in progress.
struct Walk<'g, 'w, 'm, M: MappedMedium, K: OrderedKind, F> {
    index: &'g SpTree<M, K>,
    guard: &'g Guard<'g, M>,
    marker: &'w mut Marker<'m>,
    each: F,
    number: u16,
    keys: u64,
    nodes: u64,
}

impl<M: MappedMedium, K: OrderedKind> SpTree<M, K> {
    /// See [`PointIndex::trace`].
    pub(super) fn trace_all(
        &self,
        guard: &Guard<'_, M>,
        marker: &mut Marker<'_>,
        each: impl FnMut(&mut Marker<'_>, u64),
    ) {
        let tree = &self.tree;
        tree.mark_own(marker);
        tree.log.as_ref().map(|log| log.block()).inspect(|&(at, bytes)| marker.mark(at, bytes));
        let number = tree.count().start_numbered_recount();
        // PERSIST: the number. So none that a node has kept through a crash is given again.
        tree.pool.region().persist(&tree.root[1]);
        let mut walk = Walk { index: self, guard, marker, each, number, keys: 0, nodes: 0 };
        // What lies behind damage is left out; the damage is recorded.
        let _ = walk.visit_all();
        let (keys, nodes) = (walk.keys, walk.nodes);
        // The mappings of nodes that were joined are gone by now.
        tree.top.trace(guard, marker, |_, _| ());
        if self.damage().is_some() {
            // What lies behind a damaged link is not free: it can be salvaged.
            marker.give_up();
        }
        tree.count().finish_recount(keys);
        tree.count().correct_figure(NODES, nodes);
    }
}

impl<'g, M: MappedMedium, K: OrderedKind, F: FnMut(&mut Marker<'_>, u64)> Walk<'g, '_, '_, M, K, F> {
    fn visit_all(&mut self) -> Result<(), Damage> {
        let tree = &self.index.tree;
        let lower = tree.pin_layers();
        let mut node = tree.first()?;
        loop {
            let locked = self.index.lock_whole(self.guard, lower.as_ref(), node)?;
            self.visit(node)?;
            let Some(end) = tree.end_of(node) else { return Ok(()) };
            let next = tree.right_of_locked(node, end)?;
            drop(locked);
            node = next;
        }
    }

    /// Visits the keys of a node, and notes that the walk has passed it. Called under its lock.
    fn visit(&mut self, node: Node<'g>) -> Result<(), Damage> {
        let (tree, medium) = (&self.index.tree, self.index.tree.pool.medium());
        if node.state(medium).is_frozen() {
            // It was joined since the node before it was visited, which has been passed. Nodes with
            // different numbers are not joined, so its keys were counted there.
            return Ok(());
        }
        self.nodes += 1;
        self.marker.mark(node.offset(tree.pool.region()), node_bytes::<K>());
        if let Some((border, bytes)) = block_of::<M, K>(self.guard, node.low(medium)) {
            self.marker.mark(border, bytes);
        }
        let bitmap = node.bitmap(medium);
        if node.counted(medium) != self.number {
            self.keys += u64::from(bitmap.count_ones());
        }
        for slot in slots_of(bitmap) {
            let (_, word) = node.pair::<K>(medium, slot);
            if Tree::<M, K>::INLINE {
                (self.each)(self.marker, word);
            } else if Entry(word).is_sound() {
                (self.each)(self.marker, Entry(word).offset());
            } else {
                tree.damaged_node(node, "a slot does not fit its check");
            }
        }
        node.set_counted(medium.point("sptree.counted"), self.number);
        Ok(())
    }
}
