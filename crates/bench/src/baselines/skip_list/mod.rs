//! A skip list in persistent memory, for one thread: the third index of Spot-on's case study.
//!
//! The thesis on WipDB, TurboHash and Spot-on, section 4.3, has "our version of persistent skip
//! list" and describes it no further. A quarter of the nodes of a level are on the next one.
//!
//! ```text
//!   level 2:  head ------------------------------> k5 --------------------> none
//!   level 1:  head ----------> k2 ---------------> k5 ---------> k8 ------> none
//!   level 0:  head --> k1 ---> k2 ---> k3 ---> k4 -> k5 -> k7 -> k8 -> k9 -> none
//!
//!   node: | key | value | next on level 0, height | next on level 1 | ... |    32 bytes and more
//! ```
//! The lowest level is the truth, the others are hints. A node is durable before the link on the
//! lowest level, and that before the links above. The links above wait for no fence: a crash may
//! lose them. Opening walks the lowest level and makes all others as the heights say.
//!
//! Key, value and the first link of a node lie in one line. A key's height is that of its hash, so
//! equal runs make equal lists. Any key and any value can be stored; nothing is removed.

mod spot;
#[cfg(test)]
mod tests;

use super::spot::Change;
use super::{Space, SpaceFull, hashes};
use spot::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use terrace_medium::Medium;

/// Levels of the head, so the most of a node: enough for 16 million keys.
const LEVELS: usize = 12;
/// Nodes start at a multiple of this, so a link has bits for a height.
const ALIGN: u64 = 32;
const HEIGHT: u64 = ALIGN - 1;
/// Words of a node, in bytes.
const KEY: u64 = 0;
const VALUE: u64 = 8;
const NEXT: u64 = 16;

const _: () = assert!(LEVELS < ALIGN as usize);

/// A skip list.
pub struct SkipList<M> {
    space: Arc<Space<M>>,
    /// The first node, which has no key and all levels.
    head: u64,
    /// The tall nodes in DRAM, if the path is cached.
    path: Option<Path>,
}

/// Levels of a key's node.
fn height_of(key: u64) -> usize {
    let quarters = hashes(key)[1].trailing_zeros() as usize / 2;
    (1 + quarters).min(LEVELS)
}

/// Bytes of a node.
fn bytes_of(height: usize) -> u64 {
    (NEXT + 8 * height as u64).next_multiple_of(ALIGN)
}

impl<M: Medium> SkipList<M> {
    /// An empty list.
    pub fn create(space: Arc<Space<M>>) -> Result<Self, SpaceFull> {
        let head = space.alloc_aligned(bytes_of(LEVELS), ALIGN)?;
        let list = Self { space, head, path: None };
        list.store(head + NEXT, LEVELS as u64);
        // PERSIST: the head, before any use.
        list.space.region().persist(list.space.word(head + NEXT));
        Ok(list)
    }

    fn store(&self, at: u64, word: u64) {
        self.space.word(at).store(self.space.medium(), word, Release);
    }

    fn key(&self, node: u64) -> u64 {
        self.space.load(node + KEY)
    }

    fn value(&self, node: u64) -> u64 {
        self.space.load(node + VALUE)
    }

    fn height(&self, node: u64) -> usize {
        (self.space.load(node + NEXT) & HEIGHT) as usize
    }

    /// The next node on a level, or 0.
    fn next(&self, node: u64, level: usize) -> u64 {
        self.space.load(node + NEXT + 8 * level as u64) & !HEIGHT
    }

    /// Stores a link. The node's height stays what it is.
    fn link(&self, node: u64, level: usize, next: u64) {
        let height = if level == 0 { self.space.load(node + NEXT) & HEIGHT } else { 0 };
        self.store(node + NEXT + 8 * level as u64, next | height);
        // PERSIST: with a fence of the caller's, or for a hint, with the next one of any change: a
        // crash that loses a hint leaves a slower way.
        self.space.region().write_back(self.space.word(node + NEXT + 8 * level as u64));
    }

    /// Whether a node has this key.
    fn is(&self, node: u64, key: u64) -> bool {
        node != self.head && self.key(node) == key
    }

