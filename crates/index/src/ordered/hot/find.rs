//! Reads of single keys, without locks.

use super::super::keys::{Found, OrderedKind};
use super::super::link::{EMPTY, LEAF, Link};
use super::super::links::load;
use super::node::lines_behind;
use super::tree::Tree;
use crate::Damage;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

/// Where a search ended.
#[derive(Clone, Copy)]
pub(super) enum Ended {
    /// At the key's leaf, with this word.
    Found(u64),
    /// At the leaf of another key, behind this link.
    Other(Link),
    /// At an entry without a link, or at the root.
    Nothing,
    /// At something damaged.
    Damaged,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`PointIndex::get`](crate::PointIndex::get).
    #[inline(always)]
    pub(super) fn search(&self, guard: &Guard<'_, M>, key: &K::Key) -> Ended {
        let (bytes, region) = (K::bytes(key), self.pool.region());
        let (mut word, mut least) = (self.root_link(), 0);
        loop {
            let link = self.followed(word, load(self.pool.medium(), word));
            match link.kind() {
                EMPTY => return Ended::Nothing,
                LEAF => return self.read_leaf(guard, word, link, key),
                _ => self.prefetch_node(link),
            }
            let Ok(node) = self.node_behind(guard, word, link, least) else { return Ended::Damaged };
            (word, least) = (node.link(region, node.find(&bytes)), node.first() + 1);
        }
    }

    /// Prefetches the lines of a node.
    #[inline(always)]
    pub(super) fn prefetch_node(&self, link: Link) {
        (0..lines_behind(link) as u64)
            .for_each(|line| self.pool.region().prefetch(link.offset() + 64 * line));
    }

    #[inline(always)]
    pub(super) fn read_leaf(&self, guard: &Guard<'_, M>, word: &Word, link: Link, key: &K::Key) -> Ended {
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
    fn absent(&self, guard: &Guard<'_, M>, key: &K::Key, ended: Ended) -> Result<Option<u64>, Damage> {
        self.check_way(guard, key)?;
        let suspect = match ended {
            Ended::Other(link)
                if !K::is_sound(guard, link.offset()) && !self.is_apart(guard, &K::bytes(key), link) =>
            {
                Some(Damage { offset: link.offset(), what: "a record that may be the key's is unsound" })
            }
            _ => None,
        };
        match suspect.or(self.damage.get().copied()) {
            Some(damage) => Err(damage),
            None => Ok(None),
        }
    }

    /// Checks the links and the nodes on the way to a key. A changed byte of a node may have led
    /// the search elsewhere.
    pub(super) fn check_way(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<(), Damage> {
        let (bytes, region) = (K::bytes(key), self.pool.region());
        let (mut word, mut least) = (self.root_link(), 0);
        loop {
            let link = load(self.pool.medium(), word);
            if !link.is_whole() {
                return Err(self.damaged_link(word));
            }
            if !link.is_node() {
                return Ok(());
            }
            let node = self.whole_node_behind(guard, word, link, least)?;
            (word, least) = (node.link(region, node.find(&bytes)), node.first() + 1);
        }
    }
}
