//! Threads that work at the same time, each on its own processor.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::{Barrier, OnceLock};
use std::time::Instant;

/// The number of the `nth` processor that this process may use, counted round: a container may have
/// processors 6 and 7 only.
pub fn processor(nth: usize) -> usize {
    static USABLE: OnceLock<Vec<usize>> = OnceLock::new();
    let usable = USABLE.get_or_init(|| {
        let set = sched_getaffinity(None).unwrap_or_default();
        (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
    });
    usable.get(nth % usable.len().max(1)).copied().unwrap_or(0)
}

/// Pins this thread to the processor that [`processor`] names, if the system allows it.
pub fn pin_this_thread(nth: usize) {
    let mut set = CpuSet::new();
    set.set(processor(nth));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_names_each_usable_one_in_turn() {
        let set = sched_getaffinity(None).unwrap();
        let usable = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).count();
        let named: Vec<usize> = (0..usable).map(processor).collect();
        assert!(named.is_sorted() && named.iter().all(|&cpu| set.is_set(cpu)), "{named:?}");
        assert_eq!((processor(usable), processor(usable + 1)), (named[0], named[1 % usable]));
    }
}
