//! The memory of a pool as its user sees it: what it is used for, and how to get more.

use crate::allocator::usage::{Space, Tally};
use crate::format::slot::ThreadSlot;
use crate::pool::Pool;
use crate::pool::readers::Readers;
use crate::reclaim::epoch::GRACE_EPOCHS;
use crate::sharing::peers::Peers;
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;

thread_local! {
    /// Whether this thread takes blocks of larger classes where its own class has none.
    static USE_LARGER: Cell<bool> = const { Cell::new(false) };
}

impl<M: MappedMedium> Pool<M> {
    /// Bytes that were retired but may still have a reader.
    pub fn waiting_bytes(&self) -> u64 {
        self.0.base().waiting_bytes()
    }

    /// Bytes that were ever retired: between two looks, those that were retired meanwhile, and not
    /// to the byte while other threads run.
    pub fn retired_bytes(&self) -> u64 {
        let retired = |slot: &crate::format::slot::ThreadSlot| slot.retired.load(self.medium(), Relaxed);
        self.0.base().used_slots().map(retired).fold(0, u64::wrapping_add)
    }

    /// What its memory is used for. Inspects every unit of the pool: about a millisecond for ten
    /// GiB.
    pub fn space(&self) -> Space {
        let inner = &*self.0;
        let medium = self.medium();
        let shared = inner.base().shared();
        let (readers, blocking_readers) = inner.epochs().readers();
        let waiting_bytes = inner.base().waiting_bytes();
        let mut space =
            Space { size: self.size(), waiting_bytes, readers, blocking_readers, ..Space::default() };
        let Tally { slabs, uncounted, extents, damaged, free } = inner.units().tally(space.size);
        (space.damaged, space.free) = (damaged, free);
        space.largest_free_extent = inner.units().longest_free_run();
        let small = inner.base().sum(&shared.small_base, |slot| &slot.small_bytes).min(slabs);
        space.used_by_blocks = small + uncounted + extents;
        space.slab_free = slabs - small;
        let described = space.free + slabs + uncounted + extents + space.damaged;
        space.metadata = space.size.saturating_sub(described);
        space.lost = shared.lost.load(medium, Relaxed);
        space.collecting = inner.base().needs_collection();
        space
    }

    /// The sum of the counter `counter` over all thread slots since the pool was opened. See
    /// [`Guard::slot_counter`](crate::Guard::slot_counter).
    ///
    /// # Panics
    /// If `counter` is not below 8.
    pub fn sum_counter(&self, counter: usize) -> u64 {
        let words =
            self.0.base().used_slots().map(|slot| slot.counters[counter].load(self.medium(), Relaxed));
        words.fold(0, u64::wrapping_add)
    }

    /// Frees of blocks that were not allocated, and slab lists that were damaged, since the pool
    /// was opened: 0 in a sound pool.
    pub fn faults(&self) -> u64 {
        self.0.base().shared().faults.load(self.medium(), Relaxed)
    }

