//! The turns that the scheduler deals to a thread.

use std::mem::size_of;

/// From now on the calling thread has its turns on a processor all at once: the same share of it, in longer pieces, and whoever wakes up meanwhile and would run for a shorter time goes first. For a thread that computes for
/// seconds, so that nobody who has slept waits for the end of its turn. (Not for less of the processor: it may hold up the epoch.) Kernels before 6.12, and any that refuse, change nothing.
pub fn take_long_turns() {
    /// The longest that can be asked for: `sched_runtime` of sched_setattr(2), in nanoseconds.
    const TURN: u64 = 100_000_000;
    // SAFETY: plain old data, of which zeros are a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the kernel writes at most `size` bytes, which `attributes` has.
    if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } != 0 {
        return;
    }
    attributes.sched_runtime = TURN;
    // SAFETY: the kernel reads as many bytes as `size` in `attributes` says, which it has itself filled in.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}
