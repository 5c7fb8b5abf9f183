//! Layers on the way of a key: handles to them, and what tells which keys they have.
//!
//! A layer may skip slices that its keys share. They are nowhere but in records, so a writer, or a
//! range, compares its key with one of the layer's, a [`Witness`]. The way to that goes along the
//! key as far as it can, so one witness does for all layers on the key's way.

use super::super::keys::{KeyBytes, OrderedKind};
use super::entry::{Entry, LONGER, Piece};
use super::find::Seen;
use super::node::Node;
use super::tree::Tree;
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A layer, and the entry that leads to it.
#[derive(Clone, Copy)]
pub(super) struct Layer<'g> {
    /// Its root, or what was its root.
    pub(super) root: Node<'g>,
    pub(super) depth: usize,
    /// The leaf with its entry, its piece there, and the leaf's depth; `None` for the first layer.
    pub(super) above: Option<(Node<'g>, Piece, usize)>,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    pub(super) fn first_layer(&self) -> Result<Layer<'_>, Damage> {
        Ok(Layer { root: self.top()?, depth: 0, above: None })
    }

    /// The layer behind the entry of a piece.
    pub(super) fn layer_below<'g>(
        &'g self,
        (leaf, depth): (Node<'g>, usize),
        piece: Piece,
        entry: Entry,
    ) -> Result<Layer<'g>, Damage> {
        let root = self.layer_of(leaf, (piece.slice, entry), depth)?;
        let own = root.shape(self.pool.medium()).depth();
        Ok(Layer { root, depth: own, above: Some((leaf, piece, depth)) })
    }

    /// What a leaf, or one to its right, has for a piece: the slot and its word.
    #[inline(always)]
    pub(super) fn find_in<'g>(
        &'g self,
        mut leaf: Node<'g>,
        piece: Piece,
    ) -> Result<(Node<'g>, Option<(usize, u64)>), Damage> {
        loop {
            match self.look_up(leaf, piece) {
                Seen::Entry(slot, word) => return Ok((leaf, Some((slot, word)))),
                Seen::Nothing => return Ok((leaf, None)),
                Seen::Later => leaf = self.right_of(leaf, 0)?,
            }
        }
    }

    /// A layer with the root that it has by now; `None` if it is gone. It costs no way down.
    pub(super) fn current<'g>(&'g self, layer: &Layer<'g>) -> Result<Option<Layer<'g>>, Damage> {
        let Some((leaf, piece, at)) = layer.above else { return self.first_layer().map(Some) };
        let (leaf, found) = self.find_in(leaf, piece)?;
        let Some(entry) = found.map(|(_, word)| Entry(word)).filter(|entry| entry.is_layer()) else {
            return Ok(None);
        };
        let now = self.layer_below((leaf, at), piece, entry)?;
        Ok((now.depth == layer.depth).then_some(now))
    }

    /// The layers on the way to a key, down to that of a depth, which is left out.
    pub(super) fn layers_above(&self, key: &[u8], depth: usize) -> Result<Vec<Layer<'_>>, Damage> {
        let mut layers = vec![self.first_layer()?];
        while let Some(layer) = layers.last().copied() {
            let Some(piece) = Piece::of(key, layer.depth) else { break };
            let Some(leaf) = self.leaf_for(layer.root, piece.slice)? else { break };
            let (leaf, found) = self.find_in(leaf, piece)?;
            let Some(entry) = found.map(|(_, word)| Entry(word)).filter(|entry| entry.is_layer()) else {
                break;
            };
            let below = self.layer_below((leaf, layer.depth), piece, entry)?;
            if below.depth >= depth {
                break;
            }
            layers.push(below);
        }
        Ok(layers)
    }

    /// The layer of a depth on the way to a key; `None` if there is none.
    #[cold]
    pub(super) fn layer_at(&self, key: &[u8], depth: usize) -> Result<Option<Layer<'_>>, Damage> {
        let Some(above) = self.layers_above(key, depth)?.pop() else { return Ok(None) };
        let Some(piece) = Piece::of(key, above.depth) else { return Ok(None) };
        let Some(leaf) = self.leaf_for(above.root, piece.slice)? else { return Ok(None) };
        self.current(&Layer { root: above.root, depth, above: Some((leaf, piece, above.depth)) })
    }

    /// The layers that `key_near` passes through, from this one down to one without entries; none
    /// if it comes to a key.
    pub(super) fn way_to_nothing<'g>(
        &'g self,
        mut layer: Layer<'g>,
        key: &[u8],
    ) -> Result<Vec<Layer<'g>>, Damage> {
        let mut way = vec![layer];
        while let Some((leaf, (slice, entry))) = self.entry_near(layer.root, Piece::of(key, layer.depth))? {
            if !entry.is_layer() {
                return Ok(Vec::new());
            }
            layer = self.layer_below((leaf, layer.depth), Piece { slice, tag: LONGER }, entry)?;
            way.push(layer);
        }
        Ok(way)
    }

    /// An entry of a layer, and its leaf: that of a piece if there is one, or else any; `None` if
    /// there is none.
    #[expect(clippy::type_complexity, reason = "a leaf, and a slice with its entry")]
    fn entry_near<'g>(
        &'g self,
        root: Node<'g>,
        piece: Option<Piece>,
    ) -> Result<Option<(Node<'g>, (u64, Entry))>, Damage> {
        if let Some(piece) = piece
            && let Some(leaf) = self.leaf_for(root, piece.slice)?
            && let (leaf, Some((_, word))) = self.find_in(leaf, piece)?
        {
            return Ok(Some((leaf, (piece.slice, Entry(word)))));
        }
        let mut slice = 0;
        while let Some(leaf) = self.leaf_for(root, slice)? {
            let (leaf, read) = self.read_leaf(leaf, slice)?;
            if let Some((slice, word)) = read.entries().next() {
                return Ok(Some((leaf, (slice, Entry(word)))));
            }
            let Some(high) = read.high else { break };
            slice = high;
        }
        Ok(None)
    }
}

