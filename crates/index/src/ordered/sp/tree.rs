//! The tree below its operations: its handles, the nodes behind its links, and the way to the node
//! of a key.

use super::super::base::Base;
use super::super::keys::{KeyBytes, OrderedKind};
use super::super::masstree::Masstree;
use super::border::{Sought, key_of_border};
use super::layers::Layers;
use super::log::Log;
use super::node::{Node, WIDTH, bits_below};
use super::word::Entry;
use crate::{Damage, PointIndex};
use std::borrow::Borrow;
use std::cmp::Ordering::{Greater, Less};
use std::ops::{Bound, Deref};
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Lock};

/// The nodes and the links between them: what readers need. It owns the handles that every tree
/// has, and the tree above the nodes. It knows no change of a key; `SpTree` above it does.
pub(super) struct Tree<M: MappedMedium, K: OrderedKind> {
    pub(super) base: Base<M, K>,
    /// The top layer in the pool: the low border of each node, and the node. A node may be missing
    /// there; the way to it leads over its left neighbour then.
    pub(super) top: Masstree<M, K::Borders>,
    /// Slots of a node that are used: fewer than it has only where structures of few keys are
    /// wanted.
    pub(super) width: usize,
    /// The log of buffered changes, if it ever had any.
    pub(super) log: Option<Log>,
    /// Damage of the log. It may hide the last change of any key, so no answer is certain.
    pub(super) log_damage: Option<Damage>,
    /// The layers in DRAM, if it has any.
    pub(super) layers: Option<Layers<K>>,
}

/// The keys that belong to a node: from one border on, and below the other one, if it has one.
pub(super) struct Extent<'g> {
    pub(super) low: KeyBytes<'g>,
    pub(super) high: Option<KeyBytes<'g>>,
}

impl Extent<'_> {
    pub(super) fn has(&self, key: &[u8]) -> bool {
        *self.low <= *key && self.high.as_ref().is_none_or(|high| *key < **high)
    }
}

/// Where the range of a node ends, as it was read: the border, and the node behind it.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) next: Entry,
    pub(super) border: u64,
}

impl<M: MappedMedium, K: OrderedKind> Deref for Tree<M, K> {
    type Target = Base<M, K>;
    #[inline(always)]
    fn deref(&self) -> &Base<M, K> {
        &self.base
    }
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// Whether slots have keys and their words, and not records.
    pub(super) const INLINE: bool = K::LEAF_BYTES > 0;

    #[cold]
    pub(super) fn damaged_node(&self, node: Node<'_>, what: &'static str) -> Damage {
        self.record_damage(node.offset(self.pool.region()), what)
    }

    /// The bits of the slots that are used.
    #[inline(always)]
    pub(super) fn all_slots(&self) -> u64 {
        if self.width == WIDTH { u64::MAX } else { bits_below(self.width) }
    }

