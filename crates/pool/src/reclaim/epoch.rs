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

use crate::pool::{Inner, Pool};
use crate::reclaim::barrier;
use crate::reclaim::slots::ThreadSlot;
use crate::sharing::fork::Forked;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Word, full_barrier};

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
const UNPIN_WORK: u64 = ONE_PIN | OVERFLOWED | FULL_BARRIER;

/// A pin of this thread: nothing that the thread can reach in the pool is freed. Pins nest, and the
/// inner ones are nearly free. A long-lived guard keeps all memory that any thread retires
/// meanwhile from being reused.
///
/// All allocation goes through a guard, too: see [`Guard::alloc`].
pub struct Guard<'p, M: MappedMedium> {
    pool: &'p Pool<M>,
    thread_slot: &'p ThreadSlot,
    /// Thread slots belong to threads.
    not_send: PhantomData<*const ()>,
}

impl<M: MappedMedium> Pool<M> {
    /// Pins this thread. Takes a few nanoseconds; the first time in a thread a little longer, since
    /// it takes a thread slot. When more threads are pinned than the pool has slots, waits until
    /// one unpins.
    #[inline(always)]
    pub fn pin(&self) -> Guard<'_, M> {
        let slot = self.0.own_slot();
        match slot.pin.load(self.medium(), Relaxed) {
            0 => self.0.set_pin(slot, 1),
            word => self.0.pin_again(slot, word),
        }
        Guard { pool: self, thread_slot: slot, not_send: PhantomData }
    }

    /// As [`Pool::pin`], but returns an error in the child of a fork, where `pin` panics.
    #[inline(always)]
    pub fn try_pin(&self) -> Result<Guard<'_, M>, Forked> {
        self.0.check_not_forked()?;
        Ok(self.pin())
    }
}

impl<'p, M: MappedMedium> Guard<'p, M> {
    /// The pinned pool.
    #[inline(always)]
    pub fn pool(&self) -> &'p Pool<M> {
        self.pool
    }

    #[inline(always)]
    pub(crate) fn inner(&self) -> &'p Inner<M> {
        &self.pool.0
    }

    #[inline(always)]
    pub(crate) fn thread_slot(&self) -> &'p ThreadSlot {
        self.thread_slot
    }

    /// The number of guards that this thread has.
    pub fn depth(&self) -> u64 {
        self.thread_slot.pin.load(self.pool.medium(), Relaxed) & DEPTH_MASK
    }

    /// The index of this thread's slot; different for all pinned threads. For choosing a stripe.
    #[inline(always)]
    pub fn slot_index(&self) -> u64 {
        self.inner().index_of(self.thread_slot)
    }

    /// A counter word that only the current owner of this slot writes: add to it with a load and a
    /// store. Counters are not persisted, and are zero when a pool is opened. See
    /// [`Pool::sum_counter`].
    ///
    /// # Panics
    /// If `counter` is not below 8.
    #[inline(always)]
    pub fn slot_counter(&self, counter: usize) -> &'p Word {
        &self.thread_slot.counters[counter]
    }

    /// The `len` bytes at `offset`; `None` if they are not all in the pool.
    ///
    /// By the contract of all layers above the pool, bytes that readers can reach are written
    /// before they are published, and not again until every guard that could see them is gone.
    /// Words that change while reachable are read as words, through [`Pool::region`], and never
    /// through this.
    #[inline(always)]
    #[track_caller]
    pub fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        // SAFETY: no thread writes reachable bytes while this guard exists: see above.
        unsafe { self.pool.region().bytes(offset, len) }
    }

    /// This guard without the type of its medium.
    #[inline(always)]
    pub fn erase(self) -> ErasedGuard<'p> {
        let erased = ErasedGuard { pin: &*self.pool.0, slot: self.thread_slot, not_send: PhantomData };
        std::mem::forget(self);
        erased
    }
}

impl<M: MappedMedium> Drop for Guard<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        self.pool.0.unpin(self.thread_slot);
    }
}

/// The operations that an [`ErasedGuard`] needs of its pool.
trait Pinned {
    fn unpin_slot(&self, slot: &ThreadSlot);
    fn bytes_at(&self, offset: u64, len: usize) -> Option<&[u8]>;
}

impl<M: MappedMedium> Pinned for Inner<M> {
    fn unpin_slot(&self, slot: &ThreadSlot) {
        self.unpin(slot);
    }
    fn bytes_at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        // SAFETY: called through a guard only: as in `Guard::bytes`.
        unsafe { self.region.bytes(offset, len) }
    }
}

