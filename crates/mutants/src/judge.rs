//! Runs one test of a program with a fault, and bounds its time and its memory.
#![allow(
    clippy::disallowed_methods,
    reason = "a hung test is detected by its duration, and its memory by polling"
)]

use crate::program::Program;
use crate::{Outcome, apart};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Interval between two checks of a running test.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// A test that uses more memory than this counts as hung.
const MAX_MEMORY: u64 = 4 << 30;

/// A number that no fault has.
pub(crate) const NONE: &str = "4294967295";

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    Failed,
    Hung,
}

impl End {
    pub(crate) fn passed(self) -> bool {
        self == Self::Passed
    }

    /// Describes the end for people.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Hung => "did not end, or used too much memory",
        }
    }
}

/// The names of a program's tests.
pub(crate) fn tests(program: &Program) -> Outcome<Vec<String>> {
    let output = Command::new(&program.path).args(["--list", "--format=terse"]).output()?;
    let listed = String::from_utf8(output.stdout)?;
    Ok(listed.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_string())).collect())
}

/// Runs one test of a program with this fault switched on.
pub(crate) fn run_test(program: &Program, test: &str, fault: &str, temporary: &Path, limit: Duration) -> End {
    let _ = fs::remove_dir_all(temporary);
    let (Ok(()), Some(path)) = (fs::create_dir_all(temporary), program.path.to_str()) else {
        return End::Hung;
    };
    let mut command = apart::command(path);
    command.args(["--quiet", "--exact", test]).current_dir(&program.directory);
    command.env("CARGO_MANIFEST_DIR", &program.directory).env("MUTANT", fault);
    command.env("TMPDIR", temporary).env("PROPTEST_FAILURE_PERSISTENCE", "off").env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let Ok(child) = command.spawn() else { return End::Hung };
    let end = wait(child, limit);
    let _ = fs::remove_dir_all(temporary);
    end
}

/// Waits until a process ends. Kills its process group if it takes too long or uses too much
/// memory.
pub(crate) fn wait(mut child: Child, limit: Duration) -> End {
    let began = Instant::now();
    let end = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break End::Passed,
            Ok(Some(_)) | Err(_) => break End::Failed,
            Ok(None) if began.elapsed() > limit || uses_too_much_memory(child.id()) => break End::Hung,
            Ok(None) => std::thread::sleep(POLL_INTERVAL),
        }
    };
    // Also kill processes that the test has left running.
    if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
    end
}

fn uses_too_much_memory(pid: u32) -> bool {
    resident_bytes(pid).is_some_and(|bytes| bytes > MAX_MEMORY)
}

/// Resident memory of a process, private and shared.
fn resident_bytes(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
#[test]
fn resident_bytes_are_read() {
    let bytes = resident_bytes(std::process::id()).unwrap();
    assert!((1 << 20..MAX_MEMORY).contains(&bytes), "{bytes}");
}
