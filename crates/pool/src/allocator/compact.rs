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
//!    same slab, and the next thread finds a slab whose thread died ([`Pool::vacating`]). After a
//!    crash all slabs wait for the collector, whatever their use was. A clean close leaves no slab
//!    in this use.
//!
//! A *window* is a run of units that searches for units and granules leave out, so that what
//! becomes free in it stays free until the run is long enough. It is a hint: memory that is taken
//! in it all the same only makes the attempt fail.

use crate::allocator::blocks::{Fresh, PoolFull};
use crate::allocator::classes::{Class, GRANULES};
use crate::allocator::slabs::Fill;
use crate::allocator::zones::{UnitState, UnitUse, Zone};
use crate::pool::{Inner, Pool};
use crate::reclaim::epoch::{GRACE_EPOCHS, Guard};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use terrace_medium::MappedMedium;

/// Which slabs are worth vacating.
#[derive(Clone, Copy, Debug)]
pub struct Sparse {
    /// Bytes of blocks to move, at most.
    pub bytes: u64,
    /// Slabs with more than this percentage of their blocks allocated stay.
    pub percent: u64,
}

impl<M: MappedMedium> Pool<M> {
    /// Bytes of slabs, and those of them that are in no block: the most that vacating slabs could
    /// release.
    pub fn slack(&self) -> (u64, u64) {
        let (inner, shared) = (&*self.0, self.0.shared());
        let units = shared.slab_units.load(self.medium(), Relaxed);
        let slabs = units.saturating_mul(1 << inner.memory.zones.slab_log2);
        let small = inner.sum(&shared.small_base, |slot| &slot.small_bytes);
        (slabs, slabs.saturating_sub(small))
    }

    /// Bytes that have been freed since the pool was opened, by all threads.
    pub fn total_freed(&self) -> u64 {
        self.0.total_freed()
    }

    /// Bytes of a slab: what each vacated one releases.
    pub fn slab_bytes(&self) -> u64 {
        1 << self.0.memory.zones.slab_log2
    }

    /// Whether a block of this many bytes is an extent, and not in a slab.
    pub fn is_extent(&self, bytes: u64) -> bool {
        self.0.memory.classes.of(bytes).is_none()
    }

    /// Takes the sparsest slabs out of use whose blocks have room in other slabs of their class,
    /// and releases empty ones. Slabs for which `is_left_out` returns true stay in use. Returns the
    /// offsets of the slabs that must be vacated now.
    pub fn vacate(&self, which: Sparse, is_left_out: &dyn Fn(u64) -> bool) -> Vec<u64> {
        let inner = &*self.0;
        let _locked = inner.shared().vacate.acquire_in(inner);
        let guard = self.pin();
        inner.drain_caches(guard.thread_slot());
        let (mut victims, mut left) = (Vec::new(), which.bytes);
        for number in 0..inner.memory.classes.len() {
            inner.vacate_class(number, &mut left, which.percent, is_left_out, &mut victims);
        }
        victims
    }

    /// The slabs that any thread is vacating. Takes no time if there are none.
    pub fn vacating(&self) -> Vec<u64> {
        let inner = &*self.0;
        if inner.shared().vacated.load(self.medium(), Relaxed) == 0 {
            return Vec::new();
        }
        let units = inner.all_units().filter(|&unit| inner.is_vacating(unit));
        units.map(|unit| inner.memory.zones.start_of(unit)).collect()
    }

    /// Releases those of these slabs that are empty by now, and puts the others into use again if
    /// `is_final`. Returns how many it released, and the slabs that are still being vacated.
    pub fn end_vacating(&self, slabs: &[u64], is_final: bool) -> (u64, Vec<u64>) {
        let inner = &*self.0;
        let _guard = self.pin();
        let (mut released, mut left) = (0, Vec::new());
        for &slab in slabs {
            match inner.unit_at(slab).and_then(|unit| inner.end_vacating_unit(unit, is_final)) {
                Some(true) => released += 1,
                Some(false) => {}
                None => left.push(slab),
            }
        }
        left.retain(|&slab| inner.unit_at(slab).is_some_and(|unit| inner.is_vacating(unit)));
        (released, left)
    }

