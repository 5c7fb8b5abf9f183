//! FAST & FAIR: a B+-tree whose nodes shift their entries in place, for persistent memory.
//!
//! Hwang et al.: *Endurable Transient Inconsistency in Byte-Addressable Persistent B+-Tree*, FAST
//! 2018, as measured in the RECIPE thesis (sections 3.1 and 3.5): nodes of 512 bytes, linear search
//! in them, readers without locks, writers with them. FAST shifts entries by 8-byte stores; readers
//! tolerate the duplicates, and each line is written back as soon as the shift has left it. FAIR
//! links the right half of a full node as its sibling and tells the parent afterwards; readers
//! follow siblings.
//!
//! ```text
//!   node:  | leftmost | sibling, level | high | turns | 30 x (key, value or child) |
//!
//!                     +--------- inner, level 1 -------+
//!                     | child | k3 child |             |--> sibling, or none
//!                     +---|--------|-------------------+
//!           +-------------+        +-----+        (not told the parent yet, or cut off by a crash)
//!           v                            v                             :
//!   +- leaf: k1 v1 | k2 v2 -+   +- leaf: k3 v3 | k4 v4 -+   +- leaf: k5 v5 -+
//!   |       high = k3       |-->|       high = k5       |-->|   high: none  |
//!   +-----------------------+   +-----------------------+   +---------------+
//! ```
//!
//! Byte strings are what the thesis adds: a key is a pointer to a record, and each comparison reads
//! a record. That is the weakness that it measures, so it stays.
//!
//! # What was repaired
//! The first four are faults that the thesis found (sections 3.1 and 3.5.5).
//! * **A node knows its high key**, the least key of its sibling. A thread that waited for the lock
//!   of a node which another one split meanwhile put its key into the left half, where no reader
//!   found it.
//! * **A merge is a split backwards**, store by store, so a crash in either leaves the same states,
//!   and one repair completes the split. The published merge lost the right sibling after two
//!   crashes in a row, in a split and then in a merge. A parent forgets a node before the node is
//!   merged.
//! * **A writer that meets a sibling which the parent does not know tells the parent.** Else each
//!   crash between the two steps of a split makes the lowest level one node longer to walk, until
//!   the tree is a linked list.
//! * **The first node is durable** before the word that names it, and that before any use.
//! * **Any value can be stored.** The published tree knows duplicates by equal pointers, so two
//!   equal values in a row hide a key, and 0 ends a node. Here equal keys are duplicates, of which
//!   the right one counts, and a key word of 0 ends a node. The integer of all ones cannot be
//!   stored.
//! * **Locks are in the process's memory**, one a node: no lock can be found held after a crash.
//!   After a crash, the first lock of each node repairs the node.
//! * **A removal merges two leaves** with few entries under one parent. Inner nodes are not merged,
//!   and memory is not reused: no measurement here removes keys.
//!
//! As published, a reader may see what is not durable yet. A random insert costs 4.1 write-backs
//! and 3.9 fences, one more of each with byte strings. The thesis counted 7 and 8, and 8 and 10.
//!
//! # Order of locks
//! From lower levels to higher ones, and from left to right on one level. A thread that tells a
//! parent about a node holds the lock of the node's left neighbour, and so does a thread that
//! merges the node: nobody tells a parent about a node that is gone.

mod node;
mod spot;
#[cfg(test)]
mod tests;

pub use spot::SpotFastFair;

use super::{IntegerKeys, KeyForm, OrderedBaseline, Space, SpaceFull, held};
use node::{CAPACITY, MIDDLE, NODE, Node, Right, Seen};
use std::borrow::Borrow;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_medium::Medium;

/// A removal that leaves fewer entries in a leaf looks for another leaf to merge it with.
const FEW: usize = CAPACITY / 2;
/// Most entries of two leaves that are merged. More would soon be split again.
const MERGED_MOST: usize = CAPACITY * 3 / 4;

