//! A clock that is read in a few nanoseconds, and waiting on it.

use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds since the first call.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn now_ns() -> u64 {
    static SCALE: OnceLock<tsc::Scale> = OnceLock::new();
    SCALE.get_or_init(tsc::Scale::measure).now_ns()
}

/// Nanoseconds since the first call.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn now_ns() -> u64 {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    STARTED.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Busy-waits until `moment`, since no wake-up takes less than a hundred nanoseconds. Without the
/// pause instruction, which takes up to 50 ns.
#[inline]
pub(super) fn wait_until(moment: u64) {
    while now_ns() < moment {}
}

#[cfg(target_arch = "x86_64")]
mod tsc {
    use super::Instant;
    use std::time::Duration;

    /// The start of the processor's counter and the length of its tick.
    pub(super) struct Scale {
        first_tick: u64,
        /// Nanoseconds per tick, times 2^32.
        ns_q32: u64,
    }

    impl Scale {
        /// Compares the counter with the system's clock for 10 ms.
        pub(super) fn measure() -> Self {
            let (started, first_tick) = (Instant::now(), ticks());
            while started.elapsed() < Duration::from_millis(10) {
                std::hint::spin_loop();
            }
            let (ns, ticks) = (started.elapsed().as_nanos(), u128::from(ticks() - first_tick));
            Self { first_tick, ns_q32: ((ns << 32) / ticks.max(1)) as u64 }
        }

        #[inline]
        pub(super) fn now_ns(&self) -> u64 {
            let ticks = ticks().saturating_sub(self.first_tick);
            ((u128::from(ticks) * u128::from(self.ns_q32)) >> 32) as u64
        }
    }

    #[inline]
    fn ticks() -> u64 {
        // SAFETY: every x86-64 processor has the instruction.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
}
