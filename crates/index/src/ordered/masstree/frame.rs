//! A layer on the way of a range: the entries of one of its leaves, and how they lie to the ends.

use super::super::ends::End;
use super::super::keys::OrderedKind;
use super::entry::{Entry, Piece, SLICE};
use super::node::Node;
use super::permutation::WIDTH;
use super::tree::Tree;
use crate::{Damage, Direction};
use std::cmp::Ordering::{self, Equal, Greater, Less};
use terrace_medium::MappedMedium;

/// How the keys of a layer, or behind an entry, lie to an end of the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Edge {
    /// All are inside of it.
    Inside,
    /// All begin with the end's bytes up to here.
    Along,
    /// Unknown: each key is compared.
    Unknown,
}

/// The edges of the lower and the upper end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edges {
    pub(super) low: Edge,
    pub(super) high: Edge,
}

impl Edges {
    pub(super) fn are_inside(self) -> bool {
        self == Self { low: Edge::Inside, high: Edge::Inside }
    }
}

/// An entry that a walk has read.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) piece: Piece,
    pub(super) word: u64,
    pub(super) edges: Edges,
}

/// A layer in progress.
pub(super) struct Frame<'g> {
    root: Node<'g>,
    pub(super) depth: usize,
    edges: Edges,
    direction: Direction,
    /// The last piece that was visited, or its slice if only the slice is decided.
    last: Option<Piece>,
    /// Where the next leaf is sought; `None` if there is none.
    target: Option<u64>,
    items: [Option<Item>; WIDTH],
    at: usize,
    len: usize,
    pub(super) leaf: Node<'g>,
}

/// How the keys of a piece lie to an end, of which `inside` is the inner side; `None` if all are
/// outside.
fn edge_of(end: &End<'_>, edge: Edge, (piece, depth): (Piece, usize), inside: Ordering) -> Option<Edge> {
    let bytes = match (edge, &end.bytes) {
        (Edge::Along, Some(bytes)) => bytes,
        (edge, _) => return Some(edge),
    };
    let Some(bound) = Piece::of(bytes, depth) else {
        // The end is a key above all of this layer.
        return (inside == Greater).then_some(Edge::Inside);
    };
    match piece.cmp(&bound) {
        Equal if piece.tag > SLICE as u8 => Some(Edge::Along),
        Equal => end.is_included.then_some(Edge::Inside),
        order => (order == inside).then_some(Edge::Inside),
    }
}

impl<'g> Frame<'g> {
    pub(super) fn new(root: Node<'g>, depth: usize, edges: Edges, direction: Direction) -> Self {
        let items = [None; WIDTH];
        Self { root, depth, edges, direction, last: None, target: None, items, at: 0, len: 0, leaf: root }
    }

