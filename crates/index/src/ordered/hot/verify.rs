//! Checks every invariant that is visible while no thread writes.

use super::super::base::{FINDINGS_MAX, finding};
use super::super::keys::OrderedKind;
use super::super::link::{LEAF, Link};
use super::find::Ended;
use super::node::Node;
use super::tree::Tree;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::{Finding, Guard};

/// A link that was not followed yet, and the first position that may lie behind it.
type Pending<'g> = (&'g Word, u32);

/// A check in progress.
struct Check<'g, M: MappedMedium, K: OrderedKind> {
    tree: &'g Tree<M, K>,
    guard: &'g Guard<'g, M>,
    findings: Vec<Finding>,
    keys: u64,
    last: Option<Vec<u8>>,
    /// The next in order on top.
    stack: Vec<Pending<'g>>,
}

impl<'g, M: MappedMedium, K: OrderedKind> Tree<M, K> {
    pub(super) fn findings(&'g self, guard: &'g Guard<'g, M>) -> Vec<Finding> {
        let (findings, stack) = (Vec::new(), vec![(self.root_link(), 0)]);
        let mut check = Check { tree: self, guard, findings, keys: 0, last: None, stack };
        while let Some(pending) = check.stack.pop() {
            check.look_at(pending);
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

    fn look_at(&mut self, (word, least): Pending<'g>) {
        let at = self.tree.pool.region().offset_of(word).raw();
        let link = match self.tree.sound_link(word) {
            Ok(link) => link,
            Err(damage) => return self.find(at, "a link that fits its check", damage.what),
        };
        if link.is_empty() {
            return;
        }
        if link.kind() == LEAF {
            return self.look_at_leaf(link);
        }
        match self.tree.whole_node_behind(self.guard, word, link, least) {
            Err(damage) => self.find(damage.offset, "a node", damage.what),
            Ok(node) => self.look_at_node(node),
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

    fn look_at_node(&mut self, node: Node<'g>) {
        let (bits, positions) = (node.bits(), node.positions());
        let is_sorted = bits.is_sorted_by(|one, next| one < next) && bits.first() == Some(&0);
        if !is_sorted || !positions.is_sorted_by(|one, next| one < next) {
            self.find(
                node.offset,
                "positions and entries in their order",
                format!("{positions:?} {bits:x?}"),
            );
        }
        let asked = bits.iter().fold(0, |asked, bits| asked | bits);
        if u64::from(asked) != (1u64 << positions.len()) - 1 {
            self.find(node.offset, "a fork for each position", format!("{asked:#x}"));
        }
        if node.len() > self.tree.growth.entries {
            self.find(
                node.offset,
                format!("{} entries", self.tree.growth.entries),
                format!("{}", node.len()),
            );
        }
        let link = |entry| (node.link(self.tree.pool.region(), entry), node.first() + 1);
        self.stack.extend((0..node.len()).rev().map(link));
    }
}
