//! Merges of write buffers into their nodes (4.4.4).
//!
//! All changes of a buffer become visible in the node with one store of its bitmap: the pairs lie
//! in free slots then, and the slots that they supersede leave with the same store. The number of
//! the last change follows in the same line. So a crash between the two leaves entries of the log
//! that the node has; merging them once more changes nothing.

use super::super::keys::OrderedKind;
use super::find::hash_of;
use super::layers::Mnode;
use super::node::{Node, Pair, slots_of};
use super::ops::SpTree;
use super::tree::Tree;
use super::word::{Entry, hash_bits};
use crate::Damage;
use terrace_medium::{Dram, Line, MappedMedium};
use terrace_pool::Guard;

/// What a node is to get.
pub(super) struct Merged {
    /// Slots that go.
    pub(super) superseded: u64,
    /// Pairs that come.
    pub(super) pairs: Vec<Pair>,
    /// The number of the last of these changes.
    pub(super) number: u64,
}

impl<M: MappedMedium, K: OrderedKind> SpTree<M, K> {
    /// The bits of the hash of a pair's key; `None` if its slot is not sound.
    pub(super) fn hash_bits_of(&self, (key, word): Pair) -> Option<u64> {
        match Tree::<M, K>::INLINE {
            true => hash_of::<K>(&key.to_be_bytes(), self.tree.pool.hash_seed()).map(hash_bits),
            false => Some(Entry(word)).filter(|entry| entry.is_sound()).map(Entry::hash_bits),
        }
    }

    /// Gives a node what was logged for it, durably. Takes no memory. Called under its lock.
    pub(super) fn merge(&self, node: Node<'_>, merged: &Merged) -> Result<(), Damage> {
        let region = self.tree.pool.region();
        let medium = region.medium();
        let bitmap = node.bitmap(medium);
        let free = !bitmap & self.tree.all_slots();
        if merged.pairs.len() > free.count_ones() as usize {
            let what = "a node has fewer free slots than changes were logged for it";
            return Err(self.tree.damaged_node(node, what));
        }
        let mut all = bitmap & !merged.superseded;
        let mut lines: Vec<&Line> = Vec::new();
        for (slot, &pair) in slots_of(free).zip(&merged.pairs) {
            node.fill::<M, K>(medium, slot, self.hash_bits_of(pair).unwrap_or(0) as u8, pair);
            all |= 1 << slot;
            lines.push(node.line_of::<K>(slot));
        }
        if !merged.pairs.is_empty() {
            // Slots ascend, so those of a line follow each other.
            lines.dedup_by(|next, line| std::ptr::eq(*next, *line));
            lines.iter().for_each(|line| region.write_back(*line));
            region.write_back(node.tag_line());
            // PERSIST: the pairs and their tags before their bits.
            region.fence();
        }
        if all != bitmap {
            node.publish(medium, all);
        }
        node.set_merged(medium, merged.number);
        // PERSIST: the bitmap and the number, before the log's places are used again.
        region.persist(node.head());
        Ok(())
    }

    /// Merges the buffer of an Mnode, whose lock is held, into its node.
    pub(super) fn merge_buffer(
        &self,
        guard: &Guard<'_, M>,
        lower: &Guard<'_, Dram>,
        mnode: Mnode<'_>,
    ) -> Result<(), Damage> {
        let (tree, Some(layers), Some(log)) = (&self.tree, &self.tree.layers, &self.tree.log) else {
            return Ok(());
        };
        let Some(buffer) = layers.buffer_of(mnode).filter(|buffer| buffer.first(layers.medium()) != 0) else {
            return Ok(());
        };
        let node = tree.node_at(tree.root.offset().raw(), mnode.node(layers.medium()))?;
        let merged = Merged {
            superseded: buffer.superseded(layers.medium()),
            pairs: buffer.pairs::<K>(layers.medium()).collect(),
            // Those of this node that come later get higher ones: its Mnode is locked.
            number: log.next() - 1,
        };
        let lock = self.lock(guard, node)?;
        self.merge(node, &merged)?;
        self.empty_buffer(guard, lower, (mnode, buffer), node);
        lock.release();
        Ok(())
    }
}
