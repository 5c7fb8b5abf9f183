//! Prefixes: compared by writers, set by the second step of a change of the structure, and mended
//! where a crash left that step out.

use super::super::keys::{KEY_MAX, KeyBytes, OrderedKind};
use super::super::link::LEAF;
use super::node::{Node, Prefix, Slot};
use super::root::Holder;
use super::tree::Tree;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

/// Looks for a key below a node: more than other threads can make fail by their changes.
const LOOKS: u32 = 16;

/// How a key compares with a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compared {
    Equal,
    /// The prefix holds too few of its bytes, or is not the right one.
    Unsure,
    /// They differ from this byte of the key on, where the prefix has this byte.
    Differs(usize, u8),
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// Compares `key` with the prefix of a node, whose link lies in `holder`.
    pub(super) fn compare_prefix(
        &self,
        guard: &Guard<'_, M>,
        holder: Holder<'_>,
        slot: Slot<'_>,
        (node, level): (Node<'_>, usize),
        key: &K::Key,
    ) -> Compared {
        let prefix = self.prefix(node);
        if !prefix.is_sound() || prefix.len() != level - holder.base {
            self.mend_prefix(guard, holder, slot, (node, level));
            return Compared::Unsure;
        }
        let ((bytes, held), key) = (prefix.bytes(), K::bytes(key));
        let here = key.get(holder.base..).unwrap_or_default();
        let same = here.iter().zip(&bytes[..held]).take_while(|(one, other)| one == other).count();
        match same {
            same if same < held => Compared::Differs(holder.base + same, bytes[same]),
            _ if held == prefix.len() => Compared::Equal,
            _ => Compared::Unsure,
        }
    }

    fn prefix(&self, node: Node<'_>) -> Prefix {
        // ORDER: Acquire: pairs with the Release in `set_prefix`, as for a link.
        Prefix(node.prefix_word().load(self.pool.medium().point("art.prefix"), Acquire))
    }

    /// The prefix of a node is not the one that its place in the tree demands (invariant 4). If no
    /// writer is at it, a crash or a death has left it so: sets it. (Condition #3: detection by
    /// try-lock, and the helper.)
    #[cold]
    fn mend_prefix(
        &self,
        guard: &Guard<'_, M>,
        holder: Holder<'_>,
        (word, link): Slot<'_>,
        (node, level): (Node<'_>, usize),
    ) {
        if self.pool.refuses_stores() {
            return;
        }
        if self.check_node(node, level).is_err() {
            return;
        }
        let Some(lock) = node.lock().try_acquire(guard) else { return };
        // While the lock is held, no writer puts a node between the two. The holder of the link is
        // looked at after that: if it is not obsolete, the link in it is the one that counts.
        let is_placed = self.follow(word) == link && !self.is_obsolete(holder);
        let prefix = self.prefix(node);
        if is_placed && (!prefix.is_sound() || prefix.len() != level - holder.base) {
            self.set_prefix(guard, (node, level), holder.base);
        }
        lock.release();
    }

    /// Sets the prefix of a node below a holder with this base, and makes it durable. Called under
    /// the node's lock. Leaves it as it is if no record below is sound; a later writer tries again.
    pub(super) fn set_prefix(&self, guard: &Guard<'_, M>, (node, level): (Node<'_>, usize), base: usize) {
        let key;
        let bytes = if level > base {
            key = self.any_key(guard, node);
            key.as_ref().and_then(|key| key.get(base..level))
        } else {
            Some(&[][..])
        };
        let Some(bytes) = bytes else { return };
        let (region, word) = (self.pool.region(), node.prefix_word());
        // ORDER: Release: a writer that reads it knows a level that it found by the new link.
        word.store(self.pool.medium().point("art.prefix"), Prefix::of(bytes).0, Release);
        // PERSIST: the second step. A crash before it leaves the link without it, which a writer
        // sees by the length.
        region.persist(word);
    }

    /// The key of any leaf below a node; `None` if no sound one was found. (A prefix of a damaged
    /// key would hide the keys below it from writers.)
    pub(super) fn any_key<'g>(&self, guard: &'g Guard<'_, M>, node: Node<'_>) -> Option<KeyBytes<'g>> {
        let medium = self.pool.medium();
        let look = |_| node.entries(medium).find_map(|(word, _)| self.first_key_behind(guard, word));
        // A look may miss keys that come to places it has passed, before others go.
        (0..LOOKS).find_map(look)
    }

    /// The key of the first leaf that is found behind a link.
    fn first_key_behind<'g>(&self, guard: &'g Guard<'_, M>, word: &Word) -> Option<KeyBytes<'g>> {
        let (mut base, medium) = (0, self.pool.medium());
        let mut slot = (word, self.follow(word));
        loop {
            let (word, link) = slot;
            if link.kind() == LEAF {
                let is_sound = link.is_sound() && K::is_sound(guard, link.offset());
                return K::key_of(guard, link.offset()).filter(|_| is_sound);
            }
            if link.is_empty() || base > KEY_MAX {
                return None;
            }
            let (node, level) = self.node_below(word, link, base).ok()?;
            base = level + 1;
            slot = node
                .entries(medium)
                .map(|(word, _)| (word, self.follow(word)))
                .find(|(_, link)| !link.is_empty())?;
        }
    }
}
