//! Accounting: what the memory of a pool is used for.

use crate::allocator::zones::{UnitState, UnitUse};
use crate::pool::{Inner, Pool, Start};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, Word, full_barrier};

/// The use of a pool's bytes. While other threads allocate, the figures are of about the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the pool.
    pub size: u64,
    /// Bytes in blocks, rounded up to their sizes. Includes those that wait for their readers.
    pub used_by_blocks: u64,
    /// Bytes of slabs that are in no block: free for small blocks of the slab's size, or lost to
    /// the slab's bitmaps and tail.
    pub slab_free: u64,
    /// Bytes of the pool's own metadata.
    pub metadata: u64,
    /// Bytes that were retired and wait for their readers.
    pub waiting_bytes: u64,
    /// Threads that are pinned now.
    pub readers: u32,
    /// Pinned threads that were pinned already before other blocks were retired: those blocks wait
    /// for them.
    pub blocking_readers: u32,
    /// Bytes in blocks that leaked because no memory for a limbo entry was left. The next open
    /// collects them.
    pub lost: u64,
    /// Bytes of memory that was found damaged, so nothing is allocated there. A salvage makes a
    /// pool without it.
    pub damaged: u64,
    /// Bytes free for anything.
    pub free: u64,
    /// Bytes of the largest extent that there is room for. The rest of `free` is in smaller pieces.
    pub largest_free_extent: u64,
    /// Whether memory that a crash or a dead process left has yet to be collected; until then
    /// `used_by_blocks` is an upper bound.
    pub collecting: bool,
}

impl<M: MappedMedium> Pool<M> {
    /// Bytes that were retired but may still have a reader.
    pub fn waiting_bytes(&self) -> u64 {
        self.0.waiting_bytes()
    }

    /// Bytes that were ever retired: between two looks, those that were retired meanwhile, and not
    /// to the byte while other threads run.
    pub fn retired_bytes(&self) -> u64 {
        let retired = |slot: &crate::reclaim::slots::ThreadSlot| slot.retired.load(self.medium(), Relaxed);
        self.0.used_slots().map(retired).fold(0, u64::wrapping_add)
    }

    /// What its memory is used for. Inspects every unit of the pool: about a millisecond for ten
    /// GiB.
    pub fn space(&self) -> Space {
        let inner = &*self.0;
        let medium = self.medium();
        let shared = inner.shared();
        let granule = 1 << inner.memory.zones.granule_log2();
        let (readers, blocking_readers) = inner.readers();
        let waiting_bytes = inner.waiting_bytes();
        let mut space =
            Space { size: self.size(), waiting_bytes, readers, blocking_readers, ..Space::default() };
        let (mut slabs, mut uncounted, mut extents) = (0, 0, 0);
        for zone in inner.zones() {
            for unit in inner.units_in(&zone) {
                let entry = inner.unit(unit);
                let usable = inner.memory.zones.usable(unit, space.size);
                let taken = entry.taken.load(medium, Relaxed);
                let state = UnitState(entry.state.load(medium, Relaxed));
                let head = inner.memory.zones.header_granules(&zone, unit);
                match state.class() {
                    _ if state.usage() == UnitUse::Quarantined => {
                        space.damaged += u64::from((usable & !head).count_ones()) * granule;
                        continue;
                    }
                    Some(_) if state.open_seq() != inner.open_seq && inner.start != Start::Clean => {
                        uncounted += 1
                    }
                    Some(_) => slabs += 1,
                    None => extents += u64::from((taken & usable & !head).count_ones()) * granule,
                }
                space.free += u64::from((!taken & usable).count_ones()) * granule;
            }
        }
        space.largest_free_extent = inner.longest_free_run();
        let [slabs, uncounted] = [slabs, uncounted].map(|units: u64| units << inner.memory.zones.slab_log2);
        let small = inner.sum(&shared.small_base, |slot| &slot.small_bytes).min(slabs);
        space.used_by_blocks = small + uncounted + extents;
        space.slab_free = slabs - small;
        let described = space.free + slabs + uncounted + extents + space.damaged;
        space.metadata = space.size.saturating_sub(described);
        space.lost = shared.lost.load(medium, Relaxed);
        space.collecting = inner.needs_collection();
        space
    }

    /// The sum of the counter `counter` over all thread slots since the pool was opened. See
    /// [`Guard::slot_counter`](crate::Guard::slot_counter).
    ///
    /// # Panics
    /// If `counter` is not below 8.
    pub fn sum_counter(&self, counter: usize) -> u64 {
        let words = self.0.used_slots().map(|slot| slot.counters[counter].load(self.medium(), Relaxed));
        words.fold(0, u64::wrapping_add)
    }

