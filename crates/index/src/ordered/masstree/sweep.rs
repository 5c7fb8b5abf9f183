//! How a node goes: it joins its right neighbour, and the links go over it (invariant 7).

use super::super::keys::OrderedKind;
use super::entry::Entry;
use super::locate::Held;
use super::node::Node;
use super::ops::Masstree;
use super::way::Layer;
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Tries to join a node whose neighbour is on its way out.
const TRIES: u32 = 8;

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// Joins a small node with a neighbour, if there is one that has room. Returns the low slice of
    /// the node that was frozen.
    pub(super) fn shrink(
        &self,
        guard: &Guard<'_, M>,
        layer: &Layer<'_>,
        node: Node<'_>,
        level: usize,
    ) -> Result<Option<u64>, Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        if self.join(guard, layer, node, level)? {
            return Ok(Some(node.low(medium)));
        }
        let Some(before) = node.low(medium).checked_sub(1) else { return Ok(None) };
        let Some(layer) = tree.current(layer)? else { return Ok(None) };
        let Some(left) = tree.node_for(layer.root, level, before)? else { return Ok(None) };
        let has_joined = self.join(guard, &layer, left, level)?;
        Ok(has_joined.then(|| left.low(medium)))
    }

    /// Gives the range and the entries of a node to the next one, and freezes it. Returns false if
    /// that has no room for them, or the node is the first or the last of its level.
    fn join(
        &self,
        guard: &Guard<'_, M>,
        layer: &Layer<'_>,
        node: Node<'_>,
        level: usize,
    ) -> Result<bool, Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        for _ in 0..TRIES {
            let locked = self.lock(guard, node, (level, layer.depth))?;
            let is_last = node.low(medium) == 0 || node.next(medium).is_none();
            if is_last || node.state(medium).is_frozen() {
                return Ok(false);
            }
            let next = tree.right_of_locked(node, level)?;
            let next_locked = self.lock(guard, next, (level, layer.depth))?;
            if next.state(medium).is_frozen() {
                let high = node.high(medium);
                next_locked.release();
                locked.release();
                self.sweep(guard, layer, level, high)?;
                continue;
            }
            let may_join = self.fit(node, next, level);
            if may_join {
                self.join_locked(node, next, level);
            }
            return Ok(may_join);
        }
        Ok(false)
    }

    /// Whether the entries of a node have room in the next one, and some is left then. Called under
    /// both locks.
    fn fit(&self, node: Node<'_>, next: Node<'_>, level: usize) -> bool {
        let medium = self.tree.pool.medium();
        let len = node.permutation(medium).len();
        let joined = len + next.permutation(medium).len();
        match level {
            0 if len == 0 => true,
            // A recount that has passed one of them counts the keys of the other.
            0 => {
                joined <= self.tree.width / 2 && node.shape(medium).counted() == next.shape(medium).counted()
            }
            _ => joined <= self.tree.width * 3 / 4 || self.is_covered(node, next),
        }
    }

    /// Whether all entries of an interior node lead to the first child of the next one, which then
    /// needs none of them. Called under both locks.
    fn is_covered(&self, node: Node<'_>, next: Node<'_>) -> bool {
        let medium = self.tree.pool.medium();
        let child = next.entry(medium, next.permutation(medium).slot(0)).offset();
        node.permutation(medium).slots().all(|slot| node.entry(medium, slot).offset() == child)
    }

    /// As `join`, under the locks of both nodes.
    pub(super) fn join_locked(&self, node: Node<'_>, next: Node<'_>, level: usize) {
        let (region, medium) = (self.tree.pool.region(), self.tree.pool.medium());
        next.set_joining(medium, Entry::node(0, level, node.offset(region)));
        // PERSIST: what the node takes over, before entries are there: see `mend_join`.
        region.persist(next.head());
        if !(level > 0 && self.is_covered(node, next)) {
            for (position, slot) in node.permutation(medium).slots().enumerate() {
                self.put(next, position, (node.slice(medium, slot), node.word_at(medium, slot)));
            }
            // PERSIST: the entries, before keys are led there.
            region.fence();
        }
        self.freeze(node);
        next.set_low(medium, node.low(medium));
        next.set_joining(medium, Entry::NONE);
        // PERSIST: low slice and mark, which lie in one line, before the other node's memory is
        // used again.
        region.persist(next.head());
    }

    /// Completes or undoes a join whose thread has died, or that a crash has cut off. Called under
    /// the lock of the node that takes the entries over.
    #[cold]
    pub(super) fn mend_join(&self, node: Node<'_>, level: usize) -> Result<(), Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let from = tree.node_of(node, (0, node.joining(medium)), level)?;
        if tree.has_joined(from, node) {
            node.set_low(medium, from.low(medium).min(node.low(medium)));
        } else {
            let is_copy = |node: Node<'_>| {
                let first = node.permutation(medium).slots().next();
                first.is_some_and(|slot| node.slice(medium, slot) < node.low(medium))
            };
            while is_copy(node) {
                self.take(node, 0);
            }
        }
        node.set_joining(medium, Entry::NONE);
        // PERSIST: the node is whole before anything is built upon it.
        tree.pool.region().persist(node.head());
        Ok(())
    }

    /// Unlinks the frozen nodes of a level that lie before the node of a slice. Returns those of
    /// their parents that have few entries left.
    pub(super) fn sweep<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        layer: &Layer<'g>,
        level: usize,
        slice: u64,
    ) -> Result<Vec<Node<'g>>, Damage> {
        let (tree, depth) = (&self.tree, layer.depth);
        let Some(before) = slice.checked_sub(1) else { return Ok(Vec::new()) };
        let Some(layer) = tree.current(layer)? else { return Ok(Vec::new()) };
        let Some(left) = tree.node_for(layer.root, level, before)? else { return Ok(Vec::new()) };
        let held = self.lock_node(guard, left, (level, depth), before)?;
        let Some(Held { node, lock, .. }) = held else { return Ok(Vec::new()) };
        let parents = self.unlink_behind(guard, &layer, node, level);
        lock.release();
        parents
    }

    /// Unlinks the frozen nodes behind a node: first the parents' entries lead past them, then the
    /// node. Called under its lock.
    fn unlink_behind<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        layer: &Layer<'g>,
        node: Node<'g>,
        level: usize,
    ) -> Result<Vec<Node<'g>>, Damage> {
        let (tree, medium, region) = (&self.tree, self.tree.pool.medium(), self.tree.pool.region());
        let (mut frozen, mut next) = (Vec::new(), node);
        loop {
            if next.next(medium).is_none() {
                return Ok(Vec::new());
            }
            next = tree.right_of(next, level)?;
            if !next.state(medium).is_frozen() {
                break;
            }
            frozen.push(next);
        }
        if frozen.is_empty() {
            return Ok(Vec::new());
        }
        // So that nothing in it leads to a node that goes, see `mend_join`.
        self.lock(guard, next, (level, layer.depth))?.release();
        // Only now: a node's parents have their entries, and a layer its root, before the node is
        // frozen.
        let Some(layer) = tree.current(layer)? else { return Ok(Vec::new()) };
        let mut small = Vec::new();
        for &gone in &frozen {
            self.redirect(guard, layer.root, (gone, next), (level, &mut small))?;
        }
        node.set_next(medium, Entry::node(0, level, next.offset(region)));
        // PERSIST: no link leads to the frozen nodes any more, before their memory is used again.
        region.persist(node.head());
        frozen.into_iter().for_each(|gone| self.retire(guard, gone));
        Ok(small)
    }

    /// Leads all entries of parents that lead to a frozen node to the one that has its range. Notes
    /// the parents that have few entries left. Durable.
    fn redirect<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        root: Node<'g>,
        (gone, heir): (Node<'g>, Node<'g>),
        (level, small): (usize, &mut Vec<Node<'g>>),
    ) -> Result<(), Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let shape = root.shape(medium);
        if shape.level() <= level {
            return Ok(());
        }
        let Some(first) = tree.node_for(root, level + 1, gone.low(medium))? else { return Ok(()) };
        let (mut parent, mut goes_on) = (first, true);
        loop {
            let locked = self.lock(guard, parent, (level + 1, shape.depth()))?;
            let is_frozen = parent.state(medium).is_frozen();
            if !goes_on && parent.low(medium) > gone.last_entry(medium) {
                return Ok(());
            }
            self.redirect_in(parent, (gone, heir), level);
            if !is_frozen && parent.permutation(medium).len() <= (tree.width / 4).max(1) {
                small.push(parent);
            }
            if parent.next(medium).is_none() {
                return Ok(());
            }
            goes_on = is_frozen;
            let next = tree.right_of_locked(parent, level + 1)?;
            locked.release();
            parent = next;
        }
    }

    /// As `redirect`, in one parent. Of neighbouring entries that lead to one node, the first is
    /// kept. Called under its lock.
    fn redirect_in(&self, parent: Node<'_>, (gone, heir): (Node<'_>, Node<'_>), level: usize) {
        let (region, medium) = (self.tree.pool.region(), self.tree.pool.medium());
        let (gone, heir) = (gone.offset(region), heir.offset(region));
        let mut position = 0;
        while position < parent.permutation(medium).len() {
            let permutation = parent.permutation(medium);
            let slot = permutation.slot(position);
            if parent.entry(medium, slot).offset() == gone {
                let slice = parent.slice(medium, slot);
                parent.set_word(medium, slot, Entry::node(slice, level, heir).0);
                region.write_back(parent.line_of(slot));
            }
            let to = parent.entry(medium, slot).offset();
            let is_twice =
                position > 0 && parent.entry(medium, permutation.slot(position - 1)).offset() == to;
            match is_twice && to == heir {
                true => self.take(parent, position),
                false => position += 1,
            }
        }
        // PERSIST: no entry leads to the frozen node, before its memory is used again.
        region.fence();
    }
}
