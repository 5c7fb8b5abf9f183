//! Guards: a thread that is pinned.

use crate::format::slot::ThreadSlot;
use crate::pool::Pool;
use crate::pool::inner::Inner;
use crate::reclaim::epoch::{DEPTH_MASK, FULL_BARRIER, ONE_PIN, OVERFLOWED, UNPIN_WORK};
use crate::sharing::fork::Forked;
use crate::sharing::peers::Peers;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, Word};

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
        let slot = self.0.epochs().own_slot(|| self.0.peers.find_slot());
        match slot.pin.load(self.medium(), Relaxed) {
            0 => self.0.epochs().set_pin(slot, 1),
            word => self.0.epochs().pin_again(slot, word),
        }
        Guard { pool: self, thread_slot: slot, not_send: PhantomData }
    }

    /// As [`Pool::pin`], but returns an error in the child of a fork, where `pin` panics.
    #[inline(always)]
    pub fn try_pin(&self) -> Result<Guard<'_, M>, Forked> {
        self.0.epochs().check_not_forked()?;
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
    pub(crate) fn peers(&self) -> &'p Peers<M> {
        &self.pool.0.peers
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
        self.peers().base().index_of(self.thread_slot)
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
        let erased = ErasedGuard { pin: self.peers(), slot: self.thread_slot, not_send: PhantomData };
        std::mem::forget(self);
        erased
    }
}

impl<M: MappedMedium> Drop for Guard<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        self.pool.0.peers.unpin(self.thread_slot);
    }
}

/// The operations that an [`ErasedGuard`] needs of its pool.
trait Pinned {
    fn unpin_slot(&self, slot: &ThreadSlot);
    fn bytes_at(&self, offset: u64, len: usize) -> Option<&[u8]>;
}

impl<M: MappedMedium> Pinned for Peers<M> {
    fn unpin_slot(&self, slot: &ThreadSlot) {
        self.unpin(slot);
    }
    fn bytes_at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        // SAFETY: called through a guard only: as in `Guard::bytes`.
        unsafe { self.base().region.bytes(offset, len) }
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

impl<M: MappedMedium> Peers<M> {
    #[inline(always)]
    fn unpin(&self, slot: &ThreadSlot) {
        let word = slot.pin.load(self.medium(), Relaxed);
        if word & (UNPIN_WORK | DEPTH_MASK) == 1 {
            self.epochs().clear_pin(slot, 0);
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
        self.epochs().clear_pin(slot, word & (ONE_PIN | FULL_BARRIER));
        if word & OVERFLOWED != 0 {
            self.limbo.flush_overflow(slot, &|lock| self.recover_holder(lock));
        }
        if word & ONE_PIN != 0 {
            self.epochs().return_slot(slot);
        }
    }
}
