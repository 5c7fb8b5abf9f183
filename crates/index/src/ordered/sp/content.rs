//! What a node has at one time.

use super::super::keys::{KeyBytes, OrderedKind};
use super::border::Sought;
use super::find::hash_of;
use super::layers::{At, ENTRIES};
use super::node::{Node, Pair, WIDTH, slots_of};
use super::tree::{Extent, Tree};
use super::word::{Entry, hash_bits};
use crate::Damage;
use std::cmp::Ordering::Less;
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::{Guard, Lock};

/// A key that was read, and its word. There is no key if its record is damaged.
pub(super) struct Item<'g> {
    pub(super) key: Option<KeyBytes<'g>>,
    pub(super) integer: u64,
    pub(super) word: u64,
    /// The bits of the key's hash that its slot has, of a byte string.
    hash_bits: u64,
    /// Whether it was read from the write buffer.
    is_buffered: bool,
}

/// What a node has at one time.
pub(super) struct Content {
    pairs: [Pair; WIDTH + ENTRIES],
    len: usize,
    /// How many of them the write buffer has: the last ones.
    buffered: usize,
    /// The end of the node's range; `None` if it is the last one.
    pub(super) end: Option<u64>,
    is_changing: bool,
}

impl Content {
    fn new(is_changing: bool) -> Self {
        Self { pairs: [(0, 0); WIDTH + ENTRIES], len: 0, buffered: 0, end: None, is_changing }
    }

    fn push(&mut self, pair: Pair) {
        self.pairs[self.len] = pair;
        self.len += 1;
    }
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// Reads a node; `None` if it was given away. What was read is durable.
    pub(super) fn read(&self, guard: &Guard<'_, M>, node: Node<'_>) -> Result<Option<Content>, Damage> {
        let (medium, lower) = (self.pool.medium(), self.pin_layers());
        loop {
            let overlay = self.overlay(guard, lower.as_ref(), node);
            let superseded = overlay.as_ref().map_or(0, |(at, _)| at.superseded);
            if let Some(damage) = self.damaged_front(node) {
                return Err(damage);
            }
            let (state, bitmap) = (node.state(medium), node.bitmap(medium));
            let mut content = Content::new(state.is_changing());
            slots_of(bitmap & !superseded).for_each(|slot| content.push(node.pair::<K>(medium, slot)));
            content.end = self.end_of(node).map(|end| end.border);
            if self.heir_of(node)?.is_some() {
                return Ok(None);
            }
            // The bitmap first: see `look_up`.
            if node.bitmap(medium) == bitmap && node.state(medium) == state {
                self.persist_content(node);
                if let Some((at, pairs)) = &overlay {
                    if self.layers.as_ref().is_some_and(|layers| !layers.is_unchanged(at)) {
                        continue;
                    }
                    pairs.iter().for_each(|&pair| content.push(pair));
                    content.buffered = pairs.len();
                }
                return Ok(Some(content));
            }
        }
    }

    /// Records damage, if a key is not that of its slot. Called for keys that are left out: damage
    /// to a record may have changed its key.
    pub(super) fn check_left_out(&self, item: &Item<'_>) {
        let Some(key) = item.key.as_deref().filter(|_| !Self::INLINE) else { return };
        let found = hash_of::<K>(key, self.pool.hash_seed()).map(hash_bits);
        if found != Some(item.hash_bits) {
            self.record_damage(item.word, "a record's key is not that of its slot");
        }
    }

    /// What the write buffer of a node has.
    pub(super) fn overlay(
        &self,
        guard: &Guard<'_, M>,
        lower: Option<&Guard<'_, Dram>>,
        node: Node<'_>,
    ) -> Option<(At, Vec<Pair>)> {
        let (layers, lower) = (self.layers.as_ref()?, lower?);
        layers.overlay(lower, node.offset(self.pool.region()), &self.low_of(guard, node).ok()?)
    }

    fn persist_content(&self, node: Node<'_>) {
        if M::VOLATILE_CACHE && Lock::may_be_unfenced(node.lock().load_word(self.pool.medium())) {
            self.persist_all(node);
        }
    }

    /// The keys of a node in their order, without those that are another node's. Records whose keys
    /// cannot be read come last.
    pub(super) fn items<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        (node, extent): (Node<'_>, &Extent<'_>),
        content: &Content,
    ) -> Result<Vec<Item<'g>>, Damage> {
        let pairs = &content.pairs[..content.len];
        if !Self::INLINE {
            pairs.iter().for_each(|&(_, word)| K::prefetch(guard, Entry(word).offset()));
        }
        let mut items = Vec::with_capacity(pairs.len());
        let own = pairs.len() - content.buffered;
        for (nth, &(integer, word)) in pairs.iter().enumerate() {
            if !Self::INLINE && !Entry(word).is_sound() {
                self.damaged_node(node, "a slot does not fit its check");
                continue;
            }
            let (key, hash_bits) = (self.key_at(guard, (integer, word)), Entry(word).hash_bits());
            let word = if Self::INLINE { word } else { K::word_of(guard, Entry(word).offset()) };
            let item = Item { key, integer, word, hash_bits, is_buffered: nth >= own };
            // A split or a join that goes on or was cut off leaves keys behind the end.
            if let (true, Some(end), Some(key)) = (content.is_changing, content.end, &item.key)
                && self.compare(guard, &Sought::new(key.clone()), (node, end))? != Less
            {
                self.check_left_out(&item);
                continue;
            }
            items.push(item);
        }
        match Self::INLINE {
            true => items.sort_unstable_by_key(|item| item.integer),
            false => items.sort_by(|one, other| match (&one.key, &other.key) {
                (Some(one), Some(other)) => one.cmp(other),
                (one, other) => other.is_some().cmp(&one.is_some()),
            }),
        }
        // A key that was put meanwhile may still have its slot in the node.
        items.dedup_by(|next, item| {
            let is_same = item.key.is_some() && item.key.as_deref() == next.key.as_deref();
            if is_same && next.is_buffered {
                std::mem::swap(item, next);
            }
            is_same
        });
        self.disown((node, extent), &mut items);
        Ok(items)
    }

    /// Takes the keys from items, in their order, that are not their node's: damage has changed
    /// them. A walk that took one for its last key would leave out those that follow.
    fn disown(&self, (node, extent): (Node<'_>, &Extent<'_>), items: &mut Vec<Item<'_>>) {
        let is_outside = |key: &[u8]| !extent.has(key);
        let mut keys = items.iter().filter_map(|item| item.key.as_deref());
        let (first, last) = (keys.next(), keys.next_back());
        if !first.into_iter().chain(last).any(is_outside) {
            return;
        }
        for item in items.iter_mut().filter(|item| item.key.as_deref().is_some_and(is_outside)) {
            self.disown_item(node, item);
        }
        items.sort_by_key(|item| item.key.is_none());
        // The key of an integer lies in the slot: no record says what it was.
        items.retain(|item| !Self::INLINE || item.key.is_some());
    }

    #[cold]
    fn disown_item(&self, node: Node<'_>, item: &mut Item<'_>) {
        let at = if Self::INLINE { node.offset(self.pool.region()) } else { item.word };
        self.record_damage(at, "a key outside of the range of its node");
        item.key = None;
    }
}
