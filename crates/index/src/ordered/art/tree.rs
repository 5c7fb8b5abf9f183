//! The tree below its operations: its handles, and the nodes behind its links.

use super::super::base::Base;
use super::super::keys::OrderedKind;
use super::super::link::Link;
use super::node::{Kind, Node};
use super::root::Holder;
use crate::Damage;
use std::ops::Deref;
use terrace_medium::{MappedMedium, Word};

/// The nodes, their locks and the links between them: what readers need, and what a writer needs
/// to find the place of a change. It owns the handles that every tree has. It knows no change of a
/// key; `Art` above it does.
pub(super) struct Tree<M: MappedMedium, K> {
    pub(super) base: Base<M, K>,
}

impl<M: MappedMedium, K> Deref for Tree<M, K> {
    type Target = Base<M, K>;
    #[inline(always)]
    fn deref(&self) -> &Base<M, K> {
        &self.base
    }
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    pub(super) fn root_holder(&self) -> Holder<'_> {
        Holder::root(&self.root)
    }

    /// The node of a link in a holder with this base, and its level.
    #[inline(always)]
    pub(super) fn node_below(
        &self,
        word: &Word,
        link: Link,
        base: usize,
    ) -> Result<(Node<'_>, usize), Damage> {
        match self.node_unchecked(link, base) {
            Some(node) if link.is_sound() => Ok(node),
            _ => Err(self.damaged_link(word)),
        }
    }

    /// As [`Tree::node_below`], but does not compare the link with its check. For a search, whose
    /// answer the key at the leaf confirms: where it finds none, it goes the way again and checks.
    #[inline(always)]
    pub(super) fn node_unchecked(&self, link: Link, base: usize) -> Option<(Node<'_>, usize)> {
        let node = Node::at(self.pool.region(), Kind::of(link.kind())?, link.offset())?;
        match link.skip() {
            Some(skip) => Some((node, base + skip)),
            None => self.level_in_header(node, base).ok(),
        }
    }

    #[inline(never)]
    fn level_in_header<'g>(&self, node: Node<'g>, base: usize) -> Result<(Node<'g>, usize), Damage> {
        let shape = node.shape(self.pool.medium());
        if shape.is_of(node.kind()) && shape.level() >= base {
            return Ok((node, shape.level()));
        }
        Err(self.record_damage(node.offset(self.pool.region()), "the head of a node does not fit its check"))
    }

    /// Checks a node before it is written to: the pool's own metadata never must be, as a node.
    #[inline(always)]
    pub(super) fn check_node(&self, node: Node<'_>, level: usize) -> Result<(), Damage> {
        let offset = node.offset(self.pool.region());
        let shape = node.shape(self.pool.medium());
        if offset >= self.pool.layout().zones && shape.is_of(node.kind()) && shape.level() == level {
            return Ok(());
        }
        Err(self.record_damage(offset, "the head of a node does not fit its check or its link"))
    }

    /// As [`Tree::node_below`], for writers.
    pub(super) fn node_to_write(
        &self,
        word: &Word,
        link: Link,
        base: usize,
    ) -> Result<(Node<'_>, usize), Damage> {
        let (node, level) = self.node_below(word, link, base)?;
        self.check_node(node, level)?;
        Ok((node, level))
    }
}
