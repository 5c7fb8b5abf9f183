//! The tree's side of its layers in DRAM: what a writer that holds a node's lock tells them, and
//! the background work that makes them.

use super::super::super::keys::OrderedKind;
use super::super::log::Log;
use super::super::node::{Node, slots_of};
use super::super::ops::{NODES, SpTree};
use super::buffer::Buffer;
use super::buffers::Buffers;
use super::mnode::Mnode;
use super::{Known, Layers};
use crate::ordered::base::ROOT_OWN;
use crate::{Damage, LayerOptions, LayerStats};
use std::borrow::Borrow;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::Guard;

/// Nodes that one step of `maintain` looks at.
const NODES_A_STEP: usize = 256;
/// The word of the root's own that has the link to the log.
pub(in super::super) const LOG_LINK: usize = ROOT_OWN + 2;

/// A node's Mnode whose range is about to change. Readers do without it until `settle_layers`.
pub(in super::super) struct Unsettled<'g> {
    guard: Guard<'g, Dram>,
    mnode: Mnode<'g>,
}

impl<M: MappedMedium, K: OrderedKind> SpTree<M, K> {
    /// See [`PointIndex::set_layers`](crate::PointIndex::set_layers).
    pub(in super::super) fn make_layers(&mut self, options: LayerOptions) {
        let pool = self.tree.pool.clone();
        if pool.is_shared() || pool.is_read_only() || self.tree.log_damage.is_some() {
            return;
        }
        // What is behind damage stays in the log.
        let _ = self.merge_oldest(&pool.pin(), u64::MAX);
        self.tree.layers = None;
        if options.bytes > 0 {
            if options.buffers > 0 {
                self.make_log(&pool.pin());
            }
            self.tree.layers = Layers::new(options, self.tree.log.as_ref());
        }
    }

    /// Makes the log, if there is none and there is memory.
    fn make_log(&mut self, guard: &Guard<'_, M>) {
        let tree = &mut self.tree;
        if tree.log.is_some() {
            return;
        }
        let Some(link) = Log::create(guard, tree.width) else { return };
        tree.log = Log::open(&tree.base.pool, link).ok();
        let word = &tree.base.root[1].0[LOG_LINK];
        // ORDER: Release: a thread that finds the link finds the log.
        word.store(tree.base.pool.medium().point("sptree.log-link"), link.0, Release);
        // PERSIST: the link, before a change is logged. A crash without it leaves a block that the
        // collector reclaims.
        tree.base.pool.region().persist(&tree.base.root[1]);
    }

    /// See [`PointIndex::layers`](crate::PointIndex::layers).
    pub(in super::super) fn layer_stats(&self) -> Option<LayerStats> {
        let stats = self.tree.layers.as_ref()?.stats(self.tree.log.as_ref());
        Some(LayerStats { nodes: [self.tree.count().figure(NODES).min(1 << 40), stats.nodes[1]], ..stats })
    }

    /// What the Mnode of a node is to say; `None` if its node has damage. Called under its lock.
    pub(in super::super) fn with_known<R>(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        take: impl FnOnce(&Known<'_>) -> R,
    ) -> Option<R> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let key = |slot: usize| self.hash_bits_of(node.pair::<K>(medium, slot));
        let keys = slots_of(node.bitmap(medium)).map(key).collect::<Option<Vec<u64>>>()?;
        let extent = tree.extent(guard, node, tree.end_of(node).map(|end| end.border)).ok()?;
        let (at, free) = (node.offset(tree.pool.region()), self.free_slots(node));
        Some(take(&Known { node: at, low: &extent.low, high: extent.high.as_deref(), keys, free }))
    }

