//! A layer on the way of a range: the entries of one of its leaves, and how they lie to the ends.

use super::super::ends::End;
use super::super::keys::OrderedKind;
use super::entry::{Entry, Piece, SLICE};
use super::head::State;
use super::node::Node;
use super::permutation::{Permutation, WIDTH};
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
    /// The leaf before, on a walk backwards, and where it begins.
    behind: Option<(Node<'g>, u64)>,
}

/// What a leaf has at one time.
pub(super) struct Content {
    permutation: Permutation,
    slots: [(u64, u64); WIDTH],
    low: u64,
    pub(super) high: Option<u64>,
}

impl Content {
    /// The slices and words in order, without what a split or a join that was cut off has left:
    /// those are another leaf's.
    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let is_own = |slice: u64| slice >= self.low && self.high.is_none_or(|high| slice < high);
        let slots = self.permutation.slots().filter_map(|slot| self.slots.get(slot));
        slots.copied().filter(move |(slice, _)| is_own(*slice))
    }
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
        let (leaf, behind) = (root, None);
        Self { root, depth, edges, direction, last: None, target: None, items, at: 0, len: 0, leaf, behind }
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
        let Some(leaf) = self.leaf_for(frame.root, slice)? else { return Ok(false) };
        let (leaf, read) = self.read_leaf(leaf, slice)?;
        if let Some(damage) = self.damaged_head(leaf).or_else(|| self.damaged_end(leaf)) {
            return Err(damage);
        }
        frame.target = match frame.direction {
            Direction::Forward => read.high,
            Direction::Backward => {
                if let Some((behind, low)) = frame.behind.replace((leaf, read.low)) {
                    self.check_apart(leaf, behind, low)?;
                }
                read.low.checked_sub(1)
            }
        };
        if M::VOLATILE_CACHE && terrace_pool::Lock::may_be_unfenced(leaf.lock().load_word(self.pool.medium()))
        {
            // PERSIST: what another thread has stored and not fenced, before it is returned.
            self.pool.region().persist(leaf.lines());
        }
        (frame.at, frame.len, frame.leaf) = (0, 0, leaf);
        self.put_items(frame, read.entries(), ends);
        if frame.behind.is_some() && frame.target.is_none() && !(leaf == frame.root && read.low == 0) {
            // Nothing else shows that the last leaf of a walk begins where it says.
            if let Ok(Some(before)) = self.leaf_for(frame.root, read.low.saturating_sub(1)) {
                // Damage is recorded.
                let _ = self.check_apart(before, leaf, read.low);
            }
        }
        Ok(true)
    }

    /// Whether the leaf before a slice, where `behind` begins, ends there. A slice that has changed
    /// by damage would lead a walk past leaves.
    fn check_apart(&self, leaf: Node<'_>, behind: Node<'_>, low: u64) -> Result<(), Damage> {
        let state = leaf.state(self.pool.medium());
        let is_whole = leaf != behind && !state.is_frozen() && !state.is_splitting();
        if !is_whole || self.end_of_range(leaf).is_some_and(|high| high <= low) {
            return Ok(());
        }
        // Only a node that is frozen by now may have given its range to another, and only one that
        // has taken over a range before its own may have been split within that. Both are for good,
        // and looked at last, so neither had happened when the leaf was looked at.
        if self.low_of(behind, 0)? != low || behind.state(self.pool.medium()).is_frozen() {
            return Ok(());
        }
        Err(self.damaged_node(behind, "a node begins before the one on its left ends"))
    }

    /// Reads a leaf of a slice, or one to its right if that has the slice by now.
    pub(super) fn read_leaf<'g>(
        &'g self,
        mut leaf: Node<'g>,
        slice: u64,
    ) -> Result<(Node<'g>, Content), Damage> {
        let medium = self.pool.medium();
        loop {
            // The low slice first: the entries that come with a lower one are there then.
            let (before, low) = (leaf.state(medium), self.low_of(leaf, 0)?);
            let permutation = leaf.permutation(medium);
            let slots = std::array::from_fn(|slot| (leaf.slice(medium, slot), leaf.word_at(medium, slot)));
            let high = self.end_of_range(leaf);
            let is_later = high.is_some_and(|high| slice >= high || leaf.state(medium).is_frozen());
            if leaf.state(medium).counter() != before.counter() {
                continue;
            }
            if is_later {
                leaf = self.right_of(leaf, 0)?;
                continue;
            }
            let read = Content { permutation, slots, low, high };
            match read.entries().count() == permutation.len() || self.may_have_others(leaf, before) {
                true => return Ok((leaf, read)),
                // Another thread may have changed it meanwhile.
                false if leaf.state(medium) != before || leaf.permutation(medium) != permutation => {}
                false if self.low_of(leaf, 0)? != low || self.end_of_range(leaf) != high => {}
                false => return Err(self.damaged_entry(leaf)),
            }
        }
    }

    /// Whether a leaf may have entries that are another one's: those of a split or a join that goes
    /// on or was cut off, and all if it is frozen.
    fn may_have_others(&self, leaf: Node<'_>, state: State) -> bool {
        state.is_splitting() || state.is_frozen() || !leaf.joining(self.pool.medium()).is_none()
    }

    /// Puts the entries of a leaf that are in the range into its frame.
    fn put_items(
        &self,
        frame: &mut Frame<'_>,
        slots: impl DoubleEndedIterator<Item = (u64, u64)>,
        (low, high): (&End<'_>, &End<'_>),
    ) {
        let (direction, leaf) = (frame.direction, frame.leaf);
        let mut put = |(slice, word): (u64, u64)| {
            if !Self::INLINE && !Entry(word).is_sound(slice) {
                self.damaged_entry(leaf);
                return;
            }
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
