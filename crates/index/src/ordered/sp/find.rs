//! Reads of single keys.

use super::super::keys::{Found, OrderedKind};
use super::border::Sought;
use super::layers::{At, Look};
use super::node::{Node, slots_of};
use super::tree::Tree;
use super::word::{Entry, hash_bits, tag_of};
use crate::Damage;
use std::borrow::Borrow;
use std::ops::Bound;
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::Guard;

/// What is damaged in a node that does not fit its checks.
const FRONT: &str = "the state, the bitmap or the tags of a node do not fit their checks";

/// A key, as searches need it.
pub(super) struct Probe<'k, Key: ?Sized> {
    pub(super) key: &'k Key,
    pub(super) hash: u64,
    pub(super) sought: Sought<'k>,
}

/// The hash of a key with these bytes; `None` if no key has them.
pub(super) fn hash_of<K: OrderedKind>(bytes: &[u8], seed: u64) -> Option<u64> {
    K::owned(bytes).map(|key| K::hash(key.borrow(), seed))
}

/// The node of a key, which was not locked.
pub(super) struct Spot<'g> {
    pub(super) node: Node<'g>,
    /// The key's word.
    pub(super) found: Option<u64>,
    /// Whether a node on its left led here: the top layer may not have it.
    pub(super) is_unposted: bool,
}

/// Where a search for a key begins.
#[derive(Clone, Copy)]
pub(super) enum Way<'g> {
    /// The layers in DRAM know its word, or that it is absent.
    Known(Option<u64>),
    /// At this node, which an Mnode led to or the top layer in the pool.
    From(Node<'g>, Option<At>),
}

