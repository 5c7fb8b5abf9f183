//! FAST & FAIR below the Spot-on layer: a leaf is a unit. Integers only.
//!
//! ```text
//!                  parent:  | ... k3 old | k7 ... |                | ... k3 copy | k7 ... |
//!                                    |                                      |
//!      +- left -+   +- old: k3 k5 -+ |     +- left -+   +- copy: k3 k4 -+   | (new right half,
//!      |     ------>|              |<+     |     ------>|           ------->|  if they are many:
//!      +--------+   +--------------+       +--------+   +---------------+      the parent is told)
//! ```
//! A merge out of place writes old entries and buffer to one new leaf, or to several. Then the
//! parent's pointer and the left sibling's link change, in any order, with one fence. Opening walks
//! all nodes: where a link differs from the pointer of the parent, the parent's counts, and a right
//! half that a parent does not know is told to it. So the leaf of a key is its unit, before and
//! after a crash.
//!
//! The cached path knows each leaf and each node of level 1 by its least key. Higher levels are
//! read only when such a node is split. Merges leave empty leaves where they are.

use super::node::{CAPACITY, NODE, Node, Right};
use super::{Added, FastFair, Intent, Locked, Seen};
use crate::baselines::spot::{Change, Merge, Removing, Spotted};
use crate::baselines::{Space, SpaceFull};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use terrace_medium::Medium;

/// FAST & FAIR for one thread, with merges of many pairs.
pub struct SpotFastFair<M> {
    tree: FastFair<M>,
    path: Option<Path>,
    /// Leaves that a merge has replaced.
    free: Vec<u64>,
}

/// The nodes of the levels 0 and 1 by the least key that belongs to them.
#[derive(Default)]
struct Path([BTreeMap<u64, u64>; 2]);

impl Path {
    fn note(&mut self, level: u64, low: u64, at: u64) {
        if let Some(nodes) = self.0.get_mut(level as usize) {
            nodes.insert(low, at);
        }
    }

    /// The last node of a level whose least key is at most this one.
    fn find(&self, level: u64, key: u64) -> Option<u64> {
        self.0.get(level as usize)?.range(..=key).next_back().map(|(_, at)| *at)
    }
}

/// The least key of a node of which this is the word.
fn key_of(low: u64) -> u64 {
    if low == 0 { 0 } else { !low }
}

/// A node of a level, and the word of its least key.
type Found = (u64, u64);

impl<M: Medium> FastFair<M> {
    /// The nodes of a level that their parents know, and the root, from left to right.
    fn known(&self, level: u64) -> Vec<Found> {
        let mut parent = self.root();
        if parent.level() <= level {
            return vec![(0, parent.offset())];
        }
        while parent.level() > level + 1 {
            parent = self.node(parent.leftmost());
        }
        let (mut known, mut low) = (Vec::new(), 0);
        loop {
            drop(self.lock(parent));
            known.push((low, parent.leftmost()));
            known.extend_from_slice(parent.entries().as_slice());
            let Some(right) = parent.right() else { return known };
            (low, parent) = (right.low, self.node(right.at));
        }
    }

    /// Repairs the nodes of a level, and makes their links those of their parents. Returns all of
    /// them, of which the parents may not know some.
    fn relink(&self, level: u64) -> Vec<Found> {
        let known = self.known(level);
        let mut all = Vec::new();
        for (nth, &(low, at)) in known.iter().enumerate() {
            let next = known.get(nth + 1);
            let (mut low, mut node) = (low, self.node(at));
            loop {
                drop(self.lock(node));
                all.push((low, node.offset()));
                match (node.right(), next) {
                    (None, _) => break,
                    (Some(right), Some(next)) if right.low == next.0 => {
                        if right.at != next.1 {
                            node.link(next.1);
                            // PERSIST: the repair, before a change relies on it.
                            self.space.region().fence();
                        }
                        break;
                    }
                    (Some(right), _) => (low, node) = (right.low, self.node(right.at)),
                }
            }
        }
        all
    }

    /// Repairs all that a crash left, as far as there is memory. Returns leaves and nodes of level
    /// 1.
    fn complete(&self) -> Path {
        let mut path = Path::default();
        let mut level = self.root().level() + 1;
        while let Some(below) = level.checked_sub(1) {
            level = below;
            for (low, at) in self.relink(level) {
                path.note(level, key_of(low), at);
                self.tell_parent(self.lock(self.node(at)));
            }
        }
        if self.root().level() == 1 && path.0[1].is_empty() {
            path.note(1, 0, self.root().offset());
        }
        path
    }
}

