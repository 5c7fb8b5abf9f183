//! Walks in the order of keys, both ways.
//!
//! A walk reads a leaf at once: its entries are those of one permutation. Forwards, the next leaf
//! is the one of the leaf's high slice; backwards, the one of the slice below its low slice, which
//! a new way down finds. Entries that were visited are left out, so a split or a removal meanwhile
//! costs neither a key nor a second visit. The memory of a leaf's records is fetched side by side.

use super::super::ends::End;
use super::super::keys::{OrderedKind, key_of_entry};
use super::entry::{Entry, SLICE};
use super::frame::{Edge, Edges, Frame, Item};
use super::node::Node;
use super::tree::Tree;
use super::way::Witness;
use crate::{Direction, Place};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::ops::{Bound, ControlFlow};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A walk over a part of the tree.
struct Walk<'w, 'g, M: MappedMedium, K: OrderedKind> {
    tree: &'g Tree<M, K>,
    guard: &'g Guard<'g, M>,
    low: End<'w>,
    high: End<'w>,
    direction: Direction,
    /// Keys that the caller still expects.
    expected: usize,
    frames: Vec<Frame<'g>>,
    low_witness: Witness<'g>,
    high_witness: Witness<'g>,
}

impl<'g, M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`RangeIndex::range`](crate::RangeIndex::range).
    pub(super) fn range_from_to(
        &'g self,
        guard: &'g Guard<'g, M>,
        (from, to): (Bound<&K::Key>, Bound<&K::Key>),
        direction: Direction,
        expected: usize,
        mut each: impl FnMut(K::Told, u64) -> ControlFlow<()>,
    ) {
        let mut walk = self.walk(guard, (End::of::<K>(from), End::of::<K>(to)), direction, expected);
        while let Some((slice, word)) = walk.next() {
            if each(K::told_of(slice), word).is_break() {
                return;
            }
        }
    }

    /// See [`PointIndex::scan`](crate::PointIndex::scan).
    pub(super) fn scan_from(
        &'g self,
        guard: &'g Guard<'g, M>,
        from: &Place,
        at_least: usize,
        mut each: impl FnMut(u64),
    ) -> Place {
        let Some(low) = End::of_place(from) else { return Place::End };
        let mut walk = self.walk(guard, (low, End::NONE), Direction::Forward, at_least);
        let mut seen = 0;
        while let Some(entry) = walk.next() {
            each(entry.1);
            seen += 1;
            let key = || key_of_entry::<M, K>(guard, entry);
            if seen >= at_least
                && let Some(place) = walk.low.place_behind::<M, K>(guard, entry.1, key().as_deref())
            {
                return place;
            }
        }
        Place::End
    }

    fn walk<'w>(
        &'g self,
        guard: &'g Guard<'g, M>,
        (low, high): (End<'w>, End<'w>),
        direction: Direction,
        expected: usize,
    ) -> Walk<'w, 'g, M, K> {
        let (frames, [low_witness, high_witness]) = (Vec::new(), [Witness::default(), Witness::default()]);
        let mut walk =
            Walk { tree: self, guard, low, high, direction, expected, frames, low_witness, high_witness };
        let edge = |end: &End<'_>| if end.bytes.is_some() { Edge::Along } else { Edge::Inside };
        let edges = Edges { low: edge(&walk.low), high: edge(&walk.high) };
        // Damage is recorded.
        if let Ok(root) = self.top() {
            walk.enter(root, 0, edges);
        }
        walk
    }
}

impl<'g, M: MappedMedium, K: OrderedKind> Walk<'_, 'g, M, K> {
    /// The slice and the word of the next key in the range.
    fn next(&mut self) -> Option<(u64, u64)> {
        loop {
            let frame = self.frames.last_mut()?;
            match frame.next() {
                None => {
                    let filled = self.tree.fill(frame, (&self.low, &self.high));
                    match filled {
                        Ok(true) => self.prefetch_items(),
                        // What lies behind damage is left out; the damage is recorded.
                        Ok(false) | Err(_) => _ = self.frames.pop(),
                    }
                }
                Some(item) => {
                    let (leaf, depth) = (frame.leaf, frame.depth);
                    if let Some(found) = self.visit(item, leaf, depth) {
                        self.expected = self.expected.saturating_sub(1);
                        return Some(found);
                    }
                }
            }
        }
    }

    /// The slice and the word of an entry, unless it is a layer, which is entered, or its key is
    /// outside the range.
    fn visit(&mut self, item: Item, leaf: Node<'g>, depth: usize) -> Option<(u64, u64)> {
        let Item { piece, word, edges } = item;
        if Tree::<M, K>::INLINE {
            return Some((piece.slice, word));
        }
        let entry = Entry(word);
        if entry.is_layer() {
            if let Ok(root) = self.tree.layer_of(leaf, (piece.slice, entry), depth) {
                self.enter_below(root, depth + 1, edges);
            }
            return None;
        }
        let is_inside = edges.are_inside() || self.admits(entry.offset());
        is_inside.then(|| (piece.slice, K::word_of(self.guard, entry.offset())))
    }

    /// Whether a record's key is in the range. A record whose key cannot be read is: the caller
    /// reports it.
    fn admits(&self, record: u64) -> bool {
        let Some(key) = K::key_of(self.guard, record) else { return true };
        self.low.admits(&key, Greater) && self.high.admits(&key, Less)
    }

    /// Enters a layer whose keys share the bytes up to its depth. Those from `depth` on have not
    /// been compared with the ends yet.
    fn enter_below(&mut self, root: Node<'g>, depth: usize, mut edges: Edges) {
        let own = root.shape(self.tree.pool.medium()).depth();
        if own > depth && (edges.low == Edge::Along || edges.high == Edge::Along) {
            let (from, to) = (depth * SLICE, own * SLICE);
            let tree = (self.tree, self.guard);
            for (end, edge, witness, outside) in [
                (&self.low, &mut edges.low, &mut self.low_witness, Less),
                (&self.high, &mut edges.high, &mut self.high_witness, Greater),
            ] {
                if *edge != Edge::Along {
                    continue;
                }
                let key = witness.of(tree, root, end.bytes.as_deref().unwrap_or_default()).ok().flatten();
                match key.and_then(|key| key.get(from..to)).map(|path| end.compare(path, from)) {
                    Some(Equal) => {}
                    Some(order) if order == outside => return,
                    Some(_) => *edge = Edge::Inside,
                    None => *edge = Edge::Unknown,
                }
            }
        }
        self.enter(root, own, edges);
    }

    fn enter(&mut self, root: Node<'g>, depth: usize, edges: Edges) {
        let mut frame = Frame::new(root, depth, edges, self.direction);
        frame.begin((&self.low, &self.high));
        self.frames.push(frame);
    }

    /// Prefetches what the entries of the last leaf lead to, as far as the caller expects them.
    fn prefetch_items(&self) {
        if Tree::<M, K>::INLINE {
            return;
        }
        for item in self.frames.last().into_iter().flat_map(Frame::rest).take(self.expected.max(1)) {
            let entry = Entry(item.word);
            match entry.is_layer() {
                true => self.tree.prefetch(entry.offset()),
                false => K::prefetch(self.guard, entry.offset()),
            }
        }
    }
}
