//! The collector's walk, which also recounts the keys while writers continue.
//!
//! The walk visits parents before children. It notes its number in each node, under the node's
//! lock, when it has counted the node's leaves. So a writer under that lock knows whether the walk
//! has passed. A new node gets the number of the one that it comes from, so the walk never counts
//! the leaves of a node that has its number. Such a node never lies below one without it, and a
//! leaf that moves up may pass from the walk's future into its past (see `count_moved`).
//!
//! A node that was replaced before the walk came to it has a successor: the first node on the way
//! to any of its keys whose level is not above its own. The walk goes on there. Only one leaf may
//! be left of it, or nothing.

use super::super::keys::OrderedKind;
use super::super::link::{LEAF, Link};
use super::node::{KINDS, Node, Slot};
use super::root::Holder;
use super::tree::Tree;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::{Guard, Locked, Marker};

/// A link that the walk has yet to follow.
struct Pending<'g> {
    slot: Slot<'g>,
    base: usize,
}

/// A walk in progress.
struct Walk<'g, 'w, 'm, M: MappedMedium, K: OrderedKind, F> {
    tree: &'g Tree<M, K>,
    guard: &'g Guard<'g, M>,
    marker: &'w mut Marker<'m>,
    each: F,
    number: u16,
    keys: u64,
    nodes: [u64; KINDS.len()],
    stack: Vec<Pending<'g>>,
}

impl<'g, M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`PointIndex::trace`](crate::PointIndex::trace).
    pub(super) fn trace_all(
        &'g self,
        guard: &'g Guard<'g, M>,
        marker: &mut Marker<'_>,
        each: impl FnMut(&mut Marker<'_>, u64),
    ) {
        self.mark_own(marker);
        let number = self.count().start_numbered_recount();
        // PERSIST: the number. So none that a node has kept through a crash is given again.
        self.pool.region().persist(&self.root[1]);
        let (keys, nodes) = (0, [0; KINDS.len()]);
        let mut walk = Walk { tree: self, guard, marker, each, number, keys, nodes, stack: Vec::new() };
        walk.start();
        while let Some(pending) = walk.stack.pop() {
            walk.visit(pending);
        }
        let (keys, nodes) = (walk.keys, walk.nodes);
        if self.damage.get().is_some() {
            // What lies behind a damaged link is not free: it can be salvaged.
            marker.give_up();
        }
        self.count().finish_recount(keys);
        KINDS.iter().for_each(|&kind| self.count().correct_figure(kind as usize, nodes[kind as usize]));
    }
}

impl<'g, M: MappedMedium, K: OrderedKind, F: FnMut(&mut Marker<'_>, u64)> Walk<'g, '_, '_, M, K, F> {
    fn start(&mut self) {
        let (root, word) = (self.tree.root_holder(), self.tree.root_link());
        let lock = root.lock.acquire(self.guard);
        let link = self.tree.follow_locked(word);
        self.note(root);
        self.put((word, link), 0, false);
        lock.release();
    }

    /// Notes in a holder that the walk has passed it. Called under its lock.
    fn note(&self, holder: Holder<'_>) {
        let medium = self.tree.pool.medium();
        holder.set_shape(medium.point("art.counted"), holder.shape(medium).with_counted(self.number));
    }

    /// Visits a leaf, which its writer may have counted already, or keeps a node for later.
    fn put(&mut self, slot: Slot<'g>, base: usize, is_counted: bool) {
        let (word, link) = slot;
        if link.is_node() {
            self.stack.push(Pending { slot, base });
        } else if link.kind() == LEAF && !link.is_sound() {
            self.tree.damaged_link(word);
        } else if link.kind() == LEAF {
            self.keys += u64::from(!is_counted);
            if K::LEAF_BYTES > 0 {
                self.marker.mark(link.offset(), K::LEAF_BYTES);
            }
            (self.each)(self.marker, K::word_of(self.guard, link.offset()));
        }
    }

    fn visit(&mut self, Pending { slot: (word, link), base }: Pending<'g>) {
        let Ok((node, level)) = self.tree.node_to_write(word, link, base) else { return };
        match self.lock(node, level) {
            Some(lock) => {
                self.visit_node(node, level);
                lock.release();
            }
            None => self.visit_successor(node, level),
        }
    }

    fn lock(&self, node: Node<'g>, level: usize) -> Option<Locked<'g, M>> {
        // The node was checked.
        self.tree.lock(self.guard, Holder::node(node, level)).ok().flatten()
    }

    /// Visits a node whose lock is held.
    fn visit_node(&mut self, node: Node<'g>, level: usize) {
        let (medium, region) = (self.tree.pool.medium(), self.tree.pool.region());
        self.marker.mark(node.offset(region), node.kind().bytes());
        self.nodes[node.kind() as usize] += 1;
        let is_counted = self.has_passed(Holder::node(node, level));
        let words = std::iter::once(node.here()).chain(node.links());
        for word in words {
            let link = self.tree.follow_locked(word);
            self.put((word, link), level + 1, is_counted);
        }
        node.recount(medium, self.tree.mark);
        self.note(Holder::node(node, level));
    }

    /// Visits a node whose lock is not held: others may change its links.
    #[cold]
    fn visit_unlocked(&mut self, node: Node<'g>, level: usize) {
        self.marker.mark(node.offset(self.tree.pool.region()), node.kind().bytes());
        let is_counted = self.has_passed(Holder::node(node, level));
        for word in std::iter::once(node.here()).chain(node.links()) {
            let link = self.tree.follow(word);
            self.put((word, link), level + 1, is_counted);
        }
    }

    fn has_passed(&self, holder: Holder<'g>) -> bool {
        holder.shape(self.tree.pool.medium()).counted() == self.number
    }

    /// Visits what has come into the place of a node that is marked.
    #[cold]
    fn visit_successor(&mut self, node: Node<'g>, level: usize) {
        let Some(key) = self.tree.any_key(self.guard, node) else {
            // Its records are damaged. What it had is kept; the count may be wrong.
            return self.visit_unlocked(node, level);
        };
        let Some(key) = K::owned(&key) else { return };
        let key = std::borrow::Borrow::borrow(&key);
        loop {
            let Some((slot, base)) = self.successor(key, level) else { return };
            let (word, link) = slot;
            if !link.is_node() {
                // The last leaf, which its writer has counted when it moved up: the walk has passed
                // all nodes on the way here.
                return self.put(slot, base, true);
            }
            let Ok((heir, level)) = self.tree.node_to_write(word, link, base) else { return };
            if let Some(lock) = self.lock(heir, level) {
                self.visit_node(heir, level);
                return lock.release();
            }
            self.tree.clear_marks(self.guard, key);
        }
    }

    /// The first link on the way to `key` that leads to a leaf, or to a node whose level is not
    /// above `level`; with its holder's base.
    fn successor(&self, key: &K::Key, level: usize) -> Option<(Slot<'g>, usize)> {
        let (mut base, mut word): (_, &'g Word) = (0, self.tree.root_link());
        loop {
            let link: Link = self.tree.follow(word);
            if link.is_empty() {
                return None;
            }
            if link.kind() == LEAF {
                return Some(((word, link), base));
            }
            let (node, found) = self.tree.node_to_write(word, link, base).ok()?;
            if found >= level {
                return Some(((word, link), base));
            }
            word = self.tree.next_link(node, found, key)?.0;
            base = found + 1;
        }
    }
}