/// A [`Guard`] without the type of its medium.
pub struct ErasedGuard<'p> {
    pin: &'p dyn Pinned,
    slot: &'p ThreadSlot,
    not_send: PhantomData<*const ()>,
}

impl<'p> ErasedGuard<'p> {
    /// As [`Guard::bytes`].
    pub fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.pin.bytes_at(offset, len)
    }

    /// The `len` bytes at `offset` together with the guard that protects them; `None` if they are
    /// not all in the pool.
    pub fn hold(self, offset: u64, len: usize) -> Option<PinnedBytes<'p>> {
        let bytes: *const [u8] = self.pin.bytes_at(offset, len)?;
        Some(PinnedBytes { bytes, _guard: self })
    }
}

impl Drop for ErasedGuard<'_> {
    fn drop(&mut self) {
        self.pin.unpin_slot(self.slot);
    }
}

/// Bytes of a pool, and the guard that protects them from being written.
pub struct PinnedBytes<'p> {
    bytes: *const [u8],
    _guard: ErasedGuard<'p>,
}

impl std::ops::Deref for PinnedBytes<'_> {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes were in the pool when this was made. The pool outlives 'p and never
        // shrinks, and the guard keeps them from being written.
        unsafe { &*self.bytes }
    }
}

impl<M: MappedMedium> Inner<M> {
    #[inline(always)]
    pub(crate) fn set_pin(&self, slot: &ThreadSlot, depth_and_flags: u64) {
        // ORDER: Acquire: pairs with the advance to this epoch, so that what was unlinked before it
        // is seen unlinked.
        self.set_pin_at(self.epoch(), slot, depth_and_flags);
    }

    /// Stores a pin for an epoch that was read before.
    #[inline(always)]
    pub(crate) fn set_pin_at(&self, epoch: u64, slot: &ThreadSlot, depth_and_flags: u64) {
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
    fn pin_again(&self, slot: &ThreadSlot, word: u64) {
        match word & DEPTH_MASK {
            0 => self.set_pin(slot, word | 1),
            DEPTH_MASK => panic!("this thread holds {DEPTH_MASK} guards of the pool: some were forgotten"),
            _ => slot.pin.store(self.medium(), word + 1, Relaxed),
        }
    }

    #[inline(always)]
    fn unpin(&self, slot: &ThreadSlot) {
        let word = slot.pin.load(self.medium(), Relaxed);
        if word & (UNPIN_WORK | DEPTH_MASK) == 1 {
            self.clear_pin(slot, 0);
        } else {
            self.unpin_slow(slot, word);
        }
    }

    #[cold]
    fn unpin_slow(&self, slot: &ThreadSlot, word: u64) {
        if word & DEPTH_MASK > 1 {
            slot.pin.store(self.medium(), word - 1, Relaxed);
            return;
        }
        self.clear_pin(slot, word & (ONE_PIN | FULL_BARRIER));
        if word & OVERFLOWED != 0 {
            self.flush_overflow(slot);
        }
        if word & ONE_PIN != 0 {
            self.return_slot(slot);
        }
    }

    /// Clears the pin word, except for `flags`.
    #[inline(always)]
    pub(crate) fn clear_pin(&self, slot: &ThreadSlot, flags: u64) {
        // ORDER: Release: comes after everything done under the pin, unlinking included.
        slot.pin.store(self.medium(), flags, Release);
    }

    /// Requests work when the owner of `slot`, which is this thread, unpins.
    pub(crate) fn request_unpin_work(&self, slot: &ThreadSlot, flag: u64) {
        let word = slot.pin.load(self.medium(), Relaxed);
        slot.pin.store(self.medium(), word | flag, Relaxed);
    }

    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        // ORDER: Acquire: pairs with the advances up to this epoch.
        self.shared().epoch.load(self.medium().point("epoch.read"), Acquire)
    }

    /// Whether a thread is pinned in an earlier epoch than `epoch`.
    fn is_held_up(&self, epoch: u64) -> bool {
        self.used_slots().any(|slot| self.is_pinned_before(slot, epoch) == Some(true))
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
        self.barrier_to_pins();
        if self.is_held_up(epoch) {
            return epoch;
        }
        // ORDER: Release: pairs with the loads of the epoch. Acquire, if another thread was first:
        // a thread that waits for the advance sees all that the advancing threads had seen done.
        match self.shared().epoch.compare_exchange(
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
