//! Nodes that have lost entries: a node with one link or none goes, and one that has lost half of
//! its links is replaced by a smaller one, or by entries of the node above.

use super::super::keys::OrderedKind;
use super::super::link::{LEAF, Link};
use super::super::links::{load, store};
use super::change::Tried;
use super::ops::Hot;
use super::path::Path;
use super::replace::Replacing;
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

impl<M: MappedMedium, K: OrderedKind> Hot<M, K> {
    /// Removes or replaces the nodes at the end of a path that have lost so many links.
    pub(super) fn tidy(&self, guard: &Guard<'_, M>, path: &Path<'_>) -> Result<(), Damage> {
        for depth in (0..path.steps.len()).rev() {
            let node = path.steps[depth].node;
            let (all, links) = (node.len(), self.links_of(path, depth));
            let has_changed = match links {
                0 | 1 => self.collapse(guard, path, depth)?,
                _ if 2 * links <= all => matches!(self.shrink(guard, path, depth), Ok(Some(()))),
                _ => false,
            };
            if !has_changed {
                break;
            }
        }
        Ok(())
    }

    /// The number of links that a node on a path has.
    fn links_of(&self, path: &Path<'_>, depth: usize) -> usize {
        let (medium, region, node) =
            (self.tree.pool.medium(), self.tree.pool.region(), path.steps[depth].node);
        (0..node.len()).filter(|&entry| !load(medium, node.link(region, entry)).is_empty()).count()
    }

    /// Puts the only link of a node in the node's place, or none if it has none. Takes no memory.
    fn collapse(&self, guard: &Guard<'_, M>, path: &Path<'_>, depth: usize) -> Result<bool, Damage> {
        let (step, medium) = (path.steps[depth], self.tree.pool.medium());
        self.tree.check_node(step.node)?;
        let Some(lock) = self.tree.lock(guard, self.tree.holder(step.node)) else { return Ok(false) };
        let mut heir = Link::NONE;
        for entry in 0..step.node.len() {
            let link = self.tree.sound_link_locked(step.node, entry)?;
            if !link.is_empty() && !heir.is_empty() {
                return Ok(false);
            }
            heir = if link.is_empty() { heir } else { link };
        }
        let above = self.tree.holder_above(path, depth);
        if let Some(node) = above.node {
            self.tree.check_node(node)?;
        }
        let mut change = Replacing::of(self, guard, step.node, vec![lock]);
        if !change.lock_above(above, &step) {
            return Ok(false);
        }
        change.move_leaves(above.shape(medium).counted(), i64::from(heir.kind() == LEAF));
        if heir.is_empty() {
            change.swap(step.word, step.link.removed());
            return Ok(true);
        }
        // It was in this place before the node was, and a thread may have seen it there, dirty.
        let locks = change.swap(step.word, heir.held());
        store(medium, step.word, heir);
        drop(locks);
        Ok(true)
    }

    /// Replaces a node by one without the entries that have no link. If the node above has room for
    /// what is left, that goes there. Does nothing if there is no memory: the node is right as it
    /// is.
    fn shrink(&self, guard: &Guard<'_, M>, path: &Path<'_>, depth: usize) -> Tried<()> {
        let (step, medium) = (path.steps[depth], self.tree.pool.medium());
        self.tree.check_node(step.node)?;
        let Some(lock) = self.tree.lock(guard, self.tree.holder(step.node)) else { return Ok(None) };
        let mut trie = self.tree.trie_of(step.node)?;
        trie.compact();
        if trie.entries.len() < 2 {
            return Ok(None);
        }
        let mut change = Replacing::of(self, guard, step.node, vec![lock]);
        let holder = self.tree.holder_above(path, depth);
        if let Some(node) = holder.node {
            self.tree.check_node(node)?;
        }
        if !change.lock_above(holder, &step) {
            return Ok(None);
        }
        let room = self.tree.growth.entries * 3 / 4;
        let Some(above) = depth.checked_sub(1).map(|above| path.steps[above]) else {
            let link = change.node_of(&trie)?;
            change.swap(step.word, link);
            return Ok(Some(()));
        };
        if self.links_of(path, depth - 1) + trie.entries.len() - 1 > room {
            let link = change.node_of(&trie)?;
            change.swap(step.word, link);
            return Ok(Some(()));
        }
        let mut whole = self.tree.trie_of(above.node)?;
        // Before the entries come: so there are never too many.
        let entry = whole.compact_beside(above.entry);
        if whole.entries.len() + trie.entries.len() - 1 > room {
            return Ok(None);
        }
        whole.put_in(entry, &trie);
        change.move_leaves(self.tree.holder(above.node).shape(medium).counted(), trie.leaves());
        change.move_up(above.node, [Link::NONE; 2]);
        let holder = self.tree.holder_above(path, depth - 1);
        if let Some(node) = holder.node {
            self.tree.check_node(node)?;
        }
        if !change.lock_above(holder, &above) {
            return Ok(None);
        }
        let link = change.node_of(&whole)?;
        change.swap(above.word, link);
        Ok(Some(()))
    }
}
