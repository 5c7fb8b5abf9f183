//! Walks in the order of keys, both ways.
//!
//! A walk keeps a stack of links that it has yet to follow, the next one on top, and a queue of
//! leaves whose memory is being fetched. It follows links until the queue is full, then visits its
//! first leaf. So the cache misses of up to 16 leaves overlap.
//!
//! A walk reads each link once. A node that is replaced meanwhile keeps its content (invariant 1).
//! So a key that is there throughout is visited exactly once.

use super::super::ends::End;
use super::super::keys::OrderedKind;
use super::super::link::{LEAF, Link};
use super::super::links::load;
use super::hashed::PLACES;
use super::node::{Kind, Node, Slot};
use super::tree::Tree;
use crate::{Direction, Place};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

/// Leaves, and nodes, that are fetched ahead.
const AHEAD: usize = 16;

/// Links of a usual walk that wait at a time.
const STACK: usize = 64;

/// How the keys behind a link lie to an end of the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Edge {
    /// All are inside of it.
    Inside,
    /// All begin with the end's bytes up to here.
    Along,
    /// Unknown: each key is compared.
    Unknown,
}

impl Edge {
    /// How all keys lie to an end.
    fn of(end: &End<'_>) -> Self {
        if end.bytes.is_some() { Self::Along } else { Self::Inside }
    }
}

/// Calls `each` with the places of a word's ones, the highest first, from `base` on.
#[inline(always)]
fn ones_down(mut bits: u64, base: usize, each: &mut impl FnMut(usize)) {
    while bits != 0 {
        let at = bits.ilog2();
        each(base + at as usize);
        bits ^= 1 << at;
    }
}

