//! Nodes of other kinds in the place of full and sparse ones, and the end of a node that has one
//! entry left.
//!
//! Each marks the old node, swaps the link to it, and retires it, under the locks of both
//! (invariants 2 and 5). The old node keeps its content for the readers in it.

use super::super::keys::OrderedKind;
use super::super::link::{LEAF, Link};
use super::super::links::{load, store};
use super::build::Content;
use super::change::Tried;
use super::locate::{Above, Spot};
use super::node::{Kind, Node, Prefix, RESHAPED, Slot};
use super::ops::Art;
use super::root::Holder;
use crate::{Damage, Decision, Fencing};
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Locked, PoolFull};

impl<M: MappedMedium, K: OrderedKind> Art<M, K> {
    /// Adds a link to a full node: replaces it by one of the next larger kind.
    pub(super) fn grow(
        &self,
        guard: &Guard<'_, M>,
        above: Above<'_>,
        (node, level): (Node<'_>, usize),
        new: Link,
    ) -> Tried<()> {
        let Some(_locks) = self.lock_both(guard, above, (node, level))? else { return Ok(None) };
        // A count that damage has made too high says now what is so.
        node.recount(self.tree.pool.medium(), self.tree.mark);
        let mut children = self.children_of(node);
        let Some(kind) = node.kind().larger() else { return Ok(None) };
        if children.len() < node.kind().most() || children.iter().any(|child| child.byte() == new.byte()) {
            // The next turn finds that child, unless damage hides it.
            return Ok(self.tree.check_unhidden(node, new.byte()).map(|()| None)?);
        }
        children.push(new);
        self.replace(guard, above, (node, level), (kind, &children))?;
        self.count_key(guard, Holder::node(node, level), 1);
        Ok(Some(()))
    }

    /// Whether a node has so few children that a smaller one may do. Called under the lock.
    pub(super) fn is_sparse(&self, holder: Holder<'_>) -> bool {
        // The key that ends here counts there, too.
        let is_sparse =
            |node: Node<'_>, at| at != 0 && node.len_hint(self.tree.pool.medium(), self.tree.mark) <= at + 1;
        holder.node.is_some_and(|node| is_sparse(node, node.kind().shrinks_at()))
    }

    /// Replaces a node by one of the next smaller kind if it has few children. Does nothing if
    /// there is no memory: the node is right as it is.
    pub(super) fn shrink(&self, guard: &Guard<'_, M>, spot: &Spot<'_>) -> Tried<()> {
        let Some((above, node, level)) = spot.node_and_above() else { return Ok(None) };
        let sparse = node.kind().shrinks_at();
        let Some(_locks) = self.lock_both(guard, above, (node, level))? else { return Ok(None) };
        node.recount(self.tree.pool.medium(), self.tree.mark);
        let children = self.children_of(node);
        let Some(kind) = node.kind().smaller().filter(|_| children.len() <= sparse) else { return Ok(None) };
        self.replace(guard, above, (node, level), (kind, &children))?;
        Ok(Some(()))
    }

    /// Removes a key whose node has one entry besides: that one takes the node's place. Its level
    /// does not change, so what was the node's path is prefix now; the second step says so.
    pub(super) fn remove_with_node(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_>,
        (word, link): Slot<'_>,
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Option<u64>> {
        let Some((above, node, level)) = spot.node_and_above() else { return Ok(None) };
        let medium = self.tree.pool.medium();
        let Some(_locks) = self.lock_both(guard, above, (node, level))? else { return Ok(None) };
        if self.tree.follow_locked(word) != link {
            return Ok(None);
        }
        node.recount(medium, self.tree.mark);
        let others =
            || node.entries(medium).filter(|(other, link)| !std::ptr::eq(*other, word) && !link.is_empty());
        let found = K::word_of(guard, link.offset());
        if others().count() > 1 || decide(Some(found)) != Decision::Set(None) {
            // Not the last but one, or another decision: the next turn does what is right.
            return Ok(None);
        }
        let other = others().next().map_or(Link::NONE, |(place, _)| self.tree.follow_locked(place));
        let below = match others().next() {
            // The new link will fit its check.
            Some((place, _)) if !other.is_sound() => return Err(self.tree.damaged_link(place).into()),
            Some((place, _)) if other.is_node() => Some(self.tree.node_to_write(place, other, level + 1)?),
            _ => None,
        };
        let byte = above.link.byte();
        let heir = match below {
            Some((_, lower)) => Link::to_node(byte, other.kind(), lower - above.holder.base, other.offset()),
            None if other.is_empty() => above.holder.rest_of((above.word, above.link)),
            None => other.with_byte(byte),
        };
        let lock_below = below.map(|(heir, lower)| self.tree.lock_below(guard, heir, lower));
        self.count_moved(guard, (above.holder, Holder::node(node, level)), other);
        // It was in this place before the node was, and a thread may have seen it there, dirty.
        self.swap(guard, above, (node, level), if heir.is_empty() { heir } else { heir.held() });
        if below.is_some() {
            store(medium, above.word, heir);
        }
        self.count_key(guard, Holder::node(node, level), -1);
        K::retire(guard, link.offset());
        if let Some(below) = below {
            self.tree.set_prefix(guard, below, above.holder.base);
        }
        drop(lock_below);
        Ok(Some(Some(found)))
    }

    /// Locks the holder of a link and the node behind it; `None` if they are no longer that.
    fn lock_both<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        above: Above<'g>,
        (node, level): (Node<'g>, usize),
    ) -> Result<Option<[Locked<'g, M>; 2]>, Damage> {
        self.tree.check_node(node, level)?;
        let Some(lock) = self.tree.lock(guard, above.holder)? else { return Ok(None) };
        if self.tree.follow_locked(above.word) != above.link {
            return Ok(None);
        }
        Ok(Some([lock, self.tree.lock_below(guard, node, level)]))
    }

    /// A node's children, all durable. Called under the lock.
    fn children_of(&self, node: Node<'_>) -> Vec<Link> {
        let links = node.links().iter().map(|word| self.tree.follow_locked(word));
        links.filter(|link| !link.is_empty()).collect()
    }

    /// Puts a node of another kind with these children in the place of one. Called under both
    /// locks.
    fn replace(
        &self,
        guard: &Guard<'_, M>,
        above: Above<'_>,
        (node, level): (Node<'_>, usize),
        (kind, children): (Kind, &[Link]),
    ) -> Result<(), PoolFull> {
        let medium = self.tree.pool.medium();
        let prefix = Prefix(node.prefix_word().load(medium, Acquire));
        let (here, counted) = (self.tree.follow_locked(node.here()), node.shape(medium).counted());
        let fresh = self.build(guard, kind, &Content { level, prefix, counted, here, children })?;
        // PERSIST: the node, and a new pair in it, before the link to the node.
        let offset = fresh.fenced(&guard.fence()).into_offset();
        let link = Link::to_node(above.link.byte(), kind.bits(), level - above.holder.base, offset);
        self.swap(guard, above, (node, level), link);
        self.tree.count().add_figure(guard.slot_index(), RESHAPED, 1);
        Ok(())
    }

    /// Puts another link in the place of the one to a node, and retires the node. Called under both
    /// locks.
    fn swap(&self, guard: &Guard<'_, M>, above: Above<'_>, (node, level): (Node<'_>, usize), link: Link) {
        self.tree.set_obsolete(node, level);
        self.soil_leaves(node);
        // Durable before the node is retired, whose memory others will use.
        self.tree.publish(above.word, link, &mut Fencing::Now);
        self.retire_node(guard, node);
    }

    /// Makes the links to pairs dirty in a node that is about to be replaced. Their words will
    /// change behind links of the new node, where a reader in the old one does not see that they
    /// are not durable.
    fn soil_leaves(&self, node: Node<'_>) {
        if !M::VOLATILE_CACHE || K::LEAF_BYTES == 0 {
            return;
        }
        let medium = self.tree.pool.medium();
        node.entries(medium).filter(|(_, link)| link.kind() == LEAF).for_each(|(word, _)| {
            let link = load(medium, word).clean();
            store(medium, word, link.held());
        });
    }

    /// A leaf moves from a node to the holder above it. If a recount has passed the holder and not
    /// the node, it will not see the leaf. Called under both locks.
    fn count_moved(&self, guard: &Guard<'_, M>, (to, from): (Holder<'_>, Holder<'_>), moved: Link) {
        let medium = self.tree.pool.medium();
        if moved.kind() == LEAF && to.shape(medium).counted() != from.shape(medium).counted() {
            self.count_key(guard, from, -1);
            self.count_key(guard, to, 1);
        }
    }
}
