//! Threads of a scheduler stay on one core, so that a switch wakes no other one.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The core shared by the threads of a scheduler.
#[derive(Clone, Copy)]
pub(super) struct Core(Option<usize>);

impl Core {
    /// The next of the cores that this process may use, in rotation.
    pub(super) fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let allowed = rustix::thread::sched_getaffinity(None).ok();
        let cores: Vec<usize> = allowed
            .map(|set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
            .unwrap_or_default();
        let next = NEXT.fetch_add(1, Relaxed);
        Self(cores.get(next % cores.len().max(1)).copied())
    }

    /// Pins this thread to the core. If that is refused, switches take longer.
    pub(super) fn stay(self) {
        if let Some(core) = self.0 {
            let mut set = rustix::thread::CpuSet::new();
            set.set(core);
            let _ = rustix::thread::sched_setaffinity(None, &set);
        }
    }
}