    /// Does `work`. Meanwhile this thread gets a block of a larger class, at most twice as large,
    /// where its own class has no free block and no unit is free. Such a block stays larger until
    /// it is freed, so this is for requests that would be refused otherwise.
    pub fn with_larger_blocks<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Reset(bool);
        impl Drop for Reset {
            fn drop(&mut self) {
                USE_LARGER.set(self.0);
            }
        }
        let _reset = Reset(USE_LARGER.replace(true));
        work()
    }

    /// Reclaims all that can be reclaimed: retired blocks whose readers have gone, and memory that
    /// was set aside and is not used. While another thread collects after a crash, it first waits
    /// for that. Call it after [`PoolFull`](crate::PoolFull) and before another try, without a
    /// guard and without a lock that a trace may take. Returns whether anything became free.
    ///
    /// Waits up to ten seconds for readers that hold memory up, in case one of them is stopped.
    /// After one wait in vain it does not wait for the same reader again. It never waits for the
    /// calling thread itself.
    pub fn reclaim_blocking(&self) -> bool {
        self.0.peers.recover_all_dead();
        let collected = self.0.peers.wait_for_collector();
        let (before, scans) = (self.0.base().total_freed(), self.0.base().scans());
        self.0.epochs().for_each_idle_slot(|vacant| {
            self.0.limbo().flush_slot(vacant, &|lock| self.0.peers.recover_holder(lock))
        });
        Readers(self).wait_for_blocking();
        let guard = self.pin();
        let has_scanned = self.0.base().scans() < scans;
        self.0.limbo().reclaim(guard.thread_slot(), &|lock| self.0.peers.recover_holder(lock))
            || self.0.base().total_freed() != before
            || has_scanned
            || collected
    }

    /// Reclaims without waiting for other threads: called a few times, it frees what was retired
    /// and no reader holds up, and makes slabs that have lost their last block available for all
    /// sizes. Threads that allocate do the same once memory is short. Called now and then in the
    /// background, it keeps memory from lying idle until then. Looks only where something may be
    /// found. Returns whether anything became free.
    pub fn reclaim_nonblocking(&self) -> bool {
        let freed = self.0.base().total_freed();
        if self.0.base().waiting_bytes() > 0 {
            self.0.epochs().for_each_idle_slot(|vacant| {
                self.0.limbo().flush_slot(vacant, &|lock| self.0.peers.recover_holder(lock))
            });
            Readers(self).drain();
        }
        let _guard = self.pin();
        self.0.heap().release_likely_empty_slabs() > 0 || self.0.base().total_freed() != freed
    }

    /// Bytes that have been freed since the pool was opened, by all threads.
    pub fn total_freed(&self) -> u64 {
        self.0.base().total_freed()
    }

    /// The current epoch, for [`Pool::is_grace_period_over`].
    pub fn epoch(&self) -> u64 {
        self.0.epochs().epoch()
    }

    /// Whether all threads that were pinned at epoch `epoch` have been unpinned; then what was
    /// retired until that epoch is freed. Does not wait.
    pub fn is_grace_period_over(&self, epoch: u64) -> bool {
        for _ in 0..GRACE_EPOCHS {
            if Readers(self).drain() >= epoch + GRACE_EPOCHS {
                break;
            }
        }
        Readers(self).drain() >= epoch + GRACE_EPOCHS
    }

    /// Waits until all threads that are pinned now have been unpinned, and frees what was retired
    /// until now. Returns `false` if one of them stays pinned for long, or is this thread.
    pub fn wait_for_readers(&self) -> bool {
        self.0.epochs().for_each_idle_slot(|vacant| {
            self.0.limbo().flush_slot(vacant, &|lock| self.0.peers.recover_holder(lock))
        });
        let until = self.0.epochs().epoch() + GRACE_EPOCHS;
        Readers(self).wait_until(|now| now >= until)
    }
}

impl<M: MappedMedium> Peers<M> {
    /// As `take`, after everything that can be reclaimed has been tried.
    pub(crate) fn take_slow(&self, slot: &ThreadSlot, bytes: u64) -> Option<u64> {
        if bytes > self.base().size() {
            return None;
        }
        self.limbo.queue_chunk(slot, &|lock| self.recover_holder(lock));
        // A dead participant must not hold memory up.
        self.recover_all_dead();
        // The owner of `slot` is pinned, so the epoch advances by one at most.
        self.epochs().try_advance();
        if self.limbo.drain_all(slot) > 0
            && let Some(offset) = self.heap().take(slot, bytes)
        {
            return Some(offset);
        }
        let taken = if self.limbo.reclaim(slot, &|lock| self.recover_holder(lock)) {
            self.heap().take(slot, bytes)
        } else {
            None
        };
        taken.or_else(|| USE_LARGER.get().then(|| self.heap().take_larger(slot, bytes)).flatten())
    }
}

#[cfg(test)]
#[path = "tests/memory.rs"]
mod tests;
