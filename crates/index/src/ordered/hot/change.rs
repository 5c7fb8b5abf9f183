//! Changes of single keys.

use super::super::keys::{KEY_MAX, OrderedKind, pair_word};
use super::super::link::{LEAF, Link};
use super::super::links::store;
use super::bits::bit;
use super::ops::Hot;
use super::path::{Path, Witness, unsound_beside};
use super::root::Holder;
use crate::{ChangeError, Damage, Decision, Fencing};
use std::cmp::Ordering::{Equal, Less};
use std::sync::atomic::Ordering::Release;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

/// Fruitless turns of a writer after which it looks for marks of dead threads.
const TURNS: u32 = 4;

/// The outcome of a try: `None` if the tree changed meanwhile.
pub(super) type Tried<T> = Result<Option<T>, ChangeError>;

impl<M: MappedMedium, K: OrderedKind> Hot<M, K> {
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
            let path = self.tree.locate(guard, &K::bytes(key))?;
            if let Some(found) = self.try_change(guard, key, &path, &mut fencing, &decide)? {
                return Ok(found);
            }
            turn += 1;
            if turn % TURNS == 0 {
                self.clear_marks_around(guard, key)?;
            }
        }
    }

    /// Clears the marks of dead threads on the way to a key, and on that to what it is compared
    /// with.
    #[cold]
    fn clear_marks_around(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<(), Damage> {
        let path = self.tree.locate(guard, &K::bytes(key))?;
        self.tree.clear_marks(guard, &path);
        if path.link.is_empty() {
            self.tree.clear_marks(guard, &self.tree.beside(guard, &path)?.path);
        }
        if let Some(sound) = self.tree.sound_beside(guard, &path) {
            self.tree.clear_marks(guard, &sound.path);
        }
        Ok(())
    }

    fn try_change(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        path: &Path<'_>,
        fencing: &mut Fencing<'_>,
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Option<u64>> {
        // What damage hides is neither there nor absent: a caller that was told that it is absent
        // would try for ever to change what a read finds.
        let mut other = None;
        if path.link.kind() == LEAF {
            other = match self.tree.difference(guard, &K::bytes(key), path.link) {
                Ok(None) => return self.change_present(guard, path, fencing, decide),
                Ok(Some(position)) => Some((path.end(), position)),
                Err(_) => Some(self.tree.difference_past(guard, &K::bytes(key), path)?),
            };
        }
        self.tree.check_path(path)?;
        let Decision::Set(Some(word)) = decide(None) else { return Ok(Some(None)) };
        assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
        Ok(self.add(guard, key, (path, other), word, fencing)?.map(|()| None))
    }

    /// Changes the key at whose leaf the path ends as `decide` says.
    fn change_present(
        &self,
        guard: &Guard<'_, M>,
        path: &Path<'_>,
        fencing: &mut Fencing<'_>,
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Option<u64>> {
        let (word, link) = (path.word, path.link);
        let found = K::word_of(guard, link.offset());
        if decide(Some(found)) == Decision::Keep {
            self.tree.persist_pair(word, link);
            return Ok(Some(Some(found)));
        }
        let holder = self.tree.holder_above(path, path.steps.len());
        if let Some(node) = holder.node {
            self.tree.check_node(node)?;
        }
        let Some(lock) = self.tree.lock(guard, holder) else { return Ok(None) };
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
            Decision::Set(None) => {
                self.unlink(guard, holder, (word, link), fencing);
                lock.release();
                // The key is gone, whatever comes of this.
                let _ = self.tidy(guard, path);
            }
        }
        Ok(Some(Some(found)))
    }

    /// Gives a leaf's key another word. Called under the lock.
    fn set_word(
        &self,
        guard: &Guard<'_, M>,
        (word, link): (&Word, Link),
        new: u64,
        fencing: &mut Fencing<'_>,
    ) {
        let (region, medium) = (self.tree.pool.region(), self.tree.pool.medium());
        if K::LEAF_BYTES == 0 {
            return self.tree.publish(word, Link::to_leaf(0, new), fencing);
        }
        let Some(pair) = pair_word(guard, link.offset()) else { return };
        if !M::VOLATILE_CACHE {
            return pair.store(medium.point("hot.word"), new, Release);
        }
        // ORDER: Release: a reader that sees the new word and then this link as it was sees that
        // the word is durable; see `persist_pair`.
        store(medium, word, link.held());
        pair.store(medium.point("hot.word"), new, Release);
        // PERSIST: the word. A crash before it leaves the old one.
        region.persist(pair);
        store(medium, word, link);
    }

    /// Removes a leaf: its entry stays, without a link. Called under the lock.
    fn unlink(
        &self,
        guard: &Guard<'_, M>,
        holder: Holder<'_>,
        (word, link): (&Word, Link),
        fencing: &mut Fencing<'_>,
    ) {
        if K::LEAF_BYTES > 0 {
            // Durable before the pair is retired, whose memory others will use.
            self.tree.publish(word, link.removed(), &mut Fencing::Now);
        } else {
            self.tree.publish(word, link.removed(), fencing);
        }
        self.count_keys(guard, holder.shape(self.tree.pool.medium()).counted(), -1);
        K::retire(guard, link.offset());
    }

    /// Counts keys that were added or removed in a holder with this number of a recount. Called
    /// under the holder's lock.
    pub(super) fn count_keys(&self, guard: &Guard<'_, M>, counted: u16, by: i64) {
        self.tree.count().add_where(guard.slot_index(), by, |number| counted == number as u16);
    }

    /// Adds an absent key at the end of its path: where it differs from the leaf `other` from a
    /// position on, or where there is no link.
    fn add(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        (path, other): (&Path<'_>, Option<(Witness<'_>, u32)>),
        word: u64,
        fencing: &mut Fencing<'_>,
    ) -> Tried<()> {
        if let Some((witness, position)) = other {
            return self.with_leaf(guard, key, word, |leaf| {
                let is_high = bit(&K::bytes(key), position);
                self.add_beside(guard, path, witness, (position, is_high, leaf), fencing)
            });
        }
        if path.steps.is_empty() {
            return self.with_leaf(guard, key, word, |leaf| self.fill_root(guard, path, leaf, fencing));
        }
        let beside = self.tree.beside(guard, path)?;
        let Some((witness, fork)) = beside.leaf else {
            self.tidy(guard, &beside.path)?;
            return Ok(None);
        };
        let (witness, position) = match self.tree.difference(guard, &K::bytes(key), witness.link) {
            Ok(position) => (witness, position),
            Err(damage) => self.beside_damage(guard, key, (path, fork), damage)?,
        };
        match position.map(|position| (position, position.cmp(&fork))) {
            Some((_, Equal)) => self
                .with_leaf(guard, key, word, |leaf| self.fill(guard, path, (witness, fork), leaf, fencing)),
            Some((position, Less)) => self.with_leaf(guard, key, word, |leaf| {
                let is_high = bit(&K::bytes(key), position);
                self.add_beside(guard, path, witness, (position, is_high, leaf), fencing)
            }),
            // The tree was another when the path was found, or the leaf's key has changed.
            _ if self.lock_beside(guard, path, (witness, fork))?.is_none() => Ok(None),
            _ => Err(unsound_beside(witness.link).into()),
        }
    }

    /// A sound leaf beside an entry without a link where the nearest one, `damage`, is parted from
    /// it by `fork`; and where the key differs from it. An error if that does not say where the key
    /// differs from what is nearer.
    #[cold]
    fn beside_damage<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &K::Key,
        (path, fork): (&Path<'g>, u32),
        damage: Damage,
    ) -> Result<(Witness<'g>, Option<u32>), Damage> {
        let sound = self.tree.sound_beside(guard, path).ok_or(damage)?;
        let position = self.tree.difference(guard, &K::bytes(key), sound.witness.link)?;
        if sound.fork < fork && position.is_none_or(|position| position >= sound.fork) {
            return Err(damage);
        }
        Ok((sound.witness, position))
    }

    /// Adds a key's leaf by `add`, and frees it if that does not succeed.
    fn with_leaf(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        word: u64,
        add: impl FnOnce(u64) -> Tried<()>,
    ) -> Tried<()> {
        let leaf = K::make(guard, key, word)?;
        let added = add(leaf);
        if !matches!(added, Ok(Some(()))) {
            K::free(guard, leaf);
        }
        added
    }
}
