//! Collecting what a crash left: marks what is reachable and sweeps the rest, while other threads
//! run.
//!
//! After an unclean open everything taken before is *old* (see `zones`). Its units are revalidated
//! on their first use: slabs become unclean ones with all blocks allocated, and the granules of
//! extents become old. No new block is ever put into an unclean slab or into old granules, so the
//! collector never mistakes a new block for garbage. A collection
//! 1. traces: the caller names every reachable block;
//! 2. waits for a grace period. A thread that unlinks an old block marks it in `retire`, so limbo
//!    frees it and not the sweep. If a block was unlinked before the tracer reached it, and was not
//!    retired yet, it has been retired by the end of the grace period;
//! 3. sweeps unit by unit.
//!
//! A collector does no harm if it dies, gives up (since it should stop, or waits for a stopped
//! thread), or if its trace panics: marks only keep memory, and what is marked was reachable since
//! the open. The next collector starts over with the marks that exist; what was swept already is
//! not old any more.
//!
//! Memory that a dead process leaves while others run needs another procedure: see `concurrent`.

pub(crate) mod concurrent;
pub(crate) mod orphans;

use crate::allocator::classes::Class;
use crate::allocator::words::IDLE;
use crate::allocator::zones::{UnitState, UnitUse};
use crate::pool::{Inner, Pool};
use crate::reclaim::epoch::GRACE_EPOCHS;
use crate::sync::backoff::{Backoff, rests_in};
use std::cell::RefCell;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;
use terrace_medium::MappedMedium;

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectReport {
    /// Blocks that the trace named.
    pub marked: u64,
    /// Of those, offsets that cannot be blocks: the tracer followed a damaged offset.
    pub unsound: u64,
    /// Bytes that were unreachable and are free again.
    pub freed: u64,
    /// Units that were swept.
    pub units: u64,
}

/// Rests of a wait for the collector between two checks for a stopped participant.
const CHECK_STOPPED_EVERY: u32 = rests_in(Duration::from_millis(128));
/// Small blocks whose mark words are being prefetched.
const QUEUE: usize = 16;

/// Marks the blocks that a tracer reaches.
pub struct Marker<'c> {
    marks: &'c dyn Marks,
    /// A ring: the cache misses of this many marks overlap. 0 is an empty place.
    queue: [u64; QUEUE],
    report: CollectReport,
    given_up: bool,
}

impl Marker<'_> {
    /// Declares that the trace will not name everything: nothing is freed this time, and the pool
    /// still needs a collection.
    pub fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Whether [`Marker::give_up`] was called; naming more blocks then has no effect.
    #[inline]
    pub fn has_given_up(&self) -> bool {
        self.given_up
    }

    /// Marks the block at `offset`, which was allocated for `size` bytes, as reachable. If the
    /// unit's description rules such a block out, the unit is damaged: nothing in it is freed or
    /// allocated any more.
    #[inline]
    pub fn mark(&mut self, offset: u64, size: usize) {
        self.record(offset, Some(size as u64));
    }

    /// Marks the block that contains `offset`, if there is one, whatever its size.
    pub fn mark_around(&mut self, offset: u64) {
        self.record(offset, None);
    }

    #[inline]
    fn record(&mut self, offset: u64, size: Option<u64>) {
        let place = self.report.marked as usize % QUEUE;
        self.report.marked += 1;
        match self.marks.block_place(offset, size) {
            BlockPlace::Slab => {
                let due = std::mem::replace(&mut self.queue[place], offset);
                self.marks.mark_small(due);
            }
            BlockPlace::Granules if self.marks.mark_large(offset, size.unwrap_or(1)) => {}
            _ => self.report.unsound += 1,
        }
    }

    fn finish(mut self) -> CollectReport {
        std::mem::take(&mut self.queue).into_iter().for_each(|due| self.marks.mark_small(due));
        self.report
    }
}

/// Where a marked block lies.
pub(crate) enum BlockPlace {
    Slab,
    Granules,
    Nowhere,
}

pub(crate) trait Marks {
    /// Where `offset` lies. Prefetches the memory that its mark needs.
    fn block_place(&self, offset: u64, size: Option<u64>) -> BlockPlace;
    fn mark_small(&self, offset: u64);
    fn mark_large(&self, offset: u64, bytes: u64) -> bool;
}

