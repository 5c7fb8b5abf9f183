//! Keys that are removed, and nodes that have become empty or small.

use super::super::keys::OrderedKind;
use super::locate::Layer;
use super::node::Node;
use super::ops::Masstree;
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// Takes a key's entry out of a leaf, and writes that back. Called under the lock.
    pub(super) fn remove_at(&self, guard: &Guard<'_, M>, leaf: Node<'_>, position: usize) {
        self.take(leaf, position);
        self.count_key(guard, leaf, -1);
    }

    /// Removes a leaf with few entries or none, and what is empty or small without it. The key that
    /// it had last is gone, whatever comes of this: what is damaged, or in others' hands, stays.
    #[cold]
    pub(super) fn tidy(&self, guard: &Guard<'_, M>, key: &[u8], leaf: Node<'_>, depth: usize) {
        // What is damaged is recorded.
        let _ = self.try_tidy(guard, key, leaf, depth);
    }

    fn try_tidy<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
        mut leaf: Node<'g>,
        mut depth: usize,
    ) -> Result<(), Damage> {
        loop {
            if let Some(low) = self.shrink(guard, key, leaf, (0, depth))? {
                self.sweep_levels(guard, key, depth, low)?;
                return self.lower(guard, key, depth);
            }
            if depth == 0 || leaf.permutation(self.tree.pool.medium()).len() > 0 {
                return Ok(());
            }
            // It is the first or the last leaf of its layer.
            match self.drop_layer(guard, key, depth)? {
                Some(above) => (leaf, depth) = above,
                None => return Ok(()),
            }
        }
    }

    /// Unlinks the frozen nodes before a slice, in all levels where there are any.
    fn sweep_levels(&self, guard: &Guard<'_, M>, key: &[u8], depth: usize, slice: u64) -> Result<(), Damage> {
        let mut work = vec![(0, slice)];
        while let Some((level, slice)) = work.pop() {
            // A parent that has few entries left joins a neighbour, and is unlinked like a leaf.
            for parent in self.sweep(guard, key, (level, depth), slice)? {
                if let Some(low) = self.shrink(guard, key, parent, (level + 1, depth))? {
                    work.push((level + 1, low));
                }
            }
        }
        Ok(())
    }

    /// Makes the only child of a layer's root the root.
    fn lower(&self, guard: &Guard<'_, M>, key: &[u8], depth: usize) -> Result<(), Damage> {
        while let Some(layer) = self.tree.layer_at(key, depth)? {
            if !self.lower_once(guard, &layer, depth)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn lower_once(&self, guard: &Guard<'_, M>, layer: &Layer<'_>, depth: usize) -> Result<bool, Damage> {
        let (tree, medium, region) = (&self.tree, self.tree.pool.medium(), self.tree.pool.region());
        let (root, level) = (layer.root, layer.root.shape(medium).level());
        if level == 0 {
            return Ok(false);
        }
        let Some(slot) = root.permutation(medium).slots().next() else { return Ok(false) };
        let child = tree.node_of(root, (root.slice(medium, slot), root.entry(medium, slot)), level - 1)?;
        // So that the child stays the only one, and the root its parent.
        let _child_lock = self.lock(guard, child, (level - 1, depth))?;
        let _lock = self.lock(guard, root, (level, depth))?;
        let permutation = root.permutation(medium);
        let is_root = root.next(medium).is_none() && !root.state(medium).is_frozen();
        let is_only = permutation.len() == 1 && permutation.slot(0) == slot;
        let is_parent = root.entry(medium, slot).offset() == child.offset(region);
        let is_alone = child.next(medium).is_none() && child.low(medium) == 0;
        if !(is_root && is_only && is_parent && is_alone) || child.state(medium).is_frozen() {
            return Ok(false);
        }
        let (old, new) = (root.offset(region), child.offset(region));
        if !self.replace_root(guard, layer, (old, (new, level - 1)))? {
            return Ok(false);
        }
        // A thread that comes to add an entry starts again.
        self.freeze(root);
        self.retire(guard, root);
        Ok(true)
    }
}
