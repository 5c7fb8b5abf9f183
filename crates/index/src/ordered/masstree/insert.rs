//! Keys that are added, and entries of nodes.

use super::super::keys::OrderedKind;
use super::change::Tried;
use super::entry::Entry;
use super::locate::{End, Held, Spot};
use super::node::Node;
use super::ops::Masstree;
use super::permutation::Permutation;
use super::tree::Tree;
use super::way::Layer;
use crate::Fencing;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// Adds an absent key at the place that was found for it.
    pub(super) fn add(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        spot: &Spot<'_>,
        word: u64,
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        let Some(held) = self.lock_spot(guard, spot)? else { return Ok(None) };
        let (tree, medium, leaf) = (&self.tree, self.tree.pool.medium(), held.node);
        let permutation = leaf.permutation(medium);
        let found = tree.position(leaf, permutation, spot.piece);
        match (found, spot.end) {
            (Err(position), End::Nothing) => {
                let word = if Tree::<M, K>::INLINE { word } else { Entry::record(spot.piece, word).0 };
                self.add_to(guard, (held, &spot.layer), (position, spot.piece.slice, word), fencing)
            }
            (Ok(position), End::Other(entry) | End::Across(entry)) => {
                let slot = permutation.slot(position);
                if leaf.entry(medium, slot) != entry {
                    return Ok(None);
                }
                let Some(layer) = self.part(guard, key, (spot, leaf), (entry, word))? else {
                    return Ok(None);
                };
                leaf.set_word(medium, slot, Entry::layer(spot.piece.slice, layer).0);
                tree.pool.region().write_back(leaf.line_of(slot));
                self.count_key(guard, leaf, 1);
                self.finish(leaf, held.lock, fencing);
                Ok(Some(()))
            }
            _ => Ok(None),
        }
    }

    /// Adds an entry to a leaf that has none for its piece.
    fn add_to(
        &self,
        guard: &Guard<'_, M>,
        (held, layer): (Held<'_, M>, &Layer<'_>),
        (position, slice, word): (usize, u64, u64),
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        let Held { node: leaf, lock, is_unposted } = held;
        let unposted = if self.is_full(leaf, slice) {
            let sibling = self.split(guard, (leaf, 0), (position, slice, word))?;
            self.count_key(guard, leaf, 1);
            lock.release();
            Some(sibling)
        } else {
            self.put(leaf, position, (slice, word));
            self.count_key(guard, leaf, 1);
            self.finish(leaf, lock, fencing);
            is_unposted.then_some(leaf)
        };
        if let Some(node) = unposted {
            self.post(guard, layer, (node, 0));
        }
        Ok(Some(()))
    }

    /// Whether a node must be split before an entry is added. Entries with the same slice, ten at
    /// most, stay together.
    pub(super) fn is_full(&self, node: Node<'_>, slice: u64) -> bool {
        let medium = self.tree.pool.medium();
        let permutation = node.permutation(medium);
        let is_other = |slot| node.slice(medium, slot) != slice;
        permutation.len() >= self.tree.width
            && (permutation.len() == super::permutation::WIDTH || permutation.slots().any(is_other))
    }

    /// Puts an entry into a node that has room, and writes that back. Called under the lock.
    #[inline(always)]
    pub(super) fn put(&self, node: Node<'_>, position: usize, (slice, word): (u64, u64)) {
        let (region, medium) = (self.tree.pool.region(), self.tree.pool.medium());
        let old = node.permutation(medium);
        let (new, slot) = old.insert(position);
        node.set_state(medium, node.state(medium).filling(slot).changing(old, new));
        node.fill(medium, slot, slice, word);
        // PERSIST: the entry before the permutation that has it. A crash in between leaves a free
        // slot.
        region.persist(node.line_of(slot));
        self.settle(node, new);
        // PERSIST: the permutation; the caller fences.
        region.write_back(node.head());
    }

    /// Stores a permutation that the state admits beside the one before, and then that it admits no
    /// other. Both lie in one line: a crash in between keeps the first. Called under the lock.
    #[inline(always)]
    pub(super) fn settle(&self, node: Node<'_>, new: Permutation) {
        let medium = self.tree.pool.medium();
        node.set_permutation(medium, new);
        node.set_state(medium, node.state(medium).changing(new, new));
    }

    /// Takes the entry at a position out of a node, and writes that back. Called under the lock.
    pub(super) fn take(&self, node: Node<'_>, position: usize) {
        let (region, medium) = (self.tree.pool.region(), self.tree.pool.medium());
        let old = node.permutation(medium);
        let new = old.remove(position);
        node.set_state(medium, node.state(medium).changing(old, new));
        self.settle(node, new);
        // PERSIST: the permutation; the caller fences.
        region.write_back(node.head());
    }
}
