//! Nodes in the place of others: how a change of the structure is built, and made visible by one
//! store.
//!
//! All nodes that a change replaces lie on one path. It marks them, stores the link to what comes
//! into the place of the highest, and retires them, under the locks of all of them and of the
//! link's holder. The old nodes keep their content for the readers in them.

use super::super::keys::OrderedKind;
use super::super::link::{LEAF, Link};
use super::super::links::{load, store};
use super::node::{Image, Node, link_to};
use super::ops::Hot;
use super::path::Step;
use super::root::Holder;
use super::tree::Tree;
use super::trie::{Entry, Trie};
use crate::{Damage, Fencing};
use terrace_medium::{MappedMedium, Word};
use terrace_pool::{Fresh, Guard, Locked, PoolFull};

/// The number of entries in whose multiples nodes are counted, for statistics.
pub(super) const KIND_ENTRIES: usize = 8;
/// The kinds of nodes that are counted.
pub(super) const KINDS: usize = 4;
/// The figures behind those of the kinds: nodes that others replaced, and bytes of nodes.
pub(super) const REPLACED: usize = KINDS;
pub(super) const NODE_BYTES: usize = KINDS + 1;

/// The kind of a node with this many entries.
pub(super) fn kind_of(entries: usize) -> usize {
    (entries - 1) / KIND_ENTRIES
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// The trie of a node, whose links are durable. Called under the lock.
    pub(super) fn trie_of(&self, node: Node<'_>) -> Result<Trie, Damage> {
        let mut entries = Vec::with_capacity(node.len() + 1);
        for (nth, bits) in node.bits().into_iter().enumerate() {
            entries.push(Entry { bits, link: self.sound_link_locked(node, nth)? });
        }
        Ok(Trie { positions: node.positions(), entries })
    }

    /// The link of an entry, durable, or none; an error if it is neither. Called under the lock.
    pub(super) fn sound_link_locked(&self, node: Node<'_>, entry: usize) -> Result<Link, Damage> {
        let word = node.link(self.pool.region(), entry);
        if load(self.pool.medium(), word).is_whole() {
            Ok(self.follow_locked(word))
        } else {
            Err(self.damaged_link(word))
        }
    }

    /// Makes the links to pairs dirty in a node that is about to be replaced. Their words will
    /// change behind links of other nodes, where a reader in this one does not see that they are
    /// not durable.
    fn soil_leaves(&self, node: Node<'_>) {
        if !M::VOLATILE_CACHE || K::LEAF_BYTES == 0 {
            return;
        }
        let (medium, region) = (self.pool.medium(), self.pool.region());
        for word in (0..node.len()).map(|entry| node.link(region, entry)) {
            let link = load(medium, word).clean();
            if link.kind() == LEAF {
                store(medium, word, link.held());
            }
        }
    }
}

impl<M: MappedMedium, K: OrderedKind> Hot<M, K> {
    /// A new node, written back and not fenced.
    pub(super) fn build<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        trie: &Trie,
        counted: u16,
    ) -> Result<Fresh<'g, M>, PoolFull> {
        let image = Image::of(trie, counted);
        let fresh = guard.alloc(image.bytes().len())?;
        fresh.write(0, image.bytes());
        // PERSIST: the node before the link to it. The caller fences.
        fresh.write_back();
        Ok(fresh)
    }

    /// Counts a node of so many entries and bytes that was linked or unlinked, for statistics.
    pub(super) fn count_node(&self, guard: &Guard<'_, M>, (entries, bytes): (usize, usize), by: i64) {
        let (count, slot) = (self.tree.count(), guard.slot_index());
        count.add_figure(slot, kind_of(entries), by);
        count.add_figure(slot, NODE_BYTES, by * bytes as i64);
    }
}

