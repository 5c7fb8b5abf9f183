//! The faults that the thesis found in the published tree.

mod crashes;
mod orders;

use super::*;
use crate::baselines::StringKeys;
use crate::baselines::tests::crash::{Crashing, Recovers};
use crate::baselines::tests::space;
use terrace_medium::Dram;

impl<M: Medium, K: KeyForm> FastFair<M, K> {
    /// Number of nodes that a search for `key` reads.
    fn steps(&self, key: &K::Key) -> u64 {
        let (mut node, mut steps) = (self.root(), 1);
        loop {
            let seen = node.search::<K>(key);
            node = match seen.right.filter(|&right| self.is_beyond(key, right)) {
                Some(right) => self.node(right.at),
                None if node.level() == 0 => return steps,
                None => self.node(seen.value),
            };
            steps += 1;
        }
    }

    /// The nodes of a level from left to right.
    fn chain(&self, level: u64) -> Vec<Node<'_, M>> {
        let mut first = self.root();
        while first.level() > level {
            first = self.node(first.leftmost());
        }
        let next = |node: &Node<'_, M>| node.right().map(|right| self.node(right.at));
        std::iter::successors(Some(first), next).collect()
    }

    /// Checks that each level's entries are in order, that the nodes below a level are named once
    /// each, and that every key is in the range of its node.
    fn verify(&self) {
        let compare =
            |one: u64, other: u64| K::compare(&self.space, K::read(&self.space, one).borrow(), other);
        for level in 0..=self.root().level() {
            let (mut children, mut last) = (Vec::new(), None);
            for node in self.chain(level) {
                let entries = node.entries();
                children.extend([node.leftmost()].into_iter().chain(entries.as_slice().iter().map(|e| e.1)));
                for &(key, _) in entries.as_slice() {
                    assert!(last.is_none_or(|last| compare(last, key).is_lt()), "in order");
                    assert!(
                        node.right().is_none_or(|right| compare(key, right.low).is_lt()),
                        "before the next"
                    );
                    last = Some(key);
                }
            }
            if let Some(below) = level.checked_sub(1) {
                let below: Vec<u64> = self.chain(below).into_iter().map(Node::offset).collect();
                assert_eq!(children, below, "level {level} names each node below it once");
            }
        }
    }

    /// Inserts `key` as a thread that waited for the key's leaf while `meanwhile` ran.
    fn insert_late(&self, key: &K::Key, value: u64, meanwhile: impl FnOnce()) -> Result<bool, SpaceFull> {
        let leaf = self.descend(0, key, Intent::Write);
        meanwhile();
        self.insert_from(leaf, key, value)
    }
}

impl Recovers<IntegerKeys> for FastFair<Crashing> {
    fn open(space: Arc<Space<Crashing>>, root: u64) -> Option<Self> {
        (space.load(root) != 0).then(|| Self::over(space, root, true))
    }
    fn remove(&self, key: &u64) -> Option<u64> {
        self.remove(key)
    }
    fn key(number: usize) -> u64 {
        number as u64
    }
}

impl Recovers<StringKeys> for FastFair<Crashing, StringKeys> {
    fn open(space: Arc<Space<Crashing>>, root: u64) -> Option<Self> {
        (space.load(root) != 0).then(|| Self::over(space, root, true))
    }
    fn remove(&self, key: &[u8]) -> Option<u64> {
        self.remove(key)
    }
    fn key(number: usize) -> Vec<u8> {
        format!("a common beginning {number:03}{}", &"of any length"[..number % 14]).into_bytes()
    }
}

fn tree() -> FastFair<Dram> {
    FastFair::create(space(1 << 20)).expect("room for a tree")
}

#[test]
fn late_insert_finds_the_right_half_of_a_split() {
    let tree = tree();
    (0..CAPACITY as u64).for_each(|n| assert_eq!(tree.insert(&(10 * n), n), Ok(true)));
    // The leaf's right half has moved by the time the thread gets its lock.
    let split = || assert_eq!(tree.insert(&1, 1), Ok(true));
    assert_eq!(tree.insert_late(&255, 255, split), Ok(true));
    assert_eq!(tree.root().level(), 1);
    assert_eq!(tree.get(&255), Some(255));
    assert_eq!(tree.insert(&255, 0), Ok(false));
    tree.verify();
}

#[test]
fn late_insert_finds_the_leaf_that_absorbed_its_own() {
    let tree = tree();
    (0..=CAPACITY as u64).for_each(|n| assert_eq!(tree.insert(&(10 * n), n), Ok(true)));
    let merge = || {
        assert_eq!(tree.root().count(), 1);
        (2..CAPACITY as u64).for_each(|n| assert_eq!(tree.remove(&(10 * n)), Some(n)));
        assert_eq!(tree.root().count(), 0, "one leaf has absorbed the other");
    };
    assert_eq!(tree.insert_late(&255, 255, merge), Ok(true));
    assert_eq!(tree.get(&255), Some(255));
    let mut all = Vec::new();
    tree.scan(&0, 100, &mut |value| all.push(value));
    assert_eq!(all, [0, 1, 255, 30]);
    tree.verify();
}

/// A tree with two nodes of level 1 that are as full as ascending inserts leave them.
fn tree_of_two_parents() -> FastFair<Dram> {
    let tree = tree();
    let most = (CAPACITY * CAPACITY) as u64;
    let last = (0..most).find(|&key| {
        assert_eq!(tree.insert(&(10 * key), key), Ok(true));
        tree.chain(1).len() > 1
    });
    assert!(last.is_some() && tree.root().level() == 2);
    tree.verify();
    tree
}

#[test]
fn parent_is_told_about_each_node_once() {
    let tree = tree_of_two_parents();
    for level in [0, 1] {
        tree.chain(level).into_iter().for_each(|node| tree.tell_parent(tree.lock(node)));
        tree.verify();
    }
}

#[test]
fn late_inserts_find_leaves_that_were_split_again() {
    let tree = tree();
    let ascending =
        |from: u64, to: u64| (from..to).for_each(|n| assert_eq!(tree.insert(&(10 * n), n), Ok(true)));
    for late in (0..(CAPACITY * CAPACITY) as u64).step_by(CAPACITY / 2 + 1) {
        ascending(late, late + 1);
        let before = 10 * late + 1;
        let split = || ascending(late + 1, late + 1 + CAPACITY as u64 / 2);
        assert_eq!(tree.insert_late(&before, 0, split), Ok(true), "{late}");
    }
    assert_eq!(tree.root().level(), 2);
    tree.verify();
}

#[test]
fn leaves_of_two_parents_are_not_merged() {
    let tree = tree_of_two_parents();
    let right = tree.chain(1)[1].leftmost();
    let leaves = tree.chain(0);
    let place = leaves.iter().position(|leaf| leaf.offset() == right).expect("a leaf");
    let left = leaves[place - 1].offset();
    tree.merge(left, right);
    let emptied = [left, right].map(|leaf| tree.node(leaf)).map(|leaf| leaf.entries().as_slice().to_vec());
    emptied.iter().flatten().for_each(|entry| assert!(tree.remove(&!entry.0).is_some()));
    tree.merge(left, right);
    tree.verify();
    emptied.iter().flatten().for_each(|entry| assert_eq!(tree.insert(&!entry.0, entry.1), Ok(true)));
    tree.verify();
}
