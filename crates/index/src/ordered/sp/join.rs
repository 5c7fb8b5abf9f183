//! Merges of nodes (4.4.5): a node that has few keys left gives them, and its range, to its left
//! neighbour, or takes those of the right one.
//!
//! Under the locks of both: (1) the left node is marked as *changing*, with the right one as its
//! partner, and gets copies of its pairs; (2) the right node is *frozen*, with the left one as its
//! partner: from now on a search for its keys asks there whether they have moved; (3) the
//! bitmap, the end and the next node of the left one, all in one line, which is durable as a
//! prefix of the stores to it: its range moves when the end or the next node does; (4) the top
//! layer's mapping of the right node is removed; (5) the mark goes; (6) the right node is retired.
//! Each is durable before the next. What a death or a crash leaves is undone before (3) and
//! completed after that, by the next thread that locks the left node (`lock`).

use super::super::keys::OrderedKind;
use super::border::block_of;
use super::lock::Whole;
use super::node::{Node, node_bytes, slots_of};
use super::ops::{JOINS, NODES, SpTree};
use crate::{Damage, PointIndex};
use std::borrow::Borrow;
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::{Guard, Locked};

/// A node, and the next one.
type Neighbours<'g> = (Node<'g>, Node<'g>);

impl<M: MappedMedium, K: OrderedKind> SpTree<M, K> {
    /// A node with fewer keys looks for a neighbour to join.
    pub(super) fn small(&self) -> usize {
        self.tree.width / 4
    }

    /// Whether a node has few keys.
    pub(super) fn is_small(&self, node: Node<'_>) -> bool {
        (node.bitmap(self.tree.pool.medium()).count_ones() as usize) < self.small()
    }

    /// Two nodes with more keys stay two.
    fn most(&self) -> usize {
        self.tree.width * 5 / 8
    }

    /// Joins a node of few keys with a neighbour. Returns whether it did.
    pub(super) fn tidy(&self, guard: &Guard<'_, M>, node: Node<'_>) -> Result<bool, Damage> {
        let (tree, medium, lower) = (&self.tree, self.tree.pool.medium(), self.tree.pin_layers());
        let whole = self.lock_whole(guard, lower.as_ref(), node)?;
        if node.state(medium).is_frozen() || !self.is_small(node) {
            return Ok(false);
        }
        if let Some(end) = tree.end_of(node)
            && self.join(guard, lower.as_ref(), (node, tree.right_of_locked(node, end)?))?
        {
            return Ok(true);
        }
        drop(whole);
        let Some(left) = tree.node_before(guard, node)? else { return Ok(false) };
        let _whole = self.lock_whole(guard, lower.as_ref(), left)?;
        let is_left = left.next(medium) == self.link_to(node) && !left.state(medium).is_frozen();
        if is_left { self.join(guard, lower.as_ref(), (left, node)) } else { Ok(false) }
    }

    /// Gives a node to its left neighbour, whose lock is held, if both are small enough.
    fn join(
        &self,
        guard: &Guard<'_, M>,
        lower: Option<&Guard<'_, Dram>>,
        (left, right): Neighbours<'_>,
    ) -> Result<bool, Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let Whole { lock, _upper } = self.lock_whole(guard, lower, right)?;
        let len = |node: Node<'_>| node.bitmap(medium).count_ones() as usize;
        let are_alike = left.counted(medium) == right.counted(medium);
        let is_right = left.high(medium) == right.low(medium) && !right.state(medium).is_frozen();
        // A recount in progress has passed either both or none.
        if !is_right || !are_alike || len(left) + len(right) > self.most() {
            return Ok(false);
        }
        // What is removed has to be retired.
        if guard.reserve_retirements(3).is_err() {
            return Ok(false);
        }
        self.hide_from_layers(guard, right);
        let unsettled = self.unsettle_layers(guard, left);
        let moved = self.copy(left, right);
        let partner = left.offset(tree.pool.region());
        right.set_state(medium, right.state(medium).frozen(partner));
        // PERSIST: the right node says where its keys go, before they do.
        tree.pool.region().persist(right.head());
        left.publish(medium, left.bitmap(medium) | moved);
        if !right.next(medium).is_none() {
            left.set_high(medium, right.high(medium));
        }
        left.set_next(medium, right.next(medium));
        self.finish_join(guard, (left, right), lock);
        self.settle_layers(guard, left, unsettled);
        Ok(true)
    }

    /// Marks the left node, and copies the pairs of the right one to it. Returns their slots, which
    /// are not published yet. All is durable.
    fn copy(&self, left: Node<'_>, right: Node<'_>) -> u64 {
        let region = self.tree.pool.region();
        let medium = region.medium();
        left.set_state(medium, left.state(medium).changing(right.offset(region)));
        let mut moved = 0;
        let free = slots_of(!left.bitmap(medium) & self.tree.all_slots());
        for (from, to) in slots_of(right.bitmap(medium)).zip(free) {
            self.fill(left, to, right.tag(medium, from), right.pair::<K>(medium, from));
            moved |= 1 << to;
        }
        // PERSIST: the mark and the copies, before the right node is frozen.
        region.persist(left.head());
        moved
    }

    /// Ends what `join` began, from its third step on. Called under both locks.
    pub(super) fn finish_join(
        &self,
        guard: &Guard<'_, M>,
        (left, right): Neighbours<'_>,
        lock: Locked<'_, M>,
    ) {
        let region = self.tree.pool.region();
        let medium = region.medium();
        // A thread may have died between the end and the next node.
        left.set_next(medium, right.next(medium));
        // PERSIST: the left node has the keys and the range, before no mapping leads to the right
        // one.
        region.persist(left.head());
        let is_unmapped = self.unmap(guard, right);
        lock.release();
        left.set_state(medium, left.state(medium).settled());
        // PERSIST: nobody looks for the right node from here any more, before it is retired.
        region.persist(left.head());
        if is_unmapped {
            self.retire(guard, right);
        }
        self.tree.count().add_figure(guard.slot_index(), JOINS, 1);
    }

    /// Removes a node from the top layer, durably, and returns whether it is not there any more.
    /// Behind damage it stays, and the node with it. Called under the node's lock.
    fn unmap(&self, guard: &Guard<'_, M>, node: Node<'_>) -> bool {
        let Some(key) = self.tree.mapped_key(guard, node) else { return false };
        let offset = node.offset(self.tree.pool.region());
        self.tree.top.compare_and_swap(guard, key.borrow(), Some(offset), None).is_ok()
    }

    /// Retires a node and its border.
    fn retire(&self, guard: &Guard<'_, M>, node: Node<'_>) {
        self.tree.count().add_figure(guard.slot_index(), NODES, -1);
        if let Some((border, bytes)) = block_of::<M, K>(guard, node.low(self.tree.pool.medium())) {
            guard.retire(border, bytes);
        }
        guard.retire(node.offset(self.tree.pool.region()), node_bytes::<K>());
    }

    /// Gives the top layer a node that it may not have. That is no change of a key: if there is no
    /// memory for it, the way to the node stays a step longer.
    pub(super) fn post(&self, guard: &Guard<'_, M>, node: Node<'_>) {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let Some(key) = tree.mapped_key(guard, node) else { return };
        if tree.top.get(guard, key.borrow()).is_some() {
            return;
        }
        // Under the lock, so that it is not joined meanwhile.
        let Ok(_lock) = self.lock(guard, node) else { return };
        if !node.state(medium).is_frozen() {
            let _ = tree.top.insert(guard, key.borrow(), node.offset(tree.pool.region()));
        }
    }
}