    /// The node at an offset that a word at `from` names.
    #[inline(always)]
    pub(super) fn node_at(&self, from: u64, offset: u64) -> Result<Node<'_>, Damage> {
        // The pool's own metadata is never a node.
        let node = Node::at::<M, K>(self.pool.region(), offset);
        match node.filter(|node| offset >= self.pool.layout().zones && self.is_state_sound(*node)) {
            Some(node) => Ok(node),
            None => Err(self.record_damage(from, "a link does not lead to a sound node")),
        }
    }

    fn is_state_sound(&self, node: Node<'_>) -> bool {
        node.state(self.pool.medium()).is_sound()
    }

    /// The first node, which has no low border, and stays.
    pub(super) fn first(&self) -> Result<Node<'_>, Damage> {
        // ORDER: Acquire: the node is visible.
        let link = Entry(self.root_link().load(self.pool.medium(), Acquire));
        match link.is_sound() {
            true => self.node_at(self.root.offset().raw(), link.offset()),
            false => Err(self.record_damage(self.root.offset().raw(), "the link to the first node")),
        }
    }

    /// The last node that the top layer has up to a bound, or the first node.
    #[inline(always)]
    pub(super) fn mapped_floor(&self, guard: &Guard<'_, M>, to: Bound<&K::Key>) -> Result<Node<'_>, Damage> {
        match self.top.floor(guard, to) {
            Some(offset) => self.node_at(self.root.offset().raw(), offset),
            None => self.first(),
        }
    }

    /// The node where a walk to a key begins: the layers in DRAM tell, or the top layer in the
    /// pool.
    pub(super) fn floor(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Node<'_>, Damage> {
        let known = self.layers.as_ref().and_then(|layers| layers.node_of(&layers.pin(), key));
        match known {
            Some(offset) => self.node_at(self.root.offset().raw(), offset),
            None => self.mapped_floor(guard, Bound::Included(key)),
        }
    }

    /// The end of a node's range; `None` if it is the last one.
    #[inline(always)]
    pub(super) fn end_of(&self, node: Node<'_>) -> Option<End> {
        let medium = self.pool.medium();
        loop {
            let end = End { next: node.next(medium), border: node.high(medium) };
            // Both are of one time if the next node is the same before and after; but for a change
            // of the structure that has stored one of them.
            if node.next(medium) == end.next {
                return (!end.next.is_none()).then_some(end);
            }
        }
    }

    /// How a key compares with a border that a node has.
    #[inline(always)]
    pub(super) fn compare(
        &self,
        guard: &Guard<'_, M>,
        sought: &Sought<'_>,
        (node, border): (Node<'_>, u64),
    ) -> Result<std::cmp::Ordering, Damage> {
        let compared = sought.compare::<M, K>(guard, border);
        compared.ok_or_else(|| self.damaged_border(node))
    }

    /// The end of a node's range, if a key lies behind it.
    #[inline(always)]
    pub(super) fn end_before(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        sought: &Sought<'_>,
    ) -> Result<Option<End>, Damage> {
        let Some(end) = self.end_of(node) else { return Ok(None) };
        Ok((self.compare(guard, sought, (node, end.border))? != Less).then_some(end))
    }

    /// Fails if a node begins behind a key that was led to it. Only damage does that.
    pub(super) fn check_begin(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        sought: &Sought<'_>,
    ) -> Result<(), Damage> {
        let low = node.low(self.pool.medium());
        // No border at all is the lowest of byte strings, and 0 that of integers.
        match low == 0 || self.compare(guard, sought, (node, low))? != Less {
            true => Ok(()),
            false => Err(self.damaged_node(node, "a node begins behind a key that is led to it")),
        }
    }

    /// The node that a node leads to on the way to a key; `None` if the key is its own.
    #[inline(always)]
    pub(super) fn way_on(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        sought: &Sought<'_>,
    ) -> Result<Option<Node<'_>>, Damage> {
        match self.end_before(guard, node, sought)? {
            Some(end) => self.right_of(node, end).map(Some),
            None => self.heir_of(node),
        }
    }

    /// The node of a key, from another one on its left on.
    pub(super) fn walk_to<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        mut node: Node<'g>,
        sought: &Sought<'_>,
    ) -> Result<Node<'g>, Damage> {
        while let Some(next) = self.way_on(guard, node, sought)? {
            node = next;
        }
        Ok(node)
    }

    /// The node that has the keys of a node which was given away; `None` if it has them itself.
    #[inline(always)]
    pub(super) fn heir_of(&self, node: Node<'_>) -> Result<Option<Node<'_>>, Damage> {
        let state = node.state(self.pool.medium());
        if !state.is_frozen() {
            return Ok(None);
        }
        let heir = self.node_at(node.offset(self.pool.region()), state.partner())?;
        Ok(self.has_joined(node, heir).then_some(heir))
    }

    /// Whether a frozen node's range belongs to its partner already.
    pub(super) fn has_joined(&self, node: Node<'_>, heir: Node<'_>) -> bool {
        let medium = self.pool.medium();
        let leads = |link: Entry| link.is_sound() && link.offset() == node.offset(self.pool.region());
        loop {
            let next = heir.next(medium);
            let is_before = leads(next) && heir.high(medium) == node.low(medium);
            if heir.next(medium) == next {
                return !is_before;
            }
        }
    }

    /// The node behind an end that was read of a node; what says so is durable. It is not the next
    /// one that the node has by now: that may begin behind the key for which this end was read.
    pub(super) fn right_of(&self, node: Node<'_>, end: End) -> Result<Node<'_>, Damage> {
        self.persist_read::<0>(node, []);
        self.right_of_locked(node, end)
    }

    /// As `right_of`, under the lock of the node, all of which is durable therefore.
    pub(super) fn right_of_locked(&self, node: Node<'_>, end: End) -> Result<Node<'_>, Damage> {
        let medium = self.pool.medium();
        if !end.next.is_sound() {
            return Err(self.damaged_node(node, "the link to the next node does not fit its check"));
        }
        let right = self.node_at(node.offset(self.pool.region()), end.next.offset())?;
        // A change of the structure leaves them apart, and one that was cut off. So does what
        // follows a node that was given away.
        let are_settled = node.state(medium).is_settled() && right.state(medium).is_settled();
        let is_old = node.next(medium) != end.next || node.high(medium) != end.border;
        match right.low(medium) == end.border || !are_settled || is_old {
            true => Ok(right),
            false => Err(self.damaged_node(node, "a node does not end where the next one begins")),
        }
    }

    /// Persists what was read of a node, and of some of its slots, unless its lock says that it is
    /// durable. A thread neither answers nor goes on by what a crash can take back.
    #[inline(always)]
    pub(super) fn persist_read<const SLOTS: usize>(&self, node: Node<'_>, slots: [usize; SLOTS]) {
        if M::VOLATILE_CACHE && Lock::may_be_unfenced(node.lock().load_word(self.pool.medium())) {
            let region = self.pool.region();
            slots.iter().for_each(|&slot| region.write_back(node.line_of::<K>(slot)));
            region.write_back(node.tag_line());
            region.write_back(node.head());
            // PERSIST: what another thread has stored and not fenced, before this one answers or
            // goes on to write.
            region.fence();
        }
    }

    /// Makes all of a node durable.
    pub(super) fn persist_all(&self, node: Node<'_>) {
        let region = self.pool.region();
        node.lines().for_each(|line| region.write_back(line));
        // PERSIST: what another thread has stored and not fenced, before this one builds upon it.
        region.fence();
    }

    /// Prefetches the lines of a node that a search reads first.
    #[inline(always)]
    pub(super) fn prefetch_front(&self, node: Node<'_>) {
        let at = node.offset(self.pool.region());
        self.pool.region().prefetch(at);
        self.pool.region().prefetch(at + 64);
    }

    /// The bytes of the low border of a node.
    pub(super) fn low_of<'g>(&self, guard: &'g Guard<'_, M>, node: Node<'_>) -> Result<KeyBytes<'g>, Damage> {
        let low = key_of_border::<M, K>(guard, node.low(self.pool.medium()));
        low.ok_or_else(|| self.damaged_border(node))
    }

    /// The keys that belong to a node with this end.
    pub(super) fn extent<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        node: Node<'_>,
        end: Option<u64>,
    ) -> Result<Extent<'g>, Damage> {
        let border = |border| key_of_border::<M, K>(guard, border).ok_or_else(|| self.damaged_border(node));
        Ok(Extent { low: self.low_of(guard, node)?, high: end.map(border).transpose()? })
    }

    /// The low border of a node, as the key that the top layer has for it.
    pub(super) fn mapped_key(&self, guard: &Guard<'_, M>, node: Node<'_>) -> Option<K::Owned> {
        K::owned(&self.low_of(guard, node).ok()?)
    }

    /// The node of the keys just below a node, as it seems without a lock; `None` if there is none.
    pub(super) fn node_before<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        node: Node<'g>,
    ) -> Result<Option<Node<'g>>, Damage> {
        // Damage to the first node ends a walk there, and not here.
        let first = Entry(self.root_link().load(self.pool.medium(), Acquire));
        if node.offset(self.pool.region()) == first.offset() {
            return Ok(None);
        }
        let low = self.low_of(guard, node)?;
        let Some(key) = K::owned(&low) else { return Ok(None) };
        let from = self.mapped_floor(guard, Bound::Excluded(key.borrow()))?;
        self.walk_before(guard, from, Some(&Sought::new(low))).map(Some)
    }

    /// The first damage that was met, here or in the top layer.
    pub(super) fn damage_met(&self) -> Option<Damage> {
        self.damage.get().copied().or_else(|| self.top.damage())
    }

    #[cold]
    pub(super) fn damaged_border(&self, node: Node<'_>) -> Damage {
        self.damaged_node(node, "a border of a node does not fit its check")
    }

    /// Walks from a node to that of the keys just below a border, or to the last one.
    pub(super) fn walk_before<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        mut node: Node<'g>,
        border: Option<&Sought<'_>>,
    ) -> Result<Node<'g>, Damage> {
        loop {
            let end = match (self.end_of(node), border) {
                (Some(end), Some(border)) => {
                    let is_left = self.compare(guard, border, (node, end.border))? == Greater;
                    is_left.then_some(end)
                }
                (end, _) => end,
            };
            node = match end {
                Some(end) => self.right_of(node, end)?,
                None => match self.heir_of(node)? {
                    Some(heir) => heir,
                    None => return Ok(node),
                },
            }
        }
    }
}