impl<M: MappedMedium> Marks for Inner<M> {
    fn block_place(&self, offset: u64, size: Option<u64>) -> BlockPlace {
        let Some((unit, entry)) = self.entry_at(offset) else { return BlockPlace::Nowhere };
        let state = self.revalidated(unit, entry);
        let Some(number) = size.map_or(state.class(), |size| self.memory.classes.of(size)) else {
            return BlockPlace::Granules;
        };
        match self.class_serving(state, number) {
            Some(class) => {
                self.prefetch_mark(unit, class, offset);
                BlockPlace::Slab
            }
            None => {
                self.quarantine_if_contradicted(unit, state, offset);
                BlockPlace::Nowhere
            }
        }
    }
    fn mark_small(&self, offset: u64) {
        if let Some((unit, _)) = self.entry_at(offset) {
            self.mark_block(unit, offset);
        }
    }
    fn mark_large(&self, offset: u64, bytes: u64) -> bool {
        bytes != 0 && self.mark_extent(offset, bytes)
    }
}

/// Only records what is named.
struct List(RefCell<Vec<(u64, u64)>>);

impl Marks for List {
    fn block_place(&self, _: u64, _: Option<u64>) -> BlockPlace {
        BlockPlace::Granules
    }
    fn mark_small(&self, _: u64) {}
    fn mark_large(&self, offset: u64, bytes: u64) -> bool {
        self.0.borrow_mut().push((offset, bytes));
        true
    }
}

