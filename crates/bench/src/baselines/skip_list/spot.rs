//! The skip list below the Spot-on layer: a unit is a tower of more than two levels, and the nodes
//! up to the next one.
//!
//! ```text
//!   unit: tower ----------------> | next tower           buffer: k2 k3 k6
//!           k1 --> k4 --> k5 ---> | k7
//!
//!   out of place:  | k2 | k3 | k6 |     new nodes, in sequence, past the cache, linked to each
//!                    ^    |    |        other and to what follows; one fence
//!           k1 ------+    v    v
//!                        k4   k7        then the links of k1 and k5, in any order; one fence;
//!                                       then the links of upper levels, which are hints
//!   in place:      one node after the other, two fences each
//! ```
//! Nodes are separate, so no merge overwrites any: the thesis takes both for out of place.
//!
//! The cached path has the nodes of more than two levels, on each of these levels. So it knows all
//! neighbours of a new one, and a merge reads only its unit.

use super::{ALIGN, Change, LEVELS, NEXT, SkipList, bytes_of, height_of};
use crate::baselines::spot::{Merge, Spotted};
use crate::baselines::{Space, SpaceFull};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_medium::{LINE, Medium};

/// The lowest level of which all nodes have buffers and are cached.
const TALL: usize = 2;

/// The tall nodes by their keys, on each level from [`TALL`] on.
#[derive(Default)]
pub(super) struct Path([BTreeMap<u64, u64>; LEVELS - TALL]);

impl Path {
    /// Adds a node, if it is tall.
    pub(super) fn note(&mut self, key: u64, node: u64, height: usize) {
        self.0.iter_mut().take(height.saturating_sub(TALL)).for_each(|level| _ = level.insert(key, node));
    }

    fn find(&self, level: usize, key: u64) -> Option<u64> {
        self.0[level - TALL].range(..=key).next_back().map(|(_, node)| *node)
    }
}

/// The last nodes of the levels 0 and 1 up to a key.
struct Finger([u64; TALL]);

/// A node of a merge: where it goes to, and behind which nodes of its levels.
struct Fresh {
    key: u64,
    word: u64,
    at: u64,
    before: Vec<u64>,
}

impl<M: Medium> SkipList<M> {
    /// The last tall node on a level, from [`TALL`] on, whose key is at most `key`.
    fn tall(&self, level: usize, key: u64) -> u64 {
        match &self.path {
            Some(path) => path.find(level, key).unwrap_or(self.head),
            None => self.descend(level, key),
        }
    }

    /// The tower of a key's unit.
    pub(super) fn tower(&self, key: u64) -> u64 {
        self.tall(TALL, key)
    }

    /// Moves a finger up to a key, node by node.
    fn advance(&self, finger: &mut Finger, key: u64) {
        loop {
            let next = self.next(finger.0[0], 0);
            if next == 0 || self.key(next) > key {
                return;
            }
            finger.0[0] = next;
            if self.height(next) > 1 {
                finger.0[1] = next;
            }
        }
    }

    /// The node behind which a key belongs on a level.
    fn before(&self, finger: &Finger, level: usize, key: u64) -> u64 {
        finger.0.get(level).copied().unwrap_or_else(|| self.tall(level, key))
    }

    fn merge_in_place(&mut self, unit: u64, changes: &[(u64, u64)]) -> Result<(), SpaceFull> {
        let mut finger = Finger([unit; TALL]);
        for &(key, word) in changes {
            self.advance(&mut finger, key);
            if self.is(finger.0[0], key) {
                self.replace(finger.0[0], word);
                continue;
            }
            let height = height_of(key);
            let before: Vec<u64> = (0..height).map(|level| self.before(&finger, level, key)).collect();
            let node = self.insert(key, word, |level| before[level])?;
            self.path.iter_mut().for_each(|path| path.note(key, node, height));
        }
        // PERSIST: values that were replaced, before the buffer is dropped.
        self.space.region().fence();
        Ok(())
    }

