//! Changes of single keys.

use super::super::keys::{Found, KEY_MAX, OrderedKind};
use super::entry::Entry;
use super::locate::{End, Held, Spot};
use super::node::Node;
use super::ops::Masstree;
use super::tree::Tree;
use crate::{ChangeError, Damage, Decision, Fencing};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Locked};

/// The outcome of a try: `None` if the tree changed meanwhile.
pub(super) type Tried<T> = Result<Option<T>, ChangeError>;

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// See [`PointIndex::change`](crate::PointIndex::change).
    pub(super) fn change_key(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        mut fencing: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, ChangeError> {
        assert!(K::bytes(key).len() <= KEY_MAX, "a key of more than {KEY_MAX} bytes");
        loop {
            if let Some(found) = self.try_change(guard, key, &mut fencing, &decide)? {
                return Ok(found);
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
        let Some(spot) = self.locate(guard, key)? else { return Ok(None) };
        match spot.end {
            End::Key(found) if decide(Some(found)) == Decision::Keep => Ok(Some(Some(found))),
            End::Key(_) => self.change_present(guard, key, &spot, fencing, decide),
            _ => match decide(None) {
                Decision::Keep | Decision::Set(None) => {
                    self.check_absent(guard, spot.end)?;
                    Ok(Some(None))
                }
                Decision::Set(Some(word)) => {
                    assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
                    Ok(self.add(guard, key, &spot, word, fencing)?.map(|()| None))
                }
            },
        }
    }

    /// A key whose place another record has is absent, unless that is unsound: then it may be the
    /// key's, and a caller that was told that it is absent would try for ever to change it.
    fn check_absent(&self, guard: &Guard<'_, M>, end: End) -> Result<(), Damage> {
        match end {
            End::Other(entry) if !K::is_sound(guard, entry.offset()) => {
                Err(Damage { offset: entry.offset(), what: "a record at another key's place is unsound" })
            }
            _ => Ok(()),
        }
    }

    /// Locks the leaf of a spot; `None` if there is none any more.
    pub(super) fn lock_spot<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        spot: &Spot<'g>,
    ) -> Result<Option<Held<'g, M>>, Damage> {
        self.lock_node(guard, spot.leaf, (0, spot.layer.depth), spot.piece.slice)
    }

    /// Changes a key that was found as `decide` says.
    fn change_present(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        spot: &Spot<'_>,
        fencing: &mut Fencing<'_>,
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Option<u64>> {
        let Some(held) = self.lock_spot(guard, spot)? else { return Ok(None) };
        let (tree, medium, leaf) = (&self.tree, self.tree.pool.medium(), held.node);
        let permutation = leaf.permutation(medium);
        let Ok(position) = tree.position(leaf, permutation, spot.piece) else { return Ok(None) };
        let slot = permutation.slot(position);
        let Some(found) = self.word_in(guard, leaf, slot, key) else { return Ok(None) };
        match decide(Some(found)) {
            Decision::Keep => held.lock.release(),
            Decision::Set(Some(new)) => {
                assert!(K::is_word(new), "{new:#x} cannot be a word of this index");
                let word = if Tree::<M, K>::INLINE { new } else { Entry::record(spot.piece, new).0 };
                leaf.set_word(medium, slot, word);
                tree.pool.region().write_back(leaf.line_of(slot));
                self.finish(leaf, held.lock, fencing);
            }
            Decision::Set(None) => {
                self.remove_at(guard, leaf, position);
                let is_small = permutation.len() <= tree.width / 4 + 1;
                self.finish(leaf, held.lock, fencing);
                if is_small {
                    self.tidy(guard, &K::bytes(key), leaf, spot.layer);
                }
            }
        }
        Ok(Some(Some(found)))
    }

    /// The key's word in a slot of a leaf; `None` if that is not the key's. Called under the lock.
    fn word_in(&self, guard: &Guard<'_, M>, leaf: Node<'_>, slot: usize, key: &K::Key) -> Option<u64> {
        let medium = self.tree.pool.medium();
        if Tree::<M, K>::INLINE {
            return Some(leaf.word_at(medium, slot));
        }
        let entry = leaf.entry(medium, slot);
        if !entry.is_record() {
            return None;
        }
        match K::find(guard, entry.offset(), key) {
            Found::Word(found) => Some(found),
            Found::Other => None,
        }
    }

    /// Makes a change that was written back durable, now or later, and unlocks its node.
    #[inline(always)]
    pub(super) fn finish(&self, node: Node<'_>, lock: Locked<'_, M>, fencing: &mut Fencing<'_>) {
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
    pub(super) fn count_key(&self, guard: &Guard<'_, M>, leaf: Node<'_>, by: i64) {
        let passed = |number: u64| leaf.shape(self.tree.pool.medium()).counted() == number as u16;
        self.tree.count().add_where(guard.slot_index(), by, passed);
    }
}
