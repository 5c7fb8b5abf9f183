//! Threads that work at the same time, each on its own processor.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::Barrier;
use std::time::Instant;

/// Pins this thread to processor `cpu`, if the system allows it.
pub fn pin_this_thread(cpu: usize) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    set.set(cpu % processors);
    let _ = sched_setaffinity(None, &set);
}

/// Runs `work(thread)` on `threads` pinned threads that start together. Returns the seconds until
/// the last has ended, and all results.
pub fn run_on<R: Send>(threads: usize, work: impl Fn(usize) -> R + Sync) -> (f64, Vec<R>) {
    let barrier = Barrier::new(threads);
    let (work, barrier) = (&work, &barrier);
    let timed: Vec<(Instant, Instant, R)> = std::thread::scope(|scope| {
        let spawn = |thread| {
            scope.spawn(move || {
                pin_this_thread(thread);
                barrier.wait();
                let start = Instant::now();
                let result = work(thread);
                (start, Instant::now(), result)
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        handles.into_iter().map(|handle| handle.join().expect("a worker panicked")).collect()
    });
    let start = timed.iter().map(|t| t.0).min().expect("at least one thread");
    let end = timed.iter().map(|t| t.1).max().expect("at least one thread");
    ((end - start).as_secs_f64(), timed.into_iter().map(|t| t.2).collect())
}

/// Million operations a second when each of `threads` threads does `operations`.
pub fn rate(threads: usize, operations: u64, work: impl Fn(usize) + Sync) -> f64 {
    let (seconds, _) = run_on(threads, work);
    threads as f64 * operations as f64 / seconds / 1e6
}