    /// The current epoch, for [`Pool::is_grace_period_over`].
    pub fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    /// Whether all threads that were pinned at epoch `epoch` have been unpinned; then what was
    /// retired until that epoch is freed. Does not wait.
    pub fn is_grace_period_over(&self, epoch: u64) -> bool {
        for _ in 0..GRACE_EPOCHS {
            if self.drain() >= epoch + GRACE_EPOCHS {
                break;
            }
        }
        self.drain() >= epoch + GRACE_EPOCHS
    }

    /// Waits until all threads that are pinned now have been unpinned, and frees what was retired
    /// until now. Returns `false` if one of them stays pinned for long, or is this thread.
    pub fn wait_for_readers(&self) -> bool {
        self.0.for_each_idle_slot(|vacant| self.0.flush_slot(vacant));
        let until = self.0.epoch() + GRACE_EPOCHS;
        self.wait_for_readers_until(|now| now >= until)
    }

    /// Calls `each` with the units of an extent of `bytes` bytes at `offset`, by number, and the
    /// granules that it has in each. Does nothing for a block of a slab.
    pub fn for_each_unit_of(&self, offset: u64, bytes: u64, each: &mut dyn FnMut(u64, u32)) {
        if self.0.memory.classes.of(bytes).is_none()
            && let Some((first, count)) = self.0.extent_at(offset, bytes)
        {
            crate::allocator::granules::pieces(first, count)
                .for_each(|piece| each(piece.unit, piece.bits.count_ones()));
        }
    }

    /// The run of whole units for `bytes` bytes that takes the least moving to vacate, as offsets.
    /// It contains no unit with something that cannot be moved: a unit where the number of taken
    /// granules differs from what `movable` returns for the unit's number, or where `is_left_out`
    /// returns true for the unit's offset.
    pub fn cheapest_window(
        &self,
        bytes: u64,
        movable: &dyn Fn(u64) -> u32,
        is_left_out: &dyn Fn(u64) -> bool,
    ) -> Option<Range<u64>> {
        let inner = &*self.0;
        let _guard = self.pin();
        let wanted = bytes.div_ceil(self.slab_bytes());
        let (first, _) = inner
            .zones()
            .filter_map(|zone| inner.cheapest_run(&zone, wanted, movable, is_left_out))
            .min_by_key(|&(_, cost)| cost)?;
        let start = |unit| inner.memory.zones.start_of(unit);
        Some(start(first)..start(first + wanted))
    }

    /// Keeps free memory in `window` from being taken, also what becomes free later, until this is
    /// called again or [`Pool::close_window`]. Returns the slabs in it, which must be vacated now.
    pub fn open_window(&self, window: &Range<u64>) -> Vec<u64> {
        let inner = &*self.0;
        let _locked = inner.shared().vacate.acquire_in(inner);
        let guard = self.pin();
        let units = inner.memory.zones.unit_of(window.start)..inner.memory.zones.unit_of(window.end);
        let word = units.start << 32 | (units.end - units.start);
        inner.shared().window.store(self.medium(), word, Relaxed);
        inner.drain_caches(guard.thread_slot());
        let listed = units.clone().filter_map(|unit| inner.vacate_full(unit));
        for number in listed.collect::<BTreeSet<usize>>() {
            inner.vacate_listed(number, &units);
        }
        units.filter(|&unit| inner.is_vacating(unit)).map(|unit| inner.memory.zones.start_of(unit)).collect()
    }

    /// The units of `window` that are not free, as offsets.
    pub fn used_units_in(&self, window: &Range<u64>) -> Vec<u64> {
        let starts = window.clone().step_by(self.slab_bytes() as usize);
        let is_taken = |start: &u64| {
            let unit = self.0.memory.zones.unit_of(*start);
            self.0.unit(unit).taken.load(self.medium(), Relaxed) != 0
        };
        starts.filter(is_taken).collect()
    }

    /// Closes the window, if there is one: its memory can be taken again.
    pub fn close_window(&self) {
        self.0.shared().window.store(self.medium(), 0, Relaxed);
    }

