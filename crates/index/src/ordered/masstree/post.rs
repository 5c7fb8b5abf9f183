//! Entries of parents: the step after a split.

use super::super::base::ROOT_LOCK;
use super::super::keys::OrderedKind;
use super::entry::Entry;
use super::head::{LEVELS, Shape};
use super::locate::Held;
use super::node::{Content, Node};
use super::ops::Masstree;
use super::way::Layer;
use crate::Damage;
use std::sync::atomic::Ordering::Release;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Lock, PoolFull};

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// Tells the parent of a node of it, and the parent's parent if that is split. Without memory,
    /// or where something is damaged, the node is reached from its left neighbour only.
    pub(super) fn post(
        &self,
        guard: &Guard<'_, M>,
        layer: &Layer<'_>,
        (mut node, mut level): (Node<'_>, usize),
    ) {
        let leaf = node;
        while let Ok(Some(parent)) = self.try_post(guard, (layer, leaf), (node, level)) {
            (node, level) = (parent, level + 1);
        }
    }

    /// As `post`, for one level. Returns the new half of a parent that was split. `leaf` is the one
    /// that the post began with: while it is not frozen, the layer is there.
    fn try_post<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        (layer, leaf): (&Layer<'g>, Node<'_>),
        (node, level): (Node<'g>, usize),
    ) -> Result<Option<Node<'g>>, Unposted> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        loop {
            let slice = node.low(medium);
            let Some(layer) = tree.current(layer)? else { return Ok(None) };
            if leaf.state(medium).is_frozen() {
                return Ok(None);
            }
            if layer.root.shape(medium).level() <= level {
                match self.grow(guard, &layer, (node, level))? {
                    true => return Ok(None),
                    false => continue,
                }
            }
            let Some(parent) = tree.node_for(layer.root, level + 1, slice)? else { continue };
            let Some(held) = self.lock_node(guard, parent, (level + 1, layer.depth), slice)? else {
                continue;
            };
            // A frozen node is unlinked under the locks of its parents, later.
            if node.state(medium).is_frozen() {
                return Ok(None);
            }
            match self.put_child(guard, held, (slice, node), level)? {
                Put::Done(unposted) => return Ok(unposted),
                // The parent of a parent that was split is told by the next writer that comes by.
                Put::Again => continue,
            }
        }
    }

    /// Puts a child into a parent, unless it has it.
    fn put_child<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: Held<'g, M>,
        (slice, child): (u64, Node<'g>),
        level: usize,
    ) -> Result<Put<'g>, Unposted> {
        let (region, medium) = (self.tree.pool.region(), self.tree.pool.medium());
        let parent = held.node;
        let entry = Entry::node(slice, level, child.offset(region));
        let permutation = parent.permutation(medium);
        let slot = self.tree.slot_for(parent, permutation, slice);
        let is_there = parent.entry(medium, slot).offset() == entry.offset();
        if is_there {
            return Ok(Put::Done(held.is_unposted.then_some(parent)));
        }
        let position = permutation.slots().take_while(|&slot| parent.slice(medium, slot) < slice).count();
        let low = parent.low(medium);
        if position == 0 && low < slice {
            // The first child has what lies below its entry; so it has an entry there first.
            let first = Entry::node(low, level, parent.entry(medium, slot).offset());
            self.put_entry(guard, parent, (0, low, first), level + 1)?;
            return Ok(Put::Again);
        }
        if parent.slice(medium, slot) == slice {
            // A reader without the entry that lies below this one, which may have come just now,
            // would take the new child for the first one.
            parent.set_state(medium, parent.state(medium).counting());
            parent.set_word(medium, slot, entry.0);
            // PERSIST: a hint, which no other change depends on.
            region.persist(parent.line_of(slot));
            return Ok(Put::Done(None));
        }
        let right = self.put_entry(guard, parent, (position, slice, entry), level + 1)?;
        Ok(Put::Done(right.or(held.is_unposted.then_some(parent))))
    }

    /// Puts an entry into a parent. Returns its new half if it was split. Durable; called under the
    /// lock.
    fn put_entry<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        parent: Node<'g>,
        (position, slice, entry): (usize, u64, Entry),
        level: usize,
    ) -> Result<Option<Node<'g>>, PoolFull> {
        if self.is_full(parent, slice) {
            return self.split(guard, (parent, level), (position, slice, entry.0)).map(Some);
        }
        self.put(parent, position, (slice, entry.0));
        // PERSIST: the entry, so that the parent is known to be durable.
        self.tree.pool.region().fence();
        Ok(None)
    }

    /// Puts a new root above a layer's root, which has a right neighbour. Returns false if there is
    /// another root by now.
    fn grow(
        &self,
        guard: &Guard<'_, M>,
        layer: &Layer<'_>,
        (node, level): (Node<'_>, usize),
    ) -> Result<bool, Unposted> {
        let (tree, medium, region) = (&self.tree, self.tree.pool.medium(), self.tree.pool.region());
        let shape = layer.root.shape(medium);
        if shape.level() != level || level + 1 == LEVELS {
            return Ok(true);
        }
        // The node is not frozen, and so not unlinked, before the root leads to it.
        let _lock = self.lock(guard, node, (level, layer.depth))?;
        if node.state(medium).is_frozen() {
            return Ok(true);
        }
        let old = layer.root.offset(region);
        let entries = [(0, old), (node.low(medium), node.offset(region))];
        let content = Content {
            shape: Shape::new(level + 1, layer.depth, shape.counted()),
            next: Entry::NONE,
            high: 0,
            low: 0,
            last_entry: 0,
            entries: &entries.map(|(slice, at)| (slice, Entry::node(slice, level, at).0)),
        };
        let root = self.build(guard, &content)?;
        // PERSIST: the root before the link to it.
        tree.pool.region().fence();
        let grown = self.replace_root(guard, layer, (old, (root, level + 1)));
        if !matches!(grown, Ok(true)) {
            self.discard(guard, root, level + 1);
        }
        Ok(grown?)
    }

    /// Gives a layer another root. Returns false if it has another one than the old by now.
    /// Durable.
    pub(super) fn replace_root(
        &self,
        guard: &Guard<'_, M>,
        layer: &Layer<'_>,
        (old, (new, level)): (u64, (u64, usize)),
    ) -> Result<bool, Damage> {
        let (tree, medium, region) = (&self.tree, self.tree.pool.medium(), self.tree.pool.region());
        let Some((leaf, piece, depth)) = layer.above else {
            let _lock = Lock::of(&tree.root[0].0[ROOT_LOCK]).acquire(guard);
            if tree.top()?.offset(region) != old {
                return Ok(false);
            }
            let point = medium.point("masstree.root");
            // ORDER: Release: a reader that sees the root sees its entries.
            tree.root_link().store(point, Entry::node(0, level, new).0, Release);
            // PERSIST: the root before the old one is used again.
            region.persist(tree.root_link());
            return Ok(true);
        };
        let Some(held) = self.lock_node(guard, leaf, (0, depth), piece.slice)? else { return Ok(false) };
        let permutation = held.node.permutation(medium);
        let Ok(position) = tree.position(held.node, permutation, piece) else { return Ok(false) };
        let slot = permutation.slot(position);
        let entry = held.node.entry(medium, slot);
        if !entry.is_layer() || entry.offset() != old {
            return Ok(false);
        }
        held.node.set_word(medium, slot, Entry::layer(piece.slice, new).0);
        // PERSIST: as above.
        region.persist(held.node.line_of(slot));
        Ok(true)
    }
}

/// What came of putting a child into a parent.
enum Put<'g> {
    /// It is there. Another node, a new half of the parent or the parent, may not be known above.
    Done(Option<Node<'g>>),
    /// The parent has changed.
    Again,
}

/// Why a parent was not told.
enum Unposted {
    Full,
    Damaged,
}

impl From<PoolFull> for Unposted {
    fn from(_: PoolFull) -> Self {
        Self::Full
    }
}

impl From<Damage> for Unposted {
    fn from(_: Damage) -> Self {
        Self::Damaged
    }
}
