//! The collector's walk, which also recounts the keys while writers continue.
//!
//! The walk visits parents before children. It notes its number in each node, under the node's
//! lock, when it has counted the node's leaves. So a writer under that lock knows whether the walk
//! has passed. A new node gets the number of the one that its trie comes from, so the walk never
//! counts the leaves of a node that has its number. Where a leaf moves to a node with another
//! number, its writer corrects the count (see `replace`).
//!
//! A node that was replaced before the walk came to it has its entries elsewhere now: behind the
//! first forks on the way to any of its keys that do not lie above its own. The walk goes on there.
//! A fork above it has come into the node above, which the walk has passed; or, if it has become
//! the highest node, into a node that the walk has not passed, and goes on at.

use super::super::keys::{KeyBytes, OrderedKind};
use super::super::link::{LEAF, Link};
use super::node::Node;
use super::replace::{KINDS, NODE_BYTES, kind_of};
use super::root::Holder;
use super::tree::Tree;
use std::ops::Range;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::{Guard, Locked, Marker};

/// A link that the walk has yet to follow, and the first position that may lie behind it.
type Pending<'g> = (&'g Word, Link, u32);

/// A walk in progress.
struct Walk<'g, 'w, 'm, M: MappedMedium, K: OrderedKind, F> {
    tree: &'g Tree<M, K>,
    guard: &'g Guard<'g, M>,
    marker: &'w mut Marker<'m>,
    each: F,
    number: u16,
    keys: u64,
    nodes: [u64; KINDS],
    bytes: u64,
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
        let (keys, nodes, bytes, stack) = (0, [0; KINDS], 0, Vec::new());
        let mut walk = Walk { tree: self, guard, marker, each, number, keys, nodes, bytes, stack };
        walk.start();
        while let Some(pending) = walk.stack.pop() {
            walk.visit(pending);
        }
        let (keys, nodes, bytes) = (walk.keys, walk.nodes, walk.bytes);
        if self.damage.get().is_some() {
            // What lies behind a damaged link is not free: it can be salvaged.
            marker.give_up();
        }
        self.count().finish_recount(keys);
        nodes.iter().enumerate().for_each(|(kind, &found)| self.count().correct_figure(kind, found));
        self.count().correct_figure(NODE_BYTES, bytes);
    }

    /// The key of a leaf below a node, from which all ways lead there; `None` if there is no sound
    /// one.
    fn any_key<'n>(&'n self, guard: &'n Guard<'_, M>, node: Node<'n>) -> Option<KeyBytes<'n>> {
        let mut stack = vec![(node, 0..node.len())];
        while let Some((node, entries)) = stack.last_mut() {
            let Some(entry) = entries.next() else {
                stack.pop();
                continue;
            };
            let (word, least) = (node.link(self.pool.region(), entry), node.first() + 1);
            let Ok(link) = self.sound_link(word) else { continue };
            if link.kind() == LEAF && K::is_sound(guard, link.offset()) {
                return K::key_of(guard, link.offset());
            }
            if link.is_node()
                && let Ok(below) = self.node_behind(guard, word, link, least)
            {
                stack.push((below, 0..below.len()));
            }
        }
        None
    }
}

