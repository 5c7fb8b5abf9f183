//! Reads of single keys.

use super::super::keys::{Found, OrderedKind};
use super::entry::{Entry, Piece};
use super::node::Node;
use super::permutation::Permutation;
use super::tree::Tree;
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// What a leaf has for a piece of a key.
#[derive(Clone, Copy)]
pub(super) enum Seen {
    /// The slot and its word: an integer's word, a record, or a layer.
    Entry(usize, u64),
    /// Nothing: the piece would be at this position.
    Nothing,
    /// The piece is in the range of a later leaf.
    Later,
}

/// Where a search ended.
pub(super) enum Ended<'g> {
    /// At the key's entry, with this word.
    Found(u64),
    /// At the record of another key, in this leaf.
    Other(Node<'g>, u64),
    /// At a leaf without an entry for it; or, with none, at a layer without keys, or behind the
    /// key's end.
    Nothing(Option<Node<'g>>),
    /// At something damaged.
    Damaged(Damage),
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// Whether leaves have the words of keys, and not entries.
    pub(super) const INLINE: bool = K::LEAF_BYTES > 0;

    /// The tag of the keys that a slot of a leaf is for.
    #[inline(always)]
    pub(super) fn tag_of(&self, node: Node<'_>, slot: usize) -> u8 {
        if Self::INLINE { 8 } else { node.entry(self.pool.medium(), slot).key_tag() }
    }

    /// The position of a piece among the entries of a leaf, and whether it is there. Under the
    /// node's lock, or its counter shows that no slot was reused meanwhile.
    #[inline(always)]
    pub(super) fn position(
        &self,
        leaf: Node<'_>,
        permutation: Permutation,
        piece: Piece,
    ) -> Result<usize, usize> {
        let medium = self.pool.medium();
        let (mut low, mut high) = (0, permutation.len());
        while low < high {
            let middle = (low + high) / 2;
            let slot = permutation.slot(middle);
            let order = leaf
                .slice(medium, slot)
                .cmp(&piece.slice)
                .then_with(|| self.tag_of(leaf, slot).cmp(&piece.tag));
            match order {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// What a leaf has for a piece, read without its lock.
    #[inline(always)]
    pub(super) fn look_up(&self, leaf: Node<'_>, piece: Piece) -> Seen {
        let medium = self.pool.medium();
        loop {
            let before = leaf.state(medium);
            let permutation = leaf.permutation(medium);
            let found = self.position(leaf, permutation, piece);
            let seen = match found {
                Ok(position) => {
                    let slot = permutation.slot(position);
                    Seen::Entry(slot, leaf.word_at(medium, slot))
                }
                Err(_) => Seen::Nothing,
            };
            let is_later = self.is_right_of(leaf, piece.slice);
            if leaf.state(medium).counter() == before.counter() {
                return if is_later { Seen::Later } else { seen };
            }
        }
    }

    /// See [`PointIndex::get`](crate::PointIndex::get).
    #[inline(always)]
    pub(super) fn search<'g>(&'g self, guard: &'g Guard<'_, M>, key: &K::Key) -> Ended<'g> {
        match self.try_search(guard, key) {
            Ok(ended) => ended,
            Err(damage) => Ended::Damaged(damage),
        }
    }

    #[inline(always)]
    fn try_search<'g>(&'g self, guard: &'g Guard<'_, M>, key: &K::Key) -> Result<Ended<'g>, Damage> {
        let bytes = K::bytes(key);
        let (mut root, mut depth) = (self.top()?, 0);
        loop {
            let Some(piece) = Piece::of(&bytes, depth) else { return Ok(Ended::Nothing(None)) };
            let Some(leaf) = self.leaf_for(root, piece.slice)? else { return Ok(Ended::Nothing(None)) };
            let (leaf, found) = self.find_in(leaf, piece)?;
            let Some((slot, word)) = found else {
                self.persist_read(leaf, None);
                return Ok(Ended::Nothing(Some(leaf)));
            };
            self.persist_read(leaf, Some(slot));
            match self.end_at(guard, leaf, (piece, word), key) {
                Some(ended) => return Ok(ended),
                None => root = self.layer_of(leaf, (piece.slice, Entry(word)), depth)?,
            }
            depth = root.shape(self.pool.medium()).depth();
        }
    }

    /// The end of a search at an entry of a leaf; `None` if that is a layer.
    #[inline(always)]
    pub(super) fn end_at<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        leaf: Node<'g>,
        (piece, word): (Piece, u64),
        key: &K::Key,
    ) -> Option<Ended<'g>> {
        if Self::INLINE {
            return Some(Ended::Found(word));
        }
        let entry = Entry(word);
        if entry.is_layer() {
            return None;
        }
        if !entry.is_sound(piece.slice) {
            return Some(Ended::Damaged(self.damaged_entry(leaf)));
        }
        Some(match K::find(guard, entry.offset(), key) {
            Found::Word(found) => Ended::Found(found),
            Found::Other => Ended::Other(leaf, entry.offset()),
        })
    }

    #[cold]
    pub(super) fn damaged_entry(&self, leaf: Node<'_>) -> Damage {
        self.record_damage(leaf.offset(self.pool.region()), "an entry of a leaf does not fit its check")
    }

    /// See [`PointIndex::get_sound`](crate::PointIndex::get_sound).
    #[inline(always)]
    pub(super) fn search_soundly(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        match self.search(guard, key) {
            Ended::Found(word) => Ok(Some(word)),
            ended => self.absent(guard, ended),
        }
    }

    /// A key was not found: decides whether that is certain.
    #[inline(never)]
    pub(super) fn absent(&self, guard: &Guard<'_, M>, ended: Ended<'_>) -> Result<Option<u64>, Damage> {
        let leaf = match ended {
            Ended::Damaged(damage) => return Err(damage),
            Ended::Other(_, record) if !K::is_sound(guard, record) => {
                return Err(Damage { offset: record, what: "a record that may be the key's is unsound" });
            }
            Ended::Other(leaf, _) => Some(leaf),
            Ended::Nothing(leaf) => leaf,
            Ended::Found(word) => return Ok(Some(word)),
        };
        if let Some(damage) = leaf.and_then(|leaf| self.damaged_in(leaf)) {
            return Err(damage);
        }
        self.damage.get().map_or(Ok(None), |damage| Err(*damage))
    }

    /// What is damaged in a leaf, so that it may hide a key.
    fn damaged_in(&self, leaf: Node<'_>) -> Option<Damage> {
        let medium = self.pool.medium();
        loop {
            let (before, permutation) = (leaf.state(medium), leaf.permutation(medium));
            let are_whole = Self::INLINE
                || permutation
                    .slots()
                    .all(|slot| leaf.entry(medium, slot).is_sound(leaf.slice(medium, slot)));
            // Another thread may have changed it meanwhile.
            if leaf.state(medium) == before && leaf.permutation(medium) == permutation {
                let damaged = (!are_whole).then(|| self.damaged_entry(leaf));
                return damaged.or_else(|| self.damaged_head(leaf)).or_else(|| self.damaged_end(leaf));
            }
        }
    }

    /// What is damaged in the state and the permutation of a node.
    #[inline(always)]
    pub(super) fn damaged_head(&self, node: Node<'_>) -> Option<Damage> {
        let medium = self.pool.medium();
        loop {
            let (state, permutation) = (node.state(medium), node.permutation(medium));
            if state.is_sound() && permutation.is_sound() && state.admits(permutation) {
                return None;
            }
            if node.state(medium) == state && node.permutation(medium) == permutation {
                return Some(self.damaged_node(node, "the state or permutation of a node is damaged"));
            }
        }
    }

    /// What is damaged in the end of a node's range.
    pub(super) fn damaged_end(&self, node: Node<'_>) -> Option<Damage> {
        let medium = self.pool.medium();
        loop {
            let (state, permutation) = (node.state(medium), node.permutation(medium));
            if state.is_splitting() || self.is_bounded(node) {
                return None;
            }
            if node.state(medium) == state && node.permutation(medium) == permutation {
                return Some(self.damaged_node(node, "a node does not end where the next one begins"));
            }
        }
    }

    /// Whether a node ends where the next one begins. If that has taken over the node's range, or
    /// is about to, it begins where the node does.
    pub(super) fn is_bounded(&self, node: Node<'_>) -> bool {
        let medium = self.pool.medium();
        let next = node.next(medium);
        if next.is_none() {
            return true;
        }
        let Some(next) = Node::at(self.pool.region(), next.offset()).filter(|_| next.is_sound(0)) else {
            return false;
        };
        let low = next.low(medium);
        low == node.high(medium) || low <= node.low(medium)
    }
}
