//! Replay of the log at open (4.4.6): nodes get what was logged for them and they do not have.
//!
//! A pool that can only be read keeps what its log has; then buffers in DRAM show it. So does a
//! pool with a damaged log: a salvage gets what can be read, and the next open finds the damage,
//! too.

use super::super::keys::OrderedKind;
use super::border::{Sought, key_of_border};
use super::layers::{ENTRIES, Layers};
use super::log::{Change, Logged};
use super::merge::Merged;
use super::node::{Node, Pair, slots_of};
use super::ops::SpTree;
use super::tree::Tree;
use super::word::Entry;
use crate::{Damage, LayerOptions};
use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Bytes of DRAM for each node of which a pool that can only be read has changes in its log.
const BYTES_A_NODE: u64 = 1 << 10;

impl<M: MappedMedium, K: OrderedKind> SpTree<M, K> {
    /// Merges all that was logged. In a shared pool the first process has done it. No other thread
    /// uses the tree yet.
    pub(super) fn replay(&mut self, guard: &Guard<'_, M>) {
        let Some(log) = &self.tree.log else { return };
        let (mut entries, mut damage) = log.read(self.tree.pool.region());
        if entries.is_empty() && damage.is_none() {
            return;
        }
        entries.sort_unstable_by_key(|logged| (logged.node, logged.number));
        let is_shown = self.tree.pool.is_read_only() || damage.is_some();
        let replayed = if is_shown {
            let nodes = entries.chunk_by(|one, other| one.node == other.node).count() as u64;
            self.tree.layers = Layers::new(LayerOptions::of(BYTES_A_NODE * nodes), Some(log));
            self.for_each_logged(guard, &entries, |node, merged| self.show_logged(guard, node, &merged))
        } else {
            self.for_each_logged(guard, &entries, |node, merged| {
                let _lock = self.lock(guard, node)?;
                self.merge(node, &merged)
            })
        };
        match replayed {
            // PERSIST: each merge was durable when it returned.
            Ok(()) if !is_shown => log.set_base(self.tree.pool.region()),
            Ok(()) => {}
            Err(found) => damage = damage.or(Some(found)),
        }
        self.tree.log_damage = damage.map(|damage| self.tree.record_damage(damage.offset, damage.what));
    }

    /// Shows what a node lacks by a buffer.
    fn show_logged(&self, guard: &Guard<'_, M>, node: Node<'_>, merged: &Merged) -> Result<(), Damage> {
        let at = node.offset(self.tree.pool.region());
        let no_memory = Damage { offset: at, what: "too little DRAM for what the log has of a node" };
        let layers = self.tree.layers.as_ref().ok_or(no_memory)?;
        let (lower, medium) = (layers.pin(), layers.medium());
        let mnode = self.with_known(guard, node, |known| layers.make(&lower, known)).flatten();
        let mnode = mnode.ok_or(no_memory)?;
        let buffer = layers.buffer_for(&lower, mnode).filter(|_| merged.pairs.len() <= ENTRIES);
        let buffer = buffer.ok_or(no_memory)?;
        for &pair in &merged.pairs {
            self.hash_bits_of(pair).iter().for_each(|&bits| mnode.filter().add(medium, bits));
            buffer.add::<K>(medium, pair, None);
        }
        slots_of(merged.superseded).for_each(|slot| buffer.remove_slot(medium, slot));
        Ok(())
    }

    /// Calls `each` with the nodes that lack something of what was logged for them: entries by
    /// their nodes and numbers. Goes on behind damage, of which it returns the first.
    fn for_each_logged(
        &self,
        guard: &Guard<'_, M>,
        entries: &[Logged],
        mut each: impl FnMut(Node<'_>, Merged) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        let mut unlisted: HashMap<u64, &[Logged]> = HashMap::new();
        let mut result = Ok(());
        let mut give = |node: Node<'_>, entries: &[Logged]| {
            let missing = self.missing(node, entries);
            missing.map_or(Ok(()), |missing| each(node, missing))
        };
        for entries in entries.chunk_by(|one, other| one.node == other.node) {
            match self.listed(guard, entries[0].node) {
                Some(node) => result = result.and(give(node, entries)),
                None => _ = unlisted.insert(entries[0].node, entries),
            }
        }
        if !unlisted.is_empty() {
            // They are gone, but damage may look so, too. All nodes tell.
            let walk = self.for_each_node(|node| {
                let entries = unlisted.remove(&node.offset(self.tree.pool.region()));
                entries.map_or(Ok(()), |entries| give(node, entries))
            });
            result = result.and(walk);
        }
        result
    }