/// A B+-tree.
pub struct FastFair<M, K = IntegerKeys> {
    space: Arc<Space<M>>,
    /// Offset of the word that names the root node.
    root: u64,
    /// The lock of each node that the memory can hold, by offset.
    locks: Box<[Mutex<State>]>,
    /// Held by a thread that makes the tree higher.
    growing: Mutex<()>,
    keys: PhantomData<K>,
}

/// What the process knows of a node, under the node's lock.
#[derive(Clone, Copy)]
struct State {
    /// The left sibling has taken it over.
    is_merged: bool,
    /// A crash may have left it incomplete.
    is_unchecked: bool,
}

/// A locked node.
struct Locked<'t, M> {
    node: Node<'t, M>,
    state: MutexGuard<'t, State>,
}

/// How an insert into a node ended.
enum Added {
    Here,
    /// The parent must be told about the right sibling.
    Split,
}

/// Why a thread descends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Intent {
    Read,
    /// Repair what a crash left on the way.
    Write,
}

impl<M: Medium, K: KeyForm> FastFair<M, K> {
    /// An empty tree.
    pub fn create(space: Arc<Space<M>>) -> Result<Self, SpaceFull> {
        let root = space.alloc(8)?;
        let leaf = Node::create(&space, 0)?;
        leaf.persist_all();
        space.word(root).store(space.medium(), leaf.offset(), Release);
        // PERSIST: the tree, before any thread uses it.
        space.region().persist(space.word(root));
        Ok(Self::over(space, root, false))
    }

    /// The tree whose root this word names, `is_unchecked` after a crash.
    fn over(space: Arc<Space<M>>, root: u64, is_unchecked: bool) -> Self {
        let nodes = space.medium().len() as u64 / NODE;
        let locks = (0..nodes).map(|_| Mutex::new(State { is_merged: false, is_unchecked })).collect();
        Self { space, root, locks, growing: Mutex::new(()), keys: PhantomData }
    }

    /// Bytes of its memory.
    pub fn bytes(&self) -> u64 {
        self.space.used()
    }

