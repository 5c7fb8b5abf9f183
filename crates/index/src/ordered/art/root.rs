//! The root block, and whatever holds a link: the root or a node.
//!
//! ```text
//!   line 0 | lock | shape | link to the tree | stripes | kind of keys | check | 0 | 0 |
//!   line 1 | count mode | base | number of the last recount | cycle | 0 ... |  (see count.rs)
//! ```
//! The cycle is that of the generations whose marks the nodes may have (see `obsolete`).

use super::node::{Node, Shape};
use terrace_medium::{Line, Medium, Word};
use terrace_pool::Lock;

pub(super) type Root = [Line; 2];

pub(super) const ROOT_LOCK: usize = 0;
pub(super) const ROOT_SHAPE: usize = 1;
pub(super) const ROOT_LINK: usize = 2;
pub(super) const ROOT_STRIPES: usize = 3;
pub(super) const ROOT_KIND: usize = 4;
pub(super) const ROOT_CHECK: usize = 5;
/// In the second line.
pub(super) const ROOT_CYCLE: usize = 3;

/// The value of [`ROOT_CHECK`]. It differs for any other place of the stripes.
pub(super) fn root_check(kind: u64, stripes: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (kind ^ ODD).rotate_left(29) ^ stripes.wrapping_mul(ODD)
}

/// What holds a link: a node, or the root above all nodes.
#[derive(Clone, Copy)]
pub(super) struct Holder<'g> {
    pub(super) lock: &'g Lock,
    shape: &'g Word,
    /// `None` for the root.
    pub(super) node: Option<Node<'g>>,
    /// The first byte of a key that its links have not decided: 0 for the root, or the node's level
    /// and one.
    pub(super) base: usize,
}

impl<'g> Holder<'g> {
    pub(super) fn root(root: &'g Root) -> Self {
        let words = &root[0].0;
        Self { lock: Lock::of(&words[ROOT_LOCK]), shape: &words[ROOT_SHAPE], node: None, base: 0 }
    }

    #[inline(always)]
    pub(super) fn node(node: Node<'g>, level: usize) -> Self {
        Self { lock: node.lock(), shape: node.shape_word(), node: Some(node), base: level + 1 }
    }

    /// Its shape; that of the root has only the number of the last recount.
    pub(super) fn shape(&self, medium: &impl Medium) -> Shape {
        match self.node {
            Some(node) => node.shape(medium),
            None => Shape(self.shape.load(medium, std::sync::atomic::Ordering::Relaxed)),
        }
    }

    /// Stores the part of the shape that may change. Called under the lock.
    ///
    /// ORDER: Release: a thread that sees a node no longer marked sees what was done before.
    pub(super) fn set_shape(&self, medium: &impl Medium, shape: Shape) {
        self.shape.store(medium, shape.0, std::sync::atomic::Ordering::Release);
    }
}
