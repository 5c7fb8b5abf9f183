//! A watchdog for tests in which processes wait for each other: a hang fails the test and prints
//! where each thread waits.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Seconds without progress after which the test fails.
const LONG: u32 = 120;

/// Runs `work`, which counts up `progress`. Prints all stacks and aborts if `progress` stops for
/// long.
#[allow(unreachable_pub, reason = "of the tests that use it")]
pub fn watched<R>(progress: &AtomicU64, work: impl FnOnce() -> R) -> R {
    let done = AtomicU64::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (mut last, mut seconds) = (0, 0);
            while done.load(Relaxed) == 0 {
                a_second();
                let now = progress.load(Relaxed);
                seconds = if now == last { seconds + 1 } else { 0 };
                last = now;
                if seconds > LONG {
                    hang(now);
                }
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(1, Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[allow(clippy::disallowed_methods, reason = "the watchdog")]
fn a_second() {
    std::thread::sleep(Duration::from_secs(1));
}

#[allow(clippy::print_stderr, reason = "the report of the failure")]
fn hang(round: u64) -> ! {
    eprintln!("a process hangs after round {round}: the stacks of all processes, if gdb is there:");
    // The children run this binary, too.
    let binary = std::env::current_exe().ok();
    let name = binary.as_ref().and_then(|path| path.file_name()).unwrap_or_default();
    let processes = Command::new("pgrep").arg("-f").arg(name).output();
    let processes = processes.map_or(Vec::new(), |output| output.stdout);
    for pid in String::from_utf8_lossy(&processes).split_whitespace() {
        let stacks = ["-p", pid, "-batch", "-ex", "thread apply all bt 12"];
        let output = Command::new("gdb").args(stacks).output();
        eprintln!("{pid}: {}", String::from_utf8_lossy(&output.map_or(Vec::new(), |output| output.stdout)));
    }
    // The children would never end. This also ends this process.
    let _ = Command::new("pkill").arg("-KILL").arg("-f").arg(name).status();
    std::process::abort()
}
