//! New keys: into a place without a link, beside a leaf, or into a node, which is replaced. A full
//! node is split, and its highest fork moves up.

use super::super::keys::OrderedKind;
use super::super::link::Link;
use super::change::Tried;
use super::node::link_to;
use super::ops::Hot;
use super::path::{Path, Witness, unsound_beside};
use super::replace::Replacing;
use super::root::Holder;
use super::trie::{Trie, height};
use crate::{Damage, Fencing};
use terrace_medium::{MappedMedium, Word};
use terrace_pool::{Guard, Locked};

impl<M: MappedMedium, K: OrderedKind> Hot<M, K> {
    /// Puts a leaf into an empty root.
    pub(super) fn fill_root(
        &self,
        guard: &Guard<'_, M>,
        path: &Path<'_>,
        leaf: u64,
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        self.fence_leaf();
        let root = self.tree.root_holder();
        let Some(_lock) = self.tree.lock(guard, root) else { return Ok(None) };
        if !self.tree.follow_locked(path.word).is_empty() {
            return Ok(None);
        }
        self.tree.publish(path.word, Link::to_leaf(0, leaf), fencing);
        self.count_keys(guard, root.shape(self.tree.pool.medium()).counted(), 1);
        Ok(Some(()))
    }

    /// Puts a leaf into an entry without a link. Its key differs from that of the leaf beside it at
    /// the fork between them, and nowhere before.
    pub(super) fn fill(
        &self,
        guard: &Guard<'_, M>,
        path: &Path<'_>,
        beside: (Witness<'_>, u32),
        leaf: u64,
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        self.fence_leaf();
        let Some(_locks) = self.lock_beside(guard, path, beside)? else { return Ok(None) };
        self.tree.publish(path.word, Link::to_leaf(0, leaf), fencing);
        let holder = self.tree.holder_above(path, path.steps.len());
        self.count_keys(guard, holder.shape(self.tree.pool.medium()).counted(), 1);
        Ok(Some(()))
    }

    fn fence_leaf(&self) {
        if K::LEAF_BYTES > 0 {
            // PERSIST: the pair before the link to it.
            self.tree.pool.region().fence();
        }
    }

    /// Locks the last node of a path, whose entry has no link, and the node of the leaf beside it;
    /// `None` if that is not so any more, or another leaf is nearer.
    pub(super) fn lock_beside<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        path: &Path<'g>,
        (witness, fork): (Witness<'g>, u32),
    ) -> Result<Option<Vec<Locked<'g, M>>>, Damage> {
        let Some(last) = path.last() else { return Ok(None) };
        let Some(mut locks) = self.lock_witness(guard, witness, last.node.offset) else { return Ok(None) };
        let Some(lock) = self.tree.lock(guard, self.tree.holder(last.node)) else { return Ok(None) };
        locks.push(lock);
        let is_there = self.tree.follow_locked(witness.word) == witness.link;
        if !is_there || !self.tree.follow_locked(path.word).is_empty() {
            return Ok(None);
        }
        let nearest = self.tree.nearest_link(last.node, last.entry)?;
        Ok(nearest.filter(|(position, _)| *position == fork).map(|_| locks))
    }

