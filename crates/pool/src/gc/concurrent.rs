//! Concurrent collection: collects what a process left that died, while others run.
//!
//! Several processes share a pool, and one of them may be killed between any two instructions. What
//! its threads had done by then is visible to all; only their next steps are missing. So a set bit
//! of an allocation bitmap means one of these: the block is reachable, in a cache, in limbo (or is
//! a limbo chunk), moving between these in the hands of a pinned thread, or garbage. A collection
//! finds out which, while all threads continue to allocate and free in all slabs, without waiting
//! for it.
//!
//! ```text
//!   marks cleared | phase := MARKING | grace | caches, granules, limbo, candidates | grace
//!                 | limbo | trace | grace | sweep | phase := IDLE
//! ```
//! A *grace* period lasts until all threads have been unpinned that were pinned when it began.
//! While the phase is MARKING
//! * a thread that takes free bits of a slab into its cache marks them first;
//! * a thread that takes granules clears their bits in `old`, which mean "taken, and not found
//!   live" (see `zones`);
//! * a thread that retires a block marks it;
//! * a thread that owns or lists a slab writes the collection's round into the upper half of its
//!   `link` (see `orphans`).
//!
//! After the first grace period all threads know the phase, and what was taken without a mark is in
//! a cache or was handed out. So for a block whose bit is set when the sweep reaches it, and that
//! is not garbage, one of these is true:
//! * Its bit was taken under MARKING: it was marked before. The sweep loads the bit first, and then
//!   the mark.
//! * It was in a cache when the caches were scanned: marked. A cache is two words; a change between
//!   loading these is a change under MARKING.
//! * It was handed out before. The thread that had it has been unpinned by the end of the second
//!   grace period, so the block was linked, freed or retired.
//!   - Linked, and still so when the trace begins: it is named, or was unlinked before the tracer
//!     reached it. The unlinking thread retires it under the same pin, so it is marked by the end
//!     of the third grace period.
//!   - Retired under MARKING: marked. Retired before, and so before the end of the first grace
//!     period: it was in limbo when limbo was scanned, or moving. From the overflow buffer to a
//!     chunk: then the thread that moves it marks it. In a chunk from its owner to the queue: then
//!     it is in the queue by the end of the second grace period, and found there. Or in a chunk
//!     from the queue to its slab: the thread that frees it is pinned, and done by the end of the
//!     third grace period. A block that was in a chunk when its owner queued the chunk, and was
//!     being freed when limbo was scanned again, is of the last kind.
//!   - The limbo chunk itself moves in the same ways.
//!
//! For granules, read "its bit in `old` is clear" for "it is marked". A bit of `old` may be set for
//! granules that were freed while `old` was written. These bits are cleared after the second grace
//! period, when the freeing threads have been unpinned. From then on no free granule, and none that
//! is taken anew, has its bit set.
//!
//! So what is not marked is garbage that no thread can reach, free or take: clearing its bit races
//! with nothing, and a slab with garbage stays a slab. But a slab without any may become something
//! else while the collector reads its bitmaps. So the collector announces the unit that it
//! inspects, and a thread that wants to return that unit leaves it a slab (`release_unit`).
//!
//! All of this starts over if the collector dies. Old marks only keep some garbage until the next
//! time; bits of `old` are written anew; rounds have another number. A thread that still believes
//! the last MARKING is pinned, and the first grace period waits for it. A thread that dies
//! meanwhile requests another collection, which finds what it left.

use crate::allocator::bitmaps::Fill;
use crate::allocator::marks::BlockPlace;
use crate::allocator::words::{IDLE, MARKING, ROUND};
use crate::allocator::zones::{UnitState, UnitUse};
use crate::gc::orphans::OrphanCandidates;
use crate::gc::{CollectReport, Collection, Marker, Marks, run};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use terrace_medium::MappedMedium;

/// Marks while other threads allocate, free and release units.
struct ConcurrentMarks<'p, M: MappedMedium>(&'p Collection<'p, M>);

