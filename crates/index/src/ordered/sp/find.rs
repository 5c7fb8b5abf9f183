//! Reads of single keys.

use super::super::keys::{Found, OrderedKind};
use super::border::Sought;
use super::layers::Look;
use super::node::{Node, slots_of};
use super::tree::Tree;
use super::word::{Entry, hash_bits, tag_of};
use crate::Damage;
use std::borrow::Borrow;
use std::ops::Bound;
use terrace_medium::MappedMedium;
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
    /// The Mnode that led there, in the memory of the layers in DRAM; 0 if none did.
    pub(super) mnode: u64,
}

/// Where a search for a key begins.
#[derive(Clone, Copy)]
pub(super) enum Way<'g> {
    /// The layers in DRAM know that it is absent, and that its node lies there. The Mnode says so.
    Absent(u64, u64),
    /// At this node, to which this Mnode led, or 0.
    From(Node<'g>, u64),
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

    /// What a node has for a key, read without its lock.
    #[inline(always)]
    pub(super) fn look_up(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        probe: &Probe<'_, K::Key>,
    ) -> Result<Seen<'_>, Damage> {
        let medium = self.pool.medium();
        loop {
            let (before, bitmap) = (node.state(medium), node.bitmap(medium));
            let found = self.find_slot(guard, node, bitmap, probe);
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
    pub(super) fn way_to(&self, guard: &Guard<'_, M>, probe: &Probe<'_, K::Key>) -> Result<Way<'_>, Damage> {
        let look = match &self.layers {
            None => Look::Unknown,
            Some(layers) => layers.look(&layers.pin(), (probe.key, &probe.sought), hash_bits(probe.hash)),
        };
        match look {
            Look::Absent(at, mnode) => Ok(Way::Absent(at, mnode)),
            Look::At(at, mnode) => Ok(Way::From(self.node_at(self.root.offset().raw(), at)?, mnode)),
            Look::Unknown => Ok(Way::From(self.mapped_floor(guard, Bound::Included(probe.key))?, 0)),
        }
    }

    /// The node of a key, and what it has for it.
    #[inline(always)]
    pub(super) fn locate<'g>(
        &'g self,
        guard: &Guard<'_, M>,
        way: Way<'g>,
        probe: &Probe<'_, K::Key>,
    ) -> Result<Spot<'g>, Damage> {
        let (mut node, mnode) = match way {
            Way::From(node, mnode) => (node, mnode),
            Way::Absent(at, mnode) => {
                let node = self.node_at(self.root.offset().raw(), at)?;
                return Ok(Spot { node, found: None, is_unposted: false, mnode });
            }
        };
        let mut is_unposted = false;
        loop {
            match self.look_up(guard, node, probe)? {
                Seen::Elsewhere(next) => {
                    is_unposted |= node.state(self.pool.medium()).is_settled();
                    node = next;
                }
                Seen::Found(slot, word) => {
                    self.persist_read(node, [slot]);
                    return Ok(Spot { node, found: Some(word), is_unposted, mnode });
                }
                Seen::Nothing => {
                    self.persist_read(node, []);
                    self.note_absent(mnode);
                    return Ok(Spot { node, found: None, is_unposted, mnode });
                }
            }
        }
    }

    /// The word of a key; `None` also where damage may hide it.
    #[inline(always)]
    pub(super) fn search(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        let probe = self.probe(key);
        match self.way_to(guard, &probe).ok()? {
            Way::Absent(..) => None,
            way => self.locate(guard, way, &probe).ok()?.found,
        }
    }

    /// See [`PointIndex::get_sound`](crate::PointIndex::get_sound).
    #[inline(always)]
    pub(super) fn search_soundly(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        let probe = self.probe(key);
        let way = self.way_to(guard, &probe)?;
        if let Way::Absent(..) = way {
            return Ok(None);
        }
        let spot = self.locate(guard, way, &probe)?;
        if spot.found.is_some() { Ok(spot.found) } else { self.absent(guard, spot.node, &probe.sought) }
    }

    /// A key was not found in the node of an Mnode, if it was one that led there.
    #[inline(always)]
    fn note_absent(&self, mnode: u64) {
        if let Some(layers) = self.layers.as_ref().filter(|_| mnode != 0) {
            layers.count_false_positive(&layers.pin(), mnode);
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