/// Tells the parents about the right sibling of a node, as `FastFair::tell_parent`, and the path
/// about both.
fn tell<M: Medium>(tree: &FastFair<M>, mut path: Option<&mut Path>, left: Node<'_, M>) {
    let mut left = left.offset();
    loop {
        let node = tree.node(left);
        let (Some(right), level) = (node.right(), node.level()) else { return };
        let key = key_of(right.low);
        if let Some(path) = &mut path {
            path.note(level, key, right.at);
        }
        if tree.grow_to(level + 1).is_err() {
            return;
        }
        let (parent, seen) = parent_of(tree, path.as_deref_mut(), level + 1, key);
        if seen.is_found || parent.node.leftmost() == right.at {
            return;
        }
        let Ok(Added::Split) = tree.add(&parent, seen.place, right.low, right.at) else { return };
        left = parent.node.offset();
    }
}

/// The node of an inner level to which a key belongs.
fn parent_of<'t, M: Medium>(
    tree: &'t FastFair<M>,
    path: Option<&mut Path>,
    level: u64,
    key: u64,
) -> (Locked<'t, M>, Seen) {
    let Some(path) = path.filter(|_| level == 1) else { return tree.lock_at(level, &key) };
    let found = path.find(1, key).unwrap_or_else(|| {
        // The tree has just become that high.
        let root = tree.root().offset();
        path.note(1, 0, root);
        root
    });
    tree.lock_from(tree.node(found), 1, &key)
}

/// Entries of a leaf, changed. Both are in the order of keys.
fn changed(entries: &[(u64, u64)], changes: &[Change]) -> Vec<(u64, u64)> {
    let mut merged: BTreeMap<u64, u64> = entries.iter().map(|&(word, value)| (!word, value)).collect();
    for &(key, word) in changes {
        match word {
            Some(word) => merged.insert(key, word),
            None => merged.remove(&key),
        };
    }
    merged.into_iter().map(|(key, value)| (!key, value)).collect()
}

impl<M: Medium> SpotFastFair<M> {
    /// Levels of the tree.
    #[cfg(test)]
    pub(in crate::baselines) fn levels(&self) -> u64 {
        self.tree.root().level() + 1
    }

