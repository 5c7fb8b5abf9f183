//! The contract between an algorithm and the memory below it.

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// Bytes of a cache line: the unit of write-back, and the unit within which stores persist in their
/// order.
pub const LINE: usize = 64;
/// Bytes of a media block of Optane-like memory: the unit in which the device itself reads and
/// writes.
pub const BLOCK: usize = 256;

/// What was done to a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// An atomic 8-byte load.
    Load,
    /// An atomic 8-byte store.
    Store,
    /// A read-modify-write of 8 bytes that stored. Locked instructions also order earlier
    /// write-backs.
    Rmw,
    /// A compare-and-swap that found another value and stored nothing.
    RmwFailed,
    /// `len` bytes written through the cache, in no order, not atomically.
    Copy(usize),
    /// `len` bytes written past the cache: independent 8-byte pieces, durable at the thread's next
    /// fence.
    StreamedCopy(usize),
    /// `len` bytes read in no order.
    Read(usize),
}

/// How an access or a barrier is ordered against the same thread's accesses to other words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A load, or several of one line.
    Load(Ordering),
    /// A store.
    Store(Ordering),
    /// A read-modify-write that stores.
    Rmw(Ordering),
    /// The failure of the read-modify-write that was just tried: it was a load.
    RmwFailed(Ordering),
    /// Every access before it is ordered before every access after it.
    Barrier,
    /// A barrier in every running thread that registered for it, in any process (membarrier(2)).
    GlobalBarrier,
    /// The next synchronisation is an atomic or a lock outside of the medium.
    External,
}

/// Declares that threads synchronise next by something that is not in `medium`. A medium that
/// judges memory orderings by the accesses that it sees needs to know.
#[inline(always)]
#[track_caller]
pub fn external_sync(medium: &impl Medium) {
    medium.ordered(Order::External, Location::caller());
}

/// A full barrier between this thread's earlier and later accesses.
#[inline(always)]
#[track_caller]
pub fn full_barrier(medium: &impl Medium) {
    medium.ordered(Order::Barrier, Location::caller());
    fence(Ordering::SeqCst);
}

/// Memory that words are stored in, and what makes a store durable there.
///
/// Production media implement the first items. The hooks after them are empty there and compile to
/// nothing; test media use them to count, record, delay, schedule and crash.
///
/// # Safety
/// `base()..base() + len()` stays mapped, readable and [`LINE`]-aligned for the life of the medium
/// (writable too, unless it was mapped read-only); `len()` is a multiple of [`LINE`] and never
/// shrinks.
pub unsafe trait Medium: Send + Sync + 'static {
    /// Whether a crash loses the content of the CPU cache. If not, write-backs and fences do
    /// nothing, and code may leave out anything that only orders them.
    const VOLATILE_CACHE: bool;

    /// The address of the first byte.
    fn base(&self) -> NonNull<u8>;
    /// Number of bytes that may be accessed now. Grows, never shrinks.
    fn len(&self) -> usize;
    /// Whether [`Medium::len`] is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether another process has made the memory longer since the last look. Called before an
    /// access beyond [`Medium::len`] is refused; if true, the access is checked once more.
    #[cold]
    fn has_grown(&self) -> bool {
        false
    }
    /// Starts writing the line that holds `at` back to the medium.
    fn write_back(&self, at: *const u8);
    /// Waits until every write-back and streamed copy that this thread started is durable.
    fn fence(&self);

    /// Gives a name to the next access or barrier of this thread, so that a test can refer to it:
    /// `word.load(medium.point("epoch.read"), Acquire)`. The arguments of that access must not
    /// access the medium themselves.
    #[inline(always)]
    fn point(&self, _name: &'static str) -> &Self {
        self
    }
    /// Called before an ordered access, and at a barrier. A test medium weakens the ordering here.
    #[inline(always)]
    fn ordered(&self, _order: Order, _site: &'static Location<'static>) {}
    /// Called before an access. A test medium chooses the schedule here.
    #[inline(always)]
    fn before_access(&self, _access: Access, _at: *const u8) {}
    /// Called after an access. A test medium records, counts and delays here.
    #[inline(always)]
    fn accessed(&self, _access: Access, _at: *const u8, _site: &'static Location<'static>) {}
    /// Called at each place that asks for durability, so that a test can distinguish these places.
    #[inline(always)]
    fn persisted_at(&self, _site: &'static Location<'static>) {}
    /// Called after a prefetch of the line that holds `at`, which may lie outside of the medium.
    #[inline(always)]
    fn prefetched(&self, _at: *const u8) {}
}

/// A medium over a [`Mapping`](crate::Mapping). A pool can construct one; a test medium wraps
/// another.
pub trait MappedMedium: Medium + Sized {
    /// Uses `mapping` as this kind of memory.
    fn new(mapping: crate::Mapping) -> Self;
    /// The mapping below.
    fn mapping(&self) -> &crate::Mapping;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dram, Mapping};
    use std::sync::Mutex;

    /// Memory that records the orders of accesses.
    struct OrderRecorder(Dram, Mutex<Vec<Order>>);

    // SAFETY: the medium below fulfils the contract.
    unsafe impl Medium for OrderRecorder {
        const VOLATILE_CACHE: bool = false;
        fn base(&self) -> NonNull<u8> {
            self.0.base()
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn write_back(&self, _: *const u8) {}
        fn fence(&self) {}
        fn ordered(&self, order: Order, _: &'static Location<'static>) {
            self.1.lock().unwrap().push(order);
        }
    }

    #[test]
    fn barriers_and_external_sync_reach_the_medium() {
        let medium = OrderRecorder(Dram::new(Mapping::anonymous(64, 0).unwrap()), Mutex::default());
        external_sync(&medium);
        full_barrier(&medium);
        assert!(matches!(medium.1.lock().unwrap()[..], [Order::External, Order::Barrier]));
    }
}
