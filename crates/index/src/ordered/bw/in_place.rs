//! Changes of present keys in a pool without any memory.
//!
//! A page whose slots are used up must be written anew. If there is no block for that, and no
//! spare, the page's state says from then on, durably, that it is changed *in place*. It takes no
//! slots any more. A thread that changes one of its keys takes a lock, one for the whole tree, and
//! stores the key's new word where the old one is, or sets the mark of the key's place, which
//! removes it. Each is one store. Absent keys are refused. As soon as there is memory, the next
//! such thread writes the page anew, still under the lock, and all is as it was.
//!
//! A doomed page whose left neighbour finds no memory to absorb it is changed in place, too. The
//! thread that begins that has the left neighbour changed in place before, be it doomed as well. So
//! a thread that has read both before cannot absorb the page any more, and one that reads them
//! later takes the lock for that. A death in between leaves a page that takes no change yet.
//!
//! Marks have their number of places. So a page that has far too many entries is never written anew
//! as one, but split, or stays as it is.
//!
//! This is the only lock of the tree, and readers do not take it. On a volatile cache they make
//! what they have read of such a page durable. Its words have no check meanwhile; those of byte
//! strings are compared with the page's heads and their order.

use super::super::keys::OrderedKind;
use super::build::Need;
use super::change::Tried;
use super::entry::{Entry, State};
use super::find::Spot;
use super::ops::BwTree;
use super::page::{Pid, Probe};
use super::room::leaf_like;
use super::slots::MARKED_ENTRIES;
use super::table::LOCK;
use super::tree::Tree;
use crate::{ChangeError, Damage, Decision, Fencing};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Lock, Locked};