    /// Whether a node has an Mnode, which a search was not shown. Called under the node's lock.
    pub(in super::super) fn has_mnode(
        &self,
        guard: &Guard<'_, M>,
        (layers, lower): (&Layers<K>, &Guard<'_, Dram>),
        node: Node<'_>,
    ) -> bool {
        let mnode = self.mnode_of(guard, (layers, lower), node);
        if let Some(mnode) = mnode.filter(|mnode| !mnode.version(layers.medium()).is_settled()) {
            // A thread has panicked in the middle of a change: it has both locks as long.
            layers.give_up(lower, mnode);
        }
        mnode.is_some()
    }

    fn mnode_of<'g>(
        &self,
        guard: &Guard<'_, M>,
        (layers, lower): (&'g Layers<K>, &Guard<'_, Dram>),
        node: Node<'_>,
    ) -> Option<Mnode<'g>> {
        let low = self.tree.low_of(guard, node).ok()?;
        layers.of(lower, node.offset(self.tree.pool.region()), &low)
    }

    /// Makes the Mnode of a node that has none, if there is memory.
    pub(in super::super) fn show_to_layers(&self, guard: &Guard<'_, M>, node: Node<'_>) {
        let Some(layers) = self.tree.layers.as_ref().filter(|layers| !layers.is_full.load(Relaxed)) else {
            return;
        };
        let lower = layers.pin();
        let Ok(_lock) = self.lock(guard, node) else { return };
        let is_its = !node.state(self.tree.pool.medium()).is_frozen();
        if is_its && self.mnode_of(guard, (layers, &lower), node).is_none() {
            self.with_known(guard, node, |known| layers.make(&lower, known));
        }
    }

    /// The range of a node is about to change. Called under the locks of both, with nothing
    /// buffered.
    pub(in super::super) fn unsettle_layers<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
    ) -> Option<Unsettled<'g>> {
        let layers = self.tree.layers.as_ref()?;
        let lower = layers.pin();
        let mnode = self.mnode_of(guard, (layers, &lower), node)?;
        mnode.begin(layers.medium());
        Some(Unsettled { guard: lower, mnode })
    }

    /// The range of a node has changed. Called under the locks of both.
    pub(in super::super) fn settle_layers(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        unsettled: Option<Unsettled<'_>>,
    ) {
        let (Some(layers), Some(Unsettled { guard: lower, mnode })) = (&self.tree.layers, unsettled) else {
            return;
        };
        if self.with_known(guard, node, |known| layers.settle(&lower, mnode, known)).is_none() {
            layers.give_up(&lower, mnode);
        }
    }

    /// A node is about to be given to its left neighbour. Called under the locks of both, with
    /// nothing buffered.
    pub(in super::super) fn hide_from_layers(&self, guard: &Guard<'_, M>, node: Node<'_>) {
        let Some(layers) = &self.tree.layers else { return };
        let lower = layers.pin();
        if let Some(mnode) = self.mnode_of(guard, (layers, &lower), node) {
            layers.give_up(&lower, mnode);
        }
    }

    /// The node of a buffer has all of its changes. Called under the locks of both.
    pub(in super::super) fn empty_buffer(
        &self,
        guard: &Guard<'_, M>,
        lower: &Guard<'_, Dram>,
        (mnode, buffer): (Mnode<'_>, Buffer<'_>),
        node: Node<'_>,
    ) {
        let Some(layers) = &self.tree.layers else { return };
        let medium = layers.medium();
        if !buffer.has_removed(medium) {
            buffer.clear(medium);
            mnode.set_free(medium, self.free_slots(node));
            return mnode.turn(medium);
        }
        // The filter forgets the keys that were removed.
        mnode.begin(medium);
        buffer.clear(medium);
        if self.with_known(guard, node, |known| layers.settle(lower, mnode, known)).is_none() {
            layers.give_up(lower, mnode);
        }
    }

    /// Merges the oldest buffers while the log is short of room. Called without any lock.
    pub(in super::super) fn make_room(&self, guard: &Guard<'_, M>, layers: &Layers<K>) {
        let (Some(buffers), Some(log)) = (&layers.buffers, &self.tree.log) else { return };
        while let Some(buffer) = buffers.oldest::<K>(&layers.pool, log) {
            if self.merge_of(guard, layers, buffer).is_err() {
                // Later changes go to their nodes.
                return;
            }
        }
    }

    /// Takes buffers from the nodes that fill them slowest, if others got none.
    pub(in super::super) fn free_buffers(&self, guard: &Guard<'_, M>) {
        let buffers = self.tree.layers.as_ref().and_then(|layers| layers.buffers.as_ref());
        // Damage is recorded; what lies behind it stays in the log.
        let _ = self.merge_oldest(guard, buffers.map_or(0, Buffers::wanted));
    }

    /// Merges so many buffers, from the one with the oldest change on, or all. Called without any
    /// lock.
    fn merge_oldest(&self, guard: &Guard<'_, M>, most: u64) -> Result<(), Damage> {
        let Some(layers) = &self.tree.layers else { return Ok(()) };
        let (Some(buffers), Some(log)) = (&layers.buffers, &self.tree.log) else { return Ok(()) };
        for _ in 0..most {
            let Some(buffer) = buffers.first_buffer::<K>(&layers.pool, log) else { break };
            self.merge_of(guard, layers, buffer)?;
        }
        Ok(())
    }

    /// Merges a buffer, and takes it from its node, which was written to long ago.
    fn merge_of(&self, guard: &Guard<'_, M>, layers: &Layers<K>, buffer: Buffer<'_>) -> Result<(), Damage> {
        let (lower, medium) = (layers.pin(), layers.medium());
        let Some(mnode) = layers.mnode_at(buffer.owner(medium)) else { return Ok(()) };
        let lock = mnode.lock().acquire(&lower);
        let is_its = !mnode.version(medium).is_gone() && mnode.buffer(medium) == buffer.offset(&layers.pool);
        if !is_its {
            return Ok(());
        }
        self.merge_buffer(guard, &lower, mnode)?;
        if !mnode.version(medium).is_gone() {
            layers.detach(mnode, buffer);
        }
        let node = self.tree.node_at(self.tree.root.offset().raw(), mnode.node(medium))?;
        lock.release();
        if self.is_small(node) {
            self.tidy(guard, node)?;
        }
        Ok(())
    }

    /// Makes the Mnodes of some nodes that have none. Several threads can do it at a time. Returns
    /// whether there is more to do.
    pub(in super::super) fn make_mnodes(&self, guard: &Guard<'_, M>) -> bool {
        let Some(layers) = &self.tree.layers else { return false };
        let is_done = layers.known.load(Relaxed) >= self.tree.count().figure(NODES);
        if is_done || layers.is_full.load(Relaxed) {
            return false;
        }
        // Damage is recorded; what lies behind it goes by the pool.
        let Ok((nodes, is_behind)) = self.next_nodes(guard, layers) else { return false };
        nodes.into_iter().for_each(|node| self.show_to_layers(guard, node));
        is_behind
    }

    /// The next nodes of a walk over all, and whether more follow; another caller gets those.
    fn next_nodes<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        layers: &Layers<K>,
    ) -> Result<(Vec<Node<'g>>, bool), Damage> {
        let tree = &self.tree;
        let mut from = layers.next.lock().unwrap_or_else(PoisonError::into_inner);
        let low = std::mem::take(&mut *from);
        let mut node = match K::owned(&low).filter(|_| !low.is_empty()) {
            Some(key) => tree.floor(guard, key.borrow())?,
            None => tree.first()?,
        };
        let mut nodes = Vec::with_capacity(NODES_A_STEP);
        while nodes.len() < NODES_A_STEP {
            nodes.push(node);
            let Some(end) = tree.end_of(node) else { return Ok((nodes, false)) };
            node = tree.right_of(node, end)?;
        }
        *from = tree.low_of(guard, node)?.to_vec();
        Ok((nodes, true))
    }
}
