//! The tree's side of its layers in DRAM: what a writer that holds a node's lock tells them, and
//! the background work that makes them.

use super::super::super::keys::OrderedKind;
use super::super::find::hash_of;
use super::super::node::{Node, slots_of};
use super::super::ops::{NODES, SpTree};
use super::super::tree::Tree;
use super::super::word::{Entry, hash_bits};
use super::mnode::Mnode;
use super::{Known, Layers};
use crate::{Damage, LayerStats};
use std::borrow::Borrow;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::Guard;

/// Nodes that one step of `maintain` looks at.
const NODES_A_STEP: usize = 256;

/// A node's Mnode whose range is about to change. Readers do without it until `settle_layers`.
pub(in super::super) struct Unsettled<'g> {
    guard: Guard<'g, Dram>,
    mnode: u64,
}

impl<M: MappedMedium, K: OrderedKind> SpTree<M, K> {
    /// See [`PointIndex::set_layers`](crate::PointIndex::set_layers).
    pub(in super::super) fn make_layers(&mut self, bytes: u64) {
        let is_alone = !self.tree.pool.is_shared() && !self.tree.pool.is_read_only();
        self.tree.layers = if is_alone && bytes > 0 { Layers::new(bytes) } else { None };
    }

    /// See [`PointIndex::layers`](crate::PointIndex::layers).
    pub(in super::super) fn layer_stats(&self) -> Option<LayerStats> {
        let stats = self.tree.layers.as_ref()?.stats();
        Some(LayerStats { nodes: [self.tree.count().figure(NODES).min(1 << 40), stats.nodes[1]], ..stats })
    }

    /// What the Mnode of a node is to say; `None` if its node has damage. Called under its lock.
    fn with_known<R>(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        take: impl FnOnce(&Known<'_>) -> R,
    ) -> Option<R> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let key = |slot: usize| {
            let (key, word) = node.pair::<K>(medium, slot);
            match Tree::<M, K>::INLINE {
                true => hash_of::<K>(&key.to_be_bytes(), tree.pool.hash_seed()).map(hash_bits),
                false => Some(Entry(word)).filter(|entry| entry.is_sound()).map(Entry::hash_bits),
            }
        };
        let keys = slots_of(node.bitmap(medium)).map(key).collect::<Option<Vec<u64>>>()?;
        let extent = tree.extent(guard, node, tree.end_of(node).map(|end| end.border)).ok()?;
        let node = node.offset(tree.pool.region());
        Some(take(&Known { node, low: &extent.low, high: extent.high.as_deref(), keys }))
    }

    /// Adds a key to the filter of its node, before it is visible there. This Mnode has the filter;
    /// 0: the node has none. Called under the node's lock.
    pub(in super::super) fn tell_layers(&self, mnode: u64, hash: u64) {
        if let Some(layers) = self.tree.layers.as_ref().filter(|_| mnode != 0)
            && let Some(mnode) = Mnode::at(&layers.pool, mnode)
        {
            mnode.filter().add(layers.pool.medium(), hash_bits(hash));
        }
    }