    /// Bytes that are free for anything, and those of the longest free run. Inspects every unit.
    pub fn free_bytes(&self) -> (u64, u64) {
        let inner = &*self.0;
        let free = |unit: u64| {
            let usable = inner.memory.zones.usable(unit, self.size());
            let taken = inner.unit(unit).taken.load(self.medium(), Relaxed);
            u64::from((!taken & usable).count_ones())
        };
        let granules: u64 = inner.all_units().map(free).sum();
        (granules << inner.memory.zones.granule_log2(), inner.longest_free_run())
    }
}

impl<M: MappedMedium> Guard<'_, M> {
    /// The offsets of the allocated blocks in the slab at `slab`; none if it is not a slab.
    pub fn blocks_in(&self, slab: u64) -> Vec<u64> {
        let inner = self.inner();
        let class = inner.class_at(slab).and_then(|number| inner.memory.classes.get(number));
        let (Some(unit), Some(class)) = (inner.unit_at(slab), class) else { return Vec::new() };
        let mut blocks = Vec::new();
        for word in 0..u64::from(class.words) {
            let mut taken =
                inner.allocated_word(unit, word).load(self.pool().medium(), Relaxed) & class.valid(word);
            while taken != 0 {
                blocks.push(slab + class.position(word * 64 + u64::from(taken.trailing_zeros())));
                taken &= taken - 1;
            }
        }
        blocks
    }

    /// Allocates a block for a copy of the one at `from`, which was allocated for `bytes` bytes.
    /// Uses existing slabs of its own class or that of `from`, and takes no new slab.
    ///
    /// # Errors
    /// [`PoolFull`] if these have no free block.
    pub fn alloc_from_existing_slabs(&self, from: u64, bytes: usize) -> Result<Fresh<'_, M>, PoolFull> {
        let (inner, bytes) = (self.inner(), bytes as u64);
        match inner.take_listed(self.thread_slot(), from, bytes) {
            Some(offset) => Ok(Fresh::new(self, offset, bytes)),
            None => Err(inner.pool_full_error(bytes)),
        }
    }
}

/// A slab that was popped from its list: its allocated blocks, and its unit.
type Found = (u64, u64);

impl<M: MappedMedium> Inner<M> {
    fn is_vacating(&self, unit: u64) -> bool {
        // ORDER: Relaxed: the caller then changes the state, or moves what any thread may move.
        let state = UnitState(self.unit(unit).state.load(self.medium(), Relaxed));
        state.usage() == UnitUse::Vacating && state.open_seq() == self.open_seq
    }

    /// Whether `unit` is in the window that is being vacated.
    #[inline(always)]
    pub(crate) fn is_in_window(&self, unit: u64) -> bool {
        // ORDER: Relaxed: a hint.
        let window = self.shared().window.load(self.medium(), Relaxed);
        unit.wrapping_sub(window >> 32) < window & u64::from(u32::MAX)
    }

    fn vacate_class(
        &self,
        number: usize,
        left: &mut u64,
        percent: u64,
        is_left_out: &dyn Fn(u64) -> bool,
        victims: &mut Vec<u64>,
    ) {
        let Some(class) = self.memory.classes.get(number) else { return };
        let found = self.pop_all(number, class);
        let is_left_out = |unit| is_left_out(self.memory.zones.start_of(unit));
        let count = worth_emptying(class, &found, left, percent, &is_left_out);
        // The fullest goes to the front of the list, so sparse ones become empty by themselves.
        for &(_, unit) in &found {
            match count.contains(&unit) {
                true => {
                    self.set_vacating(unit, number);
                    victims.push(self.memory.zones.start_of(unit));
                }
                false => self.disown(unit, number, class),
            }
        }
    }

    /// Pops all slabs of a class and releases the empty ones. The caller owns the others, the
    /// sparsest first.
    fn pop_all(&self, number: usize, class: &Class) -> Vec<Found> {
        let (units, mut found) = (self.memory.zones.units(self.size()), Vec::new());
        // A bound, so that a list that other threads fill cannot hold this thread up.
        while let Some(unit) = if (found.len() as u64) < units { self.pop(number) } else { None } {
            if !self.release_if_empty(unit, number, class) {
                found.push((self.count_blocks(unit, class), unit));
            }
        }
        found.sort_unstable();
        found
    }

    /// Starts to vacate a slab that the caller owns.
    fn set_vacating(&self, unit: u64, number: usize) {
        self.shared().vacated.fetch_add(self.medium(), 1, Relaxed);
        // ORDER: SeqCst: as in `disown`.
        let state = UnitState::slab(self.open_seq, number, UnitUse::Vacating);
        self.unit(unit).state.store(self.medium(), state.0, SeqCst);
    }

