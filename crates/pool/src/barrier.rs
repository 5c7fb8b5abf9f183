//! A full barrier that readers do not pay for.
//!
//! A pin must be visible before anything is read under it. The plain way is a full barrier in every pin, about 20 cycles, which also keeps the processor from
//! overlapping the cache misses of two reads. Linux offers the asymmetric way: whoever moves the epoch on, which is rare, makes the kernel put a
//! barrier into every running thread (membarrier(2), about a microsecond), and a pin only keeps the compiler in order. The global form is used, so
//! that it also reaches other processes, which register when they open the pool. Where the kernel refuses it, pins have their barrier.

use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
use std::sync::OnceLock;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence, fence};

/// Registers this process, once. Whether its threads may use [`light`].
pub(crate) fn register() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
            && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
            && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    })
}

/// The reader's side, in a process that is registered: the compiler moves nothing over it, and for the processor [`heavy`] sees to it.
#[inline(always)]
pub(crate) fn light() {
    compiler_fence(SeqCst);
}

/// The other side: when it returns, every thread of every registered process has passed a full barrier since it was called.
pub(crate) fn heavy() {
    fence(SeqCst);
    // It was not refused: only pools of a registered process come here.
    let _ = membarrier(MembarrierCommand::GlobalExpedited);
}