    /// Locks the node of a witness, unless it is the node at `but`, which is locked next. It lies
    /// below that one. `None` if the node is marked.
    fn lock_witness<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        witness: Witness<'g>,
        but: u64,
    ) -> Option<Vec<Locked<'g, M>>> {
        match witness.node.filter(|node| node.offset != but) {
            Some(node) => Some(vec![self.tree.lock(guard, self.tree.holder(node))?]),
            None => Some(Vec::new()),
        }
    }

    /// Adds a leaf whose key differs from the witness's from `position` on.
    pub(super) fn add_beside(
        &self,
        guard: &Guard<'_, M>,
        path: &Path<'_>,
        witness: Witness<'_>,
        (position, is_high, leaf): (u32, bool, u64),
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        let new = (position, is_high, Link::to_leaf(0, leaf));
        if path.steps.is_empty() {
            let holder = self.tree.root_holder();
            let Some(_lock) = self.tree.lock(guard, holder) else { return Ok(None) };
            return self.push_down(guard, (path.word, witness.link), holder, new, fencing);
        }
        let depth = path.depth_of(position);
        let step = path.steps[depth];
        let Some(mut locks) = self.lock_witness(guard, witness, step.node.offset) else { return Ok(None) };
        let holder = self.tree.holder(step.node);
        let Some(lock) = self.tree.lock(guard, holder) else { return Ok(None) };
        locks.push(lock);
        if self.tree.follow_locked(witness.word) != witness.link {
            return Ok(None);
        }
        let mut trie = self.tree.trie_of(step.node)?;
        let affected = trie.affected(step.entry, position);
        if affected.len() == 1 && trie.entries[step.entry].link == witness.link && height(step.link) > 1 {
            return self.push_down(guard, (witness.word, witness.link), holder, new, fencing);
        }
        let is_next = path.steps.get(depth + 1).is_some_and(|next| next.node.first() == position);
        if is_next || trie.has_fork(affected, position) {
            // The paths say that the keys are the same there.
            return Err(unsound_beside(witness.link).into());
        }
        trie.add(step.entry, position, is_high, new.2);
        trie.compact();
        self.put_up(guard, (path, depth), trie, (new.2, locks))
    }

    /// Puts a node with two leaves in the place of one leaf. Called under the holder's lock.
    fn push_down(
        &self,
        guard: &Guard<'_, M>,
        (word, there): (&Word, Link),
        holder: Holder<'_>,
        (position, is_high, leaf): (u32, bool, Link),
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        if self.tree.follow_locked(word) != there {
            return Ok(None);
        }
        let (low, high) = if is_high { (there, leaf) } else { (leaf, there) };
        let trie = Trie::fork(position, low, high);
        let counted = holder.shape(self.tree.pool.medium()).counted();
        let fresh = self.build(guard, &trie, counted)?;
        self.count_node(guard, (trie.entries.len(), fresh.len()), 1);
        // PERSIST: the node, and the leaf in it, before the link to the node. A crash in between
        // leaves blocks that the collector reclaims.
        let node = fresh.fenced(&guard.fence()).into_offset();
        self.tree.publish(word, link_to(1, trie.entries.len(), node), fencing);
        self.count_keys(guard, counted, 1);
        Ok(Some(()))
    }

    /// Puts a trie with a new leaf in the place of a node, whose lock is held. If it has too many
    /// entries, it is split, and its highest fork moves to the node above, as long as that does not
    /// make the tree higher than a node in between would.
    fn put_up<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        (path, mut depth): (&Path<'g>, usize),
        mut trie: Trie,
        (leaf, locks): (Link, Vec<Locked<'g, M>>),
    ) -> Tried<()> {
        let growth = self.tree.growth;
        let mut change = Replacing::of(self, guard, path.steps[depth].node, locks);
        change.leaf = Some((leaf, change.counted));
        loop {
            let step = path.steps[depth];
            let holder = self.tree.holder_above(path, depth);
            if !change.lock_above(holder, &step) {
                return Ok(None);
            }
            if trie.entries.len() <= growth.entries {
                let link = change.node_of(&trie)?;
                change.swap(step.word, link);
                return Ok(Some(()));
            }
            let (position, low, high) = trie.split();
            let (low, high) = (change.node_of(&low)?, change.node_of(&high)?);
            let above = depth.checked_sub(1).map(|above| path.steps[above]);
            let is_low = |link: Link| height(link) <= height(low).max(height(high)).saturating_add(1);
            let Some(above) = above.filter(|above| is_low(above.link) && change.old.len() < growth.levels)
            else {
                let link = change.node_of(&Trie::fork(position, low, high))?;
                change.swap(step.word, link);
                return Ok(Some(()));
            };
            trie = self.tree.trie_of(above.node)?;
            change.move_up(above.node, [low, high]);
            trie.part(above.entry, (position, low, high));
            trie.compact();
            depth -= 1;
        }
    }
}
