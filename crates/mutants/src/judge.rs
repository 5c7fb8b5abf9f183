//! Judges a mutant: runs the tests that reach it until one fails.
#![allow(
    clippy::disallowed_methods,
    reason = "a hung test is detected by its duration, and its memory by polling"
)]

use crate::program::{Program, print_status};
use crate::{Outcome, apart};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Interval between two checks of a running test.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// A test hangs if it duration this longer than three times its duration without a mutant.
const GRACE: Duration = Duration::from_secs(10);
/// A test that uses more memory than this counts as hung.
const MAX_MEMORY: u64 = 4 << 30;

/// A number that no mutant has.
pub(crate) const NONE: &str = "4294967295";

/// The verdict on a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Killed,
    /// A test did not end, or used too much memory.
    Hung,
    Survived,
    /// No test reaches the mutant.
    NotReached,
}

/// A test that passes without a mutant.
pub(crate) struct Witness {
    program: Program,
    test: String,
    duration: Duration,
    /// The mutants that it reaches.
    reached: BTreeSet<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    Failed,
    Hung,
}

/// Runs each test without a mutant. Returns the tests, fastest first. Leaves out tests that fail,
/// reach no mutant or take longer than `longest`.
pub(crate) fn witnesses(programs: &[Program], scratch: &Path, longest: Duration) -> Outcome<Vec<Witness>> {
    let seen_file = scratch.join("seen");
    let seen_path = seen_file.to_str().ok_or("a path is not valid UTF-8")?;
    fs::create_dir_all(scratch)?;
    let mut witnesses = Vec::new();
    for program in programs {
        for test in tests(program)? {
            let _ = fs::remove_file(&seen_file);
            let mut witness =
                Witness { program: program.clone(), test, duration: longest, reached: BTreeSet::new() };
            let run = |variable| run(&witness, variable, &scratch.join("temporary"), longest);
            let began = Instant::now();
            let ends = [run(("MUTANT", NONE)), run(("MUTANTS_SEEN", seen_path))];
            if ends.contains(&End::Failed) {
                print_status(&format!(
                    "{} of {} fails without a mutant",
                    witness.test,
                    program.path.display()
                ));
            }
            if ends == [End::Passed; 2] {
                let seen = fs::read_to_string(&seen_file).unwrap_or_default();
                witness.duration = began.elapsed() / 2;
                witness.reached = seen.lines().filter_map(|number| number.parse().ok()).collect();
                witnesses.push(witness);
            }
        }
    }
    witnesses.retain(|witness| !witness.reached.is_empty());
    witnesses.sort_by_key(|witness| witness.duration);
    Ok(witnesses)
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

pub(crate) fn tests(program: &Program) -> Outcome<Vec<String>> {
    let output = Command::new(&program.path).args(["--list", "--format=terse"]).output()?;
    let listed = String::from_utf8(output.stdout)?;
    Ok(listed.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_string())).collect())
}

/// Runs the tests that reach this mutant, one after the other, until one fails.
pub(crate) fn judge(number: usize, witnesses: &[Witness], scratch: &Path) -> Verdict {
    let mut verdict = Verdict::NotReached;
    for witness in witnesses.iter().filter(|witness| witness.reached.contains(&number)) {
        let limit = witness.duration * 3 + GRACE;
        match run(witness, ("MUTANT", &number.to_string()), scratch, limit) {
            End::Passed => verdict = Verdict::Survived,
            End::Failed => return Verdict::Killed,
            End::Hung => return Verdict::Hung,
        }
    }
    verdict
}

/// Number and total duration of the tests, for people.
pub(crate) fn describe(witnesses: &[Witness]) -> String {
    let all: Duration = witnesses.iter().map(|witness| witness.duration).sum();
    format!("{} tests, {:.1} s in all", witnesses.len(), all.as_secs_f64())
}

fn run(witness: &Witness, variable: (&str, &str), temporary: &Path, limit: Duration) -> End {
    run_test(&witness.program, &witness.test, variable, temporary, limit)
}

/// Runs one test of a program, with this variable in its environment.
pub(crate) fn run_test(
    program: &Program,
    test: &str,
    variable: (&str, &str),
    temporary: &Path,
    limit: Duration,
) -> End {
    let _ = fs::remove_dir_all(temporary);
    let (Ok(()), Some(path)) = (fs::create_dir_all(temporary), program.path.to_str()) else {
        return End::Hung;
    };
    let mut command = apart::command(path);
    command.args(["--quiet", "--exact", test]).current_dir(&program.directory);
    command.env("CARGO_MANIFEST_DIR", &program.directory).env(variable.0, variable.1);
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