/// A key that is in a row of layers, each below the one before.
#[derive(Default)]
pub(super) struct Witness<'g> {
    key: Option<KeyBytes<'g>>,
    /// The roots of the layers that are left of those that it is in, the nearest last.
    layers: Vec<u64>,
}

impl<'g> Witness<'g> {
    /// A key of the layer below `root`; `None` if the way to one ends at a layer without entries.
    /// Called for one layer after another on the way of `key`, which has other keys beside it
    /// there, or none.
    pub(super) fn of<M: MappedMedium, K: OrderedKind>(
        &mut self,
        (tree, guard): (&'g Tree<M, K>, &'g Guard<'_, M>),
        root: Node<'g>,
        key: &[u8],
    ) -> Result<Option<&KeyBytes<'g>>, Damage> {
        let at = root.offset(tree.pool.region());
        while self.layers.pop_if(|layer| *layer != at).is_some() {}
        if self.layers.is_empty() {
            self.key = tree.key_near(guard, root, key, &mut self.layers)?;
            self.layers.reverse();
        }
        Ok(self.key.as_ref())
    }
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// A key of the layer below `root`, whose way goes along that of another as far as it can, and
    /// then along first entries; `None` if it ends at a layer without entries, though there may be
    /// keys elsewhere. Notes the roots of the layers that it is in.
    pub(super) fn key_near<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        mut root: Node<'g>,
        key: &[u8],
        layers: &mut Vec<u64>,
    ) -> Result<Option<KeyBytes<'g>>, Damage> {
        layers.clear();
        loop {
            layers.push(root.offset(self.pool.region()));
            let depth = root.shape(self.pool.medium()).depth();
            let Some((leaf, (slice, entry))) = self.entry_near(root, Piece::of(key, depth))? else {
                return Ok(None);
            };
            if entry.is_layer() {
                root = self.layer_of(leaf, (slice, entry), depth)?;
                continue;
            }
            if !entry.is_sound(slice) {
                return Err(self.damaged_entry(leaf));
            }
            let what = "a record that a key must be compared with is unsound";
            let record = entry.offset();
            return K::key_of(guard, record).map(Some).ok_or(Damage { offset: record, what });
        }
    }
}
