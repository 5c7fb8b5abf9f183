//! Changes of single keys (4.4.4).

use super::super::keys::{KEY_MAX, KeyBytes, OrderedKind};
use super::find::{Probe, Way};
use super::lock::Held;
use super::node::{Node, Pair};
use super::ops::SpTree;
use super::tree::Tree;
use super::word::{Entry, tag_of};
use crate::{ChangeError, Decision, Fencing};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Locked};

/// The outcome of a try: `None` if it is to be tried again.
type Tried<T> = Result<Option<T>, ChangeError>;

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
        let tree = &self.tree;
        // What the layers in DRAM are told below is where it was as long as they are pinned.
        let _pinned = tree.layers.as_ref().map(|layers| layers.pin());
        // What is to be kept takes no lock.
        let way = tree.way_to(guard, probe)?;
        let is_absent = matches!(way, Way::Absent(..));
        if is_absent && matches!(decide(None), Decision::Keep | Decision::Set(None)) {
            return Ok(Some(None));
        }
        let spot = tree.locate(guard, way, probe)?;
        match (spot.found, decide(spot.found)) {
            (Some(_), Decision::Keep) => return Ok(Some(spot.found)),
            (None, Decision::Keep | Decision::Set(None)) => {
                return Ok(tree.absent(guard, spot.node, &probe.sought).map(Some)?);
            }
            _ => {}
        }
        let mut held = self.lock_for(guard, &probe.sought, &spot)?;
        held.mnode = self.show_to_layers(guard, (held.node, held.mnode));
        let bitmap = held.node.bitmap(tree.pool.medium());
        let found = tree.find_slot(guard, held.node, bitmap, probe)?;
        let decision = decide(found.map(|(_, word)| word));
        if let Decision::Set(Some(word)) = decision {
            assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
        }
        match (found, decision) {
            (Some((slot, _)), Decision::Set(Some(word))) => {
                self.set_word(held.node, slot, self.pair_of(probe, word).1);
                self.finish(held.node, held.lock, fencing);
            }
            (Some((slot, _)), Decision::Set(None)) => self.remove_at(guard, held, slot, fencing),
            (None, Decision::Set(Some(word))) => {
                return Ok(self.add(guard, held, probe, word, fencing)?.map(|()| None));
            }
            (_, Decision::Keep) | (None, Decision::Set(None)) => held.lock.release(),
        }
        Ok(Some(found.map(|(_, word)| word)))
    }

    /// The pair of a key and its word, as a slot has it.
    fn pair_of(&self, probe: &Probe<'_, K::Key>, word: u64) -> Pair {
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

    /// Removes a key. Takes no memory.
    fn remove_at(&self, guard: &Guard<'_, M>, held: Held<'_, M>, slot: usize, fencing: &mut Fencing<'_>) {
        let (region, node) = (self.tree.pool.region(), held.node);
        let bitmap = node.bitmap(region.medium()) & !(1 << slot);
        node.publish(region.medium(), bitmap);
        // PERSIST: `finish` fences.
        region.write_back(node.head());
        self.count_key(guard, node, -1);
        self.finish(node, held.lock, fencing);
        if (bitmap.count_ones() as usize) < self.small() {
            // A node that cannot be joined now is right as it is. Damage is recorded.
            let _ = self.tidy(guard, node);
        }
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
            return Ok(None);
        }
        self.tell_layers(held.mnode, probe.hash);
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
    fn count_key(&self, guard: &Guard<'_, M>, node: Node<'_>, by: i64) {
        let passed = |number: u64| node.counted(self.tree.pool.medium()) == number as u16;
        self.tree.count().add_where(guard.slot_index(), by, passed);
    }
}
