//! Walks in the order of keys, both ways.
//!
//! A walk keeps a stack of nodes with the entries that it has yet to visit, and a queue of leaves
//! whose memory is being fetched. It goes on until the queue is full, then visits its first leaf.
//! So the cache misses of up to 16 leaves overlap.
//!
//! A walk reads each link once. A node that is replaced meanwhile keeps its content (invariant 1).
//! So a key that is there throughout is visited exactly once. A key that is added meanwhile may
//! come to a place where no key was when the walk began; so each key is compared with the ends,
//! and with the one before it. The key of a damaged record may be any: it ends no walk, and others
//! that seem to be out of order behind it are visited.

use super::super::ends::End;
use super::super::keys::{KeyBytes, OrderedKind};
use super::super::link::{LEAF, Link};
use super::super::links::load;
use super::bits::bit;
use super::node::Node;
use super::path::Path;
use super::sound::Sound;
use super::tree::Tree;
use crate::{Direction, Place};
use std::cmp::Ordering::{Greater, Less};
use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow, Range};
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

/// Leaves that are fetched ahead.
const AHEAD: usize = 16;

/// Nodes of a usual walk that wait at a time.
const STACK: usize = 16;

/// A link that was read, and its place.
type Slot<'g> = (&'g Word, Link);

/// A key that was visited, and its leaf.
type Visited<'g> = (KeyBytes<'g>, Link);

/// A node with the entries that a walk has yet to visit.
struct Pending<'g> {
    node: Node<'g>,
    entries: Range<usize>,
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
    ready: VecDeque<Slot<'g>>,
    /// The last key that was visited, and the one before it.
    last: Option<Visited<'g>>,
    before: Option<Visited<'g>>,
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
        while let Some((place, link)) = walk.next() {
            let (told, word) = (K::told(guard, link.offset()), K::word_of(guard, link.offset()));
            self.persist_pair(place, link);
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
        while let Some((place, link)) = walk.next() {
            let word = K::word_of(guard, link.offset());
            self.persist_pair(place, link);
            each(word);
            seen += 1;
            let leaf = link.offset();
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
        let (stack, ready) = (Vec::with_capacity(STACK), VecDeque::with_capacity(AHEAD));
        let (last, before) = (None, None);
        let mut walk = Walk { tree: self, guard, low, high, direction, expected, stack, ready, last, before };
        walk.start();
        walk
    }
}

