//! Checks every invariant that is visible while no thread writes.

use super::super::base::{FINDINGS_MAX, finding};
use super::super::keys::OrderedKind;
use super::entry::{Entry, Piece};
use super::node::Node;
use super::tree::Tree;
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard};

/// A check in progress.
struct Check<'g, M: MappedMedium, K: OrderedKind> {
    tree: &'g Tree<M, K>,
    guard: &'g Guard<'g, M>,
    findings: Vec<Finding>,
    keys: u64,
    /// Roots of layers that are left, with the bytes that their keys begin with, as far as the
    /// entries above tell them.
    layers: Vec<(Node<'g>, Vec<u8>)>,
}

impl<'g, M: MappedMedium, K: OrderedKind> Tree<M, K> {
    pub(super) fn findings(&'g self, guard: &'g Guard<'g, M>) -> Vec<Finding> {
        let layers = self.top().into_iter().map(|root| (root, Vec::new())).collect();
        let mut check = Check { tree: self, guard, findings: Vec::new(), keys: 0, layers };
        while let Some((root, begin)) = check.layers.pop() {
            // Damage is recorded.
            let _ = check.look_at_layer(root, &begin);
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

    fn look_at_layer(&mut self, root: Node<'g>, begin: &[u8]) -> Result<(), Damage> {
        let (tree, medium) = (self.tree, self.tree.pool.medium());
        let shape = root.shape(medium);
        let mut first = root;
        for level in (0..=shape.level()).rev() {
            let (mut node, mut last) = (first, None);
            let mut below = None;
            loop {
                tree.check_node(node, (level, shape.depth()))?;
                self.look_at_head(node);
                self.look_at_entries(node, (level, shape.depth()), &mut last, begin)?;
                if level > 0 && below.is_none() {
                    below = tree.first_child(node, level)?;
                }
                if node.next(medium).is_none() || self.findings.len() > FINDINGS_MAX {
                    break;
                }
                node = tree.right_of(node, level)?;
            }
            match below {
                Some(node) => first = node,
                None => break,
            }
        }
        Ok(())
    }

    fn look_at_head(&mut self, node: Node<'g>) {
        let medium = self.tree.pool.medium();
        let (state, permutation) = (node.state(medium), node.permutation(medium));
        let at = node.offset(self.tree.pool.region());
        if !state.is_sound() {
            self.find(at, "a state that fits its check", format!("{:#x}", state.0));
        } else if !permutation.is_sound() || !state.admits(permutation) {
            self.find(at, "the permutation that the state says", format!("{:#x}", permutation.0));
        } else if !state.is_splitting() && !self.tree.is_bounded(node) {
            self.find(at, "a next node that begins where this one ends", "another one");
        }
    }

    /// Checks the order of a node's entries, and what they lead to. What a split or a join that was
    /// cut off has left behind an end of the node is none of its entries, and a frozen node has
    /// none.
    fn look_at_entries(
        &mut self,
        node: Node<'g>,
        (level, depth): (usize, usize),
        last: &mut Option<Piece>,
        begin: &[u8],
    ) -> Result<(), Damage> {
        let (tree, medium) = (self.tree, self.tree.pool.medium());
        let at = node.offset(tree.pool.region());
        for slot in node.permutation(medium).slots() {
            let (slice, word) = (node.slice(medium, slot), node.word_at(medium, slot));
            let is_over = !node.next(medium).is_none() && slice >= node.high(medium);
            if is_over || slice < tree.low_of(node, level)? || node.state(medium).is_frozen() {
                continue;
            }
            let tag = if level > 0 { 0 } else { tree.tag_of(node, slot) };
            let piece = Piece { slice, tag };
            if last.is_some_and(|last| last >= piece) {
                self.find(at, "entries in their order", "one that is not above the one before it");
            }
            *last = (*last).max(Some(piece));
            match level {
                0 => self.look_at_leaf(node, (piece, word), depth, begin)?,
                _ => self.look_at_child(node, (slice, Entry(word)), level)?,
            }
        }
        Ok(())
    }

    fn look_at_child(
        &mut self,
        node: Node<'g>,
        (slice, entry): (u64, Entry),
        level: usize,
    ) -> Result<(), Damage> {
        let (tree, medium) = (self.tree, self.tree.pool.medium());
        let child = tree.node_of(node, (slice, entry), level - 1)?;
        let is_level = child.shape(medium).is_sound() && child.shape(medium).level() == level - 1;
        if !is_level || level == 1 && child.low(medium) > slice {
            let at = node.offset(tree.pool.region());
            self.find(at, "a child that begins at or before its slice", "one that begins behind it");
        }
        Ok(())
    }

    fn look_at_leaf(
        &mut self,
        leaf: Node<'g>,
        (piece, word): (Piece, u64),
        depth: usize,
        begin: &[u8],
    ) -> Result<(), Damage> {
        let (tree, at) = (self.tree, leaf.offset(self.tree.pool.region()));
        if Tree::<M, K>::INLINE {
            self.keys += 1;
            return Ok(());
        }
        let entry = Entry(word);
        if entry.is_layer() {
            let root = tree.layer_of(leaf, (piece.slice, entry), depth)?;
            let mut begin = begin.to_vec();
            begin.truncate(depth * 8);
            if begin.len() == depth * 8 {
                begin.extend(piece.slice.to_be_bytes());
            }
            self.layers.push((root, begin));
            return Ok(());
        }
        self.keys += 1;
        if !entry.is_sound(piece.slice) {
            tree.damaged_entry(leaf);
            return Ok(());
        }
        let Some(key) = K::key_of(self.guard, entry.offset()) else {
            self.find(entry.offset(), "a record with a key", "none");
            return Ok(());
        };
        if Piece::of(&key, depth) != Some(piece) || !key.starts_with(begin) {
            self.find(at, "the place of its record's key", "another one");
        }
        Ok(())
    }
}