/// A change of the structure that replaces nodes. If it is dropped before [`Replacing::swap`],
/// nothing has changed.
pub(super) struct Replacing<'g, M: MappedMedium, K> {
    hot: &'g Hot<M, K>,
    guard: &'g Guard<'g, M>,
    /// The locks of the nodes that are replaced, and of the holder above.
    locks: Vec<Locked<'g, M>>,
    /// The nodes that are replaced, the lowest first.
    pub(super) old: Vec<Node<'g>>,
    /// The new nodes, and their numbers of entries.
    new: Vec<(Fresh<'g, M>, usize)>,
    /// The number of the last recount that has passed the highest node that is replaced.
    pub(super) counted: u16,
    /// The leaf of a new key, and that number of the node which it comes into.
    pub(super) leaf: Option<(Link, u16)>,
    /// Leaves that move from nodes with the first of these numbers to nodes with the second.
    moved: Vec<(u16, u16, i64)>,
}

impl<'g, M: MappedMedium, K: OrderedKind> Replacing<'g, M, K> {
    /// A change that replaces a node, which is locked.
    pub(super) fn of(
        hot: &'g Hot<M, K>,
        guard: &'g Guard<'_, M>,
        node: Node<'g>,
        locks: Vec<Locked<'g, M>>,
    ) -> Self {
        let counted = hot.tree.holder(node).shape(hot.tree.pool.medium()).counted();
        Self { hot, guard, locks, old: vec![node], new: Vec::new(), counted, leaf: None, moved: Vec::new() }
    }

    /// Locks what holds the link to the highest node that is replaced; false if it holds that link
    /// no more.
    pub(super) fn lock_above(&mut self, holder: Holder<'g>, step: &Step<'g>) -> bool {
        let Some(lock) = self.hot.tree.lock(self.guard, holder) else { return false };
        self.locks.push(lock);
        self.hot.tree.follow_locked(step.word) == step.link
    }

    /// The link to a new node with this trie, or the one link of the trie.
    pub(super) fn node_of(&mut self, trie: &Trie) -> Result<Link, PoolFull> {
        if let [Entry { link, .. }] = trie.entries[..] {
            return Ok(link);
        }
        let fresh = self.hot.build(self.guard, trie, self.counted)?;
        let link = link_to(trie.height(), trie.entries.len(), fresh.offset());
        self.new.push((fresh, trie.entries.len()));
        Ok(link)
    }

    /// The node above, which is locked, is replaced, too, and these links move to it.
    pub(super) fn move_up(&mut self, above: Node<'g>, links: [Link; 2]) {
        let medium = self.hot.tree.pool.medium();
        let to = self.hot.tree.holder(above).shape(medium).counted();
        for link in links.into_iter().filter(|link| link.kind() == LEAF) {
            match &mut self.leaf {
                Some((leaf, counted)) if *leaf == link => *counted = to,
                _ => self.move_leaves(to, 1),
            }
        }
        self.counted = to;
        self.old.push(above);
    }

    /// Leaves move from the highest node that is replaced to a node with this number.
    pub(super) fn move_leaves(&mut self, to: u16, leaves: i64) {
        if to != self.counted {
            self.moved.push((self.counted, to, leaves));
        }
    }

    /// Stores a link in the place of that to the highest node that is replaced, and makes it
    /// durable. Returns the locks.
    pub(super) fn swap(self, word: &Word, link: Link) -> Vec<Locked<'g, M>> {
        let (tree, guard) = (&self.hot.tree, self.guard);
        // PERSIST: the new nodes, and the new leaf, before the link to them. A crash in between
        // leaves blocks that the collector reclaims.
        let fence = guard.fence();
        for (fresh, entries) in self.new {
            self.hot.count_node(guard, (entries, fresh.len()), 1);
            let _ = fresh.fenced(&fence).into_offset();
        }
        self.old.iter().for_each(|node| tree.set_obsolete(*node));
        self.old.iter().for_each(|node| tree.soil_leaves(*node));
        // Durable before the nodes are retired, whose memory others will use.
        tree.publish(word, link, &mut Fencing::Now);
        for (from, to, leaves) in self.moved {
            self.hot.count_keys(guard, from, -leaves);
            self.hot.count_keys(guard, to, leaves);
        }
        if let Some((_, counted)) = self.leaf {
            self.hot.count_keys(guard, counted, 1);
        }
        tree.count().add_figure(guard.slot_index(), REPLACED, self.old.len() as i64);
        for node in &self.old {
            self.hot.count_node(guard, (node.len(), node.bytes()), -1);
            guard.retire(node.offset, node.bytes());
        }
        self.locks
    }
}