/// A doomed page, and the page that is to absorb it.
type Neighbours<'g, K> = (Spot<'g, K>, Spot<'g, K>);

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// Makes durable what this thread has read of a page that is changed in place, also if it is so
    /// only since the thread has read the page's entry.
    #[inline(always)]
    pub(super) fn persist_in_place(&self, spot: &Spot<'_, K>) {
        if M::VOLATILE_CACHE && (spot.entry.is_in_place() || self.is_in_place_now(spot)) {
            self.persist_all(spot);
        }
    }

    #[inline(always)]
    fn is_in_place_now(&self, spot: &Spot<'_, K>) -> bool {
        // ORDER: Acquire: a thread that has read a word which was changed in place finds the entry
        // that says so. After a later one the word is durable.
        let now = Entry(spot.word.load(self.pool.medium(), Acquire));
        now.offset() == spot.entry.offset() && now.is_in_place()
    }

    #[cold]
    fn persist_all(&self, spot: &Spot<'_, K>) {
        let region = self.pool.region();
        region.write_back_bytes(spot.page.offset, spot.page.bytes);
        // PERSIST: words and marks that another thread has stored and not fenced, before this one
        // relies on them.
        region.fence();
    }
}

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// Takes the lock of changes in place.
    pub(super) fn lock_in_place<'g>(&'g self, guard: &'g Guard<'_, M>) -> Locked<'g, M> {
        Lock::of(self.tree.directory_word(LOCK)).acquire(guard)
    }

    /// Has a page changed in place from now on. Durable on return: a crash must not forget it, as
    /// marks mean nothing in another state. Returns whether its entry was still this.
    pub(super) fn begin_in_place(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
        state: State,
    ) -> Result<bool, Damage> {
        debug_assert!(spot.page.len <= MARKED_ENTRIES, "{} entries have no mark each", spot.page.len);
        match spot.page.is_unmarked(guard) {
            true => Ok(self.enter(spot, state)),
            // Another thread was first.
            false if self.tree.has_changed(spot) => Ok(false),
            false => {
                Err(self.tree.record_damage(spot.page.offset, "a page has marks that no thread has set"))
            }
        }
    }

    /// Writes a page anew, so that it has slots again, or splits it. Called under the lock. The
    /// next thread that comes this way tells the page above.
    fn end_in_place(&self, guard: &Guard<'_, M>, spot: &Spot<'_, K>) -> Result<(), ChangeError> {
        let content = leaf_like(&spot.page, self.tree.live(guard, spot)?);
        let keys = content.entries.len();
        let need = if keys < self.tree.shape.least { Need::Less } else { Need::Present };
        let written = match keys > self.tree.shape.most_unsplit() {
            true => self.split(guard, spot, &content, keys / 2),
            false => self.rewrite(guard, spot, &content, need).map_err(ChangeError::from),
        };
        if matches!(written, Err(ChangeError::Full(_))) {
            self.tree.refused.store(self.tree.pool.epoch(), Relaxed);
        }
        written.map(drop)
    }

    /// Whether there was no memory in this epoch: a search for some takes long.
    pub(super) fn was_refused(&self) -> bool {
        self.tree.refused.load(Relaxed) == self.tree.pool.epoch()
    }

    /// As [`BwTree::end_in_place`], without the lock, if the page is in that state and no more.
    pub(super) fn reopen_in_place(&self, guard: &Guard<'_, M>, pid: Pid) -> Result<(), ChangeError> {
        let _lock = self.lock_in_place(guard);
        match self.tree.page(guard, pid)? {
            Some(spot) if spot.entry.state() == State::InPlace => self.end_in_place(guard, &spot),
            _ => Ok(()),
        }
    }

    /// Has a doomed leaf changed in place from now on, if it waits for its left neighbour.
    #[cold]
    pub(super) fn doom_in_place(&self, guard: &Guard<'_, M>, pid: Pid) -> Result<(), Damage> {
        let _lock = self.lock_in_place(guard);
        while let Some(spot) = self.tree.page(guard, pid)?.filter(|spot| spot.entry.state() == State::Doomed)
        {
            let Some((right, left)) = self.first_doomed(guard, spot)? else { return Ok(()) };
            // The left one first: see the module's head.
            if left.entry.is_in_place() || self.lock_absorber(guard, &left)? {
                self.begin_in_place(guard, &right, State::DoomedInPlace)?;
            }
        }
        Ok(())
    }

    /// The first of the doomed leaves in a row up to this one that is not changed in place, and the
    /// page that is to absorb it; `None` if that has been done.
    fn first_doomed<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        spot: Spot<'g, K>,
    ) -> Result<Option<Neighbours<'g, K>>, Damage> {
        let mut right = spot;
        while let Some(left) = self.absorber_of(guard, &right)? {
            if !left.page.is_leaf() || left.entry.state() != State::Doomed {
                return Ok(Some((right, left)));
            }
            right = left;
        }
        Ok(None)
    }

    /// Has the page that is to absorb a doomed one do so under the lock only. Returns whether that
    /// is so now.
    fn lock_absorber(&self, guard: &Guard<'_, M>, left: &Spot<'_, K>) -> Result<bool, Damage> {
        let state = left.entry.state();
        match (left.page.is_leaf(), state) {
            (true, State::Open | State::Thawed) => self.begin_in_place(guard, left, State::InPlace),
            (true, _) => {
                self.enter(left, State::Thawed);
                Ok(false)
            }
            // The root, in place of its only child.
            (false, State::Frozen) => Ok(self.enter(left, State::DoomedInPlace)),
            _ => {
                Err(self.tree.record_damage(left.page.offset, "a root that is to be replaced is not frozen"))
            }
        }
    }

    /// Brings a page into a later state, durably. Returns whether its entry was still this.
    pub(super) fn enter(&self, spot: &Spot<'_, K>, state: State) -> bool {
        self.tree.swap_entry(spot.word, spot.entry, spot.entry.with_state(state), &mut Fencing::Now)
    }

    /// The page for a change in place, under the lock; `None` if it has changed, or is written anew
    /// now, or is to be absorbed now.
    fn page_in_place<'g>(&'g self, guard: &'g Guard<'_, M>, pid: Pid, key: &[u8]) -> Tried<Spot<'g, K>> {
        let Some(spot) = self.tree.page(guard, pid)? else { return Ok(None) };
        if !spot.entry.is_in_place() || spot.page.is_left_of(Probe::at(key)) {
            return Ok(None);
        }
        if spot.entry.is_doomed() {
            return Ok(self.absorber_of(guard, &spot)?.map(|_| spot));
        }
        if self.was_refused() {
            return Ok(Some(spot));
        }
        match self.end_in_place(guard, &spot) {
            Ok(()) => Ok(None),
            // Be it for want of memory, or for a record of another key that cannot be read.
            Err(_) => Ok(Some(spot)),
        }
    }

    /// Changes a key of a page in this state, or writes the page anew.
    #[cold]
    pub(super) fn change_in_place(
        &self,
        guard: &Guard<'_, M>,
        pid: Pid,
        key: (&K::Key, &[u8]),
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Option<u64>> {
        if !self.was_refused() {
            match self.settle_merge(guard, pid) {
                Err(ChangeError::Full(_)) => self.tree.refused.store(self.tree.pool.epoch(), Relaxed),
                settled => settled?,
            }
        }
        let locked = self.lock_in_place(guard);
        let Some(spot) = self.page_in_place(guard, pid, key.1)? else {
            drop(locked);
            return match self.settle_merge(guard, pid) {
                // It is buried, if it was absorbed, or waits for that, and the key lies elsewhere.
                Ok(()) | Err(ChangeError::Full(_)) => Ok(None),
                Err(damaged) => Err(damaged),
            };
        };
        let overlay = self.tree.overlay_of(guard, &spot)?;
        self.tree.check_content(guard, &spot)?;
        let held = spot.page.find(guard, &overlay, key);
        if held.is_none() {
            self.check_absent(guard, &spot, &overlay, key.1)?;
            self.tree.live(guard, &spot)?;
        }
        let before = held.map(|held| held.word);
        let place = held.and_then(|held| Some((held, spot.page.place_of(guard, held.place)?)));
        match (decide(before), place) {
            (Decision::Keep, _) | (Decision::Set(None), None) => {}
            (Decision::Set(Some(_)), None) => return self.reject(guard, &spot, locked),
            (Decision::Set(Some(word)), Some((held, place))) => {
                assert!(K::is_word(word), "{word:#x} cannot be a word of this index");
                let word = spot.page.stored_at(held.place, word);
                // ORDER: Release: a reader that sees the word sees what it leads to.
                place.store(self.tree.pool.medium().point("bw.in-place"), word, Release);
            }
            (Decision::Set(None), Some((held, _))) => {
                spot.page.mark(guard, held.place);
                self.count_keys(guard, spot.entry, -1);
            }
        }
        // Also if nothing changed: what was read may not be durable.
        self.tree.persist_in_place(&spot);
        drop(locked);
        if before.is_some() && self.tree.count_in(guard, &spot).is_ok_and(|count| count == 0) {
            // The page has lost its last key. That one is gone, whatever comes of this.
            let _ = self.merge(guard, pid);
        }
        Ok(Some(before))
    }

    /// Makes room for a key that is absent from a page in this state, or says that there is none.
    fn reject(&self, guard: &Guard<'_, M>, spot: &Spot<'_, K>, locked: Locked<'_, M>) -> Tried<Option<u64>> {
        if !spot.entry.is_doomed() {
            return self.end_in_place(guard, spot).map(|()| None);
        }
        drop(locked);
        self.settle_merge(guard, spot.page.pid).map(|()| None)
    }
}
