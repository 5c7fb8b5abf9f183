//! The contract between an algorithm and the memory below it.

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// Bytes of a cache line: the unit of write-back, and the unit within which stores persist in their order.
pub const LINE: usize = 64;
/// Bytes of a media block of Optane-like memory: the unit in which the device itself reads and writes.
pub const BLOCK: usize = 256;

/// What was done to a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// An atomic 8-byte load.
    Load,
    /// An atomic 8-byte store.
    Store,
    /// A read-modify-write of 8 bytes that stored. Locked instructions also order earlier write-backs.
    Rmw,
    /// A compare-and-swap that found another value and stored nothing.
    RmwFailed,
    /// `len` bytes written through the cache, in no order, not atomically.
    Copy(usize),
    /// `len` bytes written past the cache: independent 8-byte pieces, durable at the thread's next fence.
    StreamedCopy(usize),
    /// `len` bytes read in no order.
    Read(usize),
}

/// How an access of words, or a barrier, is ordered against what the same thread does to other words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A load, or several of one line.
    Load(Ordering),
    /// A store.
    Store(Ordering),
    /// A read-modify-write that stores.
    Rmw(Ordering),
    /// The one that was just tried has failed, and was a load.
    RmwFailed(Ordering),
    /// Everything before it comes before everything behind it.
    Barrier,
    /// The same in every thread, whatever it is at: the system makes it for who asks.
    BarrierOfAll,
    /// What is next is an atomic or a lock outside of the medium, by which threads synchronise.
    Elsewhere,
}

/// Says that threads synchronise by what comes next, though it is not in `medium`: for who judges orders by what they see of the medium.
#[inline(always)]
#[track_caller]
pub fn elsewhere(medium: &impl Medium) {
    medium.ordered(Order::Elsewhere, Location::caller());
}

/// A full barrier between what this thread does to `medium` before it and behind it.
#[inline(always)]
#[track_caller]
pub fn full_barrier(medium: &impl Medium) {
    medium.ordered(Order::Barrier, Location::caller());
    fence(Ordering::SeqCst);
}

/// Memory that words are stored in, and what makes a store durable there.
///
/// Production media implement the first five items; the five hooks below them are empty there and compile to
/// nothing. Test media use the hooks to count, record, delay, schedule and crash.
///
/// # Safety
/// `base()..base() + len()` stays mapped, readable and [`LINE`]-aligned for the life of the medium (writable too, unless
/// it was mapped read-only); `len()` is a multiple of [`LINE`] and never shrinks.
pub unsafe trait Medium: Send + Sync + 'static {
    /// Whether a crash loses what sits in the CPU cache. Where it is false, write-backs and fences do nothing and code
    /// may leave out whatever exists only to order them.
    const VOLATILE_CACHE: bool;

    /// The first byte.
    fn base(&self) -> NonNull<u8>;
    /// Bytes that may be accessed now. Grows, never shrinks.
    fn len(&self) -> usize;
    /// Whether there is nothing to access.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Called before an access beyond [`Medium::len`] is refused: whether the memory has grown since, through another process, so that it is worth another look.
    #[cold]
    fn has_grown(&self) -> bool {
        false
    }
    /// Starts writing the line that holds `at` back to where a crash keeps it.
    fn write_back(&self, at: *const u8);
    /// Waits until every write-back and streamed copy that this thread started is durable.
    fn fence(&self);

    /// Called before an access of words that has an order, and at a barrier: a test medium weakens it here.
    #[inline(always)]
    fn ordered(&self, _order: Order, _site: &'static Location<'static>) {}
    /// Called before an access: a test medium chooses the schedule here.
    #[inline(always)]
    fn before_access(&self, _access: Access, _at: *const u8) {}
    /// Called after an access: a test medium records, counts and delays here.
    #[inline(always)]
    fn accessed(&self, _access: Access, _at: *const u8, _site: &'static Location<'static>) {}
    /// Called at each place that asks for durability, so that a test can tell the places apart.
    #[inline(always)]
    fn persisted_at(&self, _site: &'static Location<'static>) {}
    /// Called after the line that holds `at`, which may lie outside, was asked for ahead of its use.
    #[inline(always)]
    fn prefetched(&self, _at: *const u8) {}
}

/// A medium over a [`Mapping`](crate::Mapping), so that a pool can make one; a test medium wraps another.
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

    /// Memory that takes note of what is ordered.
    struct Ordered(Dram, Mutex<Vec<Order>>);

    // SAFETY: that of the medium below.
    unsafe impl Medium for Ordered {
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
    fn a_medium_is_told_of_barriers_and_of_what_orders_threads_elsewhere() {
        let medium = Ordered(Dram::new(Mapping::anonymous(64, 0).unwrap()), Mutex::default());
        elsewhere(&medium);
        full_barrier(&medium);
        assert!(matches!(medium.1.lock().unwrap()[..], [Order::Elsewhere, Order::Barrier]));
    }
}
