//! Reads of many keys, side by side.

use super::super::keys::{KeyBytes, OrderedKind};
use super::super::together::search_together;
use super::entry::{Entry, Piece};
use super::find::{Ended, Seen};
use super::node::Node;
use super::tree::{Step, Tree};
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A search in progress.
struct Descent<'g, 'k, Key: ?Sized> {
    key: &'k Key,
    bytes: KeyBytes<'k>,
    at: At<'g>,
}

/// Where a search is; the memory that its next step reads is prefetched.
enum At<'g> {
    /// A node of a layer: of a level, with the key's piece there.
    Node(Node<'g>, usize, Piece),
    /// The record of a leaf's entry.
    Record(Node<'g>, Piece, u64),
    End(Option<u64>),
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`PointIndex::get_many`](crate::PointIndex::get_many).
    pub(super) fn search_many<'k>(
        &self,
        guard: &Guard<'_, M>,
        keys: impl IntoIterator<Item = &'k K::Key>,
        mut each: impl FnMut(usize, Option<u64>),
    ) where
        K::Key: 'k,
    {
        let start = |key: &'k K::Key| {
            let bytes = K::bytes(key);
            let at = self.top().ok().and_then(|root| self.enter(root, &bytes));
            Descent { key, bytes, at: at.unwrap_or(At::End(None)) }
        };
        search_together(
            keys,
            start,
            |descent| self.advance(guard, descent),
            |nth, descent| each(nth, if let At::End(found) = descent.at { found } else { None }),
        );
    }

    /// The begin of a search in a layer; `None` if the key ends above it.
    #[inline(always)]
    fn enter<'g>(&'g self, root: Node<'g>, bytes: &[u8]) -> Option<At<'g>> {
        let shape = root.shape(self.pool.medium());
        Some(At::Node(root, shape.level(), Piece::of(bytes, shape.depth())?))
    }

    /// Takes one step of a search. Returns whether it goes on.
    #[inline(always)]
    fn advance<'g>(&'g self, guard: &'g Guard<'_, M>, descent: &mut Descent<'g, '_, K::Key>) -> bool {
        descent.at = match descent.at {
            At::End(_) => return false,
            At::Node(node, level, piece) => {
                self.pass(guard, descent, (node, level, piece)).unwrap_or(At::End(None))
            }
            At::Record(leaf, piece, word) => match self.end_at(guard, leaf, (piece, word), descent.key) {
                Some(Ended::Found(found)) => At::End(Some(found)),
                _ => At::End(None),
            },
        };
        !matches!(descent.at, At::End(_))
    }

    #[inline(always)]
    fn pass<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        descent: &Descent<'g, '_, K::Key>,
        (node, level, piece): (Node<'g>, usize, Piece),
    ) -> Result<At<'g>, Damage> {
        let region = self.pool.region();
        let (node, level) = match self.step(node, level, piece.slice)? {
            Step::Right(next) => (next, level),
            Step::Down(below) => (below, level - 1),
            Step::Gone => return Ok(At::End(None)),
            Step::Here => return self.look_in(guard, descent, node, piece),
        };
        self.prefetch(node.offset(region));
        Ok(At::Node(node, level, piece))
    }

    /// The step of a search at the leaf of its piece.
    #[inline(always)]
    fn look_in<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        descent: &Descent<'g, '_, K::Key>,
        leaf: Node<'g>,
        piece: Piece,
    ) -> Result<At<'g>, Damage> {
        let medium = self.pool.medium();
        let (slot, word) = match self.look_up(leaf, piece) {
            Seen::Later => return Ok(At::Node(self.right_of(leaf, 0)?, 0, piece)),
            Seen::Nothing => {
                self.persist_read(leaf, None);
                return Ok(At::End(None));
            }
            Seen::Entry(slot, word) => (slot, word),
        };
        self.persist_read(leaf, Some(slot));
        if Self::INLINE {
            return Ok(At::End(Some(word)));
        }
        let entry = Entry(word);
        if entry.is_layer() {
            let root = self.layer_of(leaf, (piece.slice, entry), leaf.shape(medium).depth())?;
            self.prefetch(root.offset(self.pool.region()));
            return Ok(self.enter(root, &descent.bytes).unwrap_or(At::End(None)));
        }
        K::prefetch(guard, entry.offset());
        Ok(At::Record(leaf, piece, word))
    }
}