/// What a node has for a key.
pub(super) enum Seen<'g> {
    /// The slot of the key, and its word.
    Found(usize, u64),
    Nothing,
    /// Nothing: the key is in the range of this node.
    Elsewhere(Node<'g>),
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    #[inline(always)]
    pub(super) fn probe<'k>(&self, key: &'k K::Key) -> Probe<'k, K::Key> {
        let hash = K::hash(key, self.pool.hash_seed());
        Probe { key, hash, sought: Sought::new(K::bytes(key)) }
    }

    /// The slot of a key among those of a bitmap, and its word. A slot whose damage may hide the
    /// key is an error.
    #[inline(always)]
    pub(super) fn find_slot(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        bitmap: u64,
        probe: &Probe<'_, K::Key>,
    ) -> Result<Option<(usize, u64)>, Damage> {
        let medium = self.pool.medium();
        let mut unsound = None;
        for slot in slots_of(node.tagged(medium, tag_of(probe.hash)) & bitmap) {
            let (key, word) = node.pair::<K>(medium, slot);
            if Self::INLINE {
                if probe.sought.integer == key {
                    return Ok(Some((slot, word)));
                }
                continue;
            }
            let entry = Entry(word);
            if !entry.is_sound() {
                unsound = Some((node.offset(self.pool.region()), "a slot does not fit its check"));
            } else if entry.hash_bits() == hash_bits(probe.hash) {
                match K::find(guard, entry.offset(), probe.key) {
                    Found::Word(word) => return Ok(Some((slot, word))),
                    Found::Other if K::is_sound(guard, entry.offset()) => {}
                    Found::Other => unsound = Some((entry.offset(), "a record that may be the key's")),
                }
            }
        }
        match unsound {
            None => Ok(None),
            Some((offset, what)) => Err(Damage { offset, what }),
        }
    }

    /// What a node has for a key, but for the slots that are superseded, read without its lock.
    #[inline(always)]
    pub(super) fn look_up(
        &self,
        guard: &Guard<'_, M>,
        (node, superseded): (Node<'_>, u64),
        probe: &Probe<'_, K::Key>,
    ) -> Result<Seen<'_>, Damage> {
        let medium = self.pool.medium();
        loop {
            let (before, bitmap) = (node.state(medium), node.bitmap(medium));
            let found = self.find_slot(guard, node, bitmap & !superseded, probe);
            // A key that is found in a node that does not change is its own.
            if !matches!(found, Ok(Some(_)) if before.is_settled())
                && let Some(next) = self.way_on(guard, node, &probe.sought)?
            {
                return Ok(Seen::Elsewhere(next));
            }
            // What was read is of one time, if neither has changed. A bitmap that comes back means
            // that no key was moved.
            let is_admitted = node.admits(medium, bitmap);
            // The bitmap first: one that came back was stored after another state.
            if node.bitmap(medium) == bitmap && node.state(medium).counter() == before.counter() {
                return match found? {
                    _ if !is_admitted => Err(self.damaged_node(node, FRONT)),
                    Some((slot, word)) => Ok(Seen::Found(slot, word)),
                    None => Ok(Seen::Nothing),
                };
            }
        }
    }

    /// Where the search for a key begins. The layers in DRAM tell, or the top layer in the pool.
    #[inline(always)]
    pub(super) fn way_to<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        lower: Option<&Guard<'_, Dram>>,
        probe: &Probe<'_, K::Key>,
    ) -> Result<Way<'g>, Damage> {
        if let Some(damage) = self.log_damage {
            return Err(damage);
        }
        let look = match (&self.layers, lower) {
            (Some(layers), Some(lower)) => layers.look(guard, lower, probe),
            _ => Look::Unknown,
        };
        match look {
            Look::Absent(_) => Ok(Way::Known(None)),
            Look::Buffered(word, _) => Ok(Way::Known(Some(word))),
            Look::Node(at) => Ok(Way::From(self.node_at(self.root.offset().raw(), at.node)?, Some(at))),
            Look::Unknown => Ok(Way::From(self.mapped_floor(guard, Bound::Included(probe.key))?, None)),
        }
    }

    /// The node of a key, and what it has for it; `None` if what the layers in DRAM said of it has
    /// changed.
    #[inline(always)]
    pub(super) fn locate<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        (mut node, at): (Node<'g>, Option<At>),
        probe: &Probe<'_, K::Key>,
    ) -> Result<Option<Spot<'g>>, Damage> {
        let (mut is_unposted, mut superseded) = (false, at.map_or(0, |at| at.superseded));
        loop {
            let seen = self.look_up(guard, (node, superseded), probe)?;
            if let (Seen::Elsewhere(_) | Seen::Nothing, Some(at), Some(layers)) = (&seen, &at, &self.layers)
                && !layers.is_unchanged(at)
            {
                return Ok(None);
            }
            match seen {
                Seen::Elsewhere(next) => {
                    is_unposted |= node.state(self.pool.medium()).is_settled();
                    (node, superseded) = (next, 0);
                }
                Seen::Found(slot, word) => {
                    self.persist_read(node, [slot]);
                    return Ok(Some(Spot { node, found: Some(word), is_unposted }));
                }
                Seen::Nothing => {
                    self.persist_read(node, []);
                    return Ok(Some(Spot { node, found: None, is_unposted }));
                }
            }
        }
    }

    /// The layers in DRAM, pinned, if there are any.
    #[inline(always)]
    pub(super) fn pin_layers(&self) -> Option<Guard<'_, Dram>> {
        self.layers.as_ref().map(|layers| layers.pin())
    }

    /// The word of a key, and the node that was searched for it, if one was.
    #[inline(always)]
    fn seek(
        &self,
        guard: &Guard<'_, M>,
        probe: &Probe<'_, K::Key>,
    ) -> Result<(Option<u64>, Option<Node<'_>>), Damage> {
        let lower = self.pin_layers();
        loop {
            let (node, at) = match self.way_to(guard, lower.as_ref(), probe)? {
                Way::Known(found) => return Ok((found, None)),
                Way::From(node, at) => (node, at),
            };
            let Some(spot) = self.locate(guard, (node, at), probe)? else { continue };
            if let (None, Some(at), Some(layers), Some(lower)) = (spot.found, at, &self.layers, &lower) {
                layers.count_false_positive(lower, at.mnode);
            }
            return Ok((spot.found, Some(spot.node)));
        }
    }

    /// The word of a key; `None` also where damage may hide it.
    #[inline(always)]
    pub(super) fn search(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        self.seek(guard, &self.probe(key)).ok()?.0
    }

    /// See [`PointIndex::get_sound`](crate::PointIndex::get_sound).
    #[inline(always)]
    pub(super) fn search_soundly(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        let probe = self.probe(key);
        match self.seek(guard, &probe)? {
            (None, Some(node)) => self.absent(guard, node, &probe.sought),
            (found, _) => Ok(found),
        }
    }

    /// A key was not found in a node: decides whether that is certain.
    #[inline(never)]
    pub(super) fn absent(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        sought: &Sought<'_>,
    ) -> Result<Option<u64>, Damage> {
        self.check_begin(guard, node, sought)?;
        if let Some(damage) = self.damaged_front(node) {
            return Err(damage);
        }
        // Damage above may have led to the wrong node.
        self.damage_met().map_or(Ok(None), Err)
    }

    /// What is damaged in the state, the bitmap and the tags of a node.
    #[inline(always)]
    pub(super) fn damaged_front(&self, node: Node<'_>) -> Option<Damage> {
        let medium = self.pool.medium();
        loop {
            let (state, bitmap) = (node.state(medium), node.bitmap(medium));
            if state.is_sound() && node.admits_with_tags(medium, bitmap) {
                return None;
            }
            // Another thread may have changed it meanwhile. The bitmap first: see `look_up`.
            if node.bitmap(medium) == bitmap && node.state(medium) == state {
                return Some(self.damaged_node(node, FRONT));
            }
        }
    }
}
