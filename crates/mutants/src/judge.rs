//! Whether a test fails with a mutant.
#![allow(
    clippy::disallowed_methods,
    reason = "a test program that hangs is told by the time that it takes, and its memory by looking now and then"
)]

use crate::Outcome;
use crate::program::Program;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at a test program.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Beyond three times what it takes without a mutant, a program counts as hung.
const PATIENCE: Duration = Duration::from_secs(10);
/// A program that takes more memory than this has a mutant that never ends.
const MOST_MEMORY: u64 = 4 << 30;

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Killed,
    /// A program ran for ever, or took all memory.
    Hung,
    Missed,
    /// No test comes by.
    Unseen,
}

/// A test program that passes, with what it does.
pub(crate) struct Witness {
    program: Program,
    takes: Duration,
    /// The mutants that it comes by.
    seen: BTreeSet<usize>,
}

#[derive(PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    Hung,
}

/// Runs the programs without a mutant. Fastest first.
pub(crate) fn witnesses(programs: &[Program], scratch: &Path) -> Outcome<Vec<Witness>> {
    let seen_file = scratch.join("seen");
    let mut witnesses = Vec::new();
    for program in programs {
        let _ = fs::remove_file(&seen_file);
        let run = |variable: (&str, &str)| {
            let began = Instant::now();
            (run(program, variable, &scratch.join("temporary"), Duration::from_secs(3600)), began.elapsed())
        };
        let (end, _) = run(("MUTANTS_SEEN", seen_file.to_str().ok_or("a path is no text")?));
        let (again, takes) = run(("MUTANT", "4294967295"));
        if end != End::Passed || again != End::Passed {
            return Err(format!("{} fails without any mutant", program.path.display()).into());
        }
        let seen = fs::read_to_string(&seen_file).unwrap_or_default();
        let seen = seen.lines().filter_map(|number| number.parse().ok()).collect();
        witnesses.push(Witness { program: program.clone(), takes, seen });
    }
    witnesses.sort_by_key(|witness| witness.takes);
    Ok(witnesses)
}

/// Asks those witnesses that come by, one after the other, until one fails.
pub(crate) fn judge(number: usize, witnesses: &[Witness], scratch: &Path) -> Verdict {
    let mut verdict = Verdict::Unseen;
    for witness in witnesses.iter().filter(|witness| witness.seen.contains(&number)) {
        let limit = witness.takes * 3 + PATIENCE;
        match run(&witness.program, ("MUTANT", &number.to_string()), scratch, limit) {
            End::Passed => verdict = Verdict::Missed,
            End::Failed => return Verdict::Killed,
            End::Hung => return Verdict::Hung,
        }
    }
    verdict
}

/// How long the slowest and all of them take, for people.
pub(crate) fn describe(witnesses: &[Witness]) -> String {
    let all: Duration = witnesses.iter().map(|witness| witness.takes).sum();
    format!("{} test programs, {:.1} s in all", witnesses.len(), all.as_secs_f64())
}

fn run(program: &Program, variable: (&str, &str), temporary: &Path, limit: Duration) -> End {
    let _ = fs::remove_dir_all(temporary);
    if fs::create_dir_all(temporary).is_err() {
        return End::Hung;
    }
    let mut command = Command::new(&program.path);
    command.arg("--quiet").current_dir(&program.directory).env("CARGO_MANIFEST_DIR", &program.directory);
    command.env(variable.0, variable.1).env("TMPDIR", temporary).env("PROPTEST_FAILURE_PERSISTENCE", "off");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let Ok(child) = command.spawn() else { return End::Hung };
    let end = wait(child, limit);
    let _ = fs::remove_dir_all(temporary);
    end
}

fn wait(mut child: Child, limit: Duration) -> End {
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
    terrace_bench::process_resident_bytes(pid).is_some_and(|bytes| bytes > MOST_MEMORY)
}
