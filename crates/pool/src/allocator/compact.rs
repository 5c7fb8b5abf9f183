//! Vacating slabs and runs of granules, so that their memory can serve other sizes.
//!
//! A pool that was full of blocks of one size keeps its slabs for that size as long as each holds a
//! block. So sparse slabs are taken out of use, the pool's user moves their blocks, and once the
//! last block has been freed the slab returns to the units.
//!
//! ```text
//! Listed --popped--> Owned ----> Vacating --all blocks freed--> Owned --> granules
//! Full ---------------------------^  |
//!                                    +------ some stay -------> Owned --> Listed or Full
//! ```
//! # Invariants
//! 1. Nothing is allocated from a `Vacating` slab: it is in no list and in no slot's cache. Its
//!    blocks are freed as usual.
//! 2. Only a thread that changes its state from `Vacating` to `Owned` may release it or list it,
//!    and does so under the same pin. If the thread dies in between, the concurrent collection
//!    adopts the slab, like any other that is owned and in no cache.
//! 3. Nothing else depends on which thread vacates a slab. Two threads may move blocks out of the
//!    same slab, and the next thread finds a slab whose thread died (`Compaction::vacating`). After
//!    a crash all slabs wait for the collector, whatever their use was. A clean close leaves no
//!    slab in this use.
//!
//! A *window* is a run of units that searches for units and granules leave out, so that what
//! becomes free in it stays free until the run is long enough. It is a hint: memory that is taken
//! in it all the same only makes the attempt fail.

use crate::allocator::bitmaps::Fill;
use crate::allocator::classes::{Class, GRANULES};
use crate::allocator::heap::Heap;
use crate::allocator::zones::{UnitState, UnitUse, Zone};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use terrace_medium::MappedMedium;

/// A slab that was popped from its list: its allocated blocks, and its unit.
type Found = (u64, u64);

impl<M: MappedMedium> Heap<M> {
    pub(crate) fn vacate_class(
        &self,
        number: usize,
        left: &mut u64,
        percent: u64,
        is_left_out: &dyn Fn(u64) -> bool,
        victims: &mut Vec<u64>,
    ) {
        let Some(class) = self.units().classes.get(number) else { return };
        let found = self.pop_all(number, class);
        let is_left_out = |unit| is_left_out(self.units().zones.start_of(unit));
        let count = worth_emptying(class, &found, left, percent, &is_left_out);
        // The fullest goes to the front of the list, so sparse ones become empty by themselves.
        for &(_, unit) in &found {
            match count.contains(&unit) {
                true => {
                    self.set_vacating(unit, number);
                    victims.push(self.units().zones.start_of(unit));
                }
                false => self.disown(unit, number, class),
            }
        }
    }

    /// Pops all slabs of a class and releases the empty ones. The caller owns the others, the
    /// sparsest first.
    fn pop_all(&self, number: usize, class: &Class) -> Vec<Found> {
        let (units, mut found) = (self.units().zones.units(self.base().size()), Vec::new());
        // A bound, so that a list that other threads fill cannot hold this thread up.
        while let Some(unit) = if (found.len() as u64) < units { self.pop(number) } else { None } {
            if !self.release_if_empty(unit, number, class) {
                found.push((self.units().count_blocks(unit, class), unit));
            }
        }
        found.sort_unstable();
        found
    }

    /// Starts to vacate a slab that the caller owns.
    fn set_vacating(&self, unit: u64, number: usize) {
        self.base().shared().vacated.fetch_add(self.medium(), 1, Relaxed);
        // ORDER: SeqCst: as in `disown`.
        let state = UnitState::slab(self.base().open_seq, number, UnitUse::Vacating);
        self.units().unit(unit).state.store(self.medium(), state.0, SeqCst);
    }

    /// Takes a slab out of use that is full, so in no list. Returns the class of one that is in a
    /// list.
    pub(crate) fn vacate_full(&self, unit: u64) -> Option<usize> {
        let state = self.units().revalidate(unit);
        if state.usage() == UnitUse::Full {
            let (word, vacating) = (&self.units().unit(unit).state, state.with(UnitUse::Vacating));
            self.base().shared().vacated.fetch_add(self.medium(), 1, Relaxed);
            // ORDER: SeqCst: as where it is listed, which comes before or not at all.
            match word.compare_exchange(self.medium(), state.0, vacating.0, SeqCst, Relaxed) {
                Ok(_) => return None,
                Err(_) => _ = self.base().shared().vacated.fetch_sub(self.medium(), 1, Relaxed),
            }
        }
        state.class().filter(|_| matches!(state.usage(), UnitUse::Full | UnitUse::Listed))
    }

    /// Takes the slabs in `units` out of use that are in a class's list.
    pub(crate) fn vacate_listed(&self, number: usize, units: &Range<u64>) {
        let Some(class) = self.units().classes.get(number) else { return };
        for (_, unit) in self.pop_all(number, class) {
            match units.contains(&unit) {
                true => self.set_vacating(unit, number),
                false => self.disown(unit, number, class),
            }
        }
    }

