//! When stores rest: no thread of the process has worked for a while.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// A pause in which the process uses less than `IDLE` of its processors is rest, after `QUIET` of
/// them.
const PAUSE: Duration = Duration::from_millis(10);
const IDLE: Duration = Duration::from_micros(500);
const QUIET: u32 = 12;
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(600);

fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Waits until background threads have done what there was to do. Returns how long they worked.
pub(crate) fn settle() -> Duration {
    let start = Instant::now();
    let (mut worked, mut used, mut quiet) = (Duration::ZERO, process_time(), 0);
    while quiet < QUIET && start.elapsed() < LONGEST {
        std::thread::sleep(PAUSE);
        let now = process_time();
        if now.saturating_sub(used) < IDLE {
            quiet += 1;
        } else {
            (quiet, worked) = (0, start.elapsed());
        }
        used = now;
    }
    worked
}