    /// Frees of blocks that were not allocated, and slab lists that were damaged, since the pool
    /// was opened: 0 in a sound pool.
    pub fn faults(&self) -> u64 {
        self.0.shared().faults.load(self.medium(), Relaxed)
    }
}

/// Continues a run of free granules. Returns the longest run that ends in, or lies in, this word.
fn longest_run(run: &mut u64, taken: u64) -> u64 {
    let mut free = !taken;
    if free == !0 {
        *run += 64;
        return *run;
    }
    let joined = *run + u64::from(free.trailing_ones());
    *run = u64::from(free.leading_ones());
    let mut inside = 0;
    while free != 0 {
        // Each turn shortens every run by one.
        free &= free << 1;
        inside += 1;
    }
    joined.max(inside)
}

impl<M: MappedMedium> Inner<M> {
    /// Bytes of the largest extent that there is room for. Inspects every unit.
    pub(crate) fn longest_free_run(&self) -> u64 {
        let zones = &self.memory.zones;
        let of_zone = |zone| {
            let mut run = 0;
            let taken =
                |unit| self.unit(unit).taken.load(self.medium(), Relaxed) | !zones.usable(unit, self.size());
            self.units_in(&zone).map(|unit| longest_run(&mut run, taken(unit))).max().unwrap_or(0)
        };
        self.zones().map(of_zone).max().unwrap_or(0) << zones.granule_log2()
    }

    pub(crate) fn sum(&self, base: &Word, of: impl Fn(&crate::reclaim::slots::ThreadSlot) -> &Word) -> u64 {
        let base = base.load(self.medium(), Relaxed);
        let sum =
            self.used_slots().map(|slot| of(slot).load(self.medium(), Relaxed)).fold(base, u64::wrapping_add);
        // Read while other threads count, it may be below zero for a moment.
        if sum > u64::MAX / 2 { 0 } else { sum }
    }

    /// Whether no thread has died while it was counting bytes since the last recount.
    pub(crate) fn is_count_intact(&self) -> bool {
        let shared = self.shared();
        shared.counted.load(self.medium(), Relaxed) == shared.collection_requests.load(self.medium(), Relaxed)
    }

    /// Bytes in small blocks, those in slot caches included, and in extents, by the bitmaps. No
    /// thread allocates or frees meanwhile.
    fn count_all(&self) -> (u64, u64) {
        let (mut small, mut large) = (0u64, 0u64);
        for (zone, unit) in self.zones().flat_map(|zone| self.units_in(&zone).map(move |unit| (zone, unit))) {
            let entry = self.unit(unit);
            let state = UnitState(entry.state.load(self.medium(), Relaxed));
            match state.class() {
                // Units that a crash left are counted when they are revalidated.
                _ if state.usage() == UnitUse::Quarantined => {}
                _ if state.open_seq() != self.open_seq && self.start != Start::Clean => {}
                Some(number) => {
                    let class = self.memory.classes.get(number);
                    small += class.map_or(0, |class| self.count_blocks(unit, class) * u64::from(class.size));
                }
                None => {
                    let usable = self.memory.zones.usable(unit, self.size());
                    let head = self.memory.zones.header_granules(&zone, unit);
                    let taken = entry.taken.load(self.medium(), Relaxed) & usable & !head;
                    large += u64::from(taken.count_ones()) << self.memory.zones.granule_log2();
                }
            }
        }
        (small, large)
    }

    /// Bytes of blocks in a slot's caches.
    fn cached(&self, slot: &crate::reclaim::slots::ThreadSlot) -> u64 {
        let caches = (0..self.memory.classes.len()).filter_map(|number| {
            let free = slot.caches[number].free.load(self.medium(), Relaxed);
            Some(u64::from(free.count_ones()) * u64::from(self.memory.classes.get(number)?.size))
        });
        caches.sum()
    }

    /// Recounts the bytes in blocks and in limbo, if no thread allocates or frees meanwhile.
    /// Returns whether it did. Called by the collector.
    pub(crate) fn recount_if_quiet(&self) -> bool {
        let (medium, shared) = (self.medium(), self.shared());
        // ORDER: Relaxed: the barrier in `snapshot_if_quiet` keeps it before the counts. A stale
        // value only makes the recount count as not intact.
        let requests = shared.collection_requests.load(medium, Relaxed);
        let Some(before) = self.snapshot_if_quiet() else { return false };
        let (small, large) = self.count_all();
        let missing =
            self.used_slots().map(|slot| self.missing_from_limbo(slot)).collect::<Option<Vec<u64>>>();
        let Some(missing) = missing else { return false };
        if self.snapshot_if_quiet().as_ref() != Some(&before) {
            return false;
        }
        let sum = |count: usize| before.iter().map(|slot| slot[count]).fold(0, u64::wrapping_add);
        shared.small_base.store(medium, small.wrapping_sub(sum(4)).wrapping_sub(sum(0)), Relaxed);
        shared.large_base.store(medium, large.wrapping_sub(sum(1)), Relaxed);
        for (slot, missing) in self.used_slots().zip(missing) {
            // If some thread holds the lock all the same, the next recount corrects it.
            if let Some(_locked) = slot.queue_lock.acquire_until(self, &|| true) {
                crate::reclaim::limbo::add_own(medium, &slot.drained, missing);
            }
        }
        shared.counted.store(medium.point("space.count"), requests, Relaxed);
        true
    }

