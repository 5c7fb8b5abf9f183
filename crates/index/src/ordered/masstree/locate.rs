//! The way of a writer: the place of a key, and the locks of nodes.

use super::super::keys::{Found, OrderedKind};
use super::entry::{Entry, Piece, SLICE};
use super::find::Seen;
use super::node::Node;
use super::ops::Masstree;
use super::tree::Tree;
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
    pub(super) leaf: Node<'g>,
    pub(super) depth: usize,
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
    /// A layer whose keys all differ from the key above it.
    Across(Entry),
}

/// A layer, and the entry that leads to it.
pub(super) struct Layer<'g> {
    pub(super) root: Node<'g>,
    /// The leaf with its entry, its piece there, and the leaf's depth; `None` for the first layer.
    pub(super) above: Option<(Node<'g>, Piece, usize)>,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// The layer at a depth on the way to a key; `None` if there is none.
    pub(super) fn layer_at(&self, key: &[u8], depth: usize) -> Result<Option<Layer<'_>>, Damage> {
        let medium = self.pool.medium();
        let (mut root, mut at, mut above) = (self.top()?, 0, None);
        while at < depth {
            let Some(piece) = Piece::of(key, at) else { return Ok(None) };
            let Some(mut leaf) = self.leaf_for(root, piece.slice)? else { return Ok(None) };
            let entry = loop {
                match self.look_up(leaf, piece) {
                    Seen::Later => leaf = self.right_of(leaf, 0)?,
                    Seen::Entry(_, word) if Entry(word).is_layer() => break Entry(word),
                    Seen::Entry(..) | Seen::Nothing => return Ok(None),
                }
            };
            above = Some((leaf, piece, at));
            root = self.layer_of(leaf, (piece.slice, entry), at)?;
            at = root.shape(medium).depth();
        }
        Ok((at == depth).then_some(Layer { root, above }))
    }
}

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// Looks for the place of `key`. `None`: the tree changed meanwhile.
    pub(super) fn locate<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &K::Key,
    ) -> Result<Option<Spot<'g>>, Damage> {
        let (tree, bytes) = (&self.tree, K::bytes(key));
        let (mut root, mut depth) = (tree.top()?, 0);
        loop {
            let Some(piece) = Piece::of(&bytes, depth) else { return Ok(None) };
            let Some(mut leaf) = tree.leaf_for(root, piece.slice)? else {
                // All leaves of the layer are frozen. Nobody may be left to remove it.
                self.drop_layer(guard, &bytes, depth)?;
                return Ok(None);
            };
            let seen = loop {
                match tree.look_up(leaf, piece) {
                    Seen::Later => leaf = tree.right_of(leaf, 0)?,
                    seen => break seen,
                }
            };
            let Seen::Entry(slot, word) = seen else {
                tree.persist_read(leaf, None);
                return Ok(Some(Spot { leaf, depth, piece, end: End::Nothing }));
            };
            tree.persist_read(leaf, Some(slot));
            if Tree::<M, K>::INLINE || !Entry(word).is_layer() {
                let end = self.end_of(guard, leaf, (piece, word), key)?;
                return Ok(Some(Spot { leaf, depth, piece, end }));
            }
            let layer = tree.layer_of(leaf, (piece.slice, Entry(word)), depth)?;
            let own = layer.shape(tree.pool.medium()).depth();
            if own > depth + 1 {
                match self.is_below(guard, &bytes, layer, (depth + 1, own)) {
                    Some(true) => {}
                    Some(false) => {
                        return Ok(Some(Spot { leaf, depth, piece, end: End::Across(Entry(word)) }));
                    }
                    None => {
                        self.drop_layer(guard, &bytes, own)?;
                        return Ok(None);
                    }
                }
            }
            (root, depth) = (layer, own);
        }
    }

    /// Whether a key shares the slices of a layer's keys between two depths, and goes on as they
    /// do; `None` if the layer has no keys.
    fn is_below(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        layer: Node<'_>,
        (from, to): (usize, usize),
    ) -> Option<bool> {
        let any = self.tree.any_key(guard, layer)?;
        let range = from * SLICE..to * SLICE;
        let goes_on = key.len() > range.end;
        Some(goes_on && any.get(range.clone()) == key.get(range))
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
                node = tree.right_of(node, level)?;
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
        if node.state(tree.pool.medium()).is_splitting() {
            self.mend(guard, node, at.0)?;
        }
        if !node.joining(tree.pool.medium()).is_none() {
            self.mend_join(node, at.0)?;
        }
        Ok(lock)
    }
}