    /// Releases a slab if it is empty, else puts it into use again if `is_final`. Returns whether
    /// it released it; `None` if nothing was done.
    pub(crate) fn end_vacating_unit(&self, unit: u64, is_final: bool) -> Option<bool> {
        let state = UnitState(self.units().unit(unit).state.load(self.medium(), Relaxed));
        let number = state.class().filter(|_| self.units().is_vacating(unit))?;
        let class = self.units().classes.get(number)?;
        if !is_final && self.units().fill(unit, class) != Fill::Empty {
            return None;
        }
        let owned = state.with(UnitUse::Owned);
        let word = &self.units().unit(unit).state;
        // ORDER: AcqRel: as in `take_ownership`.
        word.compare_exchange(self.medium(), state.0, owned.0, AcqRel, Relaxed).ok()?;
        // The rest happens under the same pin: the collector, which finds the slab owned and in no
        // cache, checks again after that.
        self.base().shared().vacated.fetch_sub(self.medium(), 1, Relaxed);
        Some(self.disown_or_release(unit, number, class))
    }

    /// Puts all slabs that are being vacated into use again: the pool is about to be closed, and no
    /// thread is pinned.
    pub(crate) fn end_all_vacating(&self) {
        for unit in self.units().all_units() {
            let _ = self.end_vacating_unit(unit, true);
        }
        self.base().shared().vacated.store(self.medium(), 0, Relaxed);
        self.base().shared().window.store(self.medium(), 0, Relaxed);
    }

    /// The first unit of the run of `wanted` units that takes the least moving to vacate, and the
    /// bytes to move.
    pub(crate) fn cheapest_run(
        &self,
        zone: &Zone,
        wanted: u64,
        movable: &dyn Fn(u64) -> u32,
        is_left_out: &dyn Fn(u64) -> bool,
    ) -> Option<(u64, u64)> {
        let (mut best, mut cost, mut costs) = (None::<(u64, u64)>, 0, VecDeque::new());
        for unit in self.units().units_in(zone) {
            let more = self.cost_of(zone, unit, movable);
            match more {
                Some(more) => costs.push_back(more),
                None => costs.clear(),
            }
            cost = if costs.is_empty() { 0 } else { cost + more.unwrap_or(0) };
            if costs.len() as u64 > wanted {
                cost -= costs.pop_front().unwrap_or(0);
            }
            let first = (unit + 1).saturating_sub(wanted);
            if (costs.len() as u64) < wanted || best.is_some_and(|(_, least)| least <= cost) {
                continue;
            }
            // Asked only where it matters, since it may inspect every block.
            let is_left_out = |&unit: &u64| is_left_out(self.units().zones.start_of(unit));
            match (first..=unit).rev().find(is_left_out) {
                None => best = Some((first, cost)),
                Some(last) => {
                    costs.drain(..=(last - first) as usize);
                    cost = costs.iter().sum();
                }
            }
        }
        best
    }

    /// Bytes to move in order to vacate `unit`; `None` if that is impossible.
    fn cost_of(&self, zone: &Zone, unit: u64, movable: &dyn Fn(u64) -> u32) -> Option<u64> {
        let zones = &self.units().zones;
        if zones.usable(unit, self.base().size()) != !0 || zones.header_granules(zone, unit) != 0 {
            return None;
        }
        let state = self.units().revalidate(unit);
        match (state.usage(), state.class().and_then(|number| self.units().classes.get(number))) {
            (UnitUse::Granules, _) => {
                let taken = self.units().unit(unit).taken.load(self.medium(), Relaxed).count_ones();
                let is_movable = taken == 0 || movable(unit) == taken;
                is_movable.then_some(u64::from(taken) << zones.granule_log2())
            }
            (UnitUse::Listed | UnitUse::Full | UnitUse::Vacating, Some(class)) => {
                Some(self.units().count_blocks(unit, class) * u64::from(class.size))
            }
            _ => None,
        }
    }
}

/// The units of those slabs whose blocks have room in the other ones; `found` is sorted by their
/// allocated blocks.
fn worth_emptying(
    class: &Class,
    found: &[Found],
    left: &mut u64,
    percent: u64,
    is_left_out: &dyn Fn(u64) -> bool,
) -> BTreeSet<u64> {
    let blocks = u64::from(class.blocks);
    debug_assert!(found.is_sorted(), "the sparsest slabs first");
    debug_assert!(found.iter().all(|&(taken, _)| taken <= blocks), "a slab has {blocks} blocks");
    let (mut free, mut moved) = (found.iter().map(|(taken, _)| blocks - taken).sum::<u64>(), 0);
    let mut victims = BTreeSet::new();
    for &(taken, unit) in found {
        let (bytes, rest) = (taken * u64::from(class.size), free - (blocks - taken));
        if moved + taken > rest || taken * 100 > percent * blocks || bytes > *left {
            break;
        }
        if !is_left_out(unit) {
            (free, moved) = (rest, moved + taken);
            *left -= bytes;
            victims.insert(unit);
        }
    }
    victims
}

const _: () = assert!(GRANULES == 64, "a unit's granules are the bits of a word");

#[cfg(test)]
#[path = "tests/compact.rs"]
mod tests;