    fn merge_out_of_place(&mut self, unit: u64, changes: &[(u64, u64)]) -> Result<(), SpaceFull> {
        let (mut finger, mut replaced, mut fresh) = (Finger([unit; TALL]), Vec::new(), Vec::new());
        let mut bytes = 0;
        for &(key, word) in changes {
            self.advance(&mut finger, key);
            if self.is(finger.0[0], key) {
                replaced.push((finger.0[0], word));
                continue;
            }
            let height = height_of(key);
            let before = (0..height).map(|level| self.before(&finger, level, key)).collect();
            fresh.push(Fresh { key, word, at: bytes, before });
            bytes += bytes_of(height);
        }
        if !fresh.is_empty() {
            let from = self.space.alloc_aligned(bytes.next_multiple_of(LINE as u64), LINE as u64)?;
            fresh.iter_mut().for_each(|node| node.at += from);
            self.write(from, bytes, &fresh);
        }
        self.publish(&replaced, &fresh);
        for node in &fresh {
            self.path.iter_mut().for_each(|path| path.note(node.key, node.at, node.before.len()));
        }
        Ok(())
    }

    /// Writes new nodes, in the order of their keys, past the cache. Durable after a fence.
    fn write(&self, from: u64, bytes: u64, fresh: &[Fresh]) {
        let mut lines = vec![[0; LINE / 8]; bytes.div_ceil(LINE as u64) as usize];
        let words = lines.as_flattened_mut();
        for (nth, node) in fresh.iter().enumerate() {
            let place = ((node.at - from) / 8) as usize;
            (words[place], words[place + 1]) = (node.key, node.word);
            for (level, &before) in node.before.iter().enumerate() {
                // The next new one, if no old node lies between.
                let next = fresh[nth + 1..].iter().find(|next| next.before.len() > level);
                let next = next.filter(|next| next.before[level] == before);
                let next = next.map_or_else(|| self.next(before, level), |next| next.at);
                words[place + NEXT as usize / 8 + level] = next;
            }
            words[place + NEXT as usize / 8] |= node.before.len() as u64;
        }
        self.space.region().stream_lines(from, &lines);
    }

    /// Links new nodes, and replaces values. Durable on return.
    fn publish(&self, replaced: &[(u64, u64)], fresh: &[Fresh]) {
        let region = self.space.region();
        replaced.iter().for_each(|&(node, word)| self.replace(node, word));
        // PERSIST: the nodes before any link to one.
        region.fence();
        self.link_level(0, fresh);
        // PERSIST: all links of the lowest level, before the buffer is dropped. Each link leads to
        // nodes that are durable, so a crash keeps any of them.
        region.fence();
        (1..LEVELS).for_each(|level| self.link_level(level, fresh));
    }

    /// Links the first new node behind each old one on a level.
    fn link_level(&self, level: usize, fresh: &[Fresh]) {
        let mut last = None;
        for node in fresh.iter().filter(|node| node.before.len() > level) {
            let before = node.before[level];
            if last != Some(before) {
                self.link(before, level, node.at);
            }
            last = Some(before);
        }
    }
}

impl<M: Medium> Spotted<M> for SkipList<M> {
    const NAME: &'static str = "skip list";
    const BUFFERED: usize = 16;

    fn create(space: Arc<Space<M>>, caches: bool) -> Result<Self, SpaceFull> {
        let list = SkipList::create(space)?;
        Ok(Self { path: caches.then(Path::default), ..list })
    }

    fn open(space: Arc<Space<M>>, root: u64, caches: bool) -> Result<Self, SpaceFull> {
        let list = Self { space, head: root, path: None };
        let path = list.complete();
        Ok(Self { path: caches.then_some(path), ..list })
    }

    fn root(&self) -> u64 {
        self.head
    }

    fn get(&self, key: u64) -> Option<u64> {
        SkipList::get(self, key)
    }

    fn change(&mut self, (key, word): Change) -> Result<(), SpaceFull> {
        word.map_or(Ok(()), |word| self.put(key, word))
    }

    fn unit(&self, key: u64) -> u64 {
        self.tower(key)
    }

    fn merge(&mut self, how: Merge, unit: u64, changes: &[Change]) -> Result<(), SpaceFull> {
        // It is not `Removing`, so there are no others.
        let puts: Vec<(u64, u64)> = changes.iter().filter_map(|(key, word)| Some((*key, (*word)?))).collect();
        match how {
            Merge::InPlace => self.merge_in_place(unit, &puts),
            Merge::OutOfPlace => self.merge_out_of_place(unit, &puts),
        }
    }
}

const _: () = assert!((LINE as u64).is_multiple_of(ALIGN));
