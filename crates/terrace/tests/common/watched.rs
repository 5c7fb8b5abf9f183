//! A stop-watch for tests in which processes wait for each other: a hang is a failure that shows who waits where.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Without progress for so many seconds, somebody hangs.
const LONG: u32 = 120;

/// Runs `work`, which counts up `progress`; ends this process, with a word, if that stands still for long.
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

#[allow(clippy::disallowed_methods, reason = "the stop-watch")]
fn a_second() {
    std::thread::sleep(Duration::from_secs(1));
}

#[allow(clippy::print_stderr, reason = "the last word of the test")]
fn hang(round: u64) -> ! {
    eprintln!("somebody hangs after round {round}: the stacks of all processes, if gdb is there:");
    // The children are this binary again.
    let binary = std::env::current_exe().ok();
    let name = binary.as_ref().and_then(|path| path.file_name()).unwrap_or_default();
    let processes = Command::new("pgrep").arg("-f").arg(name).output();
    let processes = processes.map_or(Vec::new(), |output| output.stdout);
    for pid in String::from_utf8_lossy(&processes).split_whitespace() {
        let stacks = ["-p", pid, "-batch", "-ex", "thread apply all bt 12"];
        let output = Command::new("gdb").args(stacks).output();
        eprintln!("{pid}: {}", String::from_utf8_lossy(&output.map_or(Vec::new(), |output| output.stdout)));
    }
    // The children would go on for ever. It ends this process, too.
    let _ = Command::new("pkill").arg("-KILL").arg("-f").arg(name).status();
    std::process::abort()
}
