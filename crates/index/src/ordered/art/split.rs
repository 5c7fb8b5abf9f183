//! A new node between a link and what it leads to: where two keys part (a leaf is split), or where
//! a key leaves a prefix (a path-compression split).

use super::super::keys::OrderedKind;
use super::super::link::Link;
use super::build::Content;
use super::change::Tried;
use super::locate::Spot;
use super::node::{Kind, Prefix, Slot};
use super::ops::Art;
use crate::Fencing;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, PoolFull};

impl<M: MappedMedium, K: OrderedKind> Art<M, K> {
    /// Puts a node between a holder and the leaf of another key, which differs from byte `at` on
    /// and has `byte` there.
    #[allow(clippy::too_many_arguments, reason = "a place, a leaf, and how to make it durable")]
    pub(super) fn split_leaf(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        spot: &Spot<'_>,
        (word, link): Slot<'_>,
        leaf: u64,
        (at, byte): (usize, Option<u8>),
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        let Some(_lock) = self.tree.lock(guard, spot.at)? else { return Ok(None) };
        if self.tree.follow_locked(word) != link {
            return Ok(None);
        }
        let old = (link.with_byte(byte.unwrap_or(0)), byte.is_some());
        let node = self.fork(guard, key, spot, at, leaf, old)?;
        self.tree.publish(
            word,
            Link::to_node(link.byte(), Kind::Four.bits(), at - spot.at.base, node),
            fencing,
        );
        self.count_key(guard, spot.at, 1);
        Ok(Some(()))
    }

    /// Puts a node between a holder and a node whose prefix differs from the key from byte `at` on,
    /// where the prefix has `byte`. The first step is the link to the new node; the second shortens
    /// the prefix (invariant 4).
    #[allow(clippy::too_many_arguments, reason = "a place, a leaf, and how to make it durable")]
    pub(super) fn split_prefix(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        spot: &Spot<'_>,
        (word, link): Slot<'_>,
        leaf: u64,
        (at, byte): (usize, u8),
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        let Some(_lock) = self.tree.lock(guard, spot.at)? else { return Ok(None) };
        if self.tree.follow_locked(word) != link {
            return Ok(None);
        }
        let (below, level) = self.tree.node_to_write(word, link, spot.at.base)?;
        let _lock_below = self.tree.lock_below(guard, below, level);
        let old = Link::to_node(byte, link.kind(), level - at - 1, link.offset());
        let node = self.fork(guard, key, spot, at, leaf, (old, true))?;
        self.tree.publish(
            word,
            Link::to_node(link.byte(), Kind::Four.bits(), at - spot.at.base, node),
            fencing,
        );
        self.count_key(guard, spot.at, 1);
        self.tree.set_prefix(guard, (below, level), at + 1);
        Ok(Some(()))
    }

    /// A durable node with two entries that branches at byte `at` of the key: the key's new leaf,
    /// and an old link, a child's or that of the key that ends there.
    fn fork(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        spot: &Spot<'_>,
        at: usize,
        leaf: u64,
        (old, is_child): (Link, bool),
    ) -> Result<u64, PoolFull> {
        let bytes = K::bytes(key);
        let new = Link::to_leaf(bytes.get(at).copied().unwrap_or(0), leaf);
        let children = [old, new];
        let (here, children) = match (is_child, at < bytes.len()) {
            (true, true) => (Link::NONE, &children[..]),
            (true, false) => (new, &children[..1]),
            (false, _) => (old, &children[1..]),
        };
        let (prefix, counted) =
            (Prefix::of(&bytes[spot.at.base..at]), spot.at.shape(self.tree.pool.medium()).counted());
        let content = Content { level: at, prefix, counted, here, children };
        let fresh = self.build(guard, Kind::Four, &content)?;
        // PERSIST: the node, and the new leaf in it, before the link to the node. A crash in
        // between leaves blocks that the collector reclaims.
        Ok(fresh.fenced(&guard.fence()).into_offset())
    }
}
