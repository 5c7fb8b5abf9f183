//! Keys that are removed, and nodes that have become empty or small.

use super::super::keys::OrderedKind;
use super::layer::Dropped;
use super::node::Node;
use super::ops::Masstree;
use super::way::Layer;
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
    pub(super) fn tidy(&self, guard: &Guard<'_, M>, key: &[u8], leaf: Node<'_>, layer: Layer<'_>) {
        // What is damaged is recorded.
        let _ = self.try_tidy(guard, key, leaf, layer);
    }

    fn try_tidy<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
        mut leaf: Node<'g>,
        mut layer: Layer<'g>,
    ) -> Result<(), Damage> {
        let mut above: Option<Vec<Layer<'g>>> = None;
        while self.tidy_leaf(guard, &layer, leaf)? {
            let upper = loop {
                match self.drop_layer(guard, &layer)? {
                    Dropped::Gone(Some(upper)) => break upper,
                    Dropped::Gone(None) | Dropped::No => return Ok(()),
                    // Nobody else looks at it: the thread that parted it from the layer above saw
                    // keys in it.
                    Dropped::Moved => match self.tree.layer_at(key, layer.depth)? {
                        Some(now) => layer = now,
                        None => return Ok(()),
                    },
                }
            };
            let Some(next) = self.layer_above(key, &layer, &mut above)? else { return Ok(()) };
            (leaf, layer) = (upper, next);
        }
        Ok(())
    }

    /// Joins a leaf that has few entries with a neighbour, if that has room. Returns whether what
    /// is left of its layer may be empty.
    fn tidy_leaf(&self, guard: &Guard<'_, M>, layer: &Layer<'_>, leaf: Node<'_>) -> Result<bool, Damage> {
        if let Some(low) = self.shrink(guard, layer, leaf, 0)? {
            self.sweep_levels(guard, layer, low)?;
            self.lower(guard, *layer)?;
            return Ok(true);
        }
        Ok(leaf.permutation(self.tree.pool.medium()).len() == 0)
    }

    /// Removes what keeps a writer from a key of a layer on its key's way: the layer without
    /// entries where the way to one ends, and those above it that are empty without it. If it
    /// removes none, there is a key by now, or another thread has removed one.
    #[cold]
    pub(super) fn clear_way<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
        layer: Layer<'g>,
    ) -> Result<(), Damage> {
        let mut way = self.tree.way_to_nothing(layer, key)?;
        let Some(last) = way.pop() else { return Ok(()) };
        if let Dropped::Gone(Some(leaf)) = self.drop_layer(guard, &last)? {
            // The next try can do without the rest. What is damaged is recorded.
            let _ = self.clear_above(guard, key, (leaf, last), way);
        }
        Ok(())
    }

    /// Tidies a leaf that has become empty as a layer below it went, and what is empty without it.
    /// `way` has the layers above that one, down from one on the way of `key`.
    fn clear_above<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
        (mut leaf, mut removed): (Node<'g>, Layer<'g>),
        mut way: Vec<Layer<'g>>,
    ) -> Result<(), Damage> {
        while let Some(layer) = way.pop() {
            if !self.tidy_leaf(guard, &layer, leaf)? {
                return Ok(());
            }
            let Dropped::Gone(Some(upper)) = self.drop_layer(guard, &layer)? else { return Ok(()) };
            (leaf, removed) = (upper, layer);
        }
        match self.layer_above(key, &removed, &mut None)? {
            Some(layer) => self.try_tidy(guard, key, leaf, layer),
            None => Ok(()),
        }
    }

    /// The layer of the leaf that had the entry of a removed one, of those on the way of its keys;
    /// `None` if that is gone, too, by now, or has another layer at this place.
    pub(super) fn layer_above<'g>(
        &'g self,
        key: &[u8],
        removed: &Layer<'g>,
        above: &mut Option<Vec<Layer<'g>>>,
    ) -> Result<Option<Layer<'g>>, Damage> {
        let is_next = |next: &Layer<'_>| removed.above.is_some_and(|(_, _, depth)| depth == next.depth);
        if let Some(next) = above.as_mut().and_then(Vec::pop).filter(is_next) {
            return Ok(Some(next));
        }
        // They are not known yet, or others have come between them.
        let layers = above.insert(self.tree.layers_above(key, removed.depth)?);
        Ok(layers.pop().filter(is_next))
    }

    /// Unlinks the frozen nodes before a slice, in all levels where there are any.
    fn sweep_levels(&self, guard: &Guard<'_, M>, layer: &Layer<'_>, slice: u64) -> Result<(), Damage> {
        let mut work = vec![(0, slice)];
        while let Some((level, slice)) = work.pop() {
            // A parent that has few entries left joins a neighbour, and is unlinked like a leaf.
            for parent in self.sweep(guard, layer, level, slice)? {
                if let Some(low) = self.shrink(guard, layer, parent, level + 1)? {
                    work.push((level + 1, low));
                }
            }
        }
        Ok(())
    }

    /// Makes the only child of a layer's root the root.
    fn lower<'g>(&'g self, guard: &'g Guard<'_, M>, mut layer: Layer<'g>) -> Result<(), Damage> {
        while let Some(current) = self.tree.current(&layer)? {
            if !self.lower_once(guard, &current)? {
                return Ok(());
            }
            layer = current;
        }
        Ok(())
    }

    fn lower_once(&self, guard: &Guard<'_, M>, layer: &Layer<'_>) -> Result<bool, Damage> {
        let (tree, medium, region) = (&self.tree, self.tree.pool.medium(), self.tree.pool.region());
        let (root, depth, level) = (layer.root, layer.depth, layer.root.shape(medium).level());
        if level == 0 {
            return Ok(false);
        }
        let Some(child) = tree.first_child(root, level)? else { return Ok(false) };
        // So that the child stays the only one, and the root its parent.
        let _child_lock = self.lock(guard, child, (level - 1, depth))?;
        let _lock = self.lock(guard, root, (level, depth))?;
        let permutation = root.permutation(medium);
        let is_root = root.next(medium).is_none() && !root.state(medium).is_frozen();
        let is_only = permutation.len() == 1;
        let is_parent = root.entry(medium, permutation.slot(0)).offset() == child.offset(region);
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