impl<M: MappedMedium> Pool<M> {
    /// The blocks that `trace` names, in its order: the offset of each, and the bytes that the
    /// allocator gave for it. For tests.
    #[doc(hidden)]
    pub fn reachable(&self, trace: &mut dyn FnMut(&mut Marker<'_>)) -> Vec<(u64, u64)> {
        let list = List(RefCell::new(Vec::with_capacity(64)));
        let report = CollectReport::default();
        trace(&mut Marker { marks: &list, queue: [0; QUEUE], report, given_up: false });
        let blocks = list.0.into_inner();
        blocks.into_iter().map(|(at, bytes)| (at, self.0.size_of_block(at, bytes))).collect()
    }

    /// Whether there may be unreachable memory: after an unclean open, and after a process died
    /// that shared the pool, until [`Pool::collect`] has completed.
    pub fn needs_collection(&self) -> bool {
        self.0.needs_collection()
    }

    /// Yields the processor to threads of this process that wait for a lock, without waiting for
    /// the kernel's time slice to end. A long trace calls it about ten thousand times a second.
    pub fn yield_to_waiters(&self) {
        crate::sync::waiting::yield_to_waiters();
    }

    /// Frees what is unreachable, while other threads run. `trace` names, through the marker, at
    /// least every block that is reachable from its call until it returns; it pins the pool itself.
    /// If no collection is needed, nothing happens and `trace` is not called. If another thread is
    /// collecting, waits for it first.
    ///
    /// All that the trace has read to find the blocks must be durable when it returns: the thread
    /// that stored it may have died before persisting it, and the blocks that it replaced are freed
    /// here.
    ///
    /// Call it without a guard: it waits for all threads that are pinned when the trace ends.
    ///
    /// # Panics
    /// If this thread has a guard, since it would wait for itself.
    pub fn collect(&self, trace: &mut dyn FnMut(&mut Marker<'_>)) -> CollectReport {
        self.collect_until(&|| false, trace)
    }

    /// As [`Pool::collect`], but gives up once `should_stop` returns true while it waits for
    /// another thread, which may be stopped. Then nothing is freed this time, and the pool still
    /// needs a collection.
    pub fn collect_until(
        &self,
        should_stop: &dyn Fn() -> bool,
        trace: &mut dyn FnMut(&mut Marker<'_>),
    ) -> CollectReport {
        let inner = &*self.0;
        assert_eq!(self.pin().depth(), 1, "a thread that collects has no guard");
        let _allowed = inner.allow_stores();
        let mut report = CollectReport::default();
        let Some(_collector) = inner.shared().collector.acquire_until(inner, should_stop) else {
            return report;
        };
        let done = !inner.is_unclean() || inner.collect_unclean(trace, should_stop, &mut report).is_some();
        if done && inner.is_collection_pending() {
            inner.collect_concurrently(trace, should_stop, &mut report);
        }
        // Pinned, so that a death of this thread in the middle is noticed.
        let _guard = self.pin();
        inner.ensure_reserve();
        report
    }
}

/// Calls `trace` with a marker that marks through `marks`. Returns whether it named everything.
pub(crate) fn run(
    trace: &mut dyn FnMut(&mut Marker<'_>),
    marks: &dyn Marks,
    report: &mut CollectReport,
) -> bool {
    let mut marker = Marker { marks, queue: [0; QUEUE], report: *report, given_up: false };
    trace(&mut marker);
    let complete = !marker.given_up;
    *report = if complete { marker.finish() } else { marker.report };
    complete
}

impl<M: MappedMedium> Inner<M> {
    /// Collects what was left before this open; `None` if it gave up.
    fn collect_unclean(
        &self,
        trace: &mut dyn FnMut(&mut Marker<'_>),
        should_stop: &dyn Fn() -> bool,
        report: &mut CollectReport,
    ) -> Option<()> {
        // After this no unit is revalidated, so marks stay. A unit that is being revalidated takes
        // no marks.
        self.finish_revalidations(should_stop)?;
        // A thread that retired a block of a unit in revalidation could not mark it; it is in limbo
        // then.
        self.wait_grace_period(should_stop)?;
        self.mark_limbo(&|offset, bytes| self.mark(offset, bytes), should_stop)?;
        run(trace, self, report).then_some(())?;
        self.wait_grace_period(should_stop)?;
        self.sweep_unclean(report);
        // ORDER: Release: pairs with `is_marking`: a thread that sees the end of the sweep sees all
        // of it.
        self.shared().phase.store(self.medium().point("phase.end-unclean"), IDLE, Release);
        self.shared().fruitless.store(self.medium(), 0, Relaxed);
        Some(())
    }

    /// The class of a slab in `state`, if its blocks may serve a request of class `asked`.
    pub(crate) fn class_serving(&self, state: UnitState, asked: usize) -> Option<&Class> {
        self.memory.classes.get(state.class().filter(|&found| self.serves(found, asked))?)
    }

    /// See [`Marker::mark`].
    pub(crate) fn mark(&self, offset: u64, bytes: u64) {
        match self.block_place(offset, Some(bytes)) {
            BlockPlace::Slab => self.mark_small(offset),
            BlockPlace::Granules => _ = self.mark_large(offset, bytes),
            BlockPlace::Nowhere => {}
        }
    }

    /// Quarantines `unit` if a reachable block lies in its old part, at `offset`, where its `state`
    /// rules out a block of that size.
    #[cold]
    fn quarantine_if_contradicted(&self, unit: u64, state: UnitState, offset: u64) {
        if !self.is_unclean() {
            return;
        }
        let is_old = match state.usage() {
            UnitUse::Unclean => true,
            UnitUse::Granules => {
                let granule = (offset - self.memory.zones.start_of(unit)) >> self.memory.zones.granule_log2();
                self.unit(unit).old.load(self.medium(), Relaxed) >> granule & 1 == 1
            }
            _ => false,
        };
        if is_old {
            self.quarantine(unit, state);
        }
    }

    /// Waits while another thread collects. Returns whether one did and has ended; not if the
    /// collector may be waiting for a stopped participant.
    pub(crate) fn wait_for_collector(&self) -> bool {
        let (mut turn, mut backoff) = (0u32, Backoff::new());
        while self.is_unclean() && self.shared().collector.is_held_in(self) {
            turn = turn.wrapping_add(1);
            if backoff.rest() && turn.is_multiple_of(CHECK_STOPPED_EVERY) && self.has_stopped_participant() {
                return false;
            }
        }
        turn > 0
    }

    /// Waits until all threads that are pinned now have been unpinned; `None` if `should_stop`
    /// returns true before that.
    #[must_use = "if it stopped, they may still be pinned"]
    pub(crate) fn wait_grace_period(&self, should_stop: &dyn Fn() -> bool) -> Option<()> {
        let until = self.epoch() + GRACE_EPOCHS;
        let (mut epoch, mut backoff) = (self.epoch(), Backoff::new());
        while epoch < until {
            let now = self.try_advance();
            if now == epoch && backoff.rest() {
                if should_stop() {
                    return None;
                }
                self.recover_all_dead();
            }
            epoch = now;
        }
        Some(())
    }

    fn sweep_unclean(&self, report: &mut CollectReport) {
        for zone in self.zones() {
            for unit in self.units_in(&zone) {
                self.sweep_unclean_unit(unit, report);
            }
        }
    }

    fn sweep_unclean_unit(&self, unit: u64, report: &mut CollectReport) {
        let shared = self.shared();
        let state = self.revalidate(unit);
        report.units += 1;
        let class = state.class().filter(|_| state.usage() == UnitUse::Unclean);
        let (bytes, base) = match class.and_then(|class| Some((class, self.memory.classes.get(class)?))) {
            Some((number, class)) => {
                (self.sweep_slab(unit, number, class) * u64::from(class.size), &shared.small_base)
            }
            None => (self.sweep_granules(unit) << self.memory.zones.granule_log2(), &shared.large_base),
        };
        base.fetch_sub(self.medium().point("sweep.count-unclean"), bytes, Relaxed);
        report.freed += bytes;
        // A crash may have come between a change of the unit and that of its hints.
        self.update_hints(unit);
    }
}

#[cfg(test)]
#[path = "tests/collect.rs"]
mod tests;