    #[inline(always)]
    fn node(&self, at: u64) -> Node<'_, M> {
        Node::at(&self.space, at)
    }

    #[inline(always)]
    fn root(&self) -> Node<'_, M> {
        self.node(self.space.load(self.root))
    }

    fn lock<'t>(&'t self, node: Node<'t, M>) -> Locked<'t, M> {
        let mut state = held(&self.locks[(node.offset() / NODE) as usize]);
        if std::mem::take(&mut state.is_unchecked) {
            node.repair::<K>();
        }
        Locked { node, state }
    }

    /// Whether a key belongs to the right sibling.
    #[inline(always)]
    fn is_beyond(&self, key: &K::Key, right: Right) -> bool {
        K::compare(&self.space, key, right.low).is_ge()
    }

    /// The node of a level to which a key belongs, or one to the left of it.
    #[inline(always)]
    fn descend(&self, level: u64, key: &K::Key, intent: Intent) -> Node<'_, M> {
        let mut node = self.root();
        while node.level() > level {
            let seen = node.search::<K>(key);
            match seen.right.filter(|&right| self.is_beyond(key, right)) {
                Some(right) => {
                    if intent == Intent::Write {
                        self.tell_parent(self.lock(node));
                    }
                    node = self.node(right.at);
                }
                None => node = self.node(seen.value),
            }
        }
        node
    }

    /// The value of `key`.
    #[inline]
    pub fn get(&self, key: &K::Key) -> Option<u64> {
        let mut node = self.descend(0, key, Intent::Read);
        loop {
            let seen = node.search::<K>(key);
            if seen.is_found {
                return Some(seen.value);
            }
            node = self.node(seen.right.filter(|&right| self.is_beyond(key, right))?.at);
        }
    }

    /// The node of a level to which a key belongs, locked and searched.
    fn lock_at(&self, level: u64, key: &K::Key) -> (Locked<'_, M>, Seen) {
        self.lock_from(self.descend(level, key, Intent::Write), level, key)
    }

    /// As [`FastFair::lock_at`], from a node that was the right one, or to the left of it.
    fn lock_from<'t>(&'t self, from: Node<'t, M>, level: u64, key: &K::Key) -> (Locked<'t, M>, Seen) {
        let mut locked = self.lock(from);
        loop {
            if locked.state.is_merged {
                drop(locked);
                locked = self.lock(self.descend(level, key, Intent::Write));
                continue;
            }
            let seen = locked.node.search::<K>(key);
            let Some(right) = seen.right.filter(|&right| self.is_beyond(key, right)) else {
                return (locked, seen);
            };
            self.tell_parent(locked);
            locked = self.lock(self.node(right.at));
        }
    }

    /// Adds `key` if it is absent. Returns whether it was.
    pub fn insert(&self, key: &K::Key, value: u64) -> Result<bool, SpaceFull> {
        self.insert_from(self.descend(0, key, Intent::Write), key, value)
    }

    /// As [`FastFair::insert`], by a thread that has found this leaf earlier.
    fn insert_from<'t>(&'t self, leaf: Node<'t, M>, key: &K::Key, value: u64) -> Result<bool, SpaceFull> {
        let (leaf, seen) = self.lock_from(leaf, 0, key);
        if seen.is_found {
            return Ok(false);
        }
        let word = K::store(&self.space, key)?;
        if let Added::Split = self.add(&leaf, seen.place, word, value)? {
            self.tell_parent(leaf);
        }
        Ok(true)
    }

    /// Inserts an entry into a locked node, which is split if it is full.
    fn add(&self, locked: &Locked<'_, M>, place: usize, key: u64, value: u64) -> Result<Added, SpaceFull> {
        let left = locked.node;
        let count = left.count();
        if count < CAPACITY {
            left.insert(place, count, key, value);
            return Ok(Added::Here);
        }
        let right = Node::create(&self.space, left.level())?;
        left.copy_half(right);
        left.link_half(right);
        // The right half needs no lock: only the left one names it, and a writer locks that first.
        match place.checked_sub(MIDDLE + 1) {
            None => left.insert(place, MIDDLE, key, value),
            Some(more) => {
                let place = if left.level() == 0 { more + 1 } else { more };
                right.insert(place, right.count(), key, value);
            }
        }
        Ok(Added::Split)
    }

    /// Tells the parent of a locked node about the node's right sibling, if it does not know it.
    ///
    /// Without memory for that, nothing is lost: searches go through the left sibling.
    fn tell_parent(&self, locked: Locked<'_, M>) {
        let mut left = locked;
        loop {
            let Some(right) = left.node.right() else { return };
            let low = K::read(&self.space, right.low);
            let level = left.node.level() + 1;
            if self.grow_to(level).is_err() {
                return;
            }
            let (parent, seen) = self.lock_at(level, low.borrow());
            if seen.is_found || parent.node.leftmost() == right.at {
                return;
            }
            let Ok(Added::Split) = self.add(&parent, seen.place, right.low, right.at) else { return };
            left = parent;
        }
    }

    /// Makes the tree at least so high that it has this level.
    fn grow_to(&self, level: u64) -> Result<(), SpaceFull> {
        if self.root().level() >= level {
            return Ok(());
        }
        let _growing = held(&self.growing);
        let old = self.root();
        if old.level() >= level {
            return Ok(());
        }
        let root = Node::create(&self.space, level)?;
        root.begin_with(old.offset());
        self.space.word(self.root).store(self.space.medium(), root.offset(), Release);
        // PERSIST: the new root, before any entry of it is acknowledged.
        self.space.region().persist(self.space.word(self.root));
        Ok(())
    }

    /// Replaces the value of `key`, if it is present.
    pub fn update(&self, key: &K::Key, value: u64) -> bool {
        let (leaf, seen) = self.lock_at(0, key);
        if seen.is_found {
            leaf.node.replace(seen.place - 1, value);
        }
        seen.is_found
    }

    /// Removes `key` and returns its value.
    pub fn remove(&self, key: &K::Key) -> Option<u64> {
        let (leaf, seen) = self.lock_at(0, key);
        if !seen.is_found {
            return None;
        }
        let count = leaf.node.count();
        leaf.node.remove(seen.place - 1, count);
        drop(leaf);
        if count - 1 < FEW {
            self.merge_near(key);
        }
        Some(seen.value)
    }

    /// Merges the leaf of a key with a neighbour under the same parent, if they have few entries.
    fn merge_near(&self, key: &K::Key) {
        if let Some([left, right]) = self.neighbours(key) {
            self.merge(left, right);
        }
    }

    /// Merges two leaves, the first one to the left of the other, unless threads have changed that
    /// meanwhile.
    fn merge(&self, left: u64, right: u64) {
        let left = self.lock(self.node(left));
        let mut right = self.lock(self.node(right));
        if left.state.is_merged || right.state.is_merged {
            return;
        }
        let Some(link) = left.node.right().filter(|link| link.at == right.node.offset()) else { return };
        if left.node.count() + right.node.count() > MERGED_MOST {
            return;
        }
        let low = K::read(&self.space, link.low);
        let (parent, _) = self.lock_at(1, low.borrow());
        if parent.node.leftmost() == link.at {
            return;
        }
        if let Some(slot) = parent.node.slot_of(link.at) {
            parent.node.remove(slot, parent.node.count());
        }
        drop(parent);
        left.node.absorb(right.node);
        right.state.is_merged = true;
    }

    /// The leaf of a key and the one before it, or else the one behind it, if they have one parent.
    fn neighbours(&self, key: &K::Key) -> Option<[u64; 2]> {
        let parent = self.descend(1, key, Intent::Write);
        if parent.level() != 1 {
            return None;
        }
        let (leftmost, entries) = (parent.leftmost(), parent.entries());
        let entries = entries.as_slice();
        let place = entries.iter().take_while(|entry| K::compare(&self.space, key, entry.0).is_ge()).count();
        let child = |place: usize| match place {
            0 => Some(leftmost),
            _ => entries.get(place - 1).map(|entry| entry.1),
        };
        let left = place.saturating_sub(1);
        child(left).zip(child(left + 1)).map(|(left, right)| [left, right])
    }

    /// Calls `each` with the values of `most` keys from `from` on, in the order of keys, or of all
    /// that are left. Each key that is there throughout is visited once.
    pub fn scan(&self, from: &K::Key, most: usize, each: &mut dyn FnMut(u64)) {
        let (mut node, mut left) = (self.descend(0, from, Intent::Read), most);
        let mut last: Option<K::Owned> = None;
        while left > 0 {
            let seen = node.entries();
            // A sibling begins with keys that were visited, if a split or a merge is going on.
            let is_before = |word| match &last {
                None => K::compare(&self.space, from, word).is_gt(),
                Some(last) => K::compare(&self.space, last.borrow(), word).is_ge(),
            };
            let first = seen.as_slice().iter().take_while(|entry| is_before(entry.0)).count();
            let wanted = &seen.as_slice()[first..];
            let wanted = &wanted[..wanted.len().min(left)];
            wanted.iter().for_each(|entry| each(entry.1));
            left -= wanted.len();
            if seen.sibling == 0 {
                return;
            }
            last = wanted.last().map(|entry| K::read(&self.space, entry.0)).or(last);
            node = self.node(seen.sibling);
        }
    }
}

impl<M: Medium, K: KeyForm> OrderedBaseline<M, K> for FastFair<M, K> {
    const NAME: &'static str = "FAST & FAIR";

    fn create(space: Arc<Space<M>>) -> Result<Self, SpaceFull> {
        Self::create(space)
    }

    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn get(&self, key: &K::Key) -> Option<u64> {
        self.get(key)
    }

    fn insert(&self, key: &K::Key, value: u64) -> Result<bool, SpaceFull> {
        self.insert(key, value)
    }

    fn update(&self, key: &K::Key, value: u64) -> bool {
        self.update(key, value)
    }

    fn scan(&self, from: &K::Key, most: usize, each: &mut dyn FnMut(u64)) {
        self.scan(from, most, each);
    }
}