impl<M: MappedMedium> Marks for ConcurrentMarks<'_, M> {
    fn block_place(&self, offset: u64, size: Option<u64>) -> BlockPlace {
        let Some((unit, entry)) = self.0.units().entry_at(offset) else { return BlockPlace::Nowhere };
        let state = self.0.units().revalidated(unit, entry);
        let Some(number) = size.map_or(state.class(), |size| self.0.units().classes.of(size)) else {
            return BlockPlace::Granules;
        };
        match self.0.units().class_serving(state, number) {
            Some(class) => {
                self.0.units().prefetch_mark(unit, class, offset);
                BlockPlace::Slab
            }
            None => {
                // What lies there instead stays as it is.
                self.0.mark_concurrently(unit, offset);
                BlockPlace::Nowhere
            }
        }
    }
    fn mark_small(&self, offset: u64) {
        // Marking is delayed: since it was named, the block may have been freed, and its slab
        // released.
        if let Some(unit) = self.0.units().unit_at(offset) {
            self.0.mark_concurrently(unit, offset);
        }
    }
    fn mark_large(&self, offset: u64, bytes: u64) -> bool {
        bytes != 0 && self.0.heap().granules.mark_extent(offset, bytes)
    }
}

impl<M: MappedMedium> Collection<'_, M> {
    /// Collects what dead threads have left. Everything left before this open has been collected.
    pub(crate) fn collect_concurrently(
        &self,
        trace: &mut dyn FnMut(&mut Marker<'_>),
        report: &mut CollectReport,
    ) {
        let (medium, shared) = (self.medium(), self.base().shared());
        // ORDER: Acquire: before the lost bytes, which this subtracts. A request that is not seen
        // is left to the next collection.
        let requests = shared.collection_requests.load(medium.point("collection.requests"), Acquire);
        let lost = shared.lost.load(medium.point("lost.read"), Relaxed);
        let swept = self.find_and_sweep(trace, report);
        if swept.is_some() {
            shared.lost.fetch_sub(medium, lost, Relaxed);
        }
        // ORDER: Release: a thread that sees the end of the sweep sees all of it. (If the
        // collection gave up there was none, and its marks and rounds mean nothing to the next
        // one.)
        shared.phase.store(medium.point("phase.end-concurrent"), IDLE, Release);
        if swept == Some(true) {
            // ORDER: Release, and after the phase: if this thread dies here, another collection
            // follows.
            shared.collected.store(medium.point("collection.complete"), requests, Release);
        }
        shared.fruitless.store(medium, 0, Relaxed);
        self.limbo().recount_if_quiet();
    }

    /// All but the last step of `collect_concurrently`. Returns whether every list could be
    /// scanned; `None` if it gave up before the sweep.
    fn find_and_sweep(
        &self,
        trace: &mut dyn FnMut(&mut Marker<'_>),
        report: &mut CollectReport,
    ) -> Option<bool> {
        self.finish_revalidations()?;
        self.clear_marks();
        self.start_marking();
        self.wait_grace_period()?;
        self.snapshot_granules();
        let owned = self.mark_caches();
        self.mark_limbo_and_overflow()?;
        let (candidates, complete) = self.orphan_candidates(&owned);
        self.wait_grace_period()?;
        self.exclude_freed_granules();
        self.mark_limbo_and_overflow()?;
        run(trace, &ConcurrentMarks(self), report).then_some(())?;
        self.wait_grace_period()?;
        self.sweep_concurrently(&candidates, report);
        Some(complete)
    }

    /// Starts the marking phase: from now on all threads mark, or are pinned and do not know yet.
    pub(crate) fn start_marking(&self) {
        let (medium, shared) = (self.medium(), self.base().shared());
        let last = shared.collections.load(medium, Relaxed) as u32;
        // 0 means no round.
        let number = u64::from(last.checked_add(1).unwrap_or(1));
        debug_assert!(number != 0 && number << 32 & !ROUND == 0, "round {number} is one");
        shared.collections.store(medium, number, Relaxed);
        // ORDER: Release: a thread that waits for the end of UNCLEAN may find this value instead.
        // The barrier: a thread that does not see the phase is seen pinned.
        shared.phase.store(medium.point("phase.start-marking"), number << 32 | MARKING, Release);
        self.base().barrier_to_pins();
    }

    /// Revalidates all units, and completes the revalidations that dead threads left unfinished.
    /// After this no unit is revalidated, so marks stay. `None` if `should_stop` returns true while
    /// it waits.
    pub(crate) fn finish_revalidations(&self) -> Option<()> {
        // ORDER: Relaxed: only `Revalidating` is acted upon, which releases nothing. A live thread
        // that was revalidating has been unpinned before the second load.
        let state = |unit: u64| UnitState(self.units().unit(unit).state.load(self.medium(), Relaxed));
        let is_revalidating = |state: UnitState| {
            state.open_seq() == self.base().open_seq && state.usage() == UnitUse::Revalidating
        };
        let mut revalidating = Vec::new();
        for unit in self.units().all_units() {
            // Does not wait for another thread that is revalidating, which may be dead.
            if is_revalidating(state(unit)) || is_revalidating(self.units().revalidate(unit)) {
                revalidating.push(unit);
            }
        }
        if revalidating.is_empty() {
            return Some(());
        }
        self.wait_grace_period()?;
        revalidating.retain(|&unit| is_revalidating(state(unit)));
        revalidating.iter().for_each(|&unit| self.units().resume_revalidation(unit, state(unit)));
        Some(())
    }

    pub(crate) fn clear_marks(&self) {
        for unit in self.units().all_units() {
            self.units().inspect_unit(unit, |state| {
                let Some(class) = state.class().and_then(|number| self.units().classes.get(number)) else {
                    return;
                };
                for word in 0..u64::from(class.words) {
                    self.units().mark_word(unit, class, word).store(
                        self.medium().point("marks.clear"),
                        0,
                        Relaxed,
                    );
                }
            });
        }
    }

    /// Marks the block around `offset` in `unit`: it is not garbage.
    fn mark_concurrently(&self, unit: u64, offset: u64) {
        self.units().inspect_unit(unit, |state| match state.class() {
            Some(_) => self.units().mark_block_in(unit, state, offset),
            None => {
                let granule =
                    (offset - self.units().zones.start_of(unit)) >> self.units().zones.granule_log2();
                self.units().unit(unit).old.fetch_and(self.medium(), !(1 << granule), Relaxed);
            }
        });
    }

    /// Records in `old` which granules are taken.
    pub(crate) fn snapshot_granules(&self) {
        for zone in self.units().zones() {
            for unit in self.units().units_in(&zone) {
                let entry = self.units().unit(unit);
                // ORDER: Relaxed, both: changes since the grace period began may be seen in any
                // mixture, and are corrected after the next one.
                let state = UnitState(entry.state.load(self.medium(), Relaxed));
                let taken = entry.taken.load(self.medium(), Relaxed);
                let head = self.units().zones.header_granules(&zone, unit);
                let old = if state.usage() == UnitUse::Granules { taken & !head } else { 0 };
                entry.old.store(self.medium(), old, Relaxed);
            }
        }
    }

    /// Removes from `old` what was freed, or became a slab, during the snapshot. The threads that
    /// did so have been unpinned.
    pub(crate) fn exclude_freed_granules(&self) {
        for unit in self.units().all_units() {
            let entry = self.units().unit(unit);
            let old = entry.old.load(self.medium().point("granules.exclude-freed"), Relaxed);
            // ORDER: Relaxed: the grace period makes their stores visible. A thread that frees,
            // takes or makes a slab since then updates `old` itself, or leaves none to sweep.
            let state = UnitState(entry.state.load(self.medium(), Relaxed));
            let taken = entry.taken.load(self.medium(), Relaxed);
            let gone = if state.usage() == UnitUse::Granules { old & !taken } else { old };
            if gone != 0 {
                entry.old.fetch_and(self.medium(), !gone, Relaxed);
            }
        }
    }

    /// Marks the blocks in slot caches. Returns the slabs that the caches take them from.
    pub(crate) fn mark_caches(&self) -> BTreeSet<u64> {
        let mut owned = BTreeSet::new();
        for cache in self.base().used_slots().flat_map(|slot| &slot.caches[..self.units().classes.len()]) {
            let (place, free) = loop {
                let place = cache.place.load(self.medium(), Acquire);
                let free = cache.free.load(self.medium(), Acquire);
                if cache.place.load(self.medium(), Relaxed) == place {
                    break (place, free);
                }
            };
            let Some(unit) = self.units().unit_at(place) else { continue };
            owned.insert(unit);
            let word = place - self.units().zones.start_of(unit);
            self.units().inspect_unit(unit, |state| {
                let class = state.class().and_then(|number| self.units().classes.get(number));
                if let Some(class) = class.filter(|class| word < u64::from(class.words)) {
                    self.units().mark_word(unit, class, word).fetch_or(self.medium(), free, Relaxed);
                }
            });
        }
        owned
    }

    pub(crate) fn mark_limbo_and_overflow(&self) -> Option<()> {
        let mark = |offset, bytes| match self.units().classes.of(bytes) {
            Some(_) => ConcurrentMarks(self).mark_small(offset),
            None => _ = ConcurrentMarks(self).mark_large(offset, bytes),
        };
        self.mark_limbo(&mark)
    }

    pub(crate) fn sweep_concurrently(&self, candidates: &OrphanCandidates, report: &mut CollectReport) {
        let shared = self.base().shared();
        for unit in self.units().all_units() {
            report.units += 1;
            crate::sync::waiting::yield_to_waiters();
            let adopted = candidates.get(&unit).is_some_and(|&state| self.adopt(unit, state));
            let (small, large) = self.units().inspect_unit(unit, |state| self.sweep_unit(unit, state));
            shared.small_base.fetch_sub(self.medium().point("sweep.count-concurrent"), small, Relaxed);
            shared.large_base.fetch_sub(self.medium(), large, Relaxed);
            report.freed += small + large;
            self.finish_unit(unit, adopted);
        }
    }

    /// Frees the garbage in a unit in `state`. Returns the bytes of small blocks and of granules.
    pub(crate) fn sweep_unit(&self, unit: u64, state: UnitState) -> (u64, u64) {
        match (state.usage(), state.class().and_then(|number| self.units().classes.get(number))) {
            (
                UnitUse::Owned | UnitUse::Full | UnitUse::Listed | UnitUse::Reserve | UnitUse::Vacating,
                Some(class),
            ) => {
                let words = 0..u64::from(class.words);
                let blocks: u64 = words.map(|word| self.sweep_word(unit, class, word)).sum();
                (blocks * u64::from(class.size), 0)
            }
            (UnitUse::Granules, _) => {
                (0, self.heap().granules.sweep_granules(unit) << self.units().zones.granule_log2())
            }
            _ => (0, 0),
        }
    }

    fn sweep_word(&self, unit: u64, class: &crate::allocator::classes::Class, word: u64) -> u64 {
        let taken = self.units().allocated_word(unit, word);
        // ORDER: Acquire, and before the marks: see `grab`. The marks need no order of their own.
        let is_taken = taken.load(self.medium().point("sweep.taken"), Acquire) & class.valid(word);
        let garbage = is_taken
            & !self.units().mark_word(unit, class, word).load(self.medium().point("sweep.mark"), Relaxed);
        if garbage == 0 {
            return 0;
        }
        // ORDER: SeqCst: as in `free_block`.
        let before = taken.fetch_and(self.medium().point("sweep.free"), !garbage, SeqCst);
        u64::from((before & garbage).count_ones())
    }

    /// Repairs a unit after its sweep, since the responsible thread may have died: a slab with a
    /// free block is owned or listed, and the hints are right.
    fn finish_unit(&self, unit: u64, adopted: bool) {
        let state = UnitState(self.units().unit(unit).state.load(self.medium().point("sweep.state"), SeqCst));
        let class = state.class().and_then(|number| Some((number, self.units().classes.get(number)?)));
        if let Some((number, class)) = class {
            if adopted {
                self.heap().disown_or_release(unit, number, class);
            } else if state.usage() == UnitUse::Full && self.units().fill(unit, class) != Fill::Full {
                self.heap().list_if_unlisted(unit, state);
            }
        }
        self.units().update_hints(unit);
    }
}

#[cfg(test)]
#[path = "tests/concurrent.rs"]
mod tests;
