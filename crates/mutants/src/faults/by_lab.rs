//! Runs the lab's program with one fault switched on.

use crate::Outcome;
use crate::judge::{NONE, wait};
use serde_json::Value;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A run that takes longer counts as hung, and therefore as one that finds the fault.
const MAX_DURATION: Duration = Duration::from_secs(3600);
/// States per search: a few states of each of many histories, or many states of each.
const WIDE_STATES: &str = "600000";
const DEEP_STATES: &str = "3000000";
/// Runs of a search with threads, and states of a search with process crashes.
const RUNS: &str = "100000";
const CRASH_STATES: &str = "20000";
/// States of a search in which processes crash and successors open their pool after a power
/// failure.
const SUCCESSOR_STATES: &str = "12000000";

/// The lab's program, with a switch for each fault.
pub(crate) struct Lab {
    pub(crate) program: PathBuf,
}

/// A failure that a run found.
#[derive(Debug)]
pub(crate) struct Finding {
    /// The seed that reproduces it.
    pub(crate) run: String,
    pub(crate) failure: String,
}

impl Lab {
    /// Repeats the run with this seed, with a few of its states.
    pub(crate) fn replay_wide(&self, seed: &str, fault: Option<usize>) -> Outcome<Option<Finding>> {
        self.run(&["replay", seed, "--wide"], fault)
    }

    /// Repeats the run with this seed, with a few of its states and then with many.
    pub(crate) fn replay(&self, seed: &str, fault: usize) -> Outcome<Option<Finding>> {
        match self.replay_wide(seed, Some(fault))? {
            None => self.run(&["replay", seed, "--deep"], Some(fault)),
            found => Ok(found),
        }
    }

    /// Searches a target for a fault, with the kind of run that `seed` names.
    pub(crate) fn search(&self, target: &str, seed: &str, fault: usize) -> Outcome<Option<Finding>> {
        let crash = ["crash", target, "--profile"];
        let searches: Vec<Vec<&str>> = match seed.split('/').nth(1) {
            Some("none") => vec![vec!["schedules", target, "--runs", RUNS]],
            Some(profile) if profile.contains('+') => {
                vec![[&crash[..], &[profile, "--states", SUCCESSOR_STATES]].concat()]
            }
            Some(profile) => vec![[&crash[..], &[profile, "--states", CRASH_STATES]].concat()],
            None => vec![
                [&crash[..], &["pmem", "--wide", "--states", WIDE_STATES]].concat(),
                [&crash[..], &["pmem", "--deep", "--states", DEEP_STATES]].concat(),
            ],
        };
        for search in searches {
            if let Some(found) = self.run(&search, Some(fault))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    #[allow(clippy::disallowed_methods, reason = "a tool that reads from a child while it waits")]
    fn run(&self, arguments: &[&str], fault: Option<usize>) -> Outcome<Option<Finding>> {
        let number = fault.map_or(NONE.to_string(), |fault| fault.to_string());
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--json").env("MUTANT", number).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (mut out, mut text) = (child.stdout.take().ok_or("the lab has no output")?, String::new());
        let reader = std::thread::spawn(move || out.read_to_string(&mut text).map(|_| text));
        let end = wait(child, MAX_DURATION);
        let text = reader.join().map_err(|_| "the lab's output cannot be read")??;
        let run = arguments.get(1).copied().unwrap_or_default();
        let found = text.lines().find_map(|line| finding(line, run));
        match (found, end.passed()) {
            (None, false) => Ok(Some(Finding {
                run: run.into(),
                failure: format!("`lab {}` {}", arguments.join(" "), end.describe()),
            })),
            (found, _) => Ok(found),
        }
    }
}

/// The failure that a line of the lab's output reports. A replay of `run` reports no seed.
fn finding(line: &str, run: &str) -> Option<Finding> {
    let line: Value = serde_json::from_str(line).ok()?;
    let found = line.get("finding").filter(|found| !found.is_null())?;
    let text_of = |name: &str| Some(found.get(name)?.as_str()?.to_string());
    let failure = text_of("wrong").or(found.as_str().map(String::from)).unwrap_or_else(|| found.to_string());
    Some(Finding { run: text_of("replay").unwrap_or_else(|| run.into()), failure })
}