    /// Takes a slab out of use that is full, so in no list. Returns the class of one that is in a
    /// list.
    fn vacate_full(&self, unit: u64) -> Option<usize> {
        let state = self.revalidate(unit);
        if state.usage() == UnitUse::Full {
            let (word, vacating) = (&self.unit(unit).state, state.with(UnitUse::Vacating));
            self.shared().vacated.fetch_add(self.medium(), 1, Relaxed);
            // ORDER: SeqCst: as where it is listed, which comes before or not at all.
            match word.compare_exchange(self.medium(), state.0, vacating.0, SeqCst, Relaxed) {
                Ok(_) => return None,
                Err(_) => _ = self.shared().vacated.fetch_sub(self.medium(), 1, Relaxed),
            }
        }
        state.class().filter(|_| matches!(state.usage(), UnitUse::Full | UnitUse::Listed))
    }

    /// Takes the slabs in `units` out of use that are in a class's list.
    fn vacate_listed(&self, number: usize, units: &Range<u64>) {
        let Some(class) = self.memory.classes.get(number) else { return };
        for (_, unit) in self.pop_all(number, class) {
            match units.contains(&unit) {
                true => self.set_vacating(unit, number),
                false => self.disown(unit, number, class),
            }
        }
    }

    /// Releases a slab if it is empty, else puts it into use again if `is_final`. Returns whether
    /// it released it; `None` if nothing was done.
    fn end_vacating_unit(&self, unit: u64, is_final: bool) -> Option<bool> {
        let state = UnitState(self.unit(unit).state.load(self.medium(), Relaxed));
        let number = state.class().filter(|_| self.is_vacating(unit))?;
        let class = self.memory.classes.get(number)?;
        if !is_final && self.fill(unit, class) != Fill::Empty {
            return None;
        }
        let owned = state.with(UnitUse::Owned);
        let word = &self.unit(unit).state;
        // ORDER: AcqRel: as in `take_ownership`.
        word.compare_exchange(self.medium(), state.0, owned.0, AcqRel, Relaxed).ok()?;
        // The rest happens under the same pin: the collector, which finds the slab owned and in no
        // cache, checks again after that.
        self.shared().vacated.fetch_sub(self.medium(), 1, Relaxed);
        Some(self.disown_or_release(unit, number, class))
    }

    /// Puts all slabs that are being vacated into use again: the pool is about to be closed, and no
    /// thread is pinned.
    pub(crate) fn end_all_vacating(&self) {
        for unit in self.all_units() {
            let _ = self.end_vacating_unit(unit, true);
        }
        self.shared().vacated.store(self.medium(), 0, Relaxed);
        self.shared().window.store(self.medium(), 0, Relaxed);
    }

    /// The first unit of the run of `wanted` units that takes the least moving to vacate, and the
    /// bytes to move.
    fn cheapest_run(
        &self,
        zone: &Zone,
        wanted: u64,
        movable: &dyn Fn(u64) -> u32,
        is_left_out: &dyn Fn(u64) -> bool,
    ) -> Option<(u64, u64)> {
        let (mut best, mut cost, mut costs) = (None::<(u64, u64)>, 0, VecDeque::new());
        for unit in self.units_in(zone) {
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
            let is_left_out = |&unit: &u64| is_left_out(self.memory.zones.start_of(unit));
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
        let zones = &self.memory.zones;
        if zones.usable(unit, self.size()) != !0 || zones.header_granules(zone, unit) != 0 {
            return None;
        }
        let state = self.revalidate(unit);
        match (state.usage(), state.class().and_then(|number| self.memory.classes.get(number))) {
            (UnitUse::Granules, _) => {
                let taken = self.unit(unit).taken.load(self.medium(), Relaxed).count_ones();
                let is_movable = taken == 0 || movable(unit) == taken;
                is_movable.then_some(u64::from(taken) << zones.granule_log2())
            }
            (UnitUse::Listed | UnitUse::Full | UnitUse::Vacating, Some(class)) => {
                Some(self.count_blocks(unit, class) * u64::from(class.size))
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
