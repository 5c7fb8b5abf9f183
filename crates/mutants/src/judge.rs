//! Whether a test fails with a mutant.
#![allow(
    clippy::disallowed_methods,
    reason = "a test that hangs is told by the time that it takes, and its memory by looking now and then"
)]

use crate::program::{Program, say};
use crate::{Outcome, apart};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at a test.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Beyond three times what it takes without a mutant, a test counts as hung.
const PATIENCE: Duration = Duration::from_secs(10);
/// A test that takes more memory than this has a mutant that never ends.
const MOST_MEMORY: u64 = 4 << 30;

/// No mutant has this number.
pub(crate) const NONE: &str = "4294967295";

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Killed,
    /// A test ran for ever, or took all memory.
    Hung,
    Missed,
    /// No test comes by.
    Unseen,
}

/// A test that passes, with what it does.
pub(crate) struct Witness {
    program: Program,
    test: String,
    takes: Duration,
    /// The mutants that it comes by.
    seen: BTreeSet<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    Failed,
    Hung,
}

/// Runs each test without a mutant. Fastest first. What takes longer than `longest`, comes by nothing, or fails as it is, is not asked.
pub(crate) fn witnesses(programs: &[Program], scratch: &Path, longest: Duration) -> Outcome<Vec<Witness>> {
    let seen_file = scratch.join("seen");
    let seen_path = seen_file.to_str().ok_or("a path is no text")?;
    fs::create_dir_all(scratch)?;
    let mut witnesses = Vec::new();
    for program in programs {
        for test in tests(program)? {
            let _ = fs::remove_file(&seen_file);
            let mut witness =
                Witness { program: program.clone(), test, takes: longest, seen: BTreeSet::new() };
            let run = |variable| run(&witness, variable, &scratch.join("temporary"), longest);
            let began = Instant::now();
            let ends = [run(("MUTANT", NONE)), run(("MUTANTS_SEEN", seen_path))];
            if ends.contains(&End::Failed) {
                say(&format!("{} of {} fails without any mutant", witness.test, program.path.display()));
            }
            if ends == [End::Passed; 2] {
                let seen = fs::read_to_string(&seen_file).unwrap_or_default();
                witness.takes = began.elapsed() / 2;
                witness.seen = seen.lines().filter_map(|number| number.parse().ok()).collect();
                witnesses.push(witness);
            }
        }
    }
    witnesses.retain(|witness| !witness.seen.is_empty());
    witnesses.sort_by_key(|witness| witness.takes);
    Ok(witnesses)
}

impl End {
    pub(crate) fn passed(self) -> bool {
        self == Self::Passed
    }

    /// What happened, for people.
    pub(crate) fn story(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Hung => "did not come to an end, or took too much memory",
        }
    }
}

fn tests(program: &Program) -> Outcome<Vec<String>> {
    let output = Command::new(&program.path).args(["--list", "--format=terse"]).output()?;
    let listed = String::from_utf8(output.stdout)?;
    Ok(listed.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_string())).collect())
}

/// Asks those witnesses that come by, one after the other, until one fails.
pub(crate) fn judge(number: usize, witnesses: &[Witness], scratch: &Path) -> Verdict {
    let mut verdict = Verdict::Unseen;
    for witness in witnesses.iter().filter(|witness| witness.seen.contains(&number)) {
        let limit = witness.takes * 3 + PATIENCE;
        match run(witness, ("MUTANT", &number.to_string()), scratch, limit) {
            End::Passed => verdict = Verdict::Missed,
            End::Failed => return Verdict::Killed,
            End::Hung => return Verdict::Hung,
        }
    }
    verdict
}

/// How many there are and how long they take one after the other, for people.
pub(crate) fn describe(witnesses: &[Witness]) -> String {
    let all: Duration = witnesses.iter().map(|witness| witness.takes).sum();
    format!("{} tests, {:.1} s in all", witnesses.len(), all.as_secs_f64())
}

fn run(witness: &Witness, variable: (&str, &str), temporary: &Path, limit: Duration) -> End {
    let program = &witness.program;
    let _ = fs::remove_dir_all(temporary);
    let (Ok(()), Some(path)) = (fs::create_dir_all(temporary), program.path.to_str()) else {
        return End::Hung;
    };
    let mut command = apart::command(path);
    command.args(["--quiet", "--exact", &witness.test]).current_dir(&program.directory);
    command.env("CARGO_MANIFEST_DIR", &program.directory).env(variable.0, variable.1);
    command.env("TMPDIR", temporary).env("PROPTEST_FAILURE_PERSISTENCE", "off").env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let Ok(child) = command.spawn() else { return End::Hung };
    let end = wait(child, limit);
    let _ = fs::remove_dir_all(temporary);
    end
}

/// Waits until a process has ended, and kills its group if that takes too long.
pub(crate) fn wait(mut child: Child, limit: Duration) -> End {
    let began = Instant::now();
    let end = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break End::Passed,
            Ok(Some(_)) | Err(_) => break End::Failed,
            Ok(None) if began.elapsed() > limit || takes_too_much(child.id()) => break End::Hung,
            Ok(None) => std::thread::sleep(LOOK_EVERY),
        }
    };
    // Also what it has left running.
    if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
    end
}

fn takes_too_much(pid: u32) -> bool {
    resident_bytes(pid).is_some_and(|bytes| bytes > MOST_MEMORY)
}

/// Resident memory of a process, private or shared.
fn resident_bytes(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
#[test]
fn resident_bytes_are_read() {
    let bytes = resident_bytes(std::process::id()).unwrap();
    assert!((1 << 20..MOST_MEMORY).contains(&bytes), "{bytes}");
}