    fn leaf(&self, key: u64) -> Node<'_, M> {
        let found = self.path.as_ref().and_then(|path| path.find(0, key));
        found.map_or_else(|| self.tree.descend(0, &key, Intent::Read), |at| self.tree.node(at))
    }

    fn merge_in_place(&mut self, unit: u64, changes: &[Change]) -> Result<(), SpaceFull> {
        let Self { tree, path, .. } = self;
        for &(key, word) in changes {
            let (leaf, seen) = tree.lock_from(tree.node(unit), 0, &key);
            match word {
                Some(word) if seen.is_found => leaf.node.replace(seen.place - 1, word),
                Some(word) => {
                    if let Added::Split = tree.add(&leaf, seen.place, !key, word)? {
                        let left = leaf.node;
                        drop(leaf);
                        tell(tree, path.as_mut(), left);
                    }
                }
                None if seen.is_found => leaf.node.remove(seen.place - 1, leaf.node.count()),
                None => {}
            }
        }
        Ok(())
    }

    fn merge_out_of_place(&mut self, changes: &[Change]) -> Result<(), SpaceFull> {
        let mut rest = changes;
        while let Some(&(key, _)) = rest.first() {
            let (leaf, right) = self.leaf_with_right(key);
            let belongs = |change: &&Change| right.is_none_or(|right| change.0 < key_of(right.low));
            let (here, others) = rest.split_at(rest.iter().take_while(belongs).count());
            self.replace(leaf, here)?;
            rest = others;
        }
        Ok(())
    }

    /// The leaf of a key, repaired, and its right sibling.
    fn leaf_with_right(&self, key: u64) -> (u64, Option<Right>) {
        let (leaf, _) = self.tree.lock_from(self.leaf(key), 0, &key);
        (leaf.node.offset(), leaf.node.right())
    }

    /// Memory for so many leaves, or for none.
    fn leaves(&mut self, count: usize) -> Result<Vec<u64>, SpaceFull> {
        let mut leaves = Vec::new();
        for _ in 0..count {
            match self.free.pop().map_or_else(|| self.tree.space.alloc_aligned(NODE, NODE), Ok) {
                Ok(leaf) => leaves.push(leaf),
                Err(full) => {
                    self.free.append(&mut leaves);
                    return Err(full);
                }
            }
        }
        Ok(leaves)
    }

    /// Replaces a leaf by copies of it, changed.
    fn replace(&mut self, leaf: u64, changes: &[Change]) -> Result<(), SpaceFull> {
        let old = self.tree.node(leaf);
        let entries = changed(old.entries().as_slice(), changes);
        let count = entries.len().div_ceil(CAPACITY).max(1);
        let low = old.low();
        let left = self.left_of(leaf, low);
        let copies = self.leaves(count)?;
        self.write(leaf, &copies, &entries);
        // PERSIST: the copies before any word names them.
        self.tree.space.region().fence();
        self.name(leaf, key_of(low), copies[0]);
        if let Some(left) = left {
            self.tree.node(left).link(copies[0]);
        }
        // PERSIST: both pointers, before the old leaf's memory is used again, and before the buffer
        // is dropped.
        self.tree.space.region().fence();
        self.free.push(leaf);
        let Self { tree, path, .. } = self;
        if let Some(path) = path {
            path.note(0, key_of(low), copies[0]);
        }
        copies[..count - 1].iter().for_each(|&copy| tell(tree, path.as_mut(), tree.node(copy)));
        Ok(())
    }

    /// Writes the copies of a leaf, which share its entries evenly.
    fn write(&self, leaf: u64, copies: &[u64], entries: &[(u64, u64)]) {
        let old = self.tree.node(leaf);
        let start = |nth: usize| nth * entries.len() / copies.len();
        for (nth, &copy) in copies.iter().enumerate() {
            let low = if nth == 0 { old.low() } else { entries[start(nth)].0 };
            let right = match copies.get(nth + 1) {
                Some(&right) => (right, entries[start(nth + 1)].0),
                None => old.right().map_or((0, 0), |right| (right.at, right.low)),
            };
            self.tree.node(copy).write_leaf(low, right, &entries[start(nth)..start(nth + 1)]);
        }
    }

    /// The left sibling of a leaf.
    fn left_of(&self, leaf: u64, low: u64) -> Option<u64> {
        let before = key_of(low).checked_sub(1)?;
        let mut left = self.leaf(before);
        // One node to the left of it, if a parent does not know all leaves.
        while let Some(right) = left.right().filter(|right| right.at != leaf) {
            left = self.tree.node(right.at);
        }
        Some(left.offset())
    }

    /// Makes the word that names a leaf name its copy. Durable after a fence.
    fn name(&mut self, leaf: u64, low: u64, copy: u64) {
        let Self { tree, path, .. } = self;
        if tree.root().offset() == leaf {
            let word = tree.space.word(tree.root);
            word.store(tree.space.medium(), copy, Release);
            // PERSIST: with the fence of the merge; one word, so a crash leaves one leaf or the
            // other.
            tree.space.region().write_back(word);
            return;
        }
        // A parent that does not know the leaf leaves it to the left sibling to name it.
        let (parent, seen) = parent_of(tree, path.as_mut(), 1, low);
        if seen.value == leaf {
            parent.node.rename(seen.place, copy);
        }
    }
}

impl<M: Medium> Spotted<M> for SpotFastFair<M> {
    const NAME: &'static str = "FAST & FAIR";
    const BUFFERED: usize = CAPACITY / 2;

    fn create(space: Arc<Space<M>>, caches: bool) -> Result<Self, SpaceFull> {
        let tree = FastFair::create(space)?;
        let path = caches.then(|| tree.complete());
        Ok(Self { tree, path, free: Vec::new() })
    }

    fn open(space: Arc<Space<M>>, root: u64, caches: bool) -> Result<Self, SpaceFull> {
        let tree = FastFair::over(space, root, true);
        let path = tree.complete();
        Ok(Self { tree, path: caches.then_some(path), free: Vec::new() })
    }

    fn root(&self) -> u64 {
        self.tree.root
    }

    fn get(&self, key: u64) -> Option<u64> {
        let mut node = self.leaf(key);
        loop {
            let seen = node.search::<super::IntegerKeys>(&key);
            if seen.is_found {
                return Some(seen.value);
            }
            node = self.tree.node(seen.right.filter(|&right| self.tree.is_beyond(&key, right))?.at);
        }
    }

    fn change(&mut self, (key, word): Change) -> Result<(), SpaceFull> {
        match word {
            None => _ = self.tree.remove(&key),
            Some(word) if self.tree.insert(&key, word)? => {}
            Some(word) => _ = self.tree.update(&key, word),
        }
        Ok(())
    }

    fn unit(&self, key: u64) -> u64 {
        self.leaf(key).offset()
    }

    fn merge(&mut self, how: Merge, unit: u64, changes: &[Change]) -> Result<(), SpaceFull> {
        match how {
            Merge::InPlace => self.merge_in_place(unit, changes),
            Merge::OutOfPlace => self.merge_out_of_place(changes),
        }
    }
}

impl<M> Removing for SpotFastFair<M> {}