    /// From a node, the last one on a level whose key is at most `key`.
    fn walk(&self, from: u64, level: usize, key: u64) -> u64 {
        let mut node = from;
        loop {
            let next = self.next(node, level);
            if next == 0 || self.key(next) > key {
                return node;
            }
            node = next;
        }
    }

    /// The last node on a level whose key is at most `key`, searched from the top.
    fn descend(&self, level: usize, key: u64) -> u64 {
        (level..LEVELS).rev().fold(self.head, |node, level| self.walk(node, level, key))
    }

    /// Replaces the value of a node.
    fn replace(&self, node: u64, word: u64) {
        self.store(node + VALUE, word);
        // PERSIST: with a fence of the caller's; one word, so a crash leaves the old value or this.
        self.space.region().write_back(self.space.word(node + VALUE));
    }

    /// Adds a node, durable on return, behind those that `before` names for each of its levels.
    fn insert(&self, key: u64, word: u64, before: impl Fn(usize) -> u64) -> Result<u64, SpaceFull> {
        let (height, region) = (height_of(key), self.space.region());
        let node = self.space.alloc_aligned(bytes_of(height), ALIGN)?;
        self.store(node + KEY, key);
        self.store(node + VALUE, word);
        self.store(node + NEXT, self.next(before(0), 0) | height as u64);
        for level in 1..height {
            self.store(node + NEXT + 8 * level as u64, self.next(before(level), level));
        }
        region.write_back_bytes(node, bytes_of(height) as usize);
        // PERSIST: the node before any link to it; else a crash leaves a key of garbage.
        region.fence();
        self.link(before(0), 0, node);
        // PERSIST: the key, before the caller returns, and before the links that are hints: those
        // never lead to a node that the lowest level lacks.
        region.fence();
        (1..height).for_each(|level| self.link(before(level), level, node));
        Ok(node)
    }

    /// The value of `key`.
    pub fn get(&self, key: u64) -> Option<u64> {
        let node = self.walk(self.walk(self.tower(key), 1, key), 0, key);
        self.is(node, key).then(|| self.value(node))
    }

    /// Gives a key a value, whether it has one or not. Durable on return.
    pub fn put(&mut self, key: u64, value: u64) -> Result<(), SpaceFull> {
        let mut before = [self.head; LEVELS];
        let mut node = self.head;
        for level in (0..LEVELS).rev() {
            node = self.walk(node, level, key);
            before[level] = node;
        }
        if self.is(node, key) {
            self.replace(node, value);
            // PERSIST: the value, before the caller returns.
            self.space.region().fence();
            return Ok(());
        }
        let node = self.insert(key, value, |level| before[level])?;
        self.path.iter_mut().for_each(|path| path.note(key, node, height_of(key)));
        Ok(())
    }

    /// Calls `each` with the values of `most` keys from `from` on, in the order of keys, or of all
    /// that are left.
    pub fn scan(&self, from: u64, most: usize, each: &mut dyn FnMut(u64)) {
        let before = self.walk(self.walk(self.tower(from), 1, from), 0, from);
        let mut node = if self.is(before, from) { before } else { self.next(before, 0) };
        for _ in 0..most {
            if node == 0 {
                return;
            }
            each(self.value(node));
            node = self.next(node, 0);
        }
    }

    /// Makes all levels as the heights of the nodes say, after a crash. Returns the tall nodes.
    fn complete(&self) -> Path {
        let (mut last, mut path) = ([self.head; LEVELS], Path::default());
        let mut node = self.next(self.head, 0);
        while node != 0 {
            let height = self.height(node).min(LEVELS);
            for (level, last) in last.iter_mut().enumerate().take(height).skip(1) {
                self.mend(*last, level, node);
                *last = node;
            }
            path.note(self.key(node), node, height);
            node = self.next(node, 0);
        }
        (1..LEVELS).for_each(|level| self.mend(last[level], level, 0));
        // PERSIST: the links, before a change relies on them.
        self.space.region().fence();
        path
    }

    fn mend(&self, node: u64, level: usize, next: u64) {
        if self.next(node, level) != next {
            self.link(node, level, next);
        }
    }
}
