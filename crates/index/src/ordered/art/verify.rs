//! Checks every invariant that is visible while no thread writes.

use super::super::base::{FINDINGS_MAX, finding};
use super::super::keys::{KeyBytes, OrderedKind};
use super::super::link::{LEAF, Link};
use super::super::links::load;
use super::find::Ended;
use super::node::{Kind, Node, Prefix, Slot};
use super::tree::Tree;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard};

/// A check in progress.
struct Check<'g, M: MappedMedium, K: OrderedKind> {
    tree: &'g Tree<M, K>,
    guard: &'g Guard<'g, M>,
    findings: Vec<Finding>,
    keys: u64,
    last: Option<Vec<u8>>,
    /// Links that were not followed yet, with their holders' bases; the next in order on top.
    stack: Vec<(Slot<'g>, usize)>,
}

impl<'g, M: MappedMedium, K: OrderedKind> Tree<M, K> {
    pub(super) fn findings(&'g self, guard: &'g Guard<'g, M>) -> Vec<Finding> {
        let root = (self.root_link(), self.follow(self.root_link()));
        let mut check =
            Check { tree: self, guard, findings: Vec::new(), keys: 0, last: None, stack: vec![(root, 0)] };
        while let Some((slot, base)) = check.stack.pop() {
            check.look_at(slot, base);
            if check.findings.len() > FINDINGS_MAX {
                break;
            }
        }
        self.conclude(check.findings, check.keys)
    }
}

impl<'g, M: MappedMedium, K: OrderedKind> Check<'g, M, K> {
    fn find(&mut self, offset: u64, expected: impl Into<String>, found: impl Into<String>) {
        self.findings.push(finding(offset, expected, found));
    }

    fn look_at(&mut self, (word, link): Slot<'g>, base: usize) {
        let at = self.tree.pool.region().offset_of(word).raw();
        if !link.is_whole() {
            return self.find(at, "a link that fits its check", format!("{:#x}", link.0));
        }
        if link.is_empty() {
            return;
        }
        if link.kind() == LEAF {
            return self.look_at_leaf(link);
        }
        match self.tree.node_to_write(word, link, base) {
            Err(damage) => self.find(damage.offset, "a node", damage.what),
            Ok((node, level)) => self.look_at_node(node, level, base),
        }
    }

    fn look_at_leaf(&mut self, link: Link) {
        self.keys += 1;
        let Some(key) = K::key_of(self.guard, link.offset()) else {
            return self.find(link.offset(), "a record with a key", "none");
        };
        let key = key.to_vec();
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            self.find(link.offset(), "keys in their order", "a key that is not above the one before it");
        }
        let owned = K::owned(&key);
        let found = owned.as_ref().map(|key| self.tree.search(self.guard, std::borrow::Borrow::borrow(key)));
        let word = K::word_of(self.guard, link.offset());
        if !matches!(found, Some(Ended::Found(found)) if found == word) {
            self.find(link.offset(), "a key that a search finds", "one that it does not find");
        }
        self.last = Some(key);
    }

    fn look_at_node(&mut self, node: Node<'g>, level: usize, base: usize) {
        let (medium, offset) = (self.tree.pool.medium(), node.offset(self.tree.pool.region()));
        let mut children: Vec<Slot<'g>> = node.children(medium).collect();
        children.sort_by_key(|(_, link)| link.byte());
        children.retain(|(_, link)| !link.is_empty());
        if children.windows(2).any(|pair| pair[0].1.byte() == pair[1].1.byte()) {
            self.find(offset, "one child a byte", "two");
        }
        let here = (node.here(), load(medium, node.here()));
        let is_placed = |(place, word): (usize, &terrace_medium::Word)| {
            let link = load(medium, word);
            link.is_empty() || usize::from(link.byte()) == place
        };
        if node.kind() == Kind::Full && !node.links().iter().enumerate().all(is_placed) {
            self.find(offset, "each child in its byte's place", "one in another");
        }
        if children.len() + usize::from(!here.1.is_empty()) < 2 {
            self.find(offset, "two entries of a node at least", format!("{}", children.len()));
        }
        self.look_at_prefix(node, level, base);
        self.stack.extend(children.into_iter().rev().map(|slot| (slot, level + 1)));
        self.stack.push((here, level + 1));
    }

    /// A prefix whose length is another is one that a writer will mend.
    fn look_at_prefix(&mut self, node: Node<'g>, level: usize, base: usize) {
        let prefix = Prefix(node.prefix_word().load(self.tree.pool.medium(), Relaxed));
        let offset = node.offset(self.tree.pool.region());
        if !prefix.is_sound() {
            return self.find(offset, "a prefix that fits its check", format!("{:#x}", prefix.0));
        }
        let key: Option<KeyBytes<'_>> = self.tree.any_key(self.guard, node);
        let path = key.as_ref().and_then(|key| key.get(base..level));
        if prefix.len() == level - base && path.is_some_and(|path| Prefix::of(path) != prefix) {
            self.find(offset, "the prefix of the node's keys", format!("{:#x}", prefix.0));
        }
    }
}
