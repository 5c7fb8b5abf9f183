//! Tests of `barrier`.

use super::*;
use crate::tests::fixtures::exclusive_pool;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use terrace_medium::Dram;

const ROUNDS: u64 = 50;
const WORDS: usize = 32;

#[derive(Default)]
#[repr(align(128))]
struct Stored([AtomicU64; WORDS]);

/// Two threads that run rounds in lockstep.
#[derive(Default)]
struct Two {
    stored: [Stored; 2],
    arrived: AtomicU64,
}

impl Two {
    /// In each round, for each word: stores to its own, executes the barrier, and loads the
    /// other thread's. Returns whether each load saw the store of this round.
    fn run(&self, own: usize, processor: usize, barrier: impl Fn()) -> Vec<bool> {
        let mut only = CpuSet::new();
        only.set(processor);
        // If this is refused, both may run on the same processor and detect less.
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

    /// Returns when both threads have called it for this round.
    fn meet(&self, round: u64) {
        self.arrived.fetch_add(1, AcqRel);
        for tries in 1_u64.. {
            if self.arrived.load(Acquire) >= 2 * round {
                return;
            }
            // Yields rarely: a thread that yields is late when the other comes.
            match tries % (1 << 16) {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

/// Counts how often two threads, each of which stores, executes its barrier and loads, both
/// missed the other's store. `None` if they cannot run at the same time.
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
    // Where the kernel refuses it, no process uses the light barrier.
    if register() {
        let pool = exclusive_pool::<Dram>();
        assert!(matches!(missed(light, || heavy(pool.medium())), None | Some(0)));
    }
}
