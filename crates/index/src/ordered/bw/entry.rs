//! The entry of a page in the mapping table: one word, which says where the page lies and which of
//! its slots count. Each change of a page is one compare-and-swap of its entry.
//!
//! ```text
//!   a page       | 63:56 check | 55 0 | 54 dirty | 53 column | 52:50 state
//!                | 49:38 slots | 37:0 offset / 64 |
//!   a tombstone  | 63:56 check | 55 1 | 54 dirty | 53:38 generation | 37:0 epoch |
//!   free         0
//! ```
//! The check covers all bits but the dirty one. Offset and slots determine the content of a page.
//! While the offset stays, bits of slots are only ever set and the state's number only grows; and
//! no block comes back to an entry while a thread is pinned that saw it there. So no dirty entry
//! comes back either: a thread that has persisted one may clear its bit (*link and persist*, see
//! `ordered/link`).

use super::super::check::folded;

/// Slots of a page at most.
pub(super) const SLOTS_MAX: usize = 12;

const OFFSET: u64 = (1 << SLOTS_AT) - 1;
const SLOTS_AT: u32 = 38;
const SLOTS: u64 = ((1 << SLOTS_MAX) - 1) << SLOTS_AT;
const STATE_AT: u32 = 50;
const STATE: u64 = 7 << STATE_AT;
const COLUMN_AT: u32 = 53;
const DIRTY: u64 = 1 << 54;
const TOMBSTONE: u64 = 1 << 55;
const CHECK_AT: u32 = 56;
const CHECK: u64 = 0xff << CHECK_AT;
const GENERATION_AT: u32 = SLOTS_AT;
/// Bytes in the unit of an offset.
const UNIT: u32 = 6;

/// Epochs after which no thread is pinned that saw a page before it got its tombstone.
pub(super) const GRACE: u64 = 4;

/// Whether a page takes part in a merge, as the right one of two, and whether it is changed in
/// place. A page goes from a state only to a later one, until it is written anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(super) enum State {
    /// Neither.
    Open,
    /// It takes no change. The merge may still be given up.
    Frozen,
    /// A merge was given up. It takes changes, and no other merge.
    Thawed,
    /// Its slots are used up, and there was no memory: it is changed under a lock (`in_place`).
    InPlace,
    /// Its left neighbour must absorb it.
    Doomed,
    /// As `Doomed`, but there was no memory for that. It is changed under the lock, and absorbed
    /// under it.
    DoomedInPlace,
}

/// An entry of the mapping table. See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry(pub(super) u64);

/// The check of all bytes of a word but its own. That of the word 0 is 0. So no changed byte makes
/// a free entry one of a page.
#[inline(always)]
fn check(word: u64) -> u64 {
    folded(word & !(CHECK | DIRTY)) << CHECK_AT
}

impl Entry {
    #[inline(always)]
    fn sealed(bits: u64) -> Self {
        let bits = bits & !CHECK;
        Self(bits | check(bits))
    }

    /// The entry of a page of which no slot counts.
    pub(super) fn of_page(offset: u64, column: u64) -> Self {
        debug_assert!(offset != 0 && offset & 63 == 0 && offset >> UNIT <= OFFSET && column <= 1);
        Self::sealed(offset >> UNIT | column << COLUMN_AT)
    }

    /// What takes the place of a page that has left the tree in this epoch.
    pub(super) fn tombstone(epoch: u64, generation: u32) -> Self {
        Self::sealed(TOMBSTONE | u64::from(generation & 0xffff) << GENERATION_AT | epoch & OFFSET)
    }

    #[inline(always)]
    pub(super) fn is_sound(self) -> bool {
        self.0 & CHECK == check(self.0)
    }

    /// Whether this is the entry of a page.
    #[inline(always)]
    pub(super) fn is_page(self) -> bool {
        self.0 & OFFSET != 0 && self.0 & TOMBSTONE == 0
    }

    /// Whether no thread can know a page of this number any more.
    pub(super) fn is_reusable(self, epoch: u64, generation: u32) -> bool {
        if self.0 & TOMBSTONE == 0 {
            return self.0 == 0;
        }
        let is_old = self.0 >> GENERATION_AT & 0xffff != u64::from(generation & 0xffff);
        is_old || (epoch.wrapping_sub(self.0) & OFFSET) > GRACE
    }

    #[inline(always)]
    pub(super) fn offset(self) -> u64 {
        (self.0 & OFFSET) << UNIT
    }

    /// A bit for each slot that counts.
    #[inline(always)]
    pub(super) fn slots(self) -> u32 {
        ((self.0 & SLOTS) >> SLOTS_AT) as u32
    }

    /// This entry, dirty, with one slot more.
    #[inline(always)]
    pub(super) fn with_slot(self, slot: usize) -> Self {
        debug_assert!(slot < SLOTS_MAX && self.slots() >> slot & 1 == 0);
        Self::sealed(self.0 | 1 << (SLOTS_AT + slot as u32)).dirty()
    }

    #[inline(always)]
    pub(super) fn state(self) -> State {
        match (self.0 & STATE) >> STATE_AT {
            0 => State::Open,
            1 => State::Frozen,
            2 => State::Thawed,
            3 => State::InPlace,
            4 => State::Doomed,
            _ => State::DoomedInPlace,
        }
    }

    /// Whether its words are changed under the lock of changes in place.
    #[inline(always)]
    pub(super) fn is_in_place(self) -> bool {
        matches!(self.state(), State::InPlace | State::DoomedInPlace)
    }

    /// Whether its left neighbour must absorb it.
    pub(super) fn is_doomed(self) -> bool {
        matches!(self.state(), State::Doomed | State::DoomedInPlace)
    }

    /// Whether it takes changes in its slots.
    #[inline(always)]
    pub(super) fn is_open(self) -> bool {
        matches!(self.state(), State::Open | State::Thawed)
    }

    /// This entry, dirty, in a later state.
    pub(super) fn with_state(self, state: State) -> Self {
        debug_assert!(self.state() < state, "{:?} comes before {state:?}", self.state());
        Self::sealed(self.0 & !STATE | (state as u64) << STATE_AT).dirty()
    }

    /// The column in which changes of the page are counted (see `trace`).
    #[inline(always)]
    pub(super) fn column(self) -> u64 {
        self.0 >> COLUMN_AT & 1
    }

    pub(super) fn with_column(self, column: u64) -> Self {
        Self::sealed(self.0 & !(1 << COLUMN_AT) | column << COLUMN_AT)
    }

    #[inline(always)]
    pub(super) fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    #[inline(always)]
    pub(super) fn dirty(self) -> Self {
        Self(self.0 | DIRTY)
    }

    #[inline(always)]
    pub(super) fn clean(self) -> Self {
        Self(self.0 & !DIRTY)
    }
}

#[cfg(test)]
#[path = "tests/entry.rs"]
mod tests;
