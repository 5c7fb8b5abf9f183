//! Slabs that nobody has: whoever owned them, or was to list them, died.
//!
//! A slab that says it is owned is in a seat's cache, one that says it is listed is in the list of its class; but a thread that dies between the two steps of such a
//! change leaves one that is nowhere. While others go on, a collection tells these apart by a *note*: whoever takes a unit for a slab, owns it or pushes it during
//! the collection writes the collection's number into the upper half of the slab's `link`, before it is owned and before it is in the list.
//! A slab is *suspect* if, after the first grace,
//! - it says it is owned, it is in no cache, and it has no note; or
//! - it says it is listed, it was not found in the list, and it has no note; or
//! - it says it is the reserve, is not, and has no note.
//!
//! The living may be between two steps, too; by the next grace they have taken the second, and with it the state has changed or there is a note. A suspect
//! that still says the same and has no note when the sweep comes to it is nobody's, and the collector's to adopt.
//!
//! A list is walked while others push and pop. What was pushed before the collection and is still there, which has no note, stays as it is under whatever is pushed
//! on it and popped again. What has a note may be pushed anew at any time; its link counts only if the head of the list has not changed since the walk began.
//! For as long as the collector looks at a slab it does not become anything else (`look_into`).

use crate::pool::Inner;
use crate::shared::NOTE;
use crate::zones::{State, Use};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use terrace_medium::MappedMedium;

/// Walks of one list that come to nothing before it is left for the next collection.
const WALKS: u32 = 1 << 16;

/// A set of units.
struct Units(Vec<u64>);

impl Units {
    fn insert(&mut self, unit: u64) {
        if let Some(word) = self.0.get_mut(unit as usize / 64) {
            *word |= 1 << (unit % 64);
        }
    }
    fn contains(&self, unit: u64) -> bool {
        self.0.get(unit as usize / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }
}

/// How a walk through a list ended.
#[derive(Debug, PartialEq, Eq)]
enum Walk {
    /// Everything in it without a note was seen.
    Whole,
    /// Others changed it meanwhile.
    Disturbed,
    /// It leads nowhere.
    Damaged,
}

/// What is known of a class's list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Whole,
    /// Nothing that says it is in it is suspect.
    Nothing,
}

/// Slabs that may be nobody's, and what each said when that was found.
pub(crate) type Suspects = BTreeMap<u64, State>;

impl<M: MappedMedium> Inner<M> {
    fn is_noted(&self, unit: u64) -> bool {
        self.unit(unit).link.load(self.medium(), Relaxed) & NOTE == self.note()
    }

    /// The slabs that may be nobody's, where those in `owned` are in caches, with what they say. And whether all lists could be walked.
    pub(crate) fn suspects(&self, owned: &BTreeSet<u64>) -> (Suspects, bool) {
        let words = self.memory.zones.units(self.size()).div_ceil(64) as usize;
        let (mut listed, mut complete) = (Units(vec![0; words]), true);
        let mut known = Vec::new();
        for number in 0..self.memory.classes.len() {
            known.push(match self.walk(number, &mut listed) {
                Walk::Whole => Known::Whole,
                Walk::Damaged => Known::Nothing,
                Walk::Disturbed => {
                    complete = false;
                    Known::Nothing
                }
            });
        }
        // ORDER: Relaxed, this and the states: what was so when the grace began is seen. What has changed since is noted, and `adopt` asks again after a grace and sees the note.
        let reserve = self.shared().reserve.load(self.medium(), Relaxed);
        let suspect = |unit: u64| {
            let state = State(self.unit(unit).state.load(self.medium(), Relaxed));
            let is_apart = match (state.usage(), state.class()) {
                (Use::Owned, Some(_)) => !owned.contains(&unit),
                (Use::Listed, Some(class)) => {
                    known.get(class) == Some(&Known::Whole) && !listed.contains(unit)
                }
                (Use::Reserve, Some(_)) => self.memory.zones.start_of(unit) != reserve,
                _ => false,
            };
            (is_apart && state.era() == self.era && !self.is_noted(unit)).then_some((unit, state))
        };
        (self.all_units().filter_map(suspect).collect(), complete)
    }

    /// Walks the list of class `number` until it has seen everything in it that has no note.
    fn walk(&self, number: usize, seen: &mut Units) -> Walk {
        for _ in 0..WALKS {
            match self.walk_once(number, seen) {
                Walk::Disturbed => std::hint::spin_loop(),
                ended => return ended,
            }
        }
        Walk::Disturbed
    }

    fn walk_once(&self, number: usize, seen: &mut Units) -> Walk {
        let list = &self.shared().lists[number];
        // ORDER: Acquire: pairs with the Release of `push`.
        let head = list.head.load(self.medium(), Acquire);
        let undisturbed = || list.head.load(self.medium(), SeqCst) == head;
        let listed = State::slab(self.era, number, Use::Listed);
        let mut next = head & !NOTE;
        for _ in 0..=self.memory.zones.units(self.size()) {
            let Some(unit) = next.checked_sub(1) else { return Walk::Whole };
            if self.unit_at(self.memory.zones.start_of(unit)).is_none() {
                return if undisturbed() { Walk::Damaged } else { Walk::Disturbed };
            }
            let (state, link) =
                self.look_into(unit, |state| (state, self.unit(unit).link.load(self.medium(), Acquire)));
            let is_stable = state == listed && link & NOTE != self.note();
            if !is_stable && !undisturbed() {
                return Walk::Disturbed;
            }
            if state != listed {
                return Walk::Damaged;
            }
            seen.insert(unit);
            next = link & !NOTE;
        }
        if undisturbed() { Walk::Damaged } else { Walk::Disturbed }
    }

    /// Takes over a slab that was suspect in `state` if it is nobody's: then it is owned, by the collector.
    pub(crate) fn adopt(&self, unit: u64, state: State) -> bool {
        // One that says something else now was somebody's, who has taken the second step; and another may be at the first one of the next change, of which there is no note yet.
        let says_the_same = self.unit(unit).state.load(self.medium(), Acquire) == state.0;
        let Some(number) = state.class().filter(|_| says_the_same && !self.is_noted(unit)) else {
            return false;
        };
        match state.usage() {
            Use::Owned => true,
            Use::Listed => self.own(unit, number),
            Use::Reserve
                if self.shared().reserve.load(self.medium(), Acquire) != self.memory.zones.start_of(unit) =>
            {
                let owned = state.with(Use::Owned);
                self.unit(unit).state.store(self.medium(), owned.0, SeqCst);
                true
            }
            _ => false,
        }
    }
}
