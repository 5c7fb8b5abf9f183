//! The last key up to a bound, for a tree above that asks for nothing else.

use super::super::ends::last_up_to;
use super::super::keys::{Found, OrderedKind};
use super::entry::{Entry, Piece};
use super::node::Node;
use super::ops::Masstree;
use super::tree::Tree;
use crate::Damage;
use std::ops::Bound;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// What the leaf of a key says of the last key up to it.
enum Last<'g> {
    Word(u64),
    /// It is in this layer, if in any.
    Below(Node<'g>),
    /// It lies before the leaf, or behind something that only a walk can tell.
    Before,
}

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// The word of the last key up to `to`. Mostly a search, where a range would be a walk.
    #[inline(always)]
    pub(in super::super) fn floor(&self, guard: &Guard<'_, M>, to: Bound<&K::Key>) -> Option<u64> {
        if let Bound::Included(key) = to
            && let Ok(Some(word)) = self.tree.floor_of(guard, key)
        {
            return Some(word);
        }
        last_up_to(self, guard, to)
    }
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// The word of the last key up to `key`, if the leaf of that key has it.
    #[inline(always)]
    fn floor_of(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        let bytes = K::bytes(key);
        let (mut root, mut depth) = (self.top()?, 0);
        loop {
            let Some(piece) = Piece::of(&bytes, depth) else { return Ok(None) };
            let Some(leaf) = self.leaf_for(root, piece.slice)? else { return Ok(None) };
            match self.last_in(guard, leaf, piece, key)? {
                Last::Word(word) => return Ok(Some(word)),
                Last::Before => return Ok(None),
                Last::Below(below) => {
                    let own = below.shape(self.pool.medium()).depth();
                    if own != depth + 1 {
                        // The keys below may lie on either side.
                        return Ok(None);
                    }
                    (root, depth) = (below, own);
                }
            }
        }
    }

    /// What a leaf has up to a piece, read without its lock.
    #[inline(always)]
    fn last_in<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        mut leaf: Node<'g>,
        piece: Piece,
        key: &K::Key,
    ) -> Result<Last<'g>, Damage> {
        let medium = self.pool.medium();
        loop {
            let before = leaf.state(medium);
            let permutation = leaf.permutation(medium);
            let found = self.position(leaf, permutation, piece);
            let at = match found {
                Ok(position) => Some(position),
                Err(position) => position.checked_sub(1),
            };
            let entry = at.map(|at| {
                let slot = permutation.slot(at);
                (slot, leaf.slice(medium, slot), leaf.word_at(medium, slot))
            });
            let is_later = self.is_right_of(leaf, piece.slice);
            if leaf.state(medium).counter() != before.counter() {
                continue;
            }
            if is_later {
                leaf = self.right_of(leaf, 0)?;
                continue;
            }
            let Some((slot, slice, word)) = entry else { return Ok(Last::Before) };
            self.persist_read(leaf, Some(slot));
            if Self::INLINE {
                return Ok(Last::Word(word));
            }
            return self.last_at(guard, (leaf, found.is_ok()), (slice, Entry(word)), key);
        }
    }

    /// What the entry of a piece, or the one before it, says of the last key up to `key`.
    fn last_at<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        (leaf, is_same): (Node<'g>, bool),
        (slice, entry): (u64, Entry),
        key: &K::Key,
    ) -> Result<Last<'g>, Damage> {
        let depth = leaf.shape(self.pool.medium()).depth();
        if entry.is_layer() {
            // All keys of a layer before the key's place are below it: its last one is the answer.
            return match is_same {
                true => self.layer_of(leaf, (slice, entry), depth).map(Last::Below),
                false => Ok(Last::Before),
            };
        }
        if !entry.is_sound(slice) {
            return Err(self.damaged_entry(leaf));
        }
        let record = entry.offset();
        if !is_same || matches!(K::find(guard, record, key), Found::Word(_)) {
            return Ok(Last::Word(K::word_of(guard, record)));
        }
        // The same piece, which goes on, of another key.
        match K::key_of(guard, record) {
            Some(other) if other[..] < K::bytes(key)[..] => Ok(Last::Word(K::word_of(guard, record))),
            _ => Ok(Last::Before),
        }
    }
}