impl<'g, M: MappedMedium, K: OrderedKind> Walk<'_, 'g, M, K> {
    /// Puts on the stack what lies on the inner side of the end where the walk begins.
    fn start(&mut self) {
        let end = if self.direction == Direction::Forward { &self.low } else { &self.high };
        let placed = end.bytes.as_ref().and_then(|key| self.place(key));
        let Some((path, depth, from)) = placed else { return self.start_anywhere() };
        for (nth, step) in path.steps.iter().take(depth + 1).enumerate() {
            let entries = match (self.direction, nth == depth) {
                (Direction::Forward, true) => from..step.node.len(),
                (Direction::Forward, false) => step.entry + 1..step.node.len(),
                (Direction::Backward, true) => 0..from,
                (Direction::Backward, false) => 0..step.entry,
            };
            self.stack.push(Pending { node: step.node, entries });
        }
    }

    /// Begins with all of the tree: the keys outside of the ends are left out one by one.
    fn start_anywhere(&mut self) {
        let word = self.tree.root_link();
        self.enter(word, 0);
    }

    /// The way to an end, the depth of the node there where the walk begins, and the border between
    /// its entries in front of the end and those behind it. `None` if there is no node, or it
    /// cannot be said.
    fn place(&self, key: &[u8]) -> Option<(Path<'g>, usize, usize)> {
        let mut path = self.tree.locate(self.guard, key).ok()?;
        self.tree.check_path(&path).ok()?;
        let leaf = match path.link.kind() {
            LEAF => path.link,
            _ => self.leaf_beside(&mut path)?,
        };
        let last = *path.last()?;
        let is_forward = self.direction == Direction::Forward;
        let Ok(difference) = self.tree.difference(self.guard, key, leaf) else {
            return self.place_past(key, path);
        };
        let Some(position) = difference else {
            let depth = path.steps.len() - 1;
            return Some((path, depth, last.entry + usize::from(!is_forward)));
        };
        Some(border_at(key, path, position))
    }

    /// As `place`, where the leaf that the end would be compared with is unsound. The walk begins
    /// with all leaves that may be on the inner side of the end.
    fn place_past(&self, key: &[u8], path: Path<'g>) -> Option<(Path<'g>, usize, usize)> {
        let Sound { witness, fork, depth, .. } = self.tree.sound_beside(self.guard, &path)?;
        let position = self.tree.difference(self.guard, key, witness.link).ok()??;
        if position < fork {
            return Some(border_at(key, path, position));
        }
        let step = path.steps[depth];
        // All on the end's side of the fork are unsound.
        let unsound = step.node.affected(step.entry, fork + 1);
        let is_forward = self.direction == Direction::Forward;
        Some((path, depth, if is_forward { unsound.start } else { unsound.end }))
    }

    /// The leaf nearest to the end of a path that has no link there. Cuts off the nodes below which
    /// there is none: a thread has left them so, or is about to remove them.
    fn leaf_beside(&self, path: &mut Path<'g>) -> Option<Link> {
        while let Some(step) = path.last() {
            if let Some(leaf) = self.tree.nearest_leaf(self.guard, step.node, step.entry).ok()? {
                return Some(leaf);
            }
            path.steps.pop();
        }
        None
    }

    /// The next leaf in the range.
    fn next(&mut self) -> Option<Slot<'g>> {
        loop {
            while self.ready.len() < self.expected.clamp(1, AHEAD) && !self.stack.is_empty() {
                self.follow_next();
            }
            let slot = self.ready.pop_front()?;
            // A record whose key cannot be read is in the range: the caller reports it.
            let Some(key) = K::key_of(self.guard, slot.1.offset()) else { return Some(slot) };
            let (is_within, is_past) = self.is_within(&key);
            if !is_within || !self.is_ahead(&key) {
                // A damaged key does not say where its record is, and ends no walk. The caller
                // reports it, too.
                if !self.tree.is_sound_leaf(self.guard, slot.1) {
                    return Some(slot);
                }
                if is_past {
                    self.stack.clear();
                    self.ready.clear();
                    return None;
                }
                if !is_within || !self.is_ahead_of_sound(&key) {
                    continue;
                }
            }
            self.expected = self.expected.saturating_sub(1);
            self.before = self.last.replace((key, slot.1));
            return Some(slot);
        }
    }

    /// Whether a key lies between the ends, and whether it lies behind the one where the walk ends.
    fn is_within(&self, key: &[u8]) -> (bool, bool) {
        let (low, high) = (self.low.admits(key, Greater), self.high.admits(key, Less));
        (low && high, !(if self.direction == Direction::Forward { high } else { low }))
    }

    /// Whether a key comes behind the last one.
    fn is_ahead(&self, key: &[u8]) -> bool {
        let ahead = if self.direction == Direction::Forward { Greater } else { Less };
        self.last.as_ref().is_none_or(|(last, _)| key.cmp(&**last) == ahead)
    }

    /// As `is_ahead`, of the last key whose record is sound.
    #[cold]
    fn is_ahead_of_sound(&mut self, key: &[u8]) -> bool {
        let is_sound = |(_, leaf): &Visited<'g>| self.tree.is_sound_leaf(self.guard, *leaf);
        if self.last.as_ref().is_none_or(is_sound) {
            return false;
        }
        self.last = self.before.take().filter(is_sound);
        self.is_ahead(key)
    }

    /// Follows the next link of the node on top of the stack.
    fn follow_next(&mut self) {
        let Some(top) = self.stack.last_mut() else { return };
        let next = match self.direction {
            Direction::Forward => top.entries.next(),
            Direction::Backward => top.entries.next_back(),
        };
        let Some(entry) = next else {
            self.stack.pop();
            return;
        };
        let (node, region) = (top.node, self.tree.pool.region());
        let behind = match self.direction {
            Direction::Forward => top.entries.clone().next(),
            Direction::Backward => top.entries.clone().next_back(),
        };
        let behind = behind.map(|entry| load(self.tree.pool.medium(), node.link(region, entry)));
        behind.filter(|link| link.is_node()).inspect(|link| self.tree.prefetch_node(*link));
        self.enter(node.link(region, entry), node.first() + 1);
    }

    /// Follows a link to a leaf or a node.
    fn enter(&mut self, word: &'g Word, least: u32) {
        let Ok(link) = self.tree.sound_link(word) else { return };
        if link.is_empty() {
            return;
        }
        if link.kind() == LEAF {
            K::prefetch(self.guard, link.offset());
            return self.ready.push_back((word, link));
        }
        if let Ok(node) = self.tree.node_behind(self.guard, word, link, least) {
            self.stack.push(Pending { node, entries: 0..node.len() });
        }
    }
}

/// Where a walk begins whose end differs from the keys on its path from `position` on: see `place`.
fn border_at<'g>(key: &[u8], path: Path<'g>, position: u32) -> (Path<'g>, usize, usize) {
    let depth = path.depth_of(position);
    let step = path.steps[depth];
    let affected = step.node.affected(step.entry, position);
    let from = if bit(key, position) { affected.end } else { affected.start };
    (path, depth, from)
}

#[cfg(test)]
#[path = "tests/range.rs"]
mod tests;
