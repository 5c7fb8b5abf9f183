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
pub(crate) mod recount;

use crate::allocator::heap::Heap;
use crate::allocator::marks::BlockPlace;
use crate::allocator::units::Units;
use crate::allocator::words::IDLE;
use crate::allocator::zones::UnitUse;
use crate::base::Base;
use crate::pool::Pool;
use crate::reclaim::limbo::Limbo;
use crate::sharing::peers::Peers;
use std::cell::RefCell;
use std::sync::atomic::Ordering::{Relaxed, Release};
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

pub(crate) trait Marks {
    /// Where `offset` lies. Prefetches the memory that its mark needs.
    fn block_place(&self, offset: u64, size: Option<u64>) -> BlockPlace;
    fn mark_small(&self, offset: u64);
    fn mark_large(&self, offset: u64, bytes: u64) -> bool;
}

impl<M: MappedMedium> Marks for Heap<M> {
    fn block_place(&self, offset: u64, size: Option<u64>) -> BlockPlace {
        self.place_of(offset, size)
    }
    fn mark_small(&self, offset: u64) {
        self.mark_small_block(offset);
    }
    fn mark_large(&self, offset: u64, bytes: u64) -> bool {
        self.mark_large_block(offset, bytes)
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
        blocks.into_iter().map(|(at, bytes)| (at, self.0.units().size_of_block(at, bytes))).collect()
    }

    /// Requests a collection, as if a thread had died that used this pool. For tests.
    #[doc(hidden)]
    pub fn request_collection(&self) {
        self.0.base().request_collection();
    }

    /// Whether there may be unreachable memory: after an unclean open, and after a process died
    /// that shared the pool, until [`Pool::collect`] has completed.
    pub fn needs_collection(&self) -> bool {
        self.0.base().needs_collection()
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
        assert_eq!(self.pin().depth(), 1, "a thread that collects has no guard");
        let peers = &self.0.peers;
        let _allowed = peers.allow_stores();
        let mut report = CollectReport::default();
        let collector = &peers.base().shared().collector;
        let Some(_collector) = peers.acquire_until(collector, should_stop) else { return report };
        let collection = Collection { peers, should_stop };
        let done = !peers.base().is_unclean() || collection.collect_unclean(trace, &mut report).is_some();
        if done && peers.base().is_collection_pending() {
            collection.collect_concurrently(trace, &mut report);
        }
        // Pinned, so that a death of this thread in the middle is noticed.
        let _guard = self.pin();
        peers.limbo.ensure_reserve();
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

/// A running collection, by the thread that holds the collector's lock. Owns when to give up;
/// stands on [`Peers`], since it waits for other threads and recovers those that died.
pub(crate) struct Collection<'p, M: MappedMedium> {
    pub(crate) peers: &'p Peers<M>,
    /// Whether the collection should give up; asked while it waits for another thread.
    pub(crate) should_stop: &'p dyn Fn() -> bool,
}

impl<'p, M: MappedMedium> Collection<'p, M> {
    pub(crate) fn base(&self) -> &'p Base<M> {
        self.peers.base()
    }

    pub(crate) fn units(&self) -> &'p Units<M> {
        self.peers.units()
    }

    pub(crate) fn heap(&self) -> &'p Heap<M> {
        self.peers.heap()
    }

    pub(crate) fn limbo(&self) -> &'p Limbo<M> {
        &self.peers.limbo
    }

    pub(crate) fn medium(&self) -> &'p M {
        self.peers.medium()
    }

    /// Waits for a grace period; `None` if the collection gave up.
    #[must_use = "if it stopped, threads may still be pinned"]
    pub(crate) fn wait_grace_period(&self) -> Option<()> {
        self.peers.wait_grace_period(self.should_stop)
    }

    /// Marks everything in limbo by `mark`; `None` if the collection gave up while another thread
    /// held a queue.
    #[must_use = "if it stopped, not all is marked"]
    pub(crate) fn mark_limbo(&self, mark: &dyn Fn(u64, u64)) -> Option<()> {
        self.limbo().mark_limbo(mark, &|lock| {
            if (self.should_stop)() {
                return true;
            }
            self.peers.recover_holder(lock);
            false
        })
    }

    /// Collects what was left before this open; `None` if it gave up.
    fn collect_unclean(
        &self,
        trace: &mut dyn FnMut(&mut Marker<'_>),
        report: &mut CollectReport,
    ) -> Option<()> {
        // After this no unit is revalidated, so marks stay. A unit that is being revalidated takes
        // no marks.
        self.finish_revalidations()?;
        // A thread that retired a block of a unit in revalidation could not mark it; it is in limbo
        // then.
        self.wait_grace_period()?;
        self.mark_limbo(&|offset, bytes| self.heap().mark(offset, bytes))?;
        run(trace, self.heap(), report).then_some(())?;
        self.wait_grace_period()?;
        self.sweep_unclean(report);
        // ORDER: Release: pairs with `is_marking`: a thread that sees the end of the sweep sees all
        // of it.
        self.base().shared().phase.store(self.medium().point("phase.end-unclean"), IDLE, Release);
        self.base().shared().fruitless.store(self.medium(), 0, Relaxed);
        Some(())
    }

    fn sweep_unclean(&self, report: &mut CollectReport) {
        for zone in self.units().zones() {
            for unit in self.units().units_in(&zone) {
                self.sweep_unclean_unit(unit, report);
            }
        }
    }

    fn sweep_unclean_unit(&self, unit: u64, report: &mut CollectReport) {
        let shared = self.base().shared();
        let state = self.units().revalidate(unit);
        report.units += 1;
        let class = state.class().filter(|_| state.usage() == UnitUse::Unclean);
        let (bytes, base) = match class.and_then(|class| Some((class, self.units().classes.get(class)?))) {
            Some((number, class)) => {
                (self.heap().sweep_slab(unit, number, class) * u64::from(class.size), &shared.small_base)
            }
            None => (
                self.heap().granules.sweep_granules(unit) << self.units().zones.granule_log2(),
                &shared.large_base,
            ),
        };
        base.fetch_sub(self.medium().point("sweep.count-unclean"), bytes, Relaxed);
        report.freed += bytes;
        // A crash may have come between a change of the unit and that of its hints.
        self.units().update_hints(unit);
    }
}

#[cfg(test)]
#[path = "tests/collect.rs"]
mod tests;
