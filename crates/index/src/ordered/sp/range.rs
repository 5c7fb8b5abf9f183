//! Walks in the order of keys, both ways.
//!
//! A walk reads a node at once, and sorts its keys. Forwards, the next node is the one that has the
//! end of the range; backwards, the one that has the keys below its low border, to which the top
//! layer leads. Keys that were visited are left out, so a split or a join meanwhile costs neither a
//! key nor a second visit. A walk writes nothing.

use super::super::ends::End;
use super::super::keys::{KeyBytes, OrderedKind};
use super::border::{Sought, key_of_border};
use super::content::{Content, Item};
use super::node::Node;
use super::tree::{Extent, Tree};
use crate::{Damage, Direction, Place};
use std::borrow::Borrow;
use std::cmp::Ordering::{Greater, Less};
use std::ops::{Bound, ControlFlow};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Where a walk goes on.
enum Target<'g> {
    /// At the first node of the range.
    Begin,
    /// Forwards, from this node on, at this border.
    Behind(Node<'g>, u64),
    /// Backwards, at the keys below the border of this node.
    Before(Node<'g>),
    End,
}

/// A walk over a part of the tree.
struct Walk<'w, 'g, M: MappedMedium, K: OrderedKind> {
    tree: &'g Tree<M, K>,
    guard: &'g Guard<'g, M>,
    low: End<'w>,
    high: End<'w>,
    direction: Direction,
    target: Target<'g>,
    /// The keys that are left of a node, in the order of the walk.
    items: std::vec::IntoIter<Item<'g>>,
    /// The last key that was visited.
    last: Option<KeyBytes<'g>>,
}

impl<'g, M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`RangeIndex::range`](crate::RangeIndex::range).
    pub(super) fn range_from_to(
        &'g self,
        guard: &'g Guard<'g, M>,
        (from, to): (Bound<&K::Key>, Bound<&K::Key>),
        direction: Direction,
        mut each: impl FnMut(K::Told, u64) -> ControlFlow<()>,
    ) {
        let mut walk = self.walk(guard, (End::of::<K>(from), End::of::<K>(to)), direction);
        while let Some(item) = walk.next() {
            if each(K::told_of(item.integer), item.word).is_break() {
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
        let mut walk = self.walk(guard, (low, End::NONE), Direction::Forward);
        let mut seen = 0;
        while let Some(item) = walk.next() {
            each(item.word);
            seen += 1;
            if seen >= at_least
                && let Some(place) = walk.low.place_behind::<M, K>(guard, item.word, item.key.as_deref())
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
    ) -> Walk<'w, 'g, M, K> {
        let (target, items) = (Target::Begin, Vec::new().into_iter());
        Walk { tree: self, guard, low, high, direction, target, items, last: None }
    }
}

impl<'g, M: MappedMedium, K: OrderedKind> Walk<'_, 'g, M, K> {
    /// The next key in the range.
    fn next(&mut self) -> Option<Item<'g>> {
        loop {
            if let Some(item) = self.items.next() {
                if let Some(key) = &item.key {
                    self.last = Some(key.clone());
                }
                return Some(item);
            }
            // Damage is recorded.
            if !self.read_next().unwrap_or(false) {
                return None;
            }
        }
    }

    /// Reads the next node. Returns whether there is one; it may have no key in the range.
    fn read_next(&mut self) -> Result<bool, Damage> {
        let tree = self.tree;
        let target = std::mem::replace(&mut self.target, Target::End);
        let (node, content) = loop {
            let Some(node) = self.node_at(&target)? else { return Ok(false) };
            // If it was given away or split since, another one is there.
            match tree.read(self.guard, node)? {
                Some(content) if self.reaches(&target, (node, &content))? => break (node, content),
                _ => {}
            }
        };
        let extent = tree.extent(self.guard, node, content.end)?;
        let items = tree.items(self.guard, (node, &extent), &content)?;
        self.put(items);
        self.target = self.next_target((node, &extent), &content);
        Ok(true)
    }

    /// The node of a target.
    fn node_at(&self, target: &Target<'g>) -> Result<Option<Node<'g>>, Damage> {
        match *target {
            Target::End => Ok(None),
            Target::Begin => self.begin().map(Some),
            Target::Behind(node, border) => self.node_behind(node, border).map(Some),
            Target::Before(node) => self.tree.node_before(self.guard, node),
        }
    }

    /// Whether what was read of a node goes up to the target of a walk backwards. Forwards, the
    /// walk comes to what lies behind it.
    fn reaches(&self, target: &Target<'g>, (node, content): (Node<'g>, &Content)) -> Result<bool, Damage> {
        let Some(end) = content.end.filter(|_| self.direction == Direction::Backward) else {
            return Ok(true);
        };
        let compared = match (target, &self.high.bytes) {
            (Target::Before(behind), _) => {
                let sought = Sought::new(self.tree.low_of(self.guard, *behind)?);
                return Ok(self.tree.compare(self.guard, &sought, (node, end))? != Greater);
            }
            (_, Some(bytes)) => self.tree.compare(self.guard, &Sought::new(bytes.clone()), (node, end))?,
            (_, None) => return Ok(false),
        };
        Ok(compared == Less)
    }

    /// The node that the walk begins with.
    fn begin(&self) -> Result<Node<'g>, Damage> {
        let (tree, guard) = (self.tree, self.guard);
        let end = match self.direction {
            Direction::Forward => &self.low,
            Direction::Backward => &self.high,
        };
        let key = end.bytes.as_deref().and_then(K::owned);
        match (&end.bytes, key) {
            (None, _) if self.direction == Direction::Forward => tree.first(),
            (None, _) => tree.walk_before(guard, tree.mapped_floor(guard, Bound::Unbounded)?, None),
            (Some(bytes), Some(key)) => {
                let node = tree.floor(guard, key.borrow())?;
                self.node_of(node, &Sought::new(bytes.clone()))
            }
            // Bytes that are no key's: all nodes are passed.
            (Some(bytes), None) => self.node_of(tree.first()?, &Sought::new(bytes.clone())),
        }
    }

    /// The node of a key, from another one on its left on.
    fn node_of(&self, node: Node<'g>, sought: &Sought<'_>) -> Result<Node<'g>, Damage> {
        self.tree.check_begin(self.guard, node, sought)?;
        self.tree.walk_to(self.guard, node, sought)
    }

    /// The node that begins with a border, or has it in its range.
    fn node_behind(&self, node: Node<'g>, border: u64) -> Result<Node<'g>, Damage> {
        let bytes = key_of_border::<M, K>(self.guard, border);
        let bytes = bytes.ok_or_else(|| self.tree.damaged_border(node))?;
        self.node_of(node, &Sought::new(bytes))
    }

    /// Where the walk goes on behind a node.
    fn next_target(&self, (node, extent): (Node<'g>, &Extent<'_>), content: &Content) -> Target<'g> {
        if self.direction == Direction::Backward {
            return if self.is_above_low(&extent.low) { Target::Before(node) } else { Target::End };
        }
        match (content.end, &extent.high) {
            (Some(border), Some(high)) if self.high.admits(high, Less) => Target::Behind(node, border),
            _ => Target::End,
        }
    }

    /// Whether keys below a border may be in the range.
    fn is_above_low(&self, border: &[u8]) -> bool {
        self.low.bytes.as_ref().is_none_or(|low| border > &**low)
    }

    /// Takes the keys of a node that are in the range and were not visited yet.
    fn put(&mut self, items: Vec<Item<'g>>) {
        let is_wanted = |item: &Item<'g>| {
            let Some(key) = &item.key else { return true };
            let is_in_range = self.low.admits(key, Greater) && self.high.admits(key, Less);
            let is_ahead = self.last.as_ref().is_none_or(|last| match self.direction {
                Direction::Forward => **key > **last,
                Direction::Backward => **key < **last,
            });
            if !(is_ahead && is_in_range) {
                self.tree.check_left_out(item);
            }
            is_ahead && is_in_range
        };
        let mut items: Vec<_> = items.into_iter().filter(is_wanted).collect();
        if self.direction == Direction::Backward {
            items.reverse();
            // What has no key still comes last.
            let unreadable = items.iter().take_while(|item| item.key.is_none()).count();
            items.rotate_left(unreadable);
        }
        self.items = items.into_iter();
    }
}
