//! Changes of keys whose node has an Mnode (4.4.4): they go to its write buffer and to the log, or
//! to the node.

use super::super::keys::OrderedKind;
use super::change::Tried;
use super::find::Probe;
use super::layers::{At, Buffer, ENTRIES, Layers, Mnode};
use super::lock::Held;
use super::log::{Change, Logged};
use super::node::{Node, Pair};
use super::ops::SpTree;
use super::tree::Tree;
use super::word::{Entry, hash_bits};
use crate::{Damage, Decision, Fencing};
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::Guard;

/// Where a key's word is.
#[derive(Clone, Copy)]
enum Place {
    /// In this entry of the buffer.
    Entry(usize),
    /// In this slot of the node.
    Slot(usize),
    Nowhere,
}

/// A key in its node, under the lock of its Mnode.
struct Spot<'s, 'g, Key: ?Sized> {
    mnode: Mnode<'g>,
    node: Node<'g>,
    probe: &'s Probe<'s, Key>,
    found: Option<u64>,
    place: Place,
}

/// What became of a change that was to be buffered.
enum Outcome {
    Done,
    /// There is no room until the buffer is merged: then the key may be in another place.
    Again,
    /// It is for the node itself.
    Direct,
}

impl<M: MappedMedium, K: OrderedKind> SpTree<M, K> {
    /// Tries to change a key that was looked at here.
    pub(super) fn try_above(
        &self,
        guard: &Guard<'_, M>,
        (layers, lower): (&Layers<K>, &Guard<'_, Dram>),
        at: &At,
        probe: &Probe<'_, K::Key>,
        fencing: &mut Fencing<'_>,
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Option<u64>> {
        let Some(mnode) = layers.mnode_at(at.mnode) else { return Ok(None) };
        let lock = mnode.lock().acquire(lower);
        let is_settled = mnode.version(layers.medium()).is_settled();
        if !is_settled || !layers.reaches(lower, mnode, &probe.sought) {
            return Ok(None);
        }
        let node = self.tree.node_at(self.tree.root.offset().raw(), mnode.node(layers.medium()))?;
        let spot = self.find_above(guard, (layers, lower), (mnode, node), probe)?;
        let new = match (spot.found, decide(spot.found)) {
            (_, Decision::Keep) | (None, Decision::Set(None)) => return Ok(Some(spot.found)),
            (_, Decision::Set(new)) => new,
        };
        match self.try_buffer(guard, (layers, lower), &spot, new)? {
            Outcome::Done if new.is_some() || !self.is_small_above(layers, mnode) => {
                return Ok(Some(spot.found));
            }
            outcome @ (Outcome::Done | Outcome::Again) => {
                self.merge_buffer(guard, lower, mnode)?;
                lock.release();
                if self.is_small(node) {
                    // A node that cannot be joined now is right as it is. Damage is recorded.
                    let _ = self.tidy(guard, node);
                }
                return Ok(matches!(outcome, Outcome::Done).then_some(spot.found));
            }
            Outcome::Direct => {}
        }
        self.merge_buffer(guard, lower, mnode)?;
        self.fence_own(guard, node, fencing);
        let held = Held { node, lock: self.lock(guard, node)?, is_unposted: false, mnode: Some(mnode) };
        let changed = self.change_held(guard, held, probe, fencing, decide);
        mnode.set_free(layers.medium(), self.free_slots(node));
        lock.release();
        self.end_change(guard, node, changed)
    }

    /// Whether a node has few keys with what is buffered.
    fn is_small_above(&self, layers: &Layers<K>, mnode: Mnode<'_>) -> bool {
        let medium = layers.medium();
        let own = self.tree.width - mnode.free(medium);
        let (came, went) = layers.buffer_of(mnode).map_or((0, 0), |buffer| {
            (buffer.used(medium).count_ones(), buffer.superseded(medium).count_ones())
        });
        own + (came as usize) < self.small() + went as usize
    }

    pub(super) fn free_slots(&self, node: Node<'_>) -> usize {
        (!node.bitmap(self.tree.pool.medium()) & self.tree.all_slots()).count_ones() as usize
    }

    /// The place of a key, and its word. Called under the lock of the Mnode.
    fn find_above<'s, 'g>(
        &self,
        guard: &Guard<'_, M>,
        (layers, lower): (&Layers<K>, &Guard<'_, Dram>),
        (mnode, node): (Mnode<'g>, Node<'g>),
        probe: &'s Probe<'s, K::Key>,
    ) -> Result<Spot<'s, 'g, K::Key>, Damage> {
        let (tree, buffer) = (&self.tree, layers.buffer_of(mnode));
        let spot = |found, place| Spot { mnode, node, probe, found, place };
        if let Some((entry, word)) = buffer.and_then(|buffer| layers.find_buffered(guard, buffer, probe)) {
            return Ok(spot(Some(word), Place::Entry(entry)));
        }
        if !mnode.filter().has(layers.medium(), hash_bits(probe.hash)) {
            return Ok(spot(None, Place::Nowhere));
        }
        let superseded = buffer.map_or(0, |buffer| buffer.superseded(layers.medium()));
        let bitmap = node.bitmap(tree.pool.medium()) & !superseded;
        if let Some((slot, word)) = tree.find_slot(guard, node, bitmap, probe)? {
            tree.persist_read(node, [slot]);
            return Ok(spot(Some(word), Place::Slot(slot)));
        }
        tree.persist_read(node, []);
        if let Some(damage) = tree.damaged_front(node) {
            return Err(damage);
        }
        layers.count_false_positive(lower, layers.place_of(mnode));
        Ok(spot(None, Place::Nowhere))
    }

    /// Buffers a change, durably, if the node's buffer and the log have room.
    fn try_buffer(
        &self,
        guard: &Guard<'_, M>,
        (layers, lower): (&Layers<K>, &Guard<'_, Dram>),
        spot: &Spot<'_, '_, K::Key>,
        new: Option<u64>,
    ) -> Result<Outcome, Damage> {
        let (medium, Some(log)) = (layers.medium(), &self.tree.log) else { return Ok(Outcome::Direct) };
        let Some(buffer) = layers.buffer_for(lower, spot.mnode) else { return Ok(Outcome::Direct) };
        let needs_entry = new.is_some() && !matches!(spot.place, Place::Entry(_));
        let (used, free) = (buffer.used(medium).count_ones() as usize, spot.mnode.free(medium));
        if needs_entry && used == 0 && free < self.least_free() {
            return Ok(Outcome::Direct);
        }
        if needs_entry && used == ENTRIES.min(free) {
            return Ok(Outcome::Again);
        }
        let Some(number) = layers.number(log, buffer) else { return Ok(Outcome::Direct) };
        if let Some(word) = new {
            assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
            // Before it is visible.
            spot.mnode.filter().add(medium, hash_bits(spot.probe.hash));
        }
        let node = spot.node.offset(self.tree.pool.region());
        let change = self.change_of(spot, new);
        log.append(self.tree.pool.region(), Logged { number, node, change });
        let pair = new.map(|word| self.pair_of(spot.probe, word));
        store::<K>(medium, buffer, spot, pair);
        let by = i64::from(new.is_some()) - i64::from(spot.found.is_some());
        if by != 0 {
            self.count_key(guard, spot.node, by);
        }
        Ok(Outcome::Done)
    }

    /// A buffer is worth its merge if it can have so many entries.
    fn least_free(&self) -> usize {
        (self.tree.width / 16).max(1)
    }

    /// A change as the log has it.
    fn change_of(&self, spot: &Spot<'_, '_, K::Key>, new: Option<u64>) -> Change {
        let slot = |word: Option<u64>| word.map_or(0, |word| Entry::record(spot.probe.hash, word).0);
        let key = spot.probe.sought.integer;
        match (Tree::<M, K>::INLINE, new) {
            (true, Some(word)) => Change::Put { key, word },
            (true, None) => Change::Remove { key },
            (false, new) => Change::Slot { old: slot(spot.found), new: slot(new) },
        }
    }
}

/// Stores a change that was logged in the buffer: readers see it.
fn store<K: OrderedKind>(medium: &Dram, buffer: Buffer<'_>, spot: &Spot<'_, '_, K::Key>, new: Option<Pair>) {
    match (spot.place, new) {
        (Place::Entry(entry), Some((_, word))) => buffer.set::<K>(medium, entry, word),
        (Place::Entry(entry), None) => {
            buffer.remove_entry(medium, entry);
            spot.mnode.turn(medium);
        }
        (Place::Slot(slot), Some(pair)) => buffer.add::<K>(medium, pair, Some(slot)),
        (Place::Slot(slot), None) => buffer.remove_slot(medium, slot),
        (Place::Nowhere, Some(pair)) => buffer.add::<K>(medium, pair, None),
        (Place::Nowhere, None) => {}
    }
}
