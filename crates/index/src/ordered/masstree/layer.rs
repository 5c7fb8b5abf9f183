//! Layers: how one begins, and how it ends.

use super::super::keys::OrderedKind;
use super::change::Tried;
use super::entry::{Entry, LONGER, Piece, SLICE};
use super::head::Shape;
use super::locate::{Layer, Spot};
use super::node::{Content, Node};
use super::ops::Masstree;
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Locked};

/// Slices that two keys share, and behind which both go on.
fn shared_slices(one: &[u8], other: &[u8]) -> usize {
    let bytes = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let shorter = one.len().min(other.len());
    (bytes / SLICE).min(shorter.saturating_sub(1) / SLICE)
}

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// A new layer for a key and what is at its place now, a record or a layer: its root is a leaf
    /// with both. Durable, and not linked yet. `None`: the tree changes. Called under the lock of
    /// the leaf that has the place.
    pub(super) fn part(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        spot: &Spot<'_>,
        (there, word): (Entry, u64),
    ) -> Tried<u64> {
        let (tree, bytes) = (&self.tree, K::bytes(key));
        let other = if there.is_layer() {
            let layer = tree.layer_of(spot.leaf, (spot.piece.slice, there), spot.depth)?;
            tree.any_key(guard, layer)
        } else {
            K::key_of(guard, there.offset())
        };
        let Some(other) = other else {
            let what = "a record that a new key must be compared with is unsound";
            // Of a layer without keys, the next try finds no record.
            return if there.is_layer() {
                Ok(None)
            } else {
                Err(Damage { offset: there.offset(), what }.into())
            };
        };
        let depth = shared_slices(&bytes, &other);
        let pieces = Piece::of(&bytes, depth).zip(Piece::of(&other, depth));
        let Some((own, others)) = pieces.filter(|(own, others)| own != others && depth > spot.depth) else {
            return Ok(None);
        };
        let moved = if there.is_layer() {
            debug_assert_eq!(others.tag, LONGER, "a layer's keys go on");
            Entry::layer(others.slice, there.offset())
        } else {
            Entry::record(others, there.offset())
        };
        let mut entries = [(own, Entry::record(own, word)), (others, moved)];
        entries.sort_unstable_by_key(|(piece, _)| *piece);
        let counted = spot.leaf.shape(tree.pool.medium()).counted();
        let content = Content {
            shape: Shape::new(0, depth, counted),
            next: Entry::NONE,
            high: 0,
            low: 0,
            last_entry: 0,
            entries: &entries.map(|(piece, entry)| (piece.slice, entry.0)),
        };
        let leaf = self.build(guard, &content)?;
        // PERSIST: the layer before the link to it. A crash in between leaves a block that the
        // collector reclaims.
        tree.pool.region().fence();
        Ok(Some(leaf))
    }

    /// Removes the layer at a depth on the way to a key if it has no keys. Returns the leaf above
    /// it and that one's depth if it has no entry left.
    pub(super) fn drop_layer<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
        depth: usize,
    ) -> Result<Option<(Node<'g>, usize)>, Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let Some(Layer { root, above: Some((leaf, piece, at)) }) = tree.layer_at(key, depth)? else {
            return Ok(None);
        };
        let Some(first) = self.first_leaf(root)? else { return Ok(None) };
        let Some(leaves) = self.lock_empty(guard, first, depth)? else { return Ok(None) };
        let Some(held) = self.lock_node(guard, leaf, (0, at), piece.slice)? else { return Ok(None) };
        let permutation = held.node.permutation(medium);
        let Ok(position) = tree.position(held.node, permutation, piece) else { return Ok(None) };
        let entry = held.node.entry(medium, permutation.slot(position));
        if !entry.is_layer() {
            return Ok(None);
        }
        // The root may be another one by now, but of the same layer.
        let root = tree.layer_of(held.node, (piece.slice, entry), at)?;
        if root.shape(medium).depth() != depth {
            return Ok(None);
        }
        if let [(first, _), (second, _)] = &leaves[..] {
            self.join_locked(*first, *second, 0);
        }
        leaves.last().inspect(|(last, _)| self.freeze(*last));
        self.take(held.node, position);
        // PERSIST: the layer is unlinked before its memory is used again.
        tree.pool.region().fence();
        let is_empty = permutation.len() == 1;
        let above = held.node;
        held.lock.release();
        drop(leaves);
        self.retire_layer(guard, root)?;
        Ok(is_empty.then_some((above, at)))
    }

    /// The first leaf of a layer, frozen or not.
    fn first_leaf<'g>(&'g self, root: Node<'g>) -> Result<Option<Node<'g>>, Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let (mut node, mut level) = (root, root.shape(medium).level());
        while level > 0 {
            let (before, permutation) = (node.state(medium), node.permutation(medium));
            let Some(slot) = permutation.slots().next() else { return Ok(None) };
            let entry = (node.slice(medium, slot), node.entry(medium, slot));
            if node.state(medium).counter() == before.counter() {
                (node, level) = (tree.node_of(node, entry, level - 1)?, level - 1);
            }
        }
        Ok((node.low(medium) == 0).then_some(node))
    }

    /// Locks the leaves of a layer that are not frozen, two at most; `None` if there are more, or a
    /// key.
    #[expect(clippy::type_complexity, reason = "nodes with their locks, if the layer is empty")]
    fn lock_empty<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        first: Node<'g>,
        depth: usize,
    ) -> Result<Option<Vec<(Node<'g>, Locked<'g, M>)>>, Damage> {
        let medium = self.tree.pool.medium();
        let (mut leaves, mut leaf) = (Vec::new(), first);
        loop {
            let locked = self.lock(guard, leaf, (0, depth))?;
            let next = leaf.next(medium);
            if !leaf.state(medium).is_frozen() {
                if leaf.permutation(medium).len() > 0 || leaves.len() == 2 {
                    return Ok(None);
                }
                leaves.push((leaf, locked));
            }
            if next.is_none() {
                return Ok(Some(leaves));
            }
            leaf = self.tree.right_of(leaf, 0)?;
        }
    }

    /// Freezes a node, durably. Called under its lock.
    pub(super) fn freeze(&self, node: Node<'_>) {
        let medium = self.tree.pool.medium();
        node.set_state(medium, node.state(medium).frozen());
        // PERSIST: the node before the links go over it. A crash in between leaves an empty node
        // that leads on.
        self.tree.pool.region().persist(node.head());
    }

    /// Retires all nodes of a layer that was unlinked.
    fn retire_layer(&self, guard: &Guard<'_, M>, root: Node<'_>) -> Result<(), Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let shape = root.shape(medium);
        let (mut first, depth) = (Some(root), shape.depth());
        for level in (0..=shape.level()).rev() {
            let mut at = first.take();
            while let Some(node) = at {
                let locked = self.lock(guard, node, (level, depth))?;
                if level > 0 {
                    // A thread that comes to add an entry finds that there is no layer.
                    self.freeze(node);
                }
                let slot = node.permutation(medium).slots().next().filter(|_| level > 0 && first.is_none());
                if let Some(slot) = slot {
                    let entry = (node.slice(medium, slot), node.entry(medium, slot));
                    first = Some(tree.node_of(node, entry, level - 1)?);
                }
                at = if node.next(medium).is_none() { None } else { Some(tree.right_of(node, level)?) };
                locked.release();
                self.retire(guard, node);
            }
        }
        Ok(())
    }
}
