//! How the allocator begins and ends: the first steps of an open, the last ones of a close, and
//! what a slot leaves behind.

use crate::allocator::words::{FIRST_EPOCH, IDLE, UNCLEAN};
use crate::format::layout::ALLOCATOR_BYTES;
use crate::format::lifetime::Start;
use crate::format::slot::ThreadSlot;
use crate::reclaim::epoch::GRACE_EPOCHS;
use crate::reclaim::limbo::{Limbo, OnStuck};
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Limbo<M> {
    /// Drains all limbo and all caches, since no thread is pinned any more. Moves the counts of the
    /// slots to the shared words.
    pub(crate) fn drain_all_slots(&self, stuck: OnStuck<'_>) {
        while self.epochs.free_slots.pop().is_some() {}
        for slot in self.base().used_slots() {
            self.free_overflow(slot);
            self.queue_chunk(slot, stuck);
        }
        let mut none_left = self.base().used_slots().next().is_none();
        while !none_left {
            self.base().shared().epoch.fetch_add(self.medium(), GRACE_EPOCHS, Relaxed);
            let Some(own) = self.base().used_slots().next() else { break };
            none_left = self.drain_all(own) == 0;
        }
        for slot in self.base().used_slots() {
            self.heap().drain_caches(slot);
        }
        self.heap().end_all_vacating();
        let shared = self.base().shared();
        let is_exact = self.base().is_count_intact();
        let (small, large) = if is_exact {
            (
                self.base().sum(&shared.small_base, |slot| &slot.small_bytes),
                self.base().sum(&shared.large_base, |slot| &slot.large_bytes),
            )
        } else {
            self.units().count_all()
        };
        shared.counted.store(self.medium(), shared.collection_requests.load(self.medium(), Relaxed), Relaxed);
        shared.small_base.store(self.medium(), small, Relaxed);
        shared.large_base.store(self.medium(), large, Relaxed);
        for slot in self.base().used_slots() {
            slot.small_bytes.store(self.medium(), 0, Relaxed);
            slot.large_bytes.store(self.medium(), 0, Relaxed);
        }
    }

    /// Initializes the allocator, once, before other threads see the pool.
    pub(crate) fn open_allocator(&self) {
        let shared = self.base().shared();
        let kept = [&shared.reserve, &shared.slab_hint, &shared.extent_hint];
        let reserve = shared.reserve.load(self.medium(), Relaxed);
        if self.base().start != Start::Clean {
            // The kept words are not zeroed even for a moment: another crash here must not lose
            // them.
            self.base().zero(self.base().layout.allocator, ALLOCATOR_BYTES, &kept);
            let phase = if self.base().start == Start::Unclean { UNCLEAN } else { IDLE };
            shared.phase.store(self.medium(), phase, Relaxed);
        }
        self.base().zero(
            self.base().layout.thread_slots,
            self.base().layout.zones - self.base().layout.thread_slots,
            &[],
        );
        shared.watches_set.store(self.medium(), 0, Relaxed);
        shared.slots_used.store(self.medium(), 0, Relaxed);
        shared.slots_taken.store(self.medium(), 0, Relaxed);
        shared.fruitless.store(self.medium(), 0, Relaxed);
        shared.scans.store(self.medium(), 0, Relaxed);
        shared.epoch.store(self.medium(), FIRST_EPOCH, Release);
        // A pool that is opened has its units' hints. PERSIST: those of a new one, by the fence of
        // its superblock.
        self.units()
            .open_zones(if self.base().start == Start::Created { 0 } else { u64::MAX }, self.base().size());
        if self.base().start != Start::Created {
            self.restore_reserve(reserve);
        }
        self.ensure_reserve();
    }

    /// Prepares the allocator for the next open. No thread is pinned. Returns whether all memory is
    /// accounted for: if not, the pool must not be marked clean, and the next open collects.
    pub(crate) fn close_allocator(&self, stuck: OnStuck<'_>) -> bool {
        self.drain_all_slots(stuck);
        let complete =
            !self.base().needs_collection() && self.base().shared().lost.load(self.medium(), Relaxed) == 0;
        if complete {
            self.units().seal_units();
        }
        if M::VOLATILE_CACHE && complete {
            // PERSIST: before the clean flag, which makes the next open rely on these.
            self.base().region.write_back(self.base().shared());
            self.units().write_back_zones();
            self.base().region.fence();
        }
        complete
    }

    /// Returns all slots of this process, none of whose threads is pinned or will pin the pool
    /// again.
    pub(crate) fn release_slots(&self, stuck: OnStuck<'_>) {
        while self.epochs.free_slots.pop().is_some() {}
        let own = (u32::from(self.base().owner.participant), self.base().owner.incarnation);
        for index in 0..self.base().layout.geometry.thread_slots {
            let slot = self.base().thread_slot(index);
            if slot.owner_lock.holder(self.base()) == Some(own) {
                self.drain_slot(slot, stuck);
                self.epochs.clear_pin(slot, 0);
                self.base().release_slot(index);
            }
        }
    }

    /// Moves everything that others can use out of a slot. The slot belongs to this participant, no
    /// thread uses it, and it stays pinned.
    pub(crate) fn drain_slot(&self, slot: &ThreadSlot, stuck: OnStuck<'_>) {
        // A collector waits for all pins, and so for this one. Without it, a slab that is out of
        // the cache but still owned would be taken for an orphan. If this participant dies
        // meanwhile, the pin requests a collection.
        self.epochs.set_pin(slot, self.epochs.barrier_flag() | 1);
        self.move_overflow_to_chunks(slot, stuck);
        self.queue_chunk(slot, stuck);
        self.heap().drain_caches(slot);
    }
}
