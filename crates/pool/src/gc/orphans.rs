//! Orphaned slabs: slabs without an owner, since the thread that owned them, or was to list them,
//! died.
//!
//! An owned slab is in a slot's cache, and a listed one is in the list of its class. But a thread
//! that dies between the two steps of such a change leaves a slab that is in neither. A concurrent
//! collection finds these by the *round*: a thread that takes a unit for a slab, owns a slab or
//! pushes it during the collection writes the collection's round into the upper half of the slab's
//! `link`, before the slab is owned and before it is listed. A slab is a *candidate* if, after the
//! first grace period, its link does not have this round and
//! * its state says owned, but it is in no cache; or
//! * its state says listed, but it was not found in the list; or
//! * its state says reserve, but it is not the reserve.
//!
//! A live thread may be between two steps, too. By the next grace period it has taken the second,
//! so the state has changed or the link has the round. A candidate with the same state and without
//! the round when the sweep reaches it is an orphan, and the collector adopts it.
//!
//! A list is walked while other threads push and pop. A slab without the round was pushed before
//! the collection, and keeps its place below whatever is pushed onto it and popped again. A slab
//! with the round may be pushed anew at any time; its link counts only if the head of the list has
//! not changed since the walk began. While the collector inspects a slab, the slab does not become
//! anything else (`inspect_unit`).

use crate::allocator::words::ROUND;
use crate::allocator::zones::{UnitState, UnitUse};
use crate::gc::Collection;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use terrace_medium::MappedMedium;

/// Disturbed walks of one list before it is left for the next collection.
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

/// The result of a walk through a list.
#[derive(Debug, PartialEq, Eq)]
enum Walk {
    /// All slabs in it without this round were seen.
    Whole,
    /// Other threads changed it meanwhile.
    Disturbed,
    /// It leads to something else than slabs of this list.
    Damaged,
}

/// What is known of the list of a class.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Whole,
    /// No slab that says it is in this list is a candidate.
    Nothing,
}

/// Slabs that may be orphans, each with its state when it was found.
pub(crate) type OrphanCandidates = BTreeMap<u64, UnitState>;

impl<M: MappedMedium> Collection<'_, M> {
    /// The slabs that may be orphans, where those in `owned` are in caches; and whether all lists
    /// could be walked.
    pub(crate) fn orphan_candidates(&self, owned: &BTreeSet<u64>) -> (OrphanCandidates, bool) {
        let words = self.units().zones.units(self.base().size()).div_ceil(64) as usize;
        let (mut listed, mut complete) = (Units(vec![0; words]), true);
        let mut known = Vec::new();
        for number in 0..self.units().classes.len() {
            known.push(match self.walk(number, &mut listed) {
                Walk::Whole => Known::Whole,
                Walk::Damaged => Known::Nothing,
                Walk::Disturbed => {
                    complete = false;
                    Known::Nothing
                }
            });
        }
        // ORDER: Relaxed, this and the states: the values at the beginning of the grace period are
        // visible. A later change writes the round, and `adopt` loads again after a grace period
        // and sees it.
        let reserve = self.base().shared().reserve.load(self.medium().point("reserve.orphan"), Relaxed);
        let candidate = |unit: u64| {
            let state = UnitState(self.units().unit(unit).state.load(self.medium(), Relaxed));
            let is_apart = match (state.usage(), state.class()) {
                (UnitUse::Owned, Some(_)) => !owned.contains(&unit),
                (UnitUse::Listed, Some(class)) => {
                    known.get(class) == Some(&Known::Whole) && !listed.contains(unit)
                }
                (UnitUse::Reserve, Some(_)) => self.units().zones.start_of(unit) != reserve,
                _ => false,
            };
            (is_apart && state.open_seq() == self.base().open_seq && !self.units().is_in_round(unit))
                .then_some((unit, state))
        };
        (self.units().all_units().filter_map(candidate).collect(), complete)
    }

    /// Walks the list of class `number` until all slabs in it without the round were seen.
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
        let list = &self.base().shared().lists[number];
        // ORDER: Acquire: pairs with the Release of `push`.
        let head = list.head.load(self.medium().point("walk.head"), Acquire);
        // ORDER: Relaxed: a thread that stored a link with the round, after this walk had begun,
        // had seen a later head. This load comes after the Acquire that found that link, or that
        // found the state of a slab that has left the list.
        let undisturbed = || list.head.load(self.medium().point("walk.head-again"), Relaxed) == head;
        let listed = UnitState::slab(self.base().open_seq, number, UnitUse::Listed);
        let mut next = head & !ROUND;
        for _ in 0..=self.units().zones.units(self.base().size()) {
            let Some(unit) = next.checked_sub(1) else { return Walk::Whole };
            if self.units().unit_at(self.units().zones.start_of(unit)).is_none() {
                return if undisturbed() { Walk::Damaged } else { Walk::Disturbed };
            }
            // ORDER: Acquire: pairs with the Release of the link in `push` and `take_ownership`.
            let (state, link) = self.units().inspect_unit(unit, |state| {
                (state, self.units().unit(unit).link.load(self.medium().point("walk.link"), Acquire))
            });
            let is_stable = state == listed && link & ROUND != self.base().round();
            if !is_stable && !undisturbed() {
                return Walk::Disturbed;
            }
            if state != listed {
                return Walk::Damaged;
            }
            seen.insert(unit);
            next = link & !ROUND;
        }
        if undisturbed() { Walk::Damaged } else { Walk::Disturbed }
    }

    /// Adopts a slab that was a candidate in `state`, if it is an orphan: then the collector owns
    /// it.
    pub(crate) fn adopt(&self, unit: u64, state: UnitState) -> bool {
        // A slab with another state now belonged to a thread that has taken its second step. A
        // further thread may be at the first step of the next change, before it writes the round.
        let says_the_same = self.units().unit(unit).state.load(self.medium(), Acquire) == state.0;
        let Some(number) = state.class().filter(|_| says_the_same && !self.units().is_in_round(unit)) else {
            return false;
        };
        match state.usage() {
            UnitUse::Owned => true,
            UnitUse::Listed => self.heap().take_ownership(unit, number),
            UnitUse::Reserve
                if self.base().shared().reserve.load(self.medium(), Acquire)
                    != self.units().zones.start_of(unit) =>
            {
                let owned = state.with(UnitUse::Owned);
                self.units().unit(unit).state.store(self.medium(), owned.0, SeqCst);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
#[path = "tests/orphans.rs"]
mod tests;