    /// The node at a place, if a search for its low border comes there.
    fn listed(&self, guard: &Guard<'_, M>, at: u64) -> Option<Node<'_>> {
        let (tree, region) = (&self.tree, self.tree.pool.region());
        let node = Node::at::<M, K>(region, at).filter(|_| at >= tree.pool.layout().zones)?;
        let low = key_of_border::<M, K>(guard, node.low(region.medium()))?;
        let key = K::owned(&low)?;
        let floor = tree.mapped_floor(guard, Bound::Included(key.borrow())).ok()?;
        let found = tree.walk_to(guard, floor, &Sought::new(low.clone())).ok()?;
        (found.offset(region) == at).then_some(found)
    }

    /// Calls `each` with all nodes.
    fn for_each_node(&self, mut each: impl FnMut(Node<'_>) -> Result<(), Damage>) -> Result<(), Damage> {
        let mut node = self.tree.first()?;
        let mut result = Ok(());
        loop {
            result = result.and(each(node));
            let Some(end) = self.tree.end_of(node) else { return result };
            node = self.tree.right_of(node, end)?;
        }
    }

    /// What a node lacks of entries, which are in their order; `None` if it has all. A crash may
    /// have cut off a merge behind its bitmap: then the node lacks only the number.
    fn missing(&self, node: Node<'_>, entries: &[Logged]) -> Option<Merged> {
        let medium = self.tree.pool.medium();
        let changes = &entries[entries.partition_point(|logged| logged.number <= node.merged(medium))..];
        let number = changes.last()?.number;
        let slots: Vec<(usize, Pair)> =
            slots_of(node.bitmap(medium)).map(|slot| (slot, node.pair::<K>(medium, slot))).collect();
        let (superseded, pairs) = match Tree::<M, K>::INLINE {
            true => missing_integers(&slots, changes),
            false => missing_slots(&slots, changes),
        };
        Some(Merged { superseded, pairs, number })
    }
}

fn bits_of(slots: &[(usize, Pair)], is_in: impl Fn(&Pair) -> bool) -> u64 {
    slots.iter().filter(|(_, pair)| is_in(pair)).fold(0, |bits, (slot, _)| bits | 1 << slot)
}

/// The slots that go, and the pairs that come.
fn missing_integers(slots: &[(usize, Pair)], changes: &[Logged]) -> (u64, Vec<Pair>) {
    let mut last: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    for logged in changes {
        match logged.change {
            Change::Put { key, word } => _ = last.insert(key, Some(word)),
            Change::Remove { key } => _ = last.insert(key, None),
            Change::Slot { .. } => {}
        }
    }
    for (_, (key, word)) in slots {
        if last.get(key) == Some(&Some(*word)) {
            last.remove(key);
        }
    }
    let superseded = bits_of(slots, |(key, _)| last.contains_key(key));
    (superseded, last.into_iter().filter_map(|(key, word)| Some((key, word?))).collect())
}

/// As `missing_integers`, of byte strings, whose changes say which slot replaces which.
fn missing_slots(slots: &[(usize, Pair)], changes: &[Logged]) -> (u64, Vec<Pair>) {
    let mut chains: Vec<(u64, u64)> = Vec::new();
    for logged in changes {
        if let Change::Slot { old, new } = logged.change {
            match chains.iter_mut().find(|(_, now)| old != 0 && *now == old) {
                Some(chain) => chain.1 = new,
                None => chains.push((old, new)),
            }
        }
    }
    let superseded =
        bits_of(slots, |(_, slot)| chains.iter().any(|&(old, new)| old == *slot && new != *slot));
    let stays = |new: u64| slots.iter().any(|(slot, pair)| pair.1 == new && superseded >> slot & 1 == 0);
    let comes = |&(_, new): &(u64, u64)| Entry(new).is_sound() && !stays(new);
    (superseded, chains.iter().filter(|chain| comes(chain)).map(|&(_, new)| (0, new)).collect())
}
