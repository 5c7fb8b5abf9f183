//! The machine's clock, for entries that expire.

use rustix::time::{ClockId, clock_gettime};
use terrace_engine::Clock;

/// The wall clock in the precision of the kernel's tick (1 to 4 ms): read without a system call, in a few nanoseconds.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        (now.tv_sec.max(0) as u64) * 1000 + now.tv_nsec as u64 / 1_000_000
    }
}
