//! Splits of nodes (4.4.5).

use super::super::keys::{KeyBytes, OrderedKind};
use super::border::{between, block_of, make};
use super::find::Probe;
use super::node::{Content, Node, Pair, node_bytes, slots_of};
use super::ops::{NODES, SPLITS, SpTree};
use super::tree::Tree;
use super::word::Entry;
use crate::ChangeError;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, PoolFull};

/// A slot of a node, with its key.
struct Slot<'g> {
    slot: usize,
    tag: u8,
    pair: Pair,
    key: KeyBytes<'g>,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// The key of a pair; `None` if its record is not sound.
    #[inline(always)]
    pub(super) fn key_at<'g>(&self, guard: &'g Guard<'_, M>, (key, word): Pair) -> Option<KeyBytes<'g>> {
        if Self::INLINE {
            return Some(KeyBytes::Integer(key.to_be_bytes()));
        }
        let entry = Entry(word);
        entry.is_sound().then(|| K::key_of(guard, entry.offset())).flatten()
    }
}

impl<M: MappedMedium, K: OrderedKind> SpTree<M, K> {
    /// Splits a full node in two and returns the new one, the right one, which the top layer does
    /// not have yet. All is durable. Called under the lock.
    pub(super) fn split<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        node: Node<'g>,
        probe: &Probe<'_, K::Key>,
    ) -> Result<Node<'g>, ChangeError> {
        let slots = self.slots_in_order(guard, node);
        if slots.len() < 2 {
            let what = "a full node has too few records whose keys can be read";
            return Err(self.tree.damaged_node(node, what).into());
        }
        let at = if is_rising(&slots, &probe.sought.bytes) { slots.len() - 1 } else { slots.len() / 2 };
        let (left, right) = slots.split_at(at);
        let low = self.border(guard, &left[at - 1].key, &right[0].key)?;
        let built = self.build(guard, node, low, right);
        let free = |(border, bytes)| guard.free(border, bytes);
        let right_at = built.inspect_err(|_| block_of::<M, K>(guard, low).map_or((), free))?;
        let kept =
            right.iter().fold(node.bitmap(self.tree.pool.medium()), |all, slot| all & !(1 << slot.slot));
        let unsettled = self.unsettle_layers(guard, node);
        self.part(node, kept, low, Entry::link(right_at));
        self.settle_layers(guard, node, unsettled);
        self.tree.count().add_figure(guard.slot_index(), NODES, 1);
        self.tree.count().add_figure(guard.slot_index(), SPLITS, 1);
        Ok(self.tree.node_at(node.offset(self.tree.pool.region()), right_at)?)
    }

    /// The slots of a node whose keys can be read, in the order of these.
    fn slots_in_order<'g>(&self, guard: &'g Guard<'_, M>, node: Node<'g>) -> Vec<Slot<'g>> {
        let medium = self.tree.pool.medium();
        let read = |slot: usize| {
            let pair = node.pair::<K>(medium, slot);
            let key = self.tree.key_at(guard, pair)?;
            Some(Slot { slot, tag: node.tag(medium, slot), pair, key })
        };
        let mut slots: Vec<_> = slots_of(node.bitmap(medium)).filter_map(read).collect();
        slots.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        slots
    }

    /// A border between two keys, durable at the next fence.
    fn border(&self, guard: &Guard<'_, M>, left: &[u8], right: &[u8]) -> Result<u64, PoolFull> {
        match right.first_chunk() {
            Some(bytes) if Tree::<M, K>::INLINE => Ok(u64::from_be_bytes(*bytes)),
            _ => Ok(make(guard, between(left, right))?.0),
        }
    }

    /// The right node of a split, durable.
    fn build(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        low: u64,
        slots: &[Slot<'_>],
    ) -> Result<u64, PoolFull> {
        let medium = self.tree.pool.medium();
        let entries: Vec<_> = slots.iter().map(|slot| (slot.tag, slot.pair)).collect();
        let (next, high, counted) = (node.next(medium), node.high(medium), node.counted(medium));
        let fresh = guard.alloc(node_bytes::<K>())?;
        // Changes that were logged of another node in the same place are none of this one.
        let merged = self.tree.log.as_ref().map_or(0, |log| log.next() - 1);
        let content = Content { next, high, low, counted, merged, entries: &entries };
        fresh.stream_lines(0, &content.image::<K>());
        // PERSIST: the new node and its border before the link to it. A crash in between leaves
        // blocks that the collector reclaims.
        Ok(fresh.persist().into_offset())
    }

    /// Leaves the slots of a bitmap to a node, and gives the others up to a new next one.
    fn part(&self, node: Node<'_>, kept: u64, low: u64, next: Entry) {
        let region = self.tree.pool.region();
        let medium = region.medium();
        node.set_state(medium, node.state(medium).changing(0));
        if node.next(medium).is_none() {
            // The end binds as soon as there is a next node.
            node.set_high(medium, low);
            node.set_next(medium, next);
        } else {
            node.set_next(medium, next);
            node.set_high(medium, low);
        }
        node.publish(medium, kept);
        node.set_state(medium, node.state(medium).settled());
        // PERSIST: all of it, which lies in one line, before anything is built upon it.
        region.persist(node.head());
    }
}

/// Whether the last keys that came were the highest, each of its time, and this one is, too. A node
/// of keys that come in order stays full.
fn is_rising(slots: &[Slot<'_>], key: &[u8]) -> bool {
    let (one, other) = (&slots[slots.len() - 2], &slots[slots.len() - 1]);
    one.slot + 2 == slots.len() && other.slot + 1 == slots.len() && key > &*other.key
}
