//! Changes of single keys (4.4.4).

use super::super::keys::{KEY_MAX, KeyBytes, OrderedKind};
use super::find::Probe;
use super::layers::{Layers, Look};
use super::lock::Held;
use super::node::{Node, Pair};
use super::ops::SpTree;
use super::tree::Tree;
use super::word::{Entry, hash_bits, tag_of};
use crate::{ChangeError, Decision, Fencing};
use std::ops::Bound;
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::{Guard, Locked};

/// The outcome of a try: `None` if it is to be tried again.
pub(super) type Tried<T> = Result<Option<T>, ChangeError>;

/// What a change of a node came to.
pub(super) struct Changed {
    found: Option<u64>,
    /// Whether the node has few keys left.
    is_small: bool,
}

fn keeps(decision: Decision) -> bool {
    matches!(decision, Decision::Keep | Decision::Set(None))
}

impl<M: MappedMedium, K: OrderedKind> SpTree<M, K> {
    /// See [`PointIndex::change`](crate::PointIndex::change).
    pub(super) fn change_key(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        mut fencing: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, ChangeError> {
        assert!(K::bytes(key).len() <= KEY_MAX, "a key of more than {KEY_MAX} bytes");
        let probe = self.tree.probe(key);
        if let Some(damage) = self.tree.log_damage {
            return Err(damage.into());
        }
        loop {
            if let Some(found) = self.try_change(guard, &probe, &mut fencing, &decide)? {
                return Ok(found);
            }
        }
    }

    fn try_change(
        &self,
        guard: &Guard<'_, M>,
        probe: &Probe<'_, K::Key>,
        fencing: &mut Fencing<'_>,
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Option<u64>> {
        let Some(layers) = &self.tree.layers else {
            return self.try_below(guard, None, probe, fencing, decide);
        };
        self.make_room(guard, layers);
        let lower = layers.pin();
        match layers.look(guard, &lower, probe) {
            Look::Unknown => self.try_below(guard, Some((layers, &lower)), probe, fencing, decide),
            Look::Absent(_) if keeps(decide(None)) => Ok(Some(None)),
            Look::Buffered(word, _) if decide(Some(word)) == Decision::Keep => Ok(Some(Some(word))),
            Look::Absent(at) | Look::Buffered(_, at) | Look::Node(at) => {
                self.try_above(guard, (layers, &lower), &at, probe, fencing, decide)
            }
        }
    }

    /// Tries to change a key in its node, which has no Mnode.
    fn try_below(
        &self,
        guard: &Guard<'_, M>,
        above: Option<(&Layers<K>, &Guard<'_, Dram>)>,
        probe: &Probe<'_, K::Key>,
        fencing: &mut Fencing<'_>,
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Option<u64>> {
        let tree = &self.tree;
        let floor = tree.mapped_floor(guard, Bound::Included(probe.key))?;
        let Some(spot) = tree.locate(guard, (floor, None), probe)? else { return Ok(None) };
        // What is to be kept takes no lock.
        match (spot.found, decide(spot.found)) {
            (Some(_), Decision::Keep) => return Ok(Some(spot.found)),
            (None, decision) if keeps(decision) => {
                return Ok(tree.absent(guard, spot.node, &probe.sought).map(Some)?);
            }
            _ => {}
        }
        let held = self.lock_for(guard, &probe.sought, &spot, fencing)?;
        let node = held.node;
        if let Some((layers, lower)) = above
            && self.has_mnode(guard, (layers, lower), node)
        {
            return Ok(None);
        }
        let changed = self.change_held(guard, held, probe, fencing, decide);
        if above.is_some() {
            self.show_to_layers(guard, node);
        }
        self.end_change(guard, node, changed)
    }

    /// Ends a change of a node, none of whose locks is held any more.
    pub(super) fn end_change(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        changed: Tried<Changed>,
    ) -> Tried<Option<u64>> {
        let Some(Changed { found, is_small }) = changed? else { return Ok(None) };
        if is_small {
            // A node that cannot be joined now is right as it is. Damage is recorded.
            let _ = self.tidy(guard, node);
        }
        Ok(Some(found))
    }

    /// Changes a key in its node, and unlocks that.
    pub(super) fn change_held(
        &self,
        guard: &Guard<'_, M>,
        held: Held<'_, M>,
        probe: &Probe<'_, K::Key>,
        fencing: &mut Fencing<'_>,
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Changed> {
        let tree = &self.tree;
        let bitmap = held.node.bitmap(tree.pool.medium());
        let slot = tree.find_slot(guard, held.node, bitmap, probe)?;
        let found = slot.map(|(_, word)| word);
        let decision = decide(found);
        if let Decision::Set(Some(word)) = decision {
            assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
        }
        let mut is_small = false;
        match (slot, decision) {
            (Some((slot, _)), Decision::Set(Some(word))) => {
                self.set_word(held.node, slot, self.pair_of(probe, word).1);
                self.finish(held.node, held.lock, fencing);
            }
            (Some((slot, _)), Decision::Set(None)) => is_small = self.remove_at(guard, held, slot, fencing),
            (None, Decision::Set(Some(word))) => {
                if self.add(guard, held, probe, word, fencing)?.is_none() {
                    return Ok(None);
                }
            }
            (_, Decision::Keep) | (None, Decision::Set(None)) => held.lock.release(),
        }
        Ok(Some(Changed { found, is_small }))
    }

    /// The pair of a key and its word, as a slot has it.
    pub(super) fn pair_of(&self, probe: &Probe<'_, K::Key>, word: u64) -> Pair {
        match K::bytes(probe.key) {
            KeyBytes::Integer(bytes) if Tree::<M, K>::INLINE => (u64::from_be_bytes(bytes), word),
            _ => (0, Entry::record(probe.hash, word).0),
        }
    }

    fn set_word(&self, node: Node<'_>, slot: usize, word: u64) {
        let region = self.tree.pool.region();
        node.set_word::<M, K>(region.medium(), slot, word);
        // PERSIST: `finish` fences.
        region.write_back(node.line_of::<K>(slot));
    }

    /// Removes a key. Takes no memory. Returns whether the node has few left.
    fn remove_at(
        &self,
        guard: &Guard<'_, M>,
        held: Held<'_, M>,
        slot: usize,
        fencing: &mut Fencing<'_>,
    ) -> bool {
        let (region, node) = (self.tree.pool.region(), held.node);
        let bitmap = node.bitmap(region.medium()) & !(1 << slot);
        node.publish(region.medium(), bitmap);
        // PERSIST: `finish` fences.
        region.write_back(node.head());
        self.count_key(guard, node, -1);
        self.finish(node, held.lock, fencing);
        (bitmap.count_ones() as usize) < self.small()
    }

    /// Adds an absent key: *two-phase insertion*, the pair and then its bit (4.4.1).
    fn add(
        &self,
        guard: &Guard<'_, M>,
        held: Held<'_, M>,
        probe: &Probe<'_, K::Key>,
        word: u64,
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        let (tree, region, node) = (&self.tree, self.tree.pool.region(), held.node);
        let medium = region.medium();
        let bitmap = node.bitmap(medium);
        let free = !bitmap & tree.all_slots();
        if free == 0 {
            let right = self.split(guard, node, probe)?;
            held.lock.release();
            self.post(guard, right);
            self.show_to_layers(guard, right);
            return Ok(None);
        }
        if let (Some(mnode), Some(layers)) = (held.mnode, &tree.layers) {
            // Before it is visible.
            mnode.filter().add(layers.medium(), hash_bits(probe.hash));
        }
        let slot = free.trailing_zeros() as usize;
        self.fill(node, slot, tag_of(probe.hash), self.pair_of(probe, word));
        // PERSIST: the pair and its tag before the bit.
        region.fence();
        node.publish(medium, bitmap | 1 << slot);
        // PERSIST: `finish` fences.
        region.write_back(node.head());
        self.count_key(guard, node, 1);
        self.finish(node, held.lock, fencing);
        if held.is_unposted {
            self.post(guard, node);
        }
        Ok(Some(()))
    }

    /// Fills a free slot and writes it back. Called under the lock.
    pub(super) fn fill(&self, node: Node<'_>, slot: usize, tag: u8, pair: Pair) {
        let region = self.tree.pool.region();
        let medium = region.medium();
        node.fill::<M, K>(medium, slot, tag, pair);
        // PERSIST: the caller fences before it publishes the slot.
        region.write_back(node.tag_line());
        region.write_back(node.line_of::<K>(slot));
    }

    /// Makes a change that was written back durable, now or later, and unlocks its node.
    #[inline(always)]
    fn finish(&self, node: Node<'_>, lock: Locked<'_, M>, fencing: &mut Fencing<'_>) {
        let region = self.tree.pool.region();
        match fencing {
            Fencing::Deferred(deferred) if M::VOLATILE_CACHE => {
                deferred.0.push(region.offset_of(node.lock()).raw());
                lock.release_unfenced();
            }
            _ => {
                // PERSIST: the change, before it is told of; a crash without it leaves the node as
                // it was before.
                region.fence();
                lock.release();
            }
        }
    }

    /// Counts a key that was added to a node or removed from it. Called under its lock.
    pub(super) fn count_key(&self, guard: &Guard<'_, M>, node: Node<'_>, by: i64) {
        let passed = |number: u64| node.counted(self.tree.pool.medium()) == number as u16;
        self.tree.count().add_where(guard.slot_index(), by, passed);
    }
}
