//! Scans: a walk of the tree in the order of keys. Keys may be thousands of bytes deep, so the
//! nodes on the path are on a stack of their own.

use super::Tree;
use super::child::{Child, Kind};
use super::node::{Node, Symbol};
use crate::baselines::key_form::compare_string;
use std::cmp::Ordering;
use terrace_medium::Medium;

/// A node on the path, and where the walk goes on in it.
struct Frame<'s, M> {
    node: Node<'s, M>,
    level: usize,
    next: Symbol,
    /// The child below which keys before the first wanted one may be.
    bound: Option<Symbol>,
}

/// What the walk comes to next.
struct Visit {
    child: Child,
    /// Bytes of a key on the path to it.
    depth: usize,
    /// Whether these bytes are those of the first wanted key.
    is_bound: bool,
}

impl<M: Medium> Tree<M> {
    pub(super) fn scan(&self, from: &[u8], most: usize, each: &mut dyn FnMut(u64)) {
        let mut left = most;
        let mut stack: Vec<Frame<'_, M>> = Vec::new();
        let mut visit = Some(Visit { child: self.child(self.root), depth: 0, is_bound: true });
        while left > 0 {
            match visit.take() {
                Some(Visit { child, .. }) if child.kind() == Kind::None => {}
                Some(Visit { child, is_bound, .. }) if child.kind() == Kind::Leaf => {
                    let leaf = child.offset();
                    if !is_bound || compare_string(&self.space, from, leaf + 8).is_le() {
                        each(self.space.load(leaf));
                        left -= 1;
                    }
                }
                Some(visit) => stack.extend(self.frame(&visit, from)),
                None => {}
            }
            let Some(frame) = stack.last_mut() else { return };
            visit = frame.visit();
            if visit.is_none() {
                stack.pop();
            }
        }
    }

    /// The frame of a node, unless all keys below it come before `from`.
    fn frame(&self, visit: &Visit, from: &[u8]) -> Option<Frame<'_, M>> {
        let node = self.node(visit.child);
        let header = node.header();
        let all = Frame { node, level: header.level(), next: 0, bound: None };
        if !visit.is_bound {
            return Some(all);
        }
        let piece = self.piece(visit.child, visit.depth, header);
        let rest = &from[visit.depth..];
        let both = piece.len().min(rest.len());
        match piece[..both].cmp(&rest[..both]) {
            Ordering::Less => None,
            Ordering::Greater => Some(all),
            // The first wanted key ends here or before, so all keys below come after it.
            Ordering::Equal if rest.len() <= piece.len() => Some(all),
            Ordering::Equal => {
                let bound = 1 + Symbol::from(rest[piece.len()]);
                Some(Frame { next: bound, bound: Some(bound), ..all })
            }
        }
    }
}

impl<M: Medium> Frame<'_, M> {
    fn visit(&mut self) -> Option<Visit> {
        let (symbol, child) = self.node.next(self.next)?;
        self.next = symbol + 1;
        Some(Visit { child, depth: self.level + 1, is_bound: self.bound == Some(symbol) })
    }
}
