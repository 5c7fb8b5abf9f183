//! The last key up to another one, for a tree above that asks for nothing else.

use super::super::ends::last_up_to;
use super::super::keys::{Found, KeyBytes, OrderedKind};
use super::super::link::{EMPTY, LEAF, Link};
use super::super::links::load;
use super::node::{Node, Slot};
use super::ops::Art;
use super::tree::Tree;
use std::ops::Bound;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Nodes on the way of a usual search.
const DEPTH: usize = 12;

/// What only a walk can tell, since the tree is deep or has changed meanwhile.
struct Unsure;

/// The nodes on the way to a key, with the levels at which they branch, from the root on.
struct Way<'g> {
    nodes: [Option<(Node<'g>, usize)>; DEPTH],
    len: usize,
}

impl<'g> Way<'g> {
    fn push(&mut self, node: Node<'g>, level: usize) -> Result<(), Unsure> {
        *self.nodes.get_mut(self.len).ok_or(Unsure)? = Some((node, level));
        self.len += 1;
        Ok(())
    }

    /// The first so many, or all.
    fn first(&self, most: usize) -> impl DoubleEndedIterator<Item = (Node<'g>, usize)> + '_ {
        self.nodes[..self.len.min(most)].iter().flatten().copied()
    }

    fn nodes(&self) -> impl DoubleEndedIterator<Item = (Node<'g>, usize)> + '_ {
        self.first(self.len)
    }
}

impl<M: MappedMedium, K: OrderedKind> Art<M, K> {
    /// The word of the last key up to `key`. Mostly a search, where a range would be a walk.
    #[inline(always)]
    pub(in super::super) fn floor(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        self.tree.floor_of(guard, key).unwrap_or_else(|Unsure| self.floor_by_walk(guard, key))
    }

    #[cold]
    fn floor_by_walk(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        last_up_to(self, guard, Bound::Included(key))
    }
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// The word of the last key up to a key.
    #[inline(always)]
    fn floor_of(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Unsure> {
        let mut way = Way { nodes: [None; DEPTH], len: 0 };
        let leaf = self.descend(key, &mut way)?;
        if let Some(leaf) = leaf
            && let Found::Word(word) = K::find(guard, leaf.offset(), key)
        {
            return Ok(Some(word));
        }
        // Any key there says where the way left that of the key.
        let sample = match (leaf, way.nodes().next_back()) {
            (Some(leaf), _) => K::key_of(guard, leaf.offset()),
            (None, Some((node, _))) => self.any_key(guard, node),
            (None, None) => return Ok(None),
        };
        self.last_before(guard, key, &way, (leaf, &sample.ok_or(Unsure)?))
    }

    /// Descends by the bytes of a key, wherever that leads. Returns the leaf there, if there is
    /// one.
    #[inline(always)]
    fn descend<'g>(&'g self, key: &K::Key, way: &mut Way<'g>) -> Result<Option<Link>, Unsure> {
        let mut word = self.root_link();
        let (mut link, mut base) = (load(self.pool.medium(), word), 0);
        loop {
            link = self.followed(word, link);
            match link.kind() {
                EMPTY => return Ok(None),
                LEAF if link.is_sound() => return Ok(Some(link)),
                LEAF => return Err(Unsure),
                _ => {}
            }
            let (node, level) = self.node_unchecked(link, base).ok_or(Unsure)?;
            way.push(node, level)?;
            let Some(next) = self.next_link(node, level, key) else { return Ok(None) };
            (word, link) = next;
            base = level + 1;
        }
    }

    /// The word of the last key before an absent one. A search for it came this way, to this leaf
    /// or to none; there lies the sample.
    fn last_before(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        way: &Way<'_>,
        (leaf, sample): (Option<Link>, &KeyBytes<'_>),
    ) -> Result<Option<u64>, Unsure> {
        let bytes = K::bytes(key);
        let common = bytes.iter().zip(sample.iter()).take_while(|(one, other)| one == other).count();
        // From the first node on that branches behind the common bytes, all keys lie on one side.
        let apart = way.nodes().position(|(_, level)| level > common);
        let is_before = **sample < *bytes;
        match (apart, leaf) {
            (Some(apart), _) if is_before => {
                let (node, _) = way.nodes().nth(apart).ok_or(Unsure)?;
                return self.last_of(guard, self.last_link(node, None).ok_or(Unsure)?).map(Some);
            }
            (None, Some(leaf)) if is_before => return Ok(Some(K::word_of(guard, leaf.offset()))),
            _ => {}
        }
        for (node, level) in way.first(apart.unwrap_or(way.len)).rev() {
            // A key that ends here is the first of the node's.
            let Some(byte) = K::byte(key, level) else { continue };
            if let Some(slot) = self.last_link(node, Some(byte)) {
                return self.last_of(guard, slot).map(Some);
            }
        }
        Ok(None)
    }

    /// The last of the entries of a node whose byte is below this one. The key that ends here comes
    /// before all children.
    fn last_link<'g>(&self, node: Node<'g>, below: Option<u8>) -> Option<Slot<'g>> {
        let medium = self.pool.medium();
        let is_below = |link: &Link| below.is_none_or(|byte| link.byte() < byte);
        let children = node.children(medium).filter(|(_, link)| !link.is_empty() && is_below(link));
        let here = (node.here(), load(medium, node.here()));
        let last = children.max_by_key(|(_, link)| link.byte());
        last.or_else(|| Some(here).filter(|(_, link)| !link.is_empty()))
    }

    /// The word of the last key behind a link.
    fn last_of(&self, guard: &Guard<'_, M>, (mut word, mut link): Slot<'_>) -> Result<u64, Unsure> {
        let mut base = 0;
        loop {
            link = self.followed(word, link);
            match link.kind() {
                EMPTY => return Err(Unsure),
                LEAF if link.is_sound() => return Ok(K::word_of(guard, link.offset())),
                LEAF => return Err(Unsure),
                _ => {}
            }
            let (node, level) = self.node_unchecked(link, base).ok_or(Unsure)?;
            (word, link) = self.last_link(node, None).ok_or(Unsure)?;
            base = level + 1;
        }
    }
}

#[cfg(test)]
#[path = "tests/floor.rs"]
mod tests;
