//! The way of a writer: the place of a key, and the locks of nodes.

use super::super::keys::{Found, OrderedKind};
use super::entry::{Entry, Piece, SLICE};
use super::node::Node;
use super::ops::Masstree;
use super::tree::Tree;
use super::way::{Layer, Witness};
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Locked};

/// A node whose lock is held, and which is the one of a slice.
pub(super) struct Held<'g, M: MappedMedium> {
    pub(super) node: Node<'g>,
    pub(super) lock: Locked<'g, M>,
    /// Whether no link from above led here: a parent's entry may be missing.
    pub(super) is_unposted: bool,
}

/// The place of a key.
pub(super) struct Spot<'g> {
    pub(super) layer: Layer<'g>,
    pub(super) leaf: Node<'g>,
    pub(super) piece: Piece,
    pub(super) end: End,
}

/// What a leaf has at the place of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Nothing,
    /// The key, with this word.
    Key(u64),
    /// The record of another key with the same piece.
    Other(Entry),
    /// A layer whose keys all differ from the key above it, behind this entry.
    Across(Entry),
}

/// Whether a key shares the slices of a layer's keys, of which `other` is one, between two depths,
/// and goes on as they do.
fn is_below(key: &[u8], other: &[u8], (from, to): (usize, usize)) -> bool {
    let range = from * SLICE..to * SLICE;
    key.len() > range.end && other.get(range.clone()) == key.get(range)
}

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// Looks for the place of `key`. `None`: the tree changed meanwhile.
    pub(super) fn locate<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &K::Key,
    ) -> Result<Option<Spot<'g>>, Damage> {
        let (tree, bytes) = (&self.tree, K::bytes(key));
        let (mut layer, mut witness) = (tree.first_layer()?, Witness::default());
        loop {
            let Some(piece) = Piece::of(&bytes, layer.depth) else { return Ok(None) };
            let Some(leaf) = tree.leaf_for(layer.root, piece.slice)? else {
                // All leaves of the layer are frozen. Nobody may be left to remove it.
                self.clear_way(guard, &bytes, layer)?;
                return Ok(None);
            };
            let (leaf, found) = tree.find_in(leaf, piece)?;
            tree.persist_read(leaf, found.map(|(slot, _)| slot));
            let Some((_, word)) = found else {
                return Ok(Some(Spot { layer, leaf, piece, end: End::Nothing }));
            };
            if Tree::<M, K>::INLINE || !Entry(word).is_layer() {
                let end = self.end_of(guard, leaf, (piece, word), key)?;
                return Ok(Some(Spot { layer, leaf, piece, end }));
            }
            let below = tree.layer_below((leaf, layer.depth), piece, Entry(word))?;
            if below.depth > layer.depth + 1 {
                let Some(other) = witness.of((tree, guard), below.root, &bytes)? else {
                    self.clear_way(guard, &bytes, below)?;
                    return Ok(None);
                };
                if !is_below(&bytes, other, (layer.depth + 1, below.depth)) {
                    return Ok(Some(Spot { layer, leaf, piece, end: End::Across(Entry(word)) }));
                }
            }
            layer = below;
        }
    }

    /// What the entry of a piece is to a key.
    fn end_of(
        &self,
        guard: &Guard<'_, M>,
        leaf: Node<'_>,
        (piece, word): (Piece, u64),
        key: &K::Key,
    ) -> Result<End, Damage> {
        if Tree::<M, K>::INLINE {
            return Ok(End::Key(word));
        }
        let entry = Entry(word);
        if !entry.is_sound(piece.slice) {
            return Err(self.tree.damaged_entry(leaf));
        }
        Ok(match K::find(guard, entry.offset(), key) {
            Found::Word(found) => End::Key(found),
            Found::Other => End::Other(entry),
        })
    }

    /// Locks the node of a slice, from `node` on to the right. `None` if there is none any more:
    /// the layer is gone, or the node was its root.
    pub(super) fn lock_node<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        mut node: Node<'g>,
        (level, depth): (usize, usize),
        slice: u64,
    ) -> Result<Option<Held<'g, M>>, Damage> {
        let (tree, mut is_unposted) = (&self.tree, false);
        loop {
            let lock = self.lock(guard, node, (level, depth))?;
            let state = node.state(tree.pool.medium());
            if tree.is_right_of(node, slice) {
                is_unposted |= !state.is_frozen();
                node = tree.right_of_locked(node, level)?;
                lock.release();
                continue;
            }
            return Ok((!state.is_frozen()).then_some(Held { node, lock, is_unposted }));
        }
    }

    /// Locks a node. What was done to it before is durable and whole then.
    pub(super) fn lock<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        node: Node<'g>,
        at: (usize, usize),
    ) -> Result<Locked<'g, M>, Damage> {
        let tree = &self.tree;
        tree.check_node(node, at)?;
        let lock = node.lock().acquire(guard);
        if lock.was_unfenced() {
            // PERSIST: what the last holder has not fenced, before this one builds upon it.
            tree.pool.region().persist(node.lines());
        }
        if let Some(damage) = tree.damaged_head(node) {
            return Err(damage);
        }
        if node.state(tree.pool.medium()).is_splitting() {
            self.mend(guard, node, at.0)?;
        }
        if !node.joining(tree.pool.medium()).is_none() {
            self.mend_join(node, at.0)?;
        }
        Ok(lock)
    }
}
