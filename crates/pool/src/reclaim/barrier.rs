//! A memory barrier whose cost readers do not pay.
//!
//! A pin must be visible before anything is read under it. The plain solution is a full barrier in
//! every pin. It costs about 20 cycles, and it keeps the processor from overlapping the cache
//! misses of two reads. Linux offers an asymmetric one: the thread that advances the epoch, which
//! is rare, makes the kernel execute a barrier in every running thread (membarrier(2), about a
//! microsecond). A pin then only stops the compiler from reordering. The global form also reaches
//! other processes, which register when they open the pool. Where the kernel refuses it, pins have
//! their own barrier.

use crate::base::Base;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence, fence};
use terrace_medium::{MappedMedium, Medium, Order, full_barrier};

/// How a pin gets its memory barrier (see `barrier`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pins {
    /// The thread that advances the epoch lets the kernel issue it in every thread, where possible.
    Light,
    /// Each pin issues its own: runs of a test are reproducible, and the kernel interrupts no
    /// thread.
    Heavy,
    /// As `Light`, but a test's medium stands in for the kernel.
    AsIfLight,
}

/// Registers this process, once. Returns whether its threads may use [`light`].
pub(crate) fn register() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
            && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
            && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    })
}

/// The reader's side, in a registered process: stops the compiler from reordering. [`heavy`] does
/// the same for the processor.
#[inline(always)]
pub(crate) fn light() {
    compiler_fence(SeqCst);
}

/// The other side: when it returns, every thread of every registered process has executed a full
/// barrier since the call.
#[track_caller]
fn heavy(medium: &impl Medium) {
    medium.ordered(Order::GlobalBarrier, Location::caller());
    fence(SeqCst);
    // Never refused here: the pool's processes have registered, or a test's medium stands in for
    // the kernel.
    let _ = membarrier(MembarrierCommand::GlobalExpedited);
}

impl<M: MappedMedium> Base<M> {
    /// The other side of the barrier in pins, in either variant.
    #[track_caller]
    pub(crate) fn barrier_to_pins(&self) {
        if self.light_pins {
            heavy(self.medium());
        } else {
            full_barrier(self.medium());
        }
    }
}

#[cfg(test)]
#[path = "tests/barrier.rs"]
pub(crate) mod tests;
