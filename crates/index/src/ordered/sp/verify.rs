//! Checks every invariant that is visible while no thread writes.

use super::super::base::{FINDINGS_MAX, finding};
use super::super::keys::{KeyBytes, OrderedKind};
use super::find::hash_of;
use super::node::{Node, slots_of};
use super::tree::Tree;
use super::word::{Entry, hash_bits, tag_of};
use crate::{Damage, PointIndex, Stored};
use std::borrow::Borrow;
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard};

/// A check in progress.
struct Check<'g, M: MappedMedium, K: OrderedKind> {
    tree: &'g Tree<M, K>,
    guard: &'g Guard<'g, M>,
    findings: Vec<Finding>,
    keys: u64,
    /// Nodes that the top layer has.
    mapped: u64,
}

impl<'g, M: MappedMedium, K: OrderedKind> Tree<M, K> {
    pub(super) fn findings(&'g self, guard: &'g Guard<'g, M>) -> Vec<Finding> {
        let mut check = Check { tree: self, guard, findings: self.top.verify(guard), keys: 0, mapped: 0 };
        // Damage is recorded.
        let is_whole = check.look_at_nodes().is_ok();
        let mapped = self.top.len();
        if is_whole && check.findings.is_empty() && check.mapped != mapped {
            let expected = format!("{} nodes in the top layer", check.mapped);
            check.find(self.top.root(), expected, format!("{mapped}"));
        }
        self.conclude(check.findings, check.keys)
    }
}

impl<'g, M: MappedMedium, K: OrderedKind> Check<'g, M, K> {
    fn find(&mut self, offset: u64, expected: impl Into<String>, found: impl Into<String>) {
        self.findings.push(finding(offset, expected, found));
    }

    fn look_at_nodes(&mut self) -> Result<(), Damage> {
        let tree = self.tree;
        let mut node = tree.first()?;
        loop {
            if let Some(content) = tree.read(self.guard, node)? {
                self.look_at_keys(node, content.end)?;
                self.look_at_mapping(node);
            }
            match tree.end_of(node) {
                Some(end) if self.findings.len() <= FINDINGS_MAX => node = tree.right_of(node, end)?,
                _ => return Ok(()),
            }
        }
    }

    /// The keys of a node lie between its borders, with their tags.
    fn look_at_keys(&mut self, node: Node<'g>, end: Option<u64>) -> Result<(), Damage> {
        let (tree, medium) = (self.tree, self.tree.pool.medium());
        let at = node.offset(tree.pool.region());
        let extent = tree.extent(self.guard, node, end)?;
        let is_changing = node.state(medium).is_changing();
        let lower = tree.pin_layers();
        let (superseded, buffered) = tree
            .overlay(self.guard, lower.as_ref(), node)
            .map_or_else(Default::default, |(at, pairs)| (at.superseded, pairs));
        let slots = slots_of(node.bitmap(medium) & !superseded);
        let pairs = slots.map(|slot| (Some(slot), node.pair::<K>(medium, slot)));
        for (slot, pair) in pairs.chain(buffered.into_iter().map(|pair| (None, pair))) {
            let Some(key) = tree.key_at(self.guard, pair) else {
                self.keys += 1;
                let entry = Entry(pair.1);
                if entry.is_sound() {
                    self.find(entry.offset(), "a record with a key", "none");
                } else {
                    tree.damaged_node(node, "a slot does not fit its check");
                }
                continue;
            };
            if is_changing && extent.high.as_ref().is_some_and(|high| *key >= **high) {
                continue;
            }
            self.keys += 1;
            if !extent.has(&key) {
                self.find(at, "keys between the borders of their node", "another one");
            }
            slot.iter().for_each(|&slot| self.look_at_tag(node, slot, &key));
        }
        Ok(())
    }

    fn look_at_tag(&mut self, node: Node<'g>, slot: usize, key: &KeyBytes<'_>) {
        let (tree, medium) = (self.tree, self.tree.pool.medium());
        let Some(hash) = hash_of::<K>(key, tree.pool.hash_seed()) else { return };
        let (_, word) = node.pair::<K>(medium, slot);
        let is_its = Tree::<M, K>::INLINE || Entry(word).hash_bits() == hash_bits(hash);
        if !is_its || node.tag(medium, slot) != tag_of(hash) {
            self.find(node.offset(tree.pool.region()), "the tag of a slot's key", "another one");
        }
    }

    /// The top layer leads to a node, or does not have it.
    fn look_at_mapping(&mut self, node: Node<'g>) {
        let tree = self.tree;
        let at = node.offset(tree.pool.region());
        let Some(key) = tree.mapped_key(self.guard, node) else { return };
        match tree.top.get(self.guard, key.borrow()) {
            Some(mapped) if mapped == at => self.mapped += 1,
            Some(mapped) => self.find(at, "its mapping in the top layer", format!("{mapped:#x}")),
            None => {}
        }
    }
}