    /// Where the frame begins: the slice of the end, if its keys run along it.
    pub(super) fn begin(&mut self, (low, high): (&End<'_>, &End<'_>)) {
        let slice_of = |end: &End<'_>| {
            end.bytes.as_ref().and_then(|bytes| Piece::of(bytes, self.depth)).map(|piece| piece.slice)
        };
        self.target = Some(match self.direction {
            Direction::Forward if self.edges.low == Edge::Along => slice_of(low).unwrap_or(0),
            Direction::Forward => 0,
            // A key that ends above the layer is below all of it.
            Direction::Backward if self.edges.high == Edge::Along => slice_of(high).unwrap_or(0),
            Direction::Backward => u64::MAX,
        });
    }

    /// The next entry of the leaf that was read last.
    pub(super) fn next(&mut self) -> Option<Item> {
        while self.at < self.len {
            self.at += 1;
            if let Some(item) = self.items[self.at - 1] {
                self.last = Some(item.piece);
                return Some(item);
            }
        }
        None
    }

    /// The entries that are left of the leaf.
    pub(super) fn rest(&self) -> impl Iterator<Item = &Item> {
        self.items[self.at..self.len].iter().flatten()
    }

    /// Whether a piece comes behind all that was visited.
    fn is_ahead(&self, piece: Piece) -> bool {
        self.last.is_none_or(|last| match self.direction {
            Direction::Forward => piece > last,
            Direction::Backward => piece < last,
        })
    }
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// Reads the next leaf of a frame. Returns whether there is one; it may have no entry in the
    /// range.
    pub(super) fn fill<'g>(
        &'g self,
        frame: &mut Frame<'g>,
        ends: (&End<'_>, &End<'_>),
    ) -> Result<bool, Damage> {
        let Some(slice) = frame.target.take() else { return Ok(false) };
        let Some(mut leaf) = self.leaf_for(frame.root, slice)? else { return Ok(false) };
        let medium = self.pool.medium();
        let (permutation, slots, (low, high)) = loop {
            // The low slice first: the entries that come with a lower one are there then.
            let (before, low) = (leaf.state(medium), self.low_of(leaf, 0)?);
            let permutation = leaf.permutation(medium);
            let slots: [(u64, u64); WIDTH] =
                std::array::from_fn(|slot| (leaf.slice(medium, slot), leaf.word_at(medium, slot)));
            let high = self.end_of_range(leaf);
            let is_later = high.is_some_and(|high| slice >= high || leaf.state(medium).is_frozen());
            if leaf.state(medium).counter() != before.counter() {
                continue;
            }
            if !is_later {
                frame.target = match frame.direction {
                    Direction::Forward => high,
                    Direction::Backward => low.checked_sub(1),
                };
                break (permutation, slots, (low, high));
            }
            leaf = self.right_of(leaf, 0)?;
        };
        if M::VOLATILE_CACHE && terrace_pool::Lock::may_be_unfenced(leaf.lock().load_word(medium)) {
            // PERSIST: what another thread has stored and not fenced, before it is returned.
            self.pool.region().persist(leaf.lines());
        }
        (frame.at, frame.len, frame.leaf) = (0, 0, leaf);
        // A split or a join that was cut off has left others, which are another leaf's.
        let is_own = |slice: u64| slice >= low && high.is_none_or(|high| slice < high);
        let own = permutation.slots().map(|slot| slots[slot]).filter(|(slice, _)| is_own(*slice));
        self.put_items(frame, own, ends);
        Ok(true)
    }

    /// Puts the entries of a leaf that are in the range into its frame.
    fn put_items(
        &self,
        frame: &mut Frame<'_>,
        slots: impl DoubleEndedIterator<Item = (u64, u64)>,
        (low, high): (&End<'_>, &End<'_>),
    ) {
        let direction = frame.direction;
        let mut put = |(slice, word): (u64, u64)| {
            let tag = if Self::INLINE { SLICE as u8 } else { Entry(word).key_tag() };
            let piece = Piece { slice, tag };
            let at = (piece, frame.depth);
            let edges = edge_of(low, frame.edges.low, at, Greater)
                .and_then(|low| Some(Edges { low, high: edge_of(high, frame.edges.high, at, Less)? }));
            if let Some(edges) = edges.filter(|_| frame.is_ahead(piece)) {
                frame.items[frame.len] = Some(Item { piece, word, edges });
                frame.len += 1;
            }
        };
        match direction {
            Direction::Forward => slots.for_each(&mut put),
            Direction::Backward => slots.rev().for_each(&mut put),
        }
        if self.is_past(frame, (low, high)) {
            frame.target = None;
        }
    }

    /// Whether the next leaf of a frame lies behind the end of the range.
    fn is_past(&self, frame: &Frame<'_>, (low, high): (&End<'_>, &End<'_>)) -> bool {
        let Some(target) = frame.target else { return true };
        let (end, edge) = match frame.direction {
            Direction::Forward => (high, frame.edges.high),
            Direction::Backward => (low, frame.edges.low),
        };
        if edge != Edge::Along {
            return false;
        }
        let bound = end.bytes.as_ref().and_then(|bytes| Piece::of(bytes, frame.depth));
        match (frame.direction, bound) {
            (Direction::Forward, Some(bound)) => target > bound.slice,
            (Direction::Forward, None) => true,
            (Direction::Backward, Some(bound)) => target < bound.slice,
            (Direction::Backward, None) => false,
        }
    }
}
