//! Reads of single keys: links only, no header and no lock.

use super::super::keys::{Found, OrderedKind};
use super::super::link::{EMPTY, LEAF, Link};
use super::super::links::load;
use super::hashed::HIDDEN;
use super::node::{Node, Slot};
use super::tree::Tree;
use crate::Damage;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

/// Where a search ended.
pub(super) enum Ended<'g> {
    /// At the key's leaf, with this word.
    Found(u64),
    /// At the leaf of another key, behind this link.
    Other(Link),
    /// At a node that has no link for the key, or at the root.
    Nothing(Option<Node<'g>>),
    /// At something damaged.
    Damaged,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`PointIndex::get`](crate::PointIndex::get).
    #[inline(always)]
    pub(super) fn search<'g>(&'g self, guard: &'g Guard<'_, M>, key: &K::Key) -> Ended<'g> {
        let medium = self.pool.medium();
        let (mut word, mut base, mut at) = (self.root_link(), 0, None);
        let mut link = load(medium, word);
        loop {
            link = self.followed(word, link);
            match link.kind() {
                EMPTY => return Ended::Nothing(at),
                LEAF => return self.read_leaf(guard, word, link, key),
                _ => {}
            }
            let Some((node, level)) = self.node_unchecked(link, base) else { return Ended::Damaged };
            let Some(next) = self.next_link(node, level, key) else { return Ended::Nothing(Some(node)) };
            (word, link) = next;
            (base, at) = (level + 1, Some(node));
        }
    }

    /// The link of a node behind which the key must be.
    #[inline(always)]
    pub(super) fn next_link<'g>(&self, node: Node<'g>, level: usize, key: &K::Key) -> Option<Slot<'g>> {
        let medium = self.pool.medium();
        match K::byte(key, level) {
            Some(byte) => node.child(medium, byte),
            // A key that ends above the level is not below this node.
            None if K::bytes(key).len() == level => Some((node.here(), load(medium, node.here()))),
            None => None,
        }
    }

    #[inline(always)]
    pub(super) fn read_leaf<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        word: &'g Word,
        link: Link,
        key: &K::Key,
    ) -> Ended<'g> {
        if !link.is_sound() {
            self.damaged_link(word);
            return Ended::Damaged;
        }
        match K::find(guard, link.offset(), key) {
            Found::Word(found) => {
                self.persist_pair(word, link);
                Ended::Found(found)
            }
            Found::Other => Ended::Other(link),
        }
    }

    /// See [`PointIndex::get_sound`](crate::PointIndex::get_sound).
    #[inline(always)]
    pub(super) fn search_soundly(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        match self.search(guard, key) {
            Ended::Found(word) => Ok(Some(word)),
            ended => self.absent(guard, key, ended),
        }
    }

    /// A key was not found: decides whether that is certain.
    #[inline(never)]
    fn absent(&self, guard: &Guard<'_, M>, key: &K::Key, ended: Ended<'_>) -> Result<Option<u64>, Damage> {
        self.check_way(key)?;
        let suspect = match ended {
            Ended::Other(link) if !K::is_sound(guard, link.offset()) => {
                Some(Damage { offset: link.offset(), what: "a record that may be the key's is unsound" })
            }
            // A changed byte in a link may have been the key's.
            Ended::Nothing(Some(node)) => self.damaged_in(node, key),
            _ => None,
        };
        match suspect.or(self.damage.get().copied()) {
            Some(damage) => Err(damage),
            None => Ok(None),
        }
    }

    /// Checks the links and nodes on the way to a key.
    fn check_way(&self, key: &K::Key) -> Result<(), Damage> {
        let (mut word, mut base) = (self.root_link(), 0);
        loop {
            let link = load(self.pool.medium(), word);
            if !link.is_whole() {
                return Err(self.damaged_link(word));
            }
            if !link.is_node() {
                return Ok(());
            }
            let (node, level) = self.node_below(word, link, base)?;
            let Some(next) = self.next_link(node, level, key) else { return Ok(()) };
            (word, base) = (next.0, level + 1);
        }
    }

    /// The first of a node's links that does not fit its check and may have been any byte's, or an
    /// unused place before the key's. (In a node of kind 256 each byte has its own place.)
    fn damaged_in(&self, node: Node<'_>, key: &K::Key) -> Option<Damage> {
        let (medium, region) = (self.pool.medium(), self.pool.region());
        if matches!(node, Node::Full(_)) {
            return None;
        }
        let is_damaged = |word: &&Word| !load(medium, word).is_whole();
        if let Some(word) = node.links().iter().find(is_damaged) {
            return Some(self.damaged_link(word));
        }
        let byte = K::byte(key, node.shape(medium).level())?;
        let (word, link) = node.child_by_look(medium, byte).filter(|(_, link)| !link.is_empty())?;
        // A child that has come since the search is found now. One that has gone since the look has
        // left its place, and does not come back to it while this thread is pinned.
        let found = node.child(medium, byte).filter(|(_, link)| !link.is_empty());
        let is_hidden = found.is_none() && load(medium, word) == link;
        is_hidden.then(|| self.record_damage(node.offset(region), HIDDEN))
    }
}
