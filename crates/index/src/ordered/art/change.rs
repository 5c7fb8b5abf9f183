//! Changes of single keys.

use super::super::keys::{KEY_MAX, OrderedKind, pair_word};
use super::super::link::Link;
use super::super::links::{load, store};
use super::find::Ended;
use super::hashed::Room;
use super::locate::{Above, End, Spot};
use super::node::{Kind, Node, Slot};
use super::ops::Art;
use super::root::Holder;
use crate::{ChangeError, Damage, Decision, Fencing};
use std::sync::atomic::Ordering::Release;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Fruitless turns of a writer after which it looks for marks of dead threads.
const TURNS: u32 = 4;

/// Fruitless turns in a row after which a writer gives up. Other threads cannot cause so many: each
/// costs one of them a change of this very place. Damage can, which makes two ways to a key differ.
const TURNS_MOST: u32 = 1 << 22;

/// The outcome of a try: `None` if the tree changed meanwhile.
pub(super) type Tried<T> = Result<Option<T>, ChangeError>;

impl<M: MappedMedium, K: OrderedKind> Art<M, K> {
    /// See [`PointIndex::change`](crate::PointIndex::change).
    pub(super) fn change_key(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        mut fencing: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, ChangeError> {
        assert!(K::bytes(key).len() <= KEY_MAX, "a key of more than {KEY_MAX} bytes");
        let mut turn = 0;
        loop {
            if let Some(found) = self.try_change(guard, key, &mut fencing, &decide)? {
                return Ok(found);
            }
            turn += 1;
            if turn % TURNS == 0 {
                self.tree.clear_marks(guard, key);
            }
            if turn == TURNS_MOST {
                let offset = self.tree.pool.region().offset_of(self.tree.root_link()).raw();
                return Err(self.tree.record_damage(offset, "a key's place does not stay found").into());
            }
        }
    }

    fn try_change(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        fencing: &mut Fencing<'_>,
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Option<u64>> {
        // What damage hides is neither there nor absent: a caller that was told that it is absent
        // would try for ever to change what a read finds.
        let Some(spot) = self.tree.locate(guard, key)? else { return Ok(None) };
        match (spot.end, spot.slot) {
            (End::Key, Some(slot)) => self.change_present(guard, &spot, slot, fencing, decide),
            _ => match decide(None) {
                Decision::Keep | Decision::Set(None) => {
                    let is_absent = self.is_absent(guard, key, spot.end)?;
                    Ok(is_absent.then_some(None))
                }
                Decision::Set(Some(word)) => {
                    assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
                    Ok(self.add(guard, key, &spot, word, fencing)?.map(|()| None))
                }
            },
        }
    }

    /// A key that a prefix excludes is absent, unless a read, which compares no prefix, finds it.
    /// Then it was added meanwhile, or the prefix is damaged; or its record is not the one that was
    /// added there: an error, or the caller would try for ever to change what it has read.
    fn is_absent(&self, guard: &Guard<'_, M>, key: &K::Key, end: End) -> Result<bool, Damage> {
        if !matches!(end, End::Below(..)) {
            return Ok(true);
        }
        match self.tree.search(guard, key) {
            Ended::Found(word) if !K::is_sound(guard, word) => {
                Err(Damage { offset: word, what: "a record at another key's place is unsound" })
            }
            Ended::Found(_) => Ok(false),
            _ => Ok(true),
        }
    }

    /// Changes the key whose leaf is in `slot` as `decide` says.
    fn change_present(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_>,
        (word, link): Slot<'_>,
        fencing: &mut Fencing<'_>,
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Option<u64>> {
        let found = K::word_of(guard, link.offset());
        if decide(Some(found)) == Decision::Keep {
            self.tree.persist_pair(word, link);
            return Ok(Some(Some(found)));
        }
        let Some(lock) = self.tree.lock(guard, spot.at)? else { return Ok(None) };
        if self.tree.follow_locked(word) != link {
            return Ok(None);
        }
        let found = K::word_of(guard, link.offset());
        match decide(Some(found)) {
            Decision::Keep => {}
            Decision::Set(Some(new)) => {
                assert!(K::is_word(new), "{new:#x} cannot be a word of this index");
                self.set_word(guard, (word, link), new, fencing);
            }
            Decision::Set(None) => match spot.at.node {
                Some(node) if node.len_hint(self.tree.pool.medium(), self.tree.mark) <= 2 => {
                    lock.release();
                    return self.remove_with_node(guard, spot, (word, link), decide);
                }
                _ => {
                    self.unlink(guard, spot.at, (word, link), fencing);
                    let is_sparse = self.is_sparse(spot.at);
                    lock.release();
                    if is_sparse {
                        // The key is gone, whatever comes of this.
                        let _ = self.shrink(guard, spot);
                    }
                }
            },
        }
        Ok(Some(Some(found)))
    }

    /// Gives a leaf's key another word. Called under the lock.
    fn set_word(&self, guard: &Guard<'_, M>, (word, link): Slot<'_>, new: u64, fencing: &mut Fencing<'_>) {
        let (region, medium) = (self.tree.pool.region(), self.tree.pool.medium());
        if K::LEAF_BYTES == 0 {
            return self.tree.publish(word, Link::to_leaf(link.byte(), new), fencing);
        }
        let Some(pair) = pair_word(guard, link.offset()) else { return };
        if !M::VOLATILE_CACHE {
            return pair.store(medium.point("art.word"), new, Release);
        }
        // ORDER: Release: a reader that sees the new word and then this link as it was sees that
        // the word is durable; see `persist_pair`.
        store(medium, word, link.held());
        pair.store(medium.point("art.word"), new, Release);
        // PERSIST: the word. A crash before it leaves the old one.
        region.persist(pair);
        store(medium, word, link);
    }

    /// Removes a leaf from a holder that keeps enough entries. Called under the lock.
    fn unlink(
        &self,
        guard: &Guard<'_, M>,
        at: Holder<'_>,
        (word, link): Slot<'_>,
        fencing: &mut Fencing<'_>,
    ) {
        at.node.inspect(|node| node.count(self.tree.pool.medium(), self.tree.mark, -1));
        if K::LEAF_BYTES > 0 {
            // Durable before the pair is retired, whose memory others will use.
            self.tree.publish(word, at.rest_of((word, link)), &mut Fencing::Now);
        } else {
            self.tree.publish(word, at.rest_of((word, link)), fencing);
        }
        self.count_key(guard, at, -1);
        K::retire(guard, link.offset());
    }

    /// Counts a key that was added or removed. Called under the lock of its holder.
    pub(super) fn count_key(&self, guard: &Guard<'_, M>, at: Holder<'_>, by: i64) {
        let passed = |number: u64| at.shape(self.tree.pool.medium()).counted() == number as u16;
        self.tree.count().add_where(guard.slot_index(), by, passed);
    }

    /// Adds an absent key at the place that was found for it.
    fn add(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        spot: &Spot<'_>,
        word: u64,
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        let leaf = K::make(guard, key, word)?;
        let added = match (spot.end, spot.slot) {
            (End::Other(at, byte), Some(slot)) => {
                self.split_leaf(guard, key, spot, slot, leaf, (at, byte), fencing)
            }
            (End::Below(at, byte), Some(slot)) => {
                self.split_prefix(guard, key, spot, slot, leaf, (at, byte), fencing)
            }
            _ => self.add_to(guard, key, spot, leaf, fencing),
        };
        if !matches!(added, Ok(Some(()))) {
            K::free(guard, leaf);
        }
        added
    }

    /// Adds a leaf to a holder that has no link for its key.
    fn add_to(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        spot: &Spot<'_>,
        leaf: u64,
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        let persist_pair = || {
            if K::LEAF_BYTES > 0 {
                // PERSIST: the pair before the link to it.
                self.tree.pool.region().fence();
            }
        };
        // The fence of a larger node covers the pair, too.
        let will_grow = M::VOLATILE_CACHE && spot.at.node.is_some_and(|node| self.looks_full(node));
        if !will_grow {
            persist_pair();
        }
        let Some(lock) = self.tree.lock(guard, spot.at)? else { return Ok(None) };
        let byte = spot.at.base.checked_sub(1).and_then(|level| K::byte(key, level));
        match (self.room_for(spot.at, byte), spot.at.node, spot.above) {
            (Room::At(place), node, _) => {
                if !self.tree.follow_locked(place).is_empty() {
                    return Ok(None);
                }
                if will_grow {
                    persist_pair();
                }
                self.tree.publish(place, Link::to_leaf(byte.unwrap_or(0), leaf), fencing);
                self.count_key(guard, spot.at, 1);
                node.inspect(|node| node.count(self.tree.pool.medium(), self.tree.mark, 1));
                Ok(Some(()))
            }
            (Room::Taken, ..) => Ok(None),
            (Room::Full, Some(node), Some(above)) => {
                lock.release();
                let link = Link::to_leaf(byte.unwrap_or(0), leaf);
                self.grow(guard, above, (node, spot.at.base - 1), link)
            }
            (Room::Full, ..) => unreachable!("the root has a place"),
        }
    }

    /// Whether a small node is full, unless other threads change it. (A large one says no.)
    fn looks_full(&self, node: Node<'_>) -> bool {
        let kind = node.kind();
        !kind.has_count() && node.children(self.tree.pool.medium()).count() >= kind.most()
    }

    /// The place of a holder for a new leaf with this byte, or for the key that ends there. Called
    /// under the lock.
    fn room_for<'g>(&'g self, at: Holder<'g>, byte: Option<u8>) -> Room<'g> {
        let Some(node) = at.node else { return Room::At(self.tree.root_link()) };
        let Some(byte) = byte else { return Room::At(node.here()) };
        let (medium, links) = (self.tree.pool.medium(), node.links());
        match node.kind() {
            Kind::Full => return Room::At(&links[usize::from(byte)]),
            Kind::Hashed => return self.tree.room_in_hashed(node, byte),
            _ => {}
        }
        let mut free = None;
        for word in links {
            let link = load(medium, word);
            // The place of such a child, if its removal is not durable: otherwise a crash could
            // leave both.
            let was_its_own = link != Link::NONE && link.byte() == byte;
            if link.is_empty() {
                free = if was_its_own { Some(word) } else { free.or(Some(word)) };
            } else if link.byte() == byte {
                return Room::Taken;
            }
        }
        free.map_or(Room::Full, Room::At)
    }
}

impl<'g> Spot<'g> {
    /// The link to the node, and the node with its level; `None` at the root.
    pub(super) fn node_and_above(&self) -> Option<(Above<'g>, Node<'g>, usize)> {
        Some((self.above?, self.at.node?, self.at.base - 1))
    }
}

#[cfg(test)]
#[path = "tests/change.rs"]
mod tests;
