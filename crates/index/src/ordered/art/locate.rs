//! The way of a writer: the place of a key, with what it needs to change the structure there.

use super::super::keys::{KeyBytes, OrderedKind};
use super::super::link::{LEAF, Link};
use super::node::{Node, Slot};
use super::prefix::Compared;
use super::root::Holder;
use super::tree::Tree;
use crate::Damage;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

/// The link that leads to a node, and what holds it.
#[derive(Clone, Copy)]
pub(super) struct Above<'g> {
    pub(super) holder: Holder<'g>,
    pub(super) word: &'g Word,
    pub(super) link: Link,
}

/// The place of a key.
pub(super) struct Spot<'g> {
    /// The link to the node `at`; `None` if that is the root.
    pub(super) above: Option<Above<'g>>,
    /// What holds the key's link, or would hold it.
    pub(super) at: Holder<'g>,
    /// The key's link and its place; `None` if the node has none.
    pub(super) slot: Option<Slot<'g>>,
    pub(super) end: End,
}

/// What lies at the place of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// No link.
    Nothing,
    /// The key's leaf.
    Key,
    /// The leaf of a key that differs from this byte on and has this byte there, or ends.
    Other(usize, Option<u8>),
    /// A node whose keys all differ from the key from this byte on, above the node's level. They
    /// have this byte there.
    Below(usize, u8),
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// Looks for the place of `key`. `None`: the tree changed meanwhile.
    pub(super) fn locate<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &K::Key,
    ) -> Result<Option<Spot<'g>>, Damage> {
        let word = self.root_link();
        let root = (word, self.follow(word));
        let mut spot = Spot { above: None, at: self.root_holder(), slot: Some(root), end: End::Nothing };
        // Whether a prefix on the way was too long to be compared.
        let mut is_unsure = false;
        while let Some((word, link)) = spot.slot.filter(|(_, link)| !link.is_empty()) {
            if link.kind() == LEAF {
                return self.end_at_leaf(guard, key, (word, link), spot, is_unsure);
            }
            let (node, level) = self.node_below(word, link, spot.at.base)?;
            // Its lock, if this is the last node: its link lies in another line.
            self.pool.region().prefetch_to_write(link.offset());
            if level > spot.at.base {
                match self.compare_prefix(guard, spot.at, (word, link), (node, level), key) {
                    Compared::Equal => {}
                    Compared::Unsure => is_unsure = true,
                    // An earlier prefix may differ, too.
                    Compared::Differs(..) if is_unsure => return self.end_below(guard, key, node),
                    Compared::Differs(at, byte) => {
                        return Ok(Some(Spot { end: End::Below(at, byte), ..spot }));
                    }
                }
            }
            if K::bytes(key).len() < level {
                return self.end_below(guard, key, node);
            }
            let next = self.next_link(node, level, key);
            let slot = next.map(|(word, link)| (word, self.followed(word, link)));
            let above = Above { holder: spot.at, word, link };
            spot = Spot { above: Some(above), at: Holder::node(node, level), slot, end: End::Nothing };
        }
        match spot.at.node {
            Some(node) if is_unsure => self.end_at_nothing(guard, key, node, spot),
            _ => Ok(Some(spot)),
        }
    }

    fn end_at_leaf<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &K::Key,
        (word, link): Slot<'g>,
        spot: Spot<'g>,
        is_unsure: bool,
    ) -> Result<Option<Spot<'g>>, Damage> {
        if !link.is_sound() || !guard.pool().region().holds(link.offset(), 8) {
            return Err(self.damaged_link(word));
        }
        let unsound = || Damage { offset: link.offset(), what: "a record beside the key's place is unsound" };
        let there = K::key_of(guard, link.offset()).ok_or_else(unsound)?;
        let Some((at, byte)) = first_difference(&K::bytes(key), &there) else {
            return Ok(Some(Spot { end: End::Key, ..spot }));
        };
        if !K::is_sound(guard, link.offset()) {
            return Err(unsound());
        }
        if at >= spot.at.base {
            return Ok(Some(Spot { end: End::Other(at, byte), ..spot }));
        }
        match byte {
            Some(_) if is_unsure => self.locate_below(guard, key, at),
            // Its bytes on the way were compared, or decided the way: the record has changed.
            _ => Err(unsound()),
        }
    }

    /// A search for `key` ended at a place without a link in `node`, and did not compare all bytes
    /// on the way. Any key of the node has them.
    fn end_at_nothing<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &K::Key,
        node: Node<'g>,
        spot: Spot<'g>,
    ) -> Result<Option<Spot<'g>>, Damage> {
        let there = self.any_key_of(guard, node)?;
        match first_difference(&K::bytes(key), &there) {
            Some((at, Some(_))) if at + 1 < spot.at.base => self.locate_below(guard, key, at),
            _ => Ok(Some(spot)),
        }
    }

    /// A search for `key` ended at `node`, above whose level the key ends or differs.
    fn end_below<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &K::Key,
        node: Node<'g>,
    ) -> Result<Option<Spot<'g>>, Damage> {
        let there = self.any_key_of(guard, node)?;
        match first_difference(&K::bytes(key), &there) {
            Some((at, Some(_))) => self.locate_below(guard, key, at),
            _ => Err(self.unsound_below(node)),
        }
    }

    fn any_key_of<'g>(&self, guard: &'g Guard<'_, M>, node: Node<'_>) -> Result<KeyBytes<'g>, Damage> {
        self.any_key(guard, node).ok_or_else(|| self.unsound_below(node))
    }

    fn unsound_below(&self, node: Node<'_>) -> Damage {
        let offset = node.offset(self.pool.region());
        Damage { offset, what: "a node has no sound record to compare a key with" }
    }

    /// The place of `key` above the first node on its way with a level over `at`, from which byte
    /// on it differs from a key there.
    fn locate_below<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &K::Key,
        at: usize,
    ) -> Result<Option<Spot<'g>>, Damage> {
        let word = self.root_link();
        let mut slot = Some((word, self.follow(word)));
        let (mut above, mut holder) = (None, self.root_holder());
        while let Some((word, link)) = slot.filter(|(_, link)| link.is_node()) {
            let (node, level) = self.node_below(word, link, holder.base)?;
            if level > at {
                // The difference may have been found in a tree that was another. All keys of this
                // node have the same bytes above its level as long as it exists.
                let there = self.any_key_of(guard, node)?;
                return Ok(match first_difference(&K::bytes(key), &there) {
                    Some((at, Some(byte))) if (holder.base..level).contains(&at) => {
                        let slot = Some((word, link));
                        Some(Spot { above, at: holder, slot, end: End::Below(at, byte) })
                    }
                    _ => None,
                });
            }
            slot = self.next_link(node, level, key).map(|(word, link)| (word, self.followed(word, link)));
            above = Some(Above { holder, word, link });
            holder = Holder::node(node, level);
        }
        Ok(None)
    }
}

/// The first byte in which `there` differs from `key`, and `there`'s byte; `None` if they are
/// equal. A key that ends differs there.
fn first_difference(key: &[u8], there: &[u8]) -> Option<(usize, Option<u8>)> {
    let same = key.iter().zip(there).take_while(|(one, other)| one == other).count();
    (same < key.len() || same < there.len()).then(|| (same, there.get(same).copied()))
}

#[cfg(test)]
#[path = "tests/locate.rs"]
mod tests;
