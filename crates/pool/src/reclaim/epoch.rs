//! Epochs: which threads may still reach which blocks.
//!
//! A pinned thread has stored in its slot the global epoch that it read. The global epoch `g`
//! advances only when every pinned thread has stored `g`. (A thread can stall between reading the
//! epoch and storing its pin. The stored epoch may then be old, and the global epoch cannot advance
//! until that thread unpins.)
//!
//! A thread that retires a block has unlinked it before it reads the global epoch again; the value
//! `e` that it finds is recorded with the block. While that thread is pinned, the epoch is at most
//! `e + 1`. A thread that had advanced it from `e + 1` either saw the retiring thread unpinned,
//! with all its unlinking. Or it saw that thread's pin before it was set, and then the retiring
//! thread's load after its barrier would have found `e + 1`. So no thread that can reach the block
//! is pinned in a later epoch than `e + 1`. Once the global epoch is `e + 3`, all these threads
//! have unpinned, since they would have blocked the step from `e + 2`. (See `limbo` for where a
//! block waits.)

use crate::allocator::heap::Heap;
use crate::allocator::words::FIRST_EPOCH;
use crate::base::Base;
use crate::format::slot::ThreadSlot;
use crate::reclaim::barrier;
use crate::reclaim::last_slot::FreeSlots;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, full_barrier};

/// A block is free once this many epochs have begun after the one in which it was retired.
pub(crate) const GRACE_EPOCHS: u64 = 3;

/// A pin word: `| 63:32 lower half of the epoch | 31 one pin | 30 overflowed | 29 full barrier |
/// 28:0 number of the owner's guards |`. Nearly always the lower half is one guard without flags;
/// unpinning then takes one store.
const EPOCH_SHIFT: u32 = 32;
const EPOCH: u64 = u32::MAX as u64;
pub(crate) const DEPTH_MASK: u64 = (1 << 29) - 1;
/// The slot is returned with the last guard.
pub(crate) const ONE_PIN: u64 = 1 << 31;
/// The slot's overflow buffer contains retired blocks.
pub(crate) const OVERFLOWED: u64 = 1 << 30;
/// Pins of the slot execute their own barrier (see `barrier`).
pub(crate) const FULL_BARRIER: u64 = 1 << 29;
pub(crate) const UNPIN_WORK: u64 = ONE_PIN | OVERFLOWED | FULL_BARRIER;

const _: () = assert!(DEPTH_MASK & UNPIN_WORK == 0, "the fields of a pin word are apart");
const _: () = assert!(UNPIN_WORK >> EPOCH_SHIFT == 0, "the upper half of a pin word is its epoch");
const _: () = assert!(FIRST_EPOCH > GRACE_EPOCHS, "nothing was retired a grace period before the open");

/// Which threads are pinned, and when. Owns the slots of ended threads of this process, the pins
/// and the global epoch; stands on [`Heap`]. It knows of no other process.
pub(crate) struct Epochs<M: MappedMedium> {
    pub(crate) heap: Heap<M>,
    /// The free slots of ended threads of this process.
    pub(crate) free_slots: Arc<FreeSlots>,
}