impl<'g, M: MappedMedium, K: OrderedKind, F: FnMut(&mut Marker<'_>, u64)> Walk<'g, '_, '_, M, K, F> {
    fn start(&mut self) {
        let (root, word) = (self.tree.root_holder(), self.tree.root_link());
        let lock = root.lock.acquire(self.guard);
        let link = self.tree.follow_locked(word);
        self.note(root);
        self.put((word, link, 0), false);
        lock.release();
    }

    /// Notes in a holder that the walk has passed it. Called under its lock.
    fn note(&self, holder: Holder<'_>) {
        let medium = self.tree.pool.medium();
        holder.set_shape(medium.point("hot.counted"), holder.shape(medium).with_counted(self.number));
    }

    /// Visits a leaf, which its writer may have counted already, or keeps a node for later.
    fn put(&mut self, pending: Pending<'g>, is_counted: bool) {
        let (word, link, _) = pending;
        if link.is_node() {
            self.stack.push(pending);
        } else if !link.is_whole() {
            self.tree.damaged_link(word);
        } else if link.kind() == LEAF {
            self.keys += u64::from(!is_counted);
            if K::LEAF_BYTES > 0 {
                self.marker.mark(link.offset(), K::LEAF_BYTES);
            }
            (self.each)(self.marker, K::word_of(self.guard, link.offset()));
        }
    }

    fn visit(&mut self, (word, link, least): Pending<'g>) {
        let Ok(node) = self.tree.whole_node_behind(self.guard, word, link, least) else { return };
        match self.lock(node) {
            Some(lock) => {
                self.visit_node(node);
                lock.release();
            }
            None => self.visit_successor(node),
        }
    }

    fn lock(&self, node: Node<'g>) -> Option<Locked<'g, M>> {
        self.tree.lock(self.guard, self.tree.holder(node))
    }

    /// Visits a node whose lock is held.
    fn visit_node(&mut self, node: Node<'g>) {
        self.marker.mark(node.offset, node.bytes());
        self.nodes[kind_of(node.len())] += 1;
        self.bytes += node.bytes() as u64;
        self.visit_entries(node, 0..node.len());
        self.note(self.tree.holder(node));
    }

    /// Visits entries of a node whose lock is held.
    fn visit_entries(&mut self, node: Node<'g>, entries: Range<usize>) {
        let is_counted = self.has_passed(node);
        for word in entries.map(|entry| node.link(self.tree.pool.region(), entry)) {
            let link = self.tree.follow_locked(word);
            self.put((word, link, node.first() + 1), is_counted);
        }
    }

    /// Visits the entries of a node whose lock is not held: others may change its links.
    #[cold]
    fn visit_unlocked(&mut self, node: Node<'g>) {
        let is_counted = self.has_passed(node);
        for word in (0..node.len()).map(|entry| node.link(self.tree.pool.region(), entry)) {
            let link = self.tree.follow(word);
            self.put((word, link, node.first() + 1), is_counted);
        }
    }

    fn has_passed(&self, node: Node<'g>) -> bool {
        self.tree.holder(node).shape(self.tree.pool.medium()).counted() == self.number
    }

    /// Visits what has come into the place of a node that is marked.
    #[cold]
    fn visit_successor(&mut self, node: Node<'g>) {
        let Some(key) = self.tree.any_key(self.guard, node) else {
            // It has no leaf, or its records are damaged. A thread may have died when it had marked
            // it: then it is in the tree. What it has is kept; the count may be wrong.
            self.marker.mark(node.offset, node.bytes());
            return self.visit_unlocked(node);
        };
        let first = node.first();
        while !self.visit_behind(&key, first) {
            if let Ok(path) = self.tree.locate(self.guard, &key) {
                self.tree.clear_marks(self.guard, &path);
            }
        }
    }

    /// Visits what lies on the way to a key behind all forks above `first`. False if it changes
    /// meanwhile.
    fn visit_behind(&mut self, key: &[u8], first: u32) -> bool {
        let path = self.tree.locate(self.guard, key);
        let Ok(path) = path.and_then(|path| self.tree.check_path(&path).map(|()| path)) else {
            return true;
        };
        let depth = path.steps.iter().position(|step| step.node.first() >= first);
        let depth = depth.unwrap_or(path.steps.len());
        if let Some(step) = path.steps[..depth].iter().find(|step| !self.has_passed(step.node)) {
            return self.visit_locked(step.node, 0..step.node.len(), true);
        }
        let whole = path.steps.get(depth).map(|step| step.node);
        let Some(above) = depth.checked_sub(1).map(|above| path.steps[above]) else {
            let Some(node) = whole else {
                // The root's only leaf, which its writer has counted when it moved there.
                self.put((path.word, path.link, 0), true);
                return true;
            };
            return self.visit_locked(node, 0..node.len(), true);
        };
        let entries = above.node.affected(above.entry, first);
        match whole.filter(|_| entries.len() == 1) {
            Some(node) => self.visit_locked(node, 0..node.len(), true),
            None => self.visit_locked(above.node, entries, false),
        }
    }

    /// Visits a node, or some of its entries, if it is not marked and was not visited whole.
    fn visit_locked(&mut self, node: Node<'g>, entries: Range<usize>, is_whole: bool) -> bool {
        if self.tree.check_node(node).is_err() {
            return true;
        }
        let Some(lock) = self.lock(node) else { return false };
        if is_whole || !self.has_passed(node) {
            self.visit_node(node);
        } else {
            self.visit_entries(node, entries);
        }
        lock.release();
        true
    }
}
