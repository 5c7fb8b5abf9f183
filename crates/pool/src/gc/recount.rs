//! Recounting the bytes in blocks and in limbo after a thread died while it was counting.

use crate::format::slot::{ThreadSlot, add_own};
use crate::reclaim::limbo::Limbo;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, full_barrier};

impl<M: MappedMedium> Limbo<M> {
    /// Recounts the bytes in blocks and in limbo, if no thread allocates or frees meanwhile.
    /// Returns whether it did. Called by the collector.
    pub(crate) fn recount_if_quiet(&self) -> bool {
        let (medium, shared) = (self.medium(), self.base().shared());
        // ORDER: Relaxed: the barrier in `snapshot_if_quiet` keeps it before the counts. A stale
        // value only makes the recount count as not intact.
        let requests = shared.collection_requests.load(medium, Relaxed);
        let Some(before) = self.snapshot_if_quiet() else { return false };
        let (small, large) = self.units().count_all();
        let missing =
            self.base().used_slots().map(|slot| self.missing_from_limbo(slot)).collect::<Option<Vec<u64>>>();
        let Some(missing) = missing else { return false };
        if self.snapshot_if_quiet().as_ref() != Some(&before) {
            return false;
        }
        let sum = |count: usize| before.iter().map(|slot| slot[count]).fold(0, u64::wrapping_add);
        shared.small_base.store(medium, small.wrapping_sub(sum(4)).wrapping_sub(sum(0)), Relaxed);
        shared.large_base.store(medium, large.wrapping_sub(sum(1)), Relaxed);
        for (slot, missing) in self.base().used_slots().zip(missing) {
            // If some thread holds the lock all the same, the next recount corrects it.
            if let Some(_locked) = slot.queue_lock.acquire_until(self.base(), &|| true) {
                add_own(medium, &slot.drained, missing);
            }
        }
        shared.counted.store(medium.point("space.count"), requests, Relaxed);
        true
    }

    /// The counters of all slots, and what is in their caches, if no thread is pinned. Between two
    /// equal snapshots no thread has allocated, freed, or drained a cache.
    fn snapshot_if_quiet(&self) -> Option<Vec<[u64; 5]>> {
        let is_anyone_pinned = || self.epochs.readers().0 > 0;
        // ORDER: loads before the barrier are not newer than loads after it. An acquire fence would
        // do, but the medium does not model one.
        full_barrier(self.medium());
        if is_anyone_pinned() {
            return None;
        }
        let count = |slot: &ThreadSlot| {
            let [small, large, freed, retired] =
                [&slot.small_bytes, &slot.large_bytes, &slot.freed, &slot.retired]
                    .map(|count| count.load(self.medium(), Relaxed));
            [small, large, freed, retired, self.units().cached(slot)]
        };
        let counts = || self.base().used_slots().map(count).collect::<Vec<_>>();
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
}