impl<M: MappedMedium> Epochs<M> {
    pub(crate) fn new(heap: Heap<M>) -> Self {
        Self { heap, free_slots: Arc::default() }
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<M> {
        self.heap.base()
    }

    #[inline(always)]
    pub(crate) fn medium(&self) -> &M {
        self.heap.medium()
    }

    /// Number of pinned threads, and of those that were pinned in an earlier epoch than this one.
    pub(crate) fn readers(&self) -> (u32, u32) {
        let now = self.epoch();
        let pinned = self.base().used_slots().filter_map(|slot| self.is_pinned_before(slot, now));
        pinned.fold((0, 0), |(all, behind), is_pinned_before| (all + 1, behind + u32::from(is_pinned_before)))
    }

    /// The participants whose threads were pinned in an earlier epoch than this one.
    pub(crate) fn blocking_participants(&self) -> BTreeSet<u32> {
        let now = self.epoch();
        let behind = self.base().used_slots().filter(|slot| self.is_pinned_before(slot, now) == Some(true));
        behind.filter_map(|slot| Some(slot.owner_lock.holder(self.base())?.0)).collect()
    }

    #[inline(always)]
    pub(crate) fn set_pin(&self, slot: &ThreadSlot, depth_and_flags: u64) {
        // ORDER: Acquire: pairs with the advance to this epoch, so that what was unlinked before it
        // is seen unlinked.
        self.set_pin_at(self.epoch(), slot, depth_and_flags);
    }

    /// Stores a pin for an epoch that was read before.
    #[inline(always)]
    pub(crate) fn set_pin_at(&self, epoch: u64, slot: &ThreadSlot, depth_and_flags: u64) {
        debug_assert!(depth_and_flags & DEPTH_MASK != 0, "a pin has a guard");
        // ORDER: a full barrier after the store, here or in `try_advance`. Either the pin is
        // visible before anything is read under it, or the thread that advances the epoch checked
        // before. Release: this store may replace the clearing of an earlier pin, which the
        // advancing thread may not have seen by itself.
        slot.pin.store(self.medium().point("pin.set"), epoch << EPOCH_SHIFT | depth_and_flags, Release);
        if depth_and_flags & FULL_BARRIER == 0 {
            barrier::light();
        } else {
            full_barrier(self.medium());
        }
    }

    /// Pins a thread that is pinned already, or whose slot has work to do on unpinning.
    #[cold]
    pub(crate) fn pin_again(&self, slot: &ThreadSlot, word: u64) {
        match word & DEPTH_MASK {
            0 => self.set_pin(slot, word | 1),
            DEPTH_MASK => panic!("this thread holds {DEPTH_MASK} guards of the pool: some were forgotten"),
            _ => slot.pin.store(self.medium(), word + 1, Relaxed),
        }
    }

    /// Clears the pin word, except for `flags`.
    #[inline(always)]
    pub(crate) fn clear_pin(&self, slot: &ThreadSlot, flags: u64) {
        debug_assert!(flags & DEPTH_MASK == 0, "no guard is left");
        // ORDER: Release: comes after everything done under the pin, unlinking included.
        slot.pin.store(self.medium(), flags, Release);
    }

    /// Requests work when the owner of `slot`, which is this thread, unpins.
    pub(crate) fn request_unpin_work(&self, slot: &ThreadSlot, flag: u64) {
        debug_assert!(flag & !UNPIN_WORK == 0, "{flag:#x} is no work for unpinning");
        let word = slot.pin.load(self.medium(), Relaxed);
        slot.pin.store(self.medium(), word | flag, Relaxed);
    }

    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        // ORDER: Acquire: pairs with the advances up to this epoch.
        self.base().shared().epoch.load(self.medium().point("epoch.read"), Acquire)
    }

    /// Whether a thread is pinned in an earlier epoch than `epoch`.
    fn is_held_up(&self, epoch: u64) -> bool {
        self.base().used_slots().any(|slot| self.is_pinned_before(slot, epoch) == Some(true))
    }

    /// Whether the owner of `slot` is pinned in an earlier epoch than `epoch`; `None` if it is not
    /// pinned.
    pub(crate) fn is_pinned_before(&self, slot: &ThreadSlot, epoch: u64) -> Option<bool> {
        // ORDER: Acquire: pairs with `clear_pin`: what was done under finished pins comes before
        // the next epoch. (Plain loads and one fence would do. But ThreadSanitizer does not support
        // fences: it would report a block's reuse as a race with its last reader.)
        let pin = slot.pin.load(self.medium().point("epoch.check-pin"), Acquire);
        (pin & DEPTH_MASK != 0).then_some(pin >> EPOCH_SHIFT != epoch & EPOCH)
    }

    /// Advances the global epoch if every pinned thread has stored it in its pin. Returns the epoch
    /// then.
    pub(crate) fn try_advance(&self) -> u64 {
        let epoch = self.epoch();
        if self.is_held_up(epoch) {
            return epoch;
        }
        // ORDER: full: pairs with `set_pin`. A thread whose pin is not seen below set it after
        // this, and sees all that was unlinked before this.
        self.medium().point("epoch.barrier");
        self.base().barrier_to_pins();
        if self.is_held_up(epoch) {
            return epoch;
        }
        // ORDER: Release: pairs with the loads of the epoch. Acquire, if another thread was first:
        // a thread that waits for the advance sees all that the advancing threads had seen done.
        match self.base().shared().epoch.compare_exchange(
            self.medium().point("epoch.advance"),
            epoch,
            epoch + 1,
            Release,
            Acquire,
        ) {
            Ok(_) => epoch + 1,
            Err(now) => now,
        }
    }
}

#[cfg(test)]
#[path = "tests/epoch.rs"]
mod tests;