/// As [`ones_down`], the lowest first.
#[inline(always)]
fn ones_up(mut bits: u64, base: usize, each: &mut impl FnMut(usize)) {
    while bits != 0 {
        each(base + bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

/// The edges of both ends.
#[derive(Clone, Copy)]
struct Edges {
    low: Edge,
    high: Edge,
}

impl Edges {
    fn are_inside(self) -> bool {
        self.low == Edge::Inside && self.high == Edge::Inside
    }
}

/// A link that a walk has yet to follow, or the rest of a node of kind 256.
struct Pending<'g> {
    slot: Slot<'g>,
    base: usize,
    edges: Edges,
    /// The byte of the next child, if the links before it were followed.
    next: Option<u8>,
}

/// A walk over a part of the tree.
struct Walk<'w, 'g, M: MappedMedium, K: OrderedKind> {
    tree: &'g Tree<M, K>,
    guard: &'g Guard<'g, M>,
    low: End<'w>,
    high: End<'w>,
    direction: Direction,
    /// Keys that the caller still expects.
    expected: usize,
    stack: Vec<Pending<'g>>,
    ready: VecDeque<(Slot<'g>, Edges)>,
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
        while let Some(slot) = walk.next() {
            let leaf = slot.1.offset();
            let (told, word) = (K::told(guard, leaf), K::word_of(guard, leaf));
            self.persist_pair(slot.0, slot.1);
            if each(told, word).is_break() {
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
        while let Some(slot) = walk.next() {
            let leaf = slot.1.offset();
            let word = K::word_of(guard, leaf);
            self.persist_pair(slot.0, slot.1);
            each(word);
            seen += 1;
            if seen >= at_least
                && let Some(place) =
                    walk.low.place_behind::<M, K>(guard, leaf, K::key_of(guard, leaf).as_deref())
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
        let edges = Edges { low: Edge::of(&low), high: Edge::of(&high) };
        let slot = (self.root_link(), self.follow(self.root_link()));
        let mut stack = Vec::with_capacity(STACK);
        stack.push(Pending { slot, base: 0, edges, next: None });
        Walk {
            tree: self,
            guard,
            low,
            high,
            direction,
            expected,
            stack,
            ready: VecDeque::with_capacity(AHEAD),
        }
    }
}

impl<'g, M: MappedMedium, K: OrderedKind> Walk<'_, 'g, M, K> {
    /// The next leaf in the range.
    fn next(&mut self) -> Option<Slot<'g>> {
        loop {
            while self.ready.len() < self.expected.clamp(1, AHEAD) && !self.stack.is_empty() {
                self.follow_top();
            }
            let (slot, edges) = self.ready.pop_front()?;
            if self.admits(slot.1, edges) {
                self.expected = self.expected.saturating_sub(1);
                return Some(slot);
            }
        }
    }

    /// Whether a leaf is in the range. A record whose key cannot be read is: the caller reports it.
    fn admits(&self, leaf: Link, edges: Edges) -> bool {
        if edges.are_inside() {
            return true;
        }
        let Some(key) = K::key_of(self.guard, leaf.offset()) else { return true };
        self.low.admits(&key, Greater) && self.high.admits(&key, Less)
    }

    /// Follows the link on top of the stack.
    fn follow_top(&mut self) {
        let Some(pending) = self.stack.pop() else { return };
        let (word, link) = pending.slot;
        if link.is_empty() {
            return;
        }
        if link.kind() == LEAF {
            if !link.is_sound() {
                self.tree.damaged_link(word);
                return;
            }
            K::prefetch(self.guard, link.offset());
            return self.ready.push_back((pending.slot, pending.edges));
        }
        let Ok((node, level)) = self.tree.node_below(word, link, pending.base) else { return };
        match pending.next {
            Some(_) => self.push_children(node, level, &pending),
            None => {
                let edges = self.edges_at(node, level, &pending);
                edges.into_iter().for_each(|edges| self.enter(node, level, &Pending { edges, ..pending }));
            }
        }
    }

    /// How the keys of a node lie to the ends; `None` if all are outside.
    fn edges_at(&self, node: Node<'g>, level: usize, pending: &Pending<'g>) -> Option<Edges> {
        let Pending { base, mut edges, .. } = *pending;
        let is_bound = edges.low == Edge::Along || edges.high == Edge::Along;
        if !is_bound || level == base {
            return Some(edges);
        }
        let key = self.tree.any_key(self.guard, node);
        let path = key.as_ref().and_then(|key| key.get(base..level));
        if edges.low == Edge::Along {
            match path.map(|path| self.low.compare(path, base)) {
                Some(Less) => return None,
                Some(Greater) => edges.low = Edge::Inside,
                Some(Equal) => {}
                None => edges.low = Edge::Unknown,
            }
        }
        if edges.high == Edge::Along {
            match path.map(|path| self.high.compare(path, base)) {
                Some(Greater) => return None,
                Some(Less) => edges.high = Edge::Inside,
                Some(Equal) => {}
                None => edges.high = Edge::Unknown,
            }
        }
        Some(edges)
    }

    /// Puts the entries of a node on the stack: the key that ends here comes first in order.
    fn enter(&mut self, node: Node<'g>, level: usize, pending: &Pending<'g>) {
        let link = self.tree.follow(node.here());
        if !link.is_whole() {
            self.tree.damaged_link(node.here());
        }
        let here =
            || Pending { slot: (node.here(), link), base: level + 1, edges: pending.edges, next: None };
        let is_first = self.direction == Direction::Forward;
        if !is_first && !link.is_empty() {
            self.stack.push(here());
        }
        let next = Some(if is_first { 0 } else { u8::MAX });
        self.push_children(node, level, &Pending { next, ..*pending });
        if is_first && !link.is_empty() {
            self.stack.push(here());
        }
    }

    /// Puts the children of a node on the stack, the first in order on top; of a node of kind 256
    /// the next few from the byte `pending.next` on, above a place for the rest.
    fn push_children(&mut self, node: Node<'g>, level: usize, pending: &Pending<'g>) {
        match node {
            Node::Full(_) => return self.push_some(node, level, pending),
            Node::Hashed(_) => return self.push_sorted(node, level, pending),
            _ => {}
        }
        let (start, flip) =
            (self.stack.len(), if self.direction == Direction::Forward { u8::MAX } else { 0 });
        // Ascends in the order of the stack, on which the first child lies last.
        let rank = |pending: &Pending<'g>| pending.slot.1.byte() ^ flip;
        for word in node.links() {
            let mut at = self.stack.len();
            self.push_child(word, level, pending.edges);
            if at == self.stack.len() {
                continue;
            }
            while at > start && rank(&self.stack[at - 1]) > rank(&self.stack[at]) {
                self.stack.swap(at - 1, at);
                at -= 1;
            }
            if at > start && rank(&self.stack[at - 1]) == rank(&self.stack[at]) {
                // The child was removed from one place and added in another meanwhile.
                self.stack.remove(at);
            }
        }
    }

    /// Reads all links of a node once, then puts them on the stack in the order of their bytes.
    fn push_sorted(&mut self, node: Node<'g>, level: usize, pending: &Pending<'g>) {
        let (words, direction) = (node.links(), self.direction);
        let (mut links, mut place_of, mut bytes) = ([Link::NONE; PLACES], [0; 256], [0u64; 4]);
        for (place, word) in words.iter().enumerate().take(PLACES) {
            // Of two with one byte, the first was removed, and the other added meanwhile.
            if let Some(link) = self.child_at(word) {
                let byte = usize::from(link.byte());
                (links[place], place_of[byte]) = (link, place as u8);
                bytes[byte / 64] |= 1 << (byte % 64);
            }
        }
        let mut push = |byte: usize| {
            let place = usize::from(place_of[byte]);
            self.push_link((&words[place], links[place]), level, pending.edges);
        };
        // The first child comes last, on top of the stack.
        match direction {
            Direction::Forward => (0..4).rev().for_each(|nth| ones_down(bytes[nth], nth * 64, &mut push)),
            Direction::Backward => (0..4).for_each(|nth| ones_up(bytes[nth], nth * 64, &mut push)),
        }
    }

    fn push_some(&mut self, node: Node<'g>, level: usize, pending: &Pending<'g>) {
        let ((lowest, highest), at_most) =
            (self.bytes_of(level, pending.edges), self.expected.clamp(1, AHEAD));
        let next = pending.next.unwrap_or(0);
        let (mut byte, last, step) = match self.direction {
            Direction::Forward => (i32::from(next.max(lowest)), i32::from(highest), 1),
            Direction::Backward => (i32::from(next.min(highest)), i32::from(lowest), -1),
        };
        let (start, links) = (self.stack.len(), node.links());
        self.stack.push(Pending { next: None, ..*pending });
        while (last - byte) * step >= 0 && self.stack.len() - start <= at_most {
            self.push_child(&links[byte as usize], level, pending.edges);
            byte += step;
        }
        self.stack[start + 1..].reverse();
        if (last - byte) * step >= 0 {
            self.stack[start].next = Some(byte as u8);
        } else {
            // The place of the rest stays, and leads nowhere.
            self.stack[start].slot.1 = Link::NONE;
        }
    }

    /// The lowest and the highest byte of children whose keys may be in the range.
    fn bytes_of(&self, level: usize, edges: Edges) -> (u8, u8) {
        let lowest = if edges.low == Edge::Along { self.low.byte(level).unwrap_or(0) } else { 0 };
        let highest = if edges.high == Edge::Along { self.high.byte(level).unwrap_or(0) } else { u8::MAX };
        (lowest, highest)
    }

    /// Puts a child on the stack, if there is one and its keys may be in the range.
    #[inline(always)]
    fn push_child(&mut self, word: &'g Word, level: usize, edges: Edges) {
        if let Some(link) = self.child_at(word) {
            self.push_link((word, link), level, edges);
        }
    }

    /// The child at a place, durable.
    #[inline(always)]
    fn child_at(&self, word: &Word) -> Option<Link> {
        let link = load(self.tree.pool.medium(), word);
        if link == Link::NONE {
            return None;
        }
        let link = self.tree.followed(word, link);
        if !link.is_whole() {
            self.tree.damaged_link(word);
            return None;
        }
        (!link.is_empty()).then_some(link)
    }

    #[inline(always)]
    fn push_link(&mut self, slot: Slot<'g>, level: usize, edges: Edges) {
        let link = slot.1;
        let edges = if edges.are_inside() { Some(edges) } else { self.edges_of_child(link, level, edges) };
        if let Some(edges) = edges {
            self.prefetch(link);
            self.stack.push(Pending { slot, base: level + 1, edges, next: None });
        }
    }

    /// How the keys of a child lie to the ends; `None` if all are outside.
    fn edges_of_child(&self, link: Link, level: usize, edges: Edges) -> Option<Edges> {
        let low = match (edges.low, self.low.byte(level)) {
            (Edge::Along, Some(byte)) if link.byte() < byte => return None,
            (Edge::Along, Some(byte)) if link.byte() == byte => Edge::Along,
            (Edge::Along, _) => Edge::Inside,
            (edge, _) => edge,
        };
        let high = match (edges.high, self.high.byte(level)) {
            (Edge::Along, None) => return None,
            (Edge::Along, Some(byte)) if link.byte() > byte => return None,
            (Edge::Along, Some(byte)) if link.byte() == byte => Edge::Along,
            (Edge::Along, Some(_)) => Edge::Inside,
            (edge, _) => edge,
        };
        Some(Edges { low, high })
    }

    /// Prefetches the lines of a node that will be followed soon.
    #[inline(always)]
    fn prefetch(&self, link: Link) {
        let Some(kind) = Kind::of(link.kind()) else { return };
        let lines = match kind {
            Kind::Four | Kind::Twelve | Kind::Twenty => 0..kind.lines(),
            // Its links.
            Kind::Hashed => 1..9,
            Kind::Full => 0..2,
        };
        lines.for_each(|line| self.tree.pool.region().prefetch(link.offset() + 64 * line as u64));
    }
}