    /// The counters of all slots, and what is in their caches, if no thread is pinned. Between two
    /// equal snapshots no thread has allocated, freed, or drained a cache.
    fn snapshot_if_quiet(&self) -> Option<Vec<[u64; 5]>> {
        let is_anyone_pinned = || self.readers().0 > 0;
        // ORDER: loads before the barrier are not newer than loads after it. An acquire fence would
        // do, but the medium does not model one.
        full_barrier(self.medium());
        if is_anyone_pinned() {
            return None;
        }
        let count = |slot: &crate::reclaim::slots::ThreadSlot| {
            let [small, large, freed, retired] =
                [&slot.small_bytes, &slot.large_bytes, &slot.freed, &slot.retired]
                    .map(|count| count.load(self.medium(), Relaxed));
            [small, large, freed, retired, self.cached(slot)]
        };
        let counts = || self.used_slots().map(count).collect::<Vec<_>>();
        let before = counts();
        // ORDER: what threads did whose pins are seen cleared is visible (`is_pinned_before`).
        full_barrier(self.medium());
        if is_anyone_pinned() {
            return None;
        }
        // A thread may have been pinned meanwhile, for all of it. Then the first counts may be
        // those of half a change, and what it has freed or taken since tells them from these.
        (counts() == before).then_some(before)
    }

    /// Bytes in limbo.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let waiting_bytes = self.used_slots().map(|slot| {
            let drained = slot.drained.load(self.medium(), Relaxed);
            slot.retired.load(self.medium(), Relaxed).wrapping_sub(drained)
        });
        // A block that one slot retired may be drained from the queue of another. So only the sum
        // is meaningful, and not to the byte while other threads run.
        u64::try_from(waiting_bytes.fold(0, u64::wrapping_add).cast_signed()).unwrap_or(0)
    }

    /// Number of pinned threads, and of those that were pinned in an earlier epoch than this one.
    fn readers(&self) -> (u32, u32) {
        let now = self.epoch();
        let pinned = self.used_slots().filter_map(|slot| self.is_pinned_before(slot, now));
        pinned.fold((0, 0), |(all, behind), is_pinned_before| (all + 1, behind + u32::from(is_pinned_before)))
    }

    /// The participants whose threads were pinned in an earlier epoch than this one.
    pub(crate) fn blocking_participants(&self) -> BTreeSet<u32> {
        let now = self.epoch();
        let behind = self.used_slots().filter(|slot| self.is_pinned_before(slot, now) == Some(true));
        behind.filter_map(|slot| Some(slot.owner_lock.holder(self)?.0)).collect()
    }

    /// Bytes that have been freed since the pool was opened.
    pub(crate) fn total_freed(&self) -> u64 {
        self.used_slots().map(|slot| slot.freed.load(self.medium(), Relaxed)).sum()
    }

    /// Drains all limbo and all caches, since no thread is pinned any more. Moves the counts of the
    /// slots to the shared words.
    pub(crate) fn drain_all_slots(&self) {
        while self.memory.free_slots.pop().is_some() {}
        for slot in self.used_slots() {
            self.free_overflow(slot);
            self.queue_chunk(slot);
        }
        let mut none_left = self.used_slots().next().is_none();
        while !none_left {
            self.shared().epoch.fetch_add(self.medium(), crate::reclaim::epoch::GRACE_EPOCHS, Relaxed);
            let Some(own) = self.used_slots().next() else { break };
            none_left = self.drain_all(own) == 0;
        }
        for slot in self.used_slots() {
            self.drain_caches(slot);
        }
        self.end_all_vacating();
        let shared = self.shared();
        let is_exact = self.is_count_intact();
        let (small, large) = if is_exact {
            (
                self.sum(&shared.small_base, |slot| &slot.small_bytes),
                self.sum(&shared.large_base, |slot| &slot.large_bytes),
            )
        } else {
            self.count_all()
        };
        shared.counted.store(self.medium(), shared.collection_requests.load(self.medium(), Relaxed), Relaxed);
        shared.small_base.store(self.medium(), small, Relaxed);
        shared.large_base.store(self.medium(), large, Relaxed);
        for slot in self.used_slots() {
            slot.small_bytes.store(self.medium(), 0, Relaxed);
            slot.large_bytes.store(self.medium(), 0, Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "tests/usage.rs"]
mod tests;
