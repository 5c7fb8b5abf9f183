//! The collector's walk, which also recounts the keys while writers continue.
//!
//! It goes along each level of each layer, from the left to the right. It counts a leaf's keys
//! under its lock, and notes its number there: a writer under that lock knows whether the walk has
//! passed. The right half of a split has the number of the left one, so the walk does not count it
//! again. A frozen leaf has no keys of its own, and leads on.

use super::super::base::ROOT_LOCK;
use super::super::keys::OrderedKind;
use super::entry::Entry;
use super::node::{NODE_BYTES, Node};
use super::ops::Masstree;
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Lock, Marker};

/// A walk in progress.
struct Walk<'g, 'w, 'm, M: MappedMedium, K: OrderedKind, F> {
    index: &'g Masstree<M, K>,
    guard: &'g Guard<'g, M>,
    marker: &'w mut Marker<'m>,
    each: F,
    number: u16,
    keys: u64,
    nodes: [u64; 2],
    /// Roots of layers that are left.
    layers: Vec<Node<'g>>,
}

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// See [`PointIndex::trace`](crate::PointIndex::trace).
    pub(super) fn trace_all(
        &self,
        guard: &Guard<'_, M>,
        marker: &mut Marker<'_>,
        each: impl FnMut(&mut Marker<'_>, u64),
    ) {
        let tree = &self.tree;
        tree.mark_own(marker);
        let number = tree.count().start_numbered_recount();
        // PERSIST: the number. So none that a node has kept through a crash is given again.
        tree.pool.region().persist(&tree.root[1]);
        let layers = self.durable_top(guard).into_iter().collect();
        let mut walk = Walk { index: self, guard, marker, each, number, keys: 0, nodes: [0; 2], layers };
        while let Some(root) = walk.layers.pop() {
            // What lies behind damage is left out; the damage is recorded.
            let _ = walk.visit_layer(root);
        }
        let (keys, nodes) = (walk.keys, walk.nodes);
        if tree.damage.get().is_some() {
            // What lies behind a damaged link is not free: it can be salvaged.
            marker.give_up();
        }
        tree.count().finish_recount(keys);
        (0..).zip(nodes).for_each(|(figure, found)| tree.count().correct_figure(figure, found));
    }
}

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// The first layer's root. It is durable: a thread may have died before it made it so, and what
    /// the walk does not find is freed.
    fn durable_top(&self, guard: &Guard<'_, M>) -> Result<Node<'_>, Damage> {
        let tree = &self.tree;
        let _lock = Lock::of(&tree.root[0].0[ROOT_LOCK]).acquire(guard);
        // PERSIST: the link to the root, before blocks that it does not lead to are free.
        tree.pool.region().persist(tree.root_link());
        tree.top()
    }
}

impl<'g, M: MappedMedium, K: OrderedKind, F: FnMut(&mut Marker<'_>, u64)> Walk<'g, '_, '_, M, K, F> {
    fn visit_layer(&mut self, root: Node<'g>) -> Result<(), Damage> {
        let tree = &self.index.tree;
        let shape = root.shape(tree.pool.medium());
        let (mut first, mut level) = (root, shape.level());
        loop {
            let below = self.visit_level(first, (level, shape.depth()))?;
            match below {
                Some(node) if level > 0 => (first, level) = (node, level - 1),
                _ => return Ok(()),
            }
        }
    }

    /// Visits the nodes of a level. Returns the first child of the first one.
    fn visit_level(&mut self, first: Node<'g>, at: (usize, usize)) -> Result<Option<Node<'g>>, Damage> {
        let (tree, medium) = (&self.index.tree, self.index.tree.pool.medium());
        let (mut node, mut below) = (first, None);
        loop {
            let locked = self.index.lock(self.guard, node, at)?;
            self.marker.mark(node.offset(tree.pool.region()), NODE_BYTES);
            self.nodes[usize::from(at.0 > 0)] += 1;
            if at.0 == 0 {
                self.visit_leaf(node, at.1)?;
            } else if below.is_none() {
                below = tree.first_child(node, at.0)?;
            }
            if node.next(medium).is_none() {
                return Ok(below);
            }
            let next = tree.right_of_locked(node, at.0)?;
            locked.release();
            node = next;
        }
    }

    /// Visits the entries of a leaf, and notes that the walk has passed it. Called under its lock.
    fn visit_leaf(&mut self, leaf: Node<'g>, depth: usize) -> Result<(), Damage> {
        let (tree, medium) = (&self.index.tree, self.index.tree.pool.medium());
        if leaf.state(medium).is_frozen() {
            // The next one has its keys.
            return Ok(());
        }
        let shape = leaf.shape(medium);
        let is_counted = shape.counted() == self.number;
        for slot in leaf.permutation(medium).slots() {
            let (slice, word) = (leaf.slice(medium, slot), leaf.word_at(medium, slot));
            let entry = Entry(word);
            if !super::tree::Tree::<M, K>::INLINE && entry.is_layer() {
                self.layers.push(tree.layer_of(leaf, (slice, entry), depth)?);
                continue;
            }
            self.keys += u64::from(!is_counted);
            if super::tree::Tree::<M, K>::INLINE {
                (self.each)(self.marker, word);
            } else if entry.is_sound(slice) {
                (self.each)(self.marker, entry.offset());
            } else {
                tree.damaged_entry(leaf);
            }
        }
        leaf.set_shape(medium.point("masstree.counted"), shape.with_counted(self.number));
        Ok(())
    }
}
