//! A full barrier that readers do not pay for.
//!
//! A pin must be visible before anything is read under it. The plain way is a full barrier in every pin, about 20 cycles, which also keeps the processor from
//! overlapping the cache misses of two reads. Linux offers the asymmetric way: whoever moves the epoch on, which is rare, makes the kernel put a
//! barrier into every running thread (membarrier(2), about a microsecond), and a pin only keeps the compiler in order. The global form is used, so
//! that it also reaches other processes, which register when they open the pool. Where the kernel refuses it, pins have their barrier.

use crate::pool::Inner;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence, fence};
use terrace_medium::{MappedMedium, Medium, Order, full_barrier};

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
#[track_caller]
fn heavy(medium: &impl Medium) {
    medium.ordered(Order::GlobalBarrier, Location::caller());
    fence(SeqCst);
    // It was not refused: only pools of a registered process come here, and those of tests whose medium stands for it.
    let _ = membarrier(MembarrierCommand::GlobalExpedited);
}

impl<M: MappedMedium> Inner<M> {
    /// The other side of the barrier of pins, whichever that is.
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
pub(crate) mod tests {
    use super::*;
    use crate::small::exclusive_pool;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
    use terrace_medium::Dram;

    const ROUNDS: u64 = 50;
    const WORDS: usize = 32;

    #[derive(Default)]
    #[repr(align(128))]
    struct Stored([AtomicU64; WORDS]);

    /// Two threads that do each round together.
    #[derive(Default)]
    struct Two {
        stored: [Stored; 2],
        arrived: AtomicU64,
    }

    impl Two {
        /// In each round, for each word: stores to the own one, passes the barrier, and looks at the other's. Whether the other's store of this round was there.
        fn run(&self, own: usize, processor: usize, barrier: impl Fn()) -> Vec<bool> {
            let mut only = CpuSet::new();
            only.set(processor);
            // Refused, they may be on the same one, and find less.
            let _ = sched_setaffinity(None, &only);
            let (mine, others) = (&self.stored[own].0, &self.stored[1 - own].0);
            let mut seen = Vec::new();
            for round in 1..=ROUNDS {
                self.meet(round);
                seen.extend(mine.iter().zip(others).map(|(mine, other)| {
                    mine.store(round, Relaxed);
                    barrier();
                    other.load(Relaxed) == round
                }));
            }
            seen
        }

        /// Returns when both have called it for this round.
        fn meet(&self, round: u64) {
            self.arrived.fetch_add(1, AcqRel);
            for tries in 1_u64.. {
                if self.arrived.load(Acquire) >= 2 * round {
                    return;
                }
                // Not soon: who rests is not there when the other comes.
                match tries % (1 << 16) {
                    0 => std::thread::yield_now(),
                    _ => std::hint::spin_loop(),
                }
            }
        }
    }

    /// How often two threads, each of which stores, passes its barrier and looks, have both missed the other's store. `None` where they can't be at work at the same time.
    pub(crate) fn missed(one: impl Fn() + Send, other: impl Fn() + Send) -> Option<usize> {
        let processors = sched_getaffinity(None).unwrap_or_default();
        let usable: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&cpu| processors.is_set(cpu)).collect();
        let [first, second, ..] = usable[..] else { return None };
        let two = &Two::default();
        let (one, other) = std::thread::scope(|threads| {
            let one = threads.spawn(move || two.run(0, first, one));
            let other = threads.spawn(move || two.run(1, second, other));
            (one.join().unwrap(), other.join().unwrap())
        });
        Some(one.iter().zip(&other).filter(|(one, other)| !**one && !**other).count())
    }

    #[test]
    fn light_and_heavy_barrier_order_store_before_load() {
        // Where it is refused, nobody is light.
        if register() {
            let pool = exclusive_pool::<Dram>();
            assert!(matches!(missed(light, || heavy(pool.medium())), None | Some(0)));
        }
    }
}
