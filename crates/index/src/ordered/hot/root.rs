//! Whatever holds a link: the root or a node. And the parameters of a tree's shape.

use super::super::base::{ROOT_LOCK, ROOT_SHAPE, Root};
use super::node::{Node, Shape, load_shape, store_shape};
use super::trie::ENTRIES;
use terrace_medium::{Medium, Region, Word};
use terrace_pool::Lock;

/// What holds a link: a node, or the root above all nodes.
#[derive(Clone, Copy)]
pub(super) struct Holder<'g> {
    pub(super) lock: &'g Lock,
    shape: &'g Word,
    /// `None` for the root.
    pub(super) node: Option<Node<'g>>,
}

impl<'g> Holder<'g> {
    pub(super) fn root(root: &'g Root) -> Self {
        let words = &root[0].0;
        Self { lock: Lock::of(&words[ROOT_LOCK]), shape: &words[ROOT_SHAPE], node: None }
    }

    pub(super) fn node<M: Medium>(region: &'g Region<M>, node: Node<'g>) -> Self {
        Self { lock: node.lock(region), shape: node.shape_word(region), node: Some(node) }
    }

    /// Its shape; that of the root has only the number of the last recount.
    pub(super) fn shape(&self, medium: &impl Medium) -> Shape {
        load_shape(medium, self.shape)
    }

    /// Stores the part of the shape that may change. Called under the lock.
    pub(super) fn set_shape(&self, medium: &impl Medium, shape: Shape) {
        store_shape(medium, self.shape, shape);
    }
}

/// How large nodes become, and how far a full one pushes entries up. A word of the root keeps it:
///
/// ```text
///   | 63:32 all bits of the lower half, inverted | 15:8 levels | 7:0 entries |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Growth {
    /// Entries of a node at most.
    pub(super) entries: usize,
    /// Nodes on a path that one insert replaces at most. The next full one stays as it is, and a
    /// node comes in between. So a writer holds few locks, whatever the keys.
    pub(super) levels: usize,
}

impl Growth {
    /// That of all trees but those of tests.
    pub(super) const USUAL: Self = Self { entries: ENTRIES, levels: 12 };

    pub(super) fn to_word(self) -> u64 {
        let low = (self.levels << 8 | self.entries) as u64;
        low | (!low & 0xffff_ffff) << 32
    }

    pub(super) fn of_word(word: u64) -> Option<Self> {
        let growth = Self { entries: (word & 0xff) as usize, levels: (word >> 8 & 0xff) as usize };
        let is_sound = (2..=ENTRIES).contains(&growth.entries) && (1..=12).contains(&growth.levels);
        (is_sound && growth.to_word() == word).then_some(growth)
    }
}
