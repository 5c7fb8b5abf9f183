//! Locks of nodes, and what a death or a crash has left of a change of the structure (4.4.6).

use super::super::keys::OrderedKind;
use super::border::Sought;
use super::find::Spot;
use super::layers::Mnode;
use super::node::{Node, slots_of};
use super::ops::SpTree;
use super::word::Entry;
use crate::{Damage, Fencing};
use std::cmp::Ordering::Less;
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::{Guard, Lock, Locked};

/// The node of a key, whose lock is held.
pub(super) struct Held<'g, M: MappedMedium> {
    pub(super) node: Node<'g>,
    pub(super) lock: Locked<'g, M>,
    /// Whether a node on its left led here: the top layer may not have it.
    pub(super) is_unposted: bool,
    /// Its Mnode, whose lock is held, too.
    pub(super) mnode: Option<Mnode<'g>>,
}

/// The locks of a node and of its Mnode, if it has one.
pub(super) struct Whole<'g, M: MappedMedium> {
    pub(super) lock: Locked<'g, M>,
    pub(super) _upper: Option<Locked<'g, Dram>>,
}

impl<M: MappedMedium, K: OrderedKind> SpTree<M, K> {
    /// Locks the node of a key, which was found at this spot.
    pub(super) fn lock_for<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        sought: &Sought<'_>,
        spot: &Spot<'g>,
        fencing: &Fencing<'_>,
    ) -> Result<Held<'g, M>, Damage> {
        let tree = &self.tree;
        let Spot { mut node, mut is_unposted, .. } = *spot;
        loop {
            self.fence_own(guard, node, fencing);
            let lock = self.lock(guard, node)?;
            let state = node.state(tree.pool.medium());
            if let Some(end) = tree.end_before(guard, node, sought)? {
                is_unposted |= state.is_settled();
                node = tree.right_of_locked(node, end)?;
            } else if state.is_frozen() {
                // Its partner takes it over, or has; or its holder died, and the next one of the
                // lock ends that.
                node = tree.node_at(node.offset(tree.pool.region()), state.partner())?;
            } else {
                tree.check_begin(guard, node, sought)?;
                return Ok(Held { node, lock, is_unposted, mnode: None });
            }
            lock.release();
        }
    }

    /// Fences what this thread has written back of a node in the same batch. That is less than all
    /// of the node, which another thread's changes would take.
    pub(super) fn fence_own(&self, guard: &Guard<'_, M>, node: Node<'_>, fencing: &Fencing<'_>) {
        let region = self.tree.pool.region();
        let is_batch = M::VOLATILE_CACHE && matches!(fencing, Fencing::Deferred(_));
        if is_batch && Lock::may_be_unfenced(node.lock().load_word(region.medium())) {
            // PERSIST: this thread's earlier changes, before it builds upon them.
            region.fence();
            node.lock().confirm(guard);
        }
    }

    /// Locks a node, and its Mnode before it. The node has all that was buffered then.
    pub(super) fn lock_whole<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        lower: Option<&'g Guard<'_, Dram>>,
        node: Node<'g>,
    ) -> Result<Whole<'g, M>, Damage> {
        let (Some(layers), Some(lower)) = (&self.tree.layers, lower) else {
            return Ok(Whole { lock: self.lock(guard, node)?, _upper: None });
        };
        let low = self.tree.low_of(guard, node)?;
        let mnode = || layers.of(lower, node.offset(self.tree.pool.region()), &low);
        loop {
            let found = mnode();
            let _upper = found.map(|mnode| mnode.lock().acquire(lower));
            if let Some(mnode) = found {
                if mnode.version(layers.medium()).is_gone() {
                    continue;
                }
                self.merge_buffer(guard, lower, mnode)?;
            }
            let lock = self.lock(guard, node)?;
            if found.is_some() || mnode().is_none() {
                return Ok(Whole { lock, _upper });
            }
        }
    }

    /// Locks a node. What was done to it before is durable and whole then, unless it is frozen.
    pub(super) fn lock<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        node: Node<'g>,
    ) -> Result<Locked<'g, M>, Damage> {
        let tree = &self.tree;
        let lock = node.lock().acquire(guard);
        if lock.was_unfenced() {
            tree.persist_all(node);
        }
        if let Some(damage) = tree.damaged_front(node) {
            return Err(damage);
        }
        if node.state(tree.pool.medium()).is_changing() {
            self.mend(guard, node)?;
        }
        Ok(lock)
    }

    /// Completes or undoes a change of the structure whose thread has died, or that a crash has cut
    /// off. Called under the lock.
    #[cold]
    fn mend(&self, guard: &Guard<'_, M>, node: Node<'_>) -> Result<(), Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let partner = node.state(medium).partner();
        match partner {
            0 => self.mend_split(guard, node)?,
            _ => {
                let right = tree.node_at(node.offset(tree.pool.region()), partner)?;
                return self.mend_join(guard, node, right);
            }
        }
        node.set_state(medium, node.state(medium).settled());
        // PERSIST: the node is whole before anything is built upon it.
        tree.pool.region().persist(node.head());
        Ok(())
    }

    /// A split was cut off. If its new node is linked, it has all that it is to have.
    fn mend_split(&self, guard: &Guard<'_, M>, node: Node<'_>) -> Result<(), Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let next = node.next(medium);
        if next.is_none() {
            return Ok(());
        }
        if !next.is_sound() {
            return Err(tree.damaged_node(node, "the link to the next node does not fit its check"));
        }
        let right = tree.node_at(node.offset(tree.pool.region()), next.offset())?;
        node.set_high(medium, right.low(medium));
        self.drop_behind(guard, node, right.low(medium))
    }

    /// A node was about to take over the one on its right, or has.
    fn mend_join(&self, guard: &Guard<'_, M>, node: Node<'_>, right: Node<'_>) -> Result<(), Damage> {
        let tree = &self.tree;
        // Locks are taken from the left to the right: no thread that has this one waits for the
        // other.
        let lock = right.lock().acquire(guard);
        if lock.was_unfenced() {
            tree.persist_all(right);
        }
        if tree.has_joined(right, node) {
            self.finish_join(guard, (node, right), lock);
            return Ok(());
        }
        let medium = tree.pool.medium();
        self.drop_behind(guard, node, right.low(medium))?;
        right.set_state(medium, right.state(medium).settled());
        // PERSIST: the right node's keys are its own, before the left one is done with it.
        tree.pool.region().persist(right.head());
        lock.release();
        node.set_state(medium, node.state(medium).settled());
        // PERSIST: the node is whole before anything is built upon it.
        tree.pool.region().persist(node.head());
        Ok(())
    }

    /// Gives up the keys of a node that are not below its end. A record whose key cannot be read
    /// stays. Called under the lock.
    fn drop_behind(&self, guard: &Guard<'_, M>, node: Node<'_>, end: u64) -> Result<(), Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let bitmap = node.bitmap(medium);
        let mut kept = bitmap;
        for slot in slots_of(bitmap) {
            if let Some(key) = tree.key_at(guard, node.pair::<K>(medium, slot))
                && tree.compare(guard, &Sought::new(key), (node, end))? != Less
            {
                kept &= !(1 << slot);
            }
        }
        if kept != bitmap {
            node.publish(medium, kept);
        }
        Ok(())
    }

    /// The link to a node.
    pub(super) fn link_to(&self, node: Node<'_>) -> Entry {
        Entry::link(node.offset(self.tree.pool.region()))
    }
}