    /// The Mnode of a node, made if there is none. Called under the node's lock.
    fn adopt<'g>(
        &self,
        guard: &Guard<'_, M>,
        layers: &'g Layers<K>,
        lower: &Guard<'_, Dram>,
        (node, looked): (Node<'_>, u64),
    ) -> Option<Mnode<'g>> {
        let at = node.offset(self.tree.pool.region());
        match layers.of(lower, (at, looked), || self.tree.mapped_key(guard, node)) {
            Some(mnode) if mnode.version(layers.pool.medium()).is_settled() => Some(mnode),
            // A thread has panicked in the middle of a change.
            Some(mnode) => {
                layers.give_up(lower, mnode);
                None
            }
            None => self.with_known(guard, node, |known| layers.make(lower, known)).flatten(),
        }
    }

    /// The place of the Mnode of a node, which is made if there is memory; 0 if there is none. With
    /// the node comes the Mnode that a search has found while the layers are pinned, or 0. Called
    /// under the node's lock.
    pub(in super::super) fn show_to_layers(&self, guard: &Guard<'_, M>, node: (Node<'_>, u64)) -> u64 {
        let Some(layers) = &self.tree.layers else { return 0 };
        let mnode = self.adopt(guard, layers, &layers.pin(), node);
        mnode.map_or(0, |mnode| mnode.offset(&layers.pool))
    }

    /// The range of a node is about to change. Called under its lock.
    pub(in super::super) fn unsettle_layers<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
    ) -> Option<Unsettled<'g>> {
        let layers = self.tree.layers.as_ref()?;
        let (lower, at) = (layers.pin(), node.offset(self.tree.pool.region()));
        let mnode = layers.of(&lower, (at, 0), || self.tree.mapped_key(guard, node))?;
        mnode.begin(layers.pool.medium());
        let mnode = mnode.offset(&layers.pool);
        Some(Unsettled { guard: lower, mnode })
    }

    /// The range of a node has changed. Called under its lock.
    pub(in super::super) fn settle_layers(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        unsettled: Option<Unsettled<'_>>,
    ) {
        let (Some(layers), Some(Unsettled { guard: lower, mnode })) = (&self.tree.layers, unsettled) else {
            return;
        };
        let Some(mnode) = Mnode::at(&layers.pool, mnode) else { return };
        if self.with_known(guard, node, |known| layers.settle(&lower, mnode, known)).is_none() {
            layers.give_up(&lower, mnode);
        }
    }

    /// A node is about to be given to its left neighbour. Called under its lock.
    pub(in super::super) fn hide_from_layers(&self, guard: &Guard<'_, M>, node: Node<'_>) {
        let Some(layers) = &self.tree.layers else { return };
        let (lower, at) = (layers.pin(), node.offset(self.tree.pool.region()));
        if let Some(mnode) = layers.of(&lower, (at, 0), || self.tree.mapped_key(guard, node)) {
            layers.give_up(&lower, mnode);
        }
    }

    /// Makes the Mnodes of some nodes that have none. Returns whether there is more to do.
    pub(in super::super) fn make_mnodes(&self, guard: &Guard<'_, M>) -> bool {
        let Some(layers) = &self.tree.layers else { return false };
        let is_done = layers.known.load(Relaxed) >= self.tree.count().figure(NODES);
        if is_done || layers.is_full.load(Relaxed) {
            return false;
        }
        // Damage is recorded; what lies behind it goes by the pool.
        let from = std::mem::take(&mut *layers.next.lock().unwrap_or_else(PoisonError::into_inner));
        let next = self.make_mnodes_from(guard, &from).unwrap_or_default();
        let is_behind = next.is_some();
        *layers.next.lock().unwrap_or_else(PoisonError::into_inner) = next.unwrap_or_default();
        is_behind
    }

    /// Makes the Mnodes of some nodes, from that of a key on. Returns the low border of the next
    /// one; `None` at the end.
    fn make_mnodes_from(&self, guard: &Guard<'_, M>, from: &[u8]) -> Result<Option<Vec<u8>>, Damage> {
        let tree = &self.tree;
        let mut node = match K::owned(from).filter(|_| !from.is_empty()) {
            Some(key) => tree.floor(guard, key.borrow())?,
            None => tree.first()?,
        };
        for _ in 0..NODES_A_STEP {
            let lock = self.lock(guard, node)?;
            if !node.state(tree.pool.medium()).is_frozen() {
                self.show_to_layers(guard, (node, 0));
            }
            let Some(end) = tree.end_of(node) else { return Ok(None) };
            node = tree.right_of_locked(node, end)?;
            lock.release();
        }
        Ok(Some(tree.low_of(guard, node)?.to_vec()))
    }
}
