//! Runs of the lab's program with one fault switched on.

use crate::Outcome;
use crate::judge::{NONE, wait};
use serde_json::Value;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A run of the lab that takes longer counts as hung, and so as one that finds the fault.
const LONGEST: Duration = Duration::from_secs(3600);
/// States of a search through a few states of each of many histories, and through many states of each.
const WIDE_STATES: &str = "600000";
const DEEP_STATES: &str = "3000000";
/// Runs of threads, and deaths, of a search.
const RACES: &str = "100000";
const DEATHS: &str = "20000";
/// States of a search through what the first one leaves that dies, and others find.
const LEGACIES: &str = "12000000";

/// The lab's program, built with a switch for each fault.
pub(crate) struct Lab {
    pub(crate) program: PathBuf,
}

/// What a run found.
#[derive(Debug)]
pub(crate) struct Finding {
    /// The seed that repeats it.
    pub(crate) run: String,
    pub(crate) wrong: String,
}

impl Lab {
    /// Repeats the run with this seed, with a few of its states.
    pub(crate) fn glance(&self, seed: &str, fault: Option<usize>) -> Outcome<Option<Finding>> {
        self.run(&["replay", seed, "--wide"], fault)
    }

    /// Repeats the run with this seed: with a few of its states, and then with more.
    pub(crate) fn replay(&self, seed: &str, fault: usize) -> Outcome<Option<Finding>> {
        match self.glance(seed, Some(fault))? {
            None => self.run(&["replay", seed, "--deep"], Some(fault)),
            found => Ok(found),
        }
    }

    /// Searches a target for a fault, in the way in which `seed` has found it before.
    pub(crate) fn search(&self, target: &str, seed: &str, fault: usize) -> Outcome<Option<Finding>> {
        let crash = ["crash", target, "--profile"];
        let searches: Vec<Vec<&str>> = match seed.split('/').nth(1) {
            Some("none") => vec![vec!["schedules", target, "--runs", RACES]],
            Some(accident) if accident.contains('+') => {
                vec![[&crash[..], &[accident, "--states", LEGACIES]].concat()]
            }
            Some(accident) => vec![[&crash[..], &[accident, "--states", DEATHS]].concat()],
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
        let end = wait(child, LONGEST);
        let text = reader.join().map_err(|_| "the lab's output cannot be read")??;
        let run = arguments.get(1).copied().unwrap_or_default();
        let found = text.lines().find_map(|line| finding(line, run));
        match (found, end.passed()) {
            (None, false) => Ok(Some(Finding {
                run: run.into(),
                wrong: format!("`lab {}` {}", arguments.join(" "), end.story()),
            })),
            (found, _) => Ok(found),
        }
    }
}

/// What a line of the lab's output says that was found; a replay's seed is `run`.
fn finding(line: &str, run: &str) -> Option<Finding> {
    let line: Value = serde_json::from_str(line).ok()?;
    let found = line.get("finding").filter(|found| !found.is_null())?;
    let of = |name: &str| Some(found.get(name)?.as_str()?.to_string());
    let wrong = of("wrong").or(found.as_str().map(String::from)).unwrap_or_else(|| found.to_string());
    Some(Finding { run: of("replay").unwrap_or_else(|| run.into()), wrong })
}
