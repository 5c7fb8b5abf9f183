//! Changes of single keys: a slot is filled, and then counts by one compare-and-swap of its page's
//! entry.

use super::super::keys::{KEY_MAX, OrderedKind};
use super::build::Need;
use super::entry::Entry;
use super::find::Spot;
use super::ops::BwTree;
use super::page::{Probe, head_of};
use super::slots::{Change, Overlay};
use crate::{ChangeError, Damage, Decision, Fencing};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// The outcome of a try: `None` if the tree changed meanwhile.
pub(super) type Tried<T> = Result<Option<T>, ChangeError>;

/// A change of a key that has been decided.
struct Decided {
    before: Option<u64>,
    change: Change,
}

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// See [`PointIndex::change`](crate::PointIndex::change).
    pub(super) fn change_key(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        mut fencing: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, ChangeError> {
        let bytes = K::bytes(key);
        assert!(bytes.len() <= KEY_MAX, "a key of more than {KEY_MAX} bytes");
        loop {
            if let Some(found) = self.try_change(guard, (key, &*bytes), &mut fencing, &decide)? {
                return Ok(found);
            }
        }
    }

    fn try_change(
        &self,
        guard: &Guard<'_, M>,
        key: (&K::Key, &[u8]),
        fencing: &mut Fencing<'_>,
        decide: &impl Fn(Option<u64>) -> Decision,
    ) -> Tried<Option<u64>> {
        let spot = self.tree.descend(guard, Probe::at(key.1), 0)?;
        if spot.entry.is_in_place() {
            return self.change_in_place(guard, spot.page.pid, key, decide);
        }
        let overlay = self.tree.overlay_of(guard, &spot)?;
        let held = spot.page.find(guard, &overlay, key);
        let before = held.map(|held| held.word);
        let decision = decide(before);
        if before.is_none() && decision != Decision::Keep {
            self.check_absent(guard, &spot, &overlay, key.1)?;
        }
        let word = match decision {
            Decision::Set(word) if word.is_some() || before.is_some() => word,
            _ => {
                self.tree.persist_in_place(&spot);
                return Ok(Some(before));
            }
        };
        assert!(word.is_none_or(K::is_word), "{word:x?} cannot be a word of this index");
        if self.help_on_the_way(guard, &spot, before.is_some())? {
            return Ok(None);
        }
        let replaces = held.map(|held| held.place);
        let change = Change { replaces, head: head_of(key.1, spot.page.skip), word };
        self.put(guard, &spot, &overlay, &Decided { before, change }, fencing)
    }

    /// A key that is not found is absent, unless it cannot be read, or its page is another's. What
    /// damage hides is neither there nor absent: a caller that was told that it is absent would try
    /// for ever to change what a read finds.
    pub(super) fn check_absent(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
        overlay: &Overlay,
        bytes: &[u8],
    ) -> Result<(), Damage> {
        let page = &spot.page;
        if page.is_right_of(Probe::at(bytes)) {
            return Err(self.tree.record_damage(page.offset, "a page on the way to a key is above it"));
        }
        page.unsound(guard, overlay, bytes).map_or(Ok(()), Err)
    }

    /// Completes what other threads have begun on the way to a page. Returns whether that changed
    /// the page, so that the search must begin again.
    fn help_on_the_way(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
        is_present: bool,
    ) -> Result<bool, ChangeError> {
        if let Some(stray) = spot.stray {
            self.post(guard, stray)?;
        }
        if spot.entry.is_open() {
            return Ok(false);
        }
        match self.settle_merge(guard, spot.page.pid) {
            Err(ChangeError::Full(_)) if is_present => self.doom_in_place(guard, spot.page.pid)?,
            settled => settled?,
        }
        Ok(true)
    }

    /// Puts a change into a slot of its page, and counts it.
    fn put(
        &self,
        guard: &Guard<'_, M>,
        spot: &Spot<'_, K>,
        overlay: &Overlay,
        decided: &Decided,
        fencing: &mut Fencing<'_>,
    ) -> Tried<Option<u64>> {
        let Decided { before, change } = decided;
        let Some(slot) = spot.page.claim(guard, spot.entry) else {
            let need = if before.is_some() { Need::Present } else { Need::Room };
            self.make_room(guard, spot, need)?;
            return Ok(None);
        };
        spot.page.fill(guard, slot, *change);
        // PERSIST: the slot, before the entry counts it. A crash in between leaves a slot that
        // means nothing.
        self.tree.pool.region().fence();
        let counted = spot.entry.with_slot(slot);
        if !self.tree.swap_entry(spot.word, spot.entry, counted, fencing) {
            spot.page.give_back(guard, slot);
            return Ok(None);
        }
        let by = i64::from(change.word.is_some()) - i64::from(before.is_some());
        self.count_keys(guard, spot.entry, by);
        if by < 0 && overlay.count(spot.page.len) == 1 {
            // The page has lost its last key. That one is gone, whatever comes of this.
            let _ = self.merge(guard, spot.page.pid);
        }
        Ok(Some(*before))
    }

    /// Counts keys that came to a page, or left it, when it had this entry.
    pub(super) fn count_keys(&self, guard: &Guard<'_, M>, entry: Entry, by: i64) {
        if by != 0 {
            self.tree.count().add_in_column(guard.slot_index(), by, entry.column());
        }
    }
}
