//! Whatever holds a link: the root or a node.

use super::super::base::{ROOT_LOCK, ROOT_SHAPE, Root};
use super::super::link::Link;
use super::node::{Node, Shape, Slot};
use terrace_medium::{Medium, Word};
use terrace_pool::Lock;

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

    /// What a link leaves in its place once it is removed.
    pub(super) fn rest_of(&self, (place, link): Slot<'_>) -> Link {
        let keeps_used = self.node.is_some_and(|node| node.keeps_used(place));
        if keeps_used { link.vacated() } else { link.removed() }
    }

    /// Stores the part of the shape that may change. Called under the lock.
    ///
    /// ORDER: Release: a thread that sees a node no longer marked sees what was done before.
    pub(super) fn set_shape(&self, medium: &impl Medium, shape: Shape) {
        self.shape.store(medium, shape.0, std::sync::atomic::Ordering::Release);
    }
}
