//! The tree below its operations: its handles, the nodes behind its links, and the way down to a
//! leaf.

use super::super::base::Base;
use super::super::keys::OrderedKind;
use super::entry::Entry;
use super::node::{NODE_BYTES, Node};
use super::permutation::Permutation;
use crate::Damage;
use std::ops::Deref;
use terrace_medium::MappedMedium;
use terrace_pool::Lock;

/// The nodes and the links between them: what readers need. It owns the handles that every tree
/// has. It knows no change of a key; `Masstree` above it does.
pub(super) struct Tree<M: MappedMedium, K> {
    pub(super) base: Base<M, K>,
    /// Entries of a node at most: fewer than it has slots only where structures of few entries are
    /// wanted.
    pub(super) width: usize,
}

impl<M: MappedMedium, K> Deref for Tree<M, K> {
    type Target = Base<M, K>;
    #[inline(always)]
    fn deref(&self) -> &Base<M, K> {
        &self.base
    }
}

/// Frozen nodes between a node and the one that it joins, at most.
const BETWEEN_MOST: usize = 1000;

/// Where a node leads a slice.
pub(super) enum Step<'g> {
    /// To the next node of the level.
    Right(Node<'g>),
    /// To the node below.
    Down(Node<'g>),
    /// It is a leaf, and the slice's own.
    Here,
    /// It was the last leaf of a layer that has no keys any more.
    Gone,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// Prefetches all lines of a node.
    #[inline(always)]
    pub(super) fn prefetch(&self, offset: u64) {
        (0..NODE_BYTES as u64).step_by(64).for_each(|line| self.pool.region().prefetch(offset + line));
    }

    #[cold]
    pub(super) fn damaged_node(&self, node: Node<'_>, what: &'static str) -> Damage {
        self.record_damage(node.offset(self.pool.region()), what)
    }

    /// The node that a node's entry leads to, of this level.
    #[inline(always)]
    pub(super) fn node_of(
        &self,
        from: Node<'_>,
        (slice, entry): (u64, Entry),
        level: usize,
    ) -> Result<Node<'_>, Damage> {
        match Node::at(self.pool.region(), entry.offset()) {
            Some(node) if entry.is_node(level) && entry.is_sound(slice) => Ok(node),
            _ => Err(self.damaged_node(from, "a link of a node does not fit its check")),
        }
    }

    /// The first layer's root.
    #[inline(always)]
    pub(super) fn top(&self) -> Result<Node<'_>, Damage> {
        // ORDER: Acquire: the node is visible.
        let word = self.root_link();
        let entry = Entry(word.load(self.pool.medium(), std::sync::atomic::Ordering::Acquire));
        match Node::at(self.pool.region(), entry.offset()).filter(|_| entry.is_sound(0)) {
            Some(node) if node.shape(self.pool.medium()).depth() == 0 => self.shaped(node),
            _ => Err(self.damaged_link(word)),
        }
    }

    /// The root of the layer behind a leaf's entry; the leaf is at this depth.
    #[inline(always)]
    pub(super) fn layer_of(
        &self,
        leaf: Node<'_>,
        (slice, entry): (u64, Entry),
        depth: usize,
    ) -> Result<Node<'_>, Damage> {
        match Node::at(self.pool.region(), entry.offset()) {
            Some(node) if entry.is_layer() && entry.is_sound(slice) => {
                let node = self.shaped(node)?;
                match node.shape(self.pool.medium()).depth() > depth {
                    true => Ok(node),
                    false => Err(self.damaged_node(node, "a layer does not lie below the one above it")),
                }
            }
            _ => Err(self.damaged_node(leaf, "the link to a layer does not fit its check")),
        }
    }

    #[inline(always)]
    fn shaped<'g>(&self, node: Node<'g>) -> Result<Node<'g>, Damage> {
        match node.shape(self.pool.medium()).is_sound() {
            true => Ok(node),
            false => Err(self.damaged_node(node, "the shape of a node does not fit its check")),
        }
    }

    /// Checks a node before it is written to: the pool's own metadata never must be, as a node.
    pub(super) fn check_node(&self, node: Node<'_>, (level, depth): (usize, usize)) -> Result<(), Damage> {
        let shape = node.shape(self.pool.medium());
        let is_block = node.offset(self.pool.region()) >= self.pool.layout().zones;
        if is_block && shape.is_sound() && (shape.level(), shape.depth()) == (level, depth) {
            return Ok(());
        }
        Err(self.damaged_node(node, "the shape of a node does not fit its check or its link"))
    }

    /// The slot whose range a slice is in: the last one that does not begin behind it, or the
    /// first.
    #[inline(always)]
    pub(super) fn slot_for(&self, node: Node<'_>, permutation: Permutation, slice: u64) -> usize {
        let medium = self.pool.medium();
        let (mut low, mut high) = (0, permutation.len());
        while low < high {
            let middle = (low + high) / 2;
            match node.slice(medium, permutation.slot(middle)) <= slice {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        permutation.slot(low.max(1) - 1)
    }

    /// Where a node of this level leads a slice.
    #[inline(always)]
    pub(super) fn step<'g>(&'g self, node: Node<'g>, level: usize, slice: u64) -> Result<Step<'g>, Damage> {
        let medium = self.pool.medium();
        // A frozen node that is linked still may have been skipped by one that gave its range away.
        let is_before = slice < node.low(medium) && slice < self.low_of(node, level)?;
        if is_before && !node.state(medium).is_frozen() {
            return Err(self.damaged_node(node, "a node begins behind a key that is led to it"));
        }
        loop {
            let before = node.state(medium);
            let permutation = node.permutation(medium);
            let below = (level > 0 && permutation.len() > 0).then(|| {
                let slot = self.slot_for(node, permutation, slice);
                (node.slice(medium, slot), node.entry(medium, slot))
            });
            let high = self.end_of_range(node);
            let state = node.state(medium);
            if state.counter() != before.counter() {
                continue;
            }
            let is_right = high.is_some_and(|high| slice >= high || state.is_frozen());
            return match below {
                _ if is_right => self.right_of(node, level).map(Step::Right),
                Some(below) => self.node_of(node, below, level - 1).map(Step::Down),
                None if level > 0 => Err(self.damaged_node(node, "an interior node has no entry")),
                // It was the last one when its end was read, and has a next one since.
                None if state.is_frozen() && !node.next(medium).is_none() => continue,
                // A damaged state must not hide a layer.
                None if state.is_frozen() => match self.damaged_head(node) {
                    Some(damage) => Err(damage),
                    None => Ok(Step::Gone),
                },
                None => Ok(Step::Here),
            };
        }
    }

    /// The first child of an interior node of this level; `None` if it has none.
    pub(super) fn first_child<'g>(
        &'g self,
        node: Node<'g>,
        level: usize,
    ) -> Result<Option<Node<'g>>, Damage> {
        let medium = self.pool.medium();
        loop {
            let before = node.state(medium);
            let Some(slot) = node.permutation(medium).slots().next() else { return Ok(None) };
            let entry = (node.slice(medium, slot), node.entry(medium, slot));
            if node.state(medium).counter() == before.counter() {
                return self.node_of(node, entry, level - 1).map(Some);
            }
        }
    }

    /// Whether a slice is in the range of a later node of the level.
    #[inline(always)]
    pub(super) fn is_right_of(&self, node: Node<'_>, slice: u64) -> bool {
        let medium = self.pool.medium();
        let high = self.end_of_range(node);
        high.is_some_and(|high| slice >= high || node.state(medium).is_frozen())
    }

    /// The slice behind all that a node has; `None` if it is the last of its level.
    #[inline(always)]
    pub(super) fn end_of_range(&self, node: Node<'_>) -> Option<u64> {
        let medium = self.pool.medium();
        loop {
            let (next, high) = (node.next(medium), node.high(medium));
            // A split may store either of the two first: both are of one time if the next node is
            // the same before and after.
            if node.next(medium) == next {
                return (!next.is_none()).then_some(high);
            }
        }
    }

    /// The slice that a node begins with: that of the left neighbour if it is taking over that
    /// one's range, and has its entries.
    pub(super) fn low_of(&self, node: Node<'_>, level: usize) -> Result<u64, Damage> {
        let medium = self.pool.medium();
        // Before the low slice, which comes down before the other one is joining no more.
        let joining = node.joining(medium);
        let low = node.low(medium);
        if joining.is_none() {
            return Ok(low);
        }
        let from = self.node_of(node, (0, joining), level)?;
        Ok(if self.has_joined(from, node) { low.min(from.low(medium)) } else { low })
    }

    /// Whether a node has given its range to `heir`, whose mark says that it was about to. A mark
    /// of a thread that has died binds no longer once the node was split: another node lies between
    /// them then. All that may lie there else is frozen.
    pub(super) fn has_joined(&self, from: Node<'_>, heir: Node<'_>) -> bool {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        let mut node = from;
        // No damage makes it long.
        for _ in 0..BETWEEN_MOST {
            let next = node.next(medium);
            if !node.state(medium).is_frozen() || !next.is_sound(0) {
                return false;
            }
            match Node::at(region, next.offset()) {
                Some(next) if next == heir => return true,
                Some(next) => node = next,
                None => return false,
            }
        }
        false
    }

    /// The next node of a level, behind a node that leads there; what says so is durable.
    pub(super) fn right_of<'g>(&'g self, node: Node<'g>, level: usize) -> Result<Node<'g>, Damage> {
        self.persist_read(node, None);
        self.right_of_locked(node, level)
    }

    /// As `right_of`, under the lock of the node, all of which is durable therefore.
    pub(super) fn right_of_locked<'g>(&'g self, node: Node<'g>, level: usize) -> Result<Node<'g>, Damage> {
        let medium = self.pool.medium();
        let next = self.node_of(node, (0, node.next(medium)), level)?;
        // So no damage makes a loop. A split stores the next node before it lowers the high slice.
        // The node behind a frozen one may end anywhere, since it has taken over what lies before
        // it; what it is to be compared with is read after its own end.
        let end = self.end_of_range(next);
        let is_behind = end.is_none_or(|end| end >= node.high(medium) || node.state(medium).is_frozen());
        match is_behind {
            true => Ok(next),
            false => Err(self.damaged_node(node, "the next node does not lie behind it")),
        }
    }

    /// Persists what was read of a node, and of one of its slots, unless its lock says that it is
    /// durable (invariant 4). A thread does not go to the next node by what a crash can take back.
    #[inline(always)]
    pub(super) fn persist_read(&self, node: Node<'_>, slot: Option<usize>) {
        let medium = self.pool.medium();
        if M::VOLATILE_CACHE && Lock::may_be_unfenced(node.lock().load_word(medium)) {
            let region = self.pool.region();
            slot.inspect(|&slot| region.write_back(node.line_of(slot)));
            region.write_back(node.head());
            // PERSIST: what another thread has stored and not fenced, before this one answers or
            // goes on to write.
            region.fence();
        }
    }

    /// The leaf of a slice in the layer below `root`; `None` if the layer has no keys any more.
    #[inline(always)]
    pub(super) fn leaf_for<'g>(&'g self, root: Node<'g>, slice: u64) -> Result<Option<Node<'g>>, Damage> {
        let (mut node, mut level) = (root, root.shape(self.pool.medium()).level());
        loop {
            match self.step(node, level, slice)? {
                Step::Right(next) => node = next,
                Step::Down(below) => (node, level) = (below, level - 1),
                Step::Here => return Ok(Some(node)),
                Step::Gone => return Ok(None),
            }
            self.prefetch(node.offset(self.pool.region()));
        }
    }

    /// The node of a level that a slice is led to, from the layer's root; `None` if the root is not
    /// above that level.
    pub(super) fn node_for<'g>(
        &'g self,
        root: Node<'g>,
        level: usize,
        slice: u64,
    ) -> Result<Option<Node<'g>>, Damage> {
        let (mut node, mut at) = (root, root.shape(self.pool.medium()).level());
        if at < level {
            return Ok(None);
        }
        loop {
            match self.step(node, at, slice)? {
                Step::Right(next) => node = next,
                Step::Down(_) if at == level => return Ok(Some(node)),
                Step::Down(below) => (node, at) = (below, at - 1),
                Step::Here => return Ok(Some(node)),
                Step::Gone => return Ok(None),
            }
        }
    }
}
