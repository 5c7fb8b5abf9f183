//! A failed run: its minimisation and its report.

use super::calls::Calls;
use super::crash::Crash;
use super::policy::{Policy, Slice};
use super::run::Run;
use super::scenario::Scenario;
use super::stage::{Last, Turn};
use crate::crash::{ReportedTrace, ViolatingState, Violation, describe_lines, place};
use crate::{Trace, What};
use std::fmt;
use terrace_medium::Access;

/// A failed run.
#[derive(Debug)]
pub struct Finding {
    /// Its scenario.
    pub scenario: Scenario,
    /// Its schedule.
    pub turns: Vec<Turn>,
    /// Its calls and answers.
    pub calls: Calls,
    /// The crash and its trace; `None` if the run failed without one.
    pub crash: Option<(Trace, ViolatingState)>,
    /// The violation.
    pub wrong: Violation,
}

impl Finding {
    /// The finding of a run without a crash, if it failed.
    pub fn of_run(scenario: &Scenario, run: Run) -> Option<Self> {
        let wrong = run.wrong?;
        Some(Self { scenario: scenario.clone(), turns: run.ran.turns, calls: run.calls, crash: None, wrong })
    }

    /// The finding of a run with a crash.
    pub fn of_crash(scenario: &Scenario, crash: Crash) -> Self {
        let Crash { ran, calls, trace, found, wrong } = crash;
        let crash = found.map(|found| (trace, found));
        Self { scenario: scenario.clone(), turns: ran.turns, calls, crash, wrong }
    }

    /// The finding of a run that failed before its threads started.
    pub fn without_threads(scenario: &Scenario, wrong: Violation) -> Self {
        let scenario = scenario.clone();
        Self { scenario, turns: Vec::new(), calls: Calls::default(), crash: None, wrong }
    }

    /// Its schedule.
    pub fn slices(&self) -> Vec<Slice> {
        self.turns.iter().map(|turn| turn.slice).collect()
    }
}

/// Number of schedules tried for a reduced scenario.
const SCHEDULES: u64 = 60;

/// Reduces a finding: first fewer operations, then fewer switches. `again` runs a scenario under a
/// policy and returns the finding, if any; it is called at most `tries` times.
pub fn minimise(
    finding: Finding,
    tries: usize,
    mut again: impl FnMut(&Scenario, &Policy, u64) -> Option<Finding>,
) -> Finding {
    let mut best = finding;
    let mut left = tries;
    let mut ask = |scenario: &Scenario, policy: &Policy, seed: u64| {
        left = left.checked_sub(1)?;
        again(scenario, policy, seed)
    };
    loop {
        let slices = best.slices();
        let smaller = best.scenario.shorter().find_map(|scenario| {
            let same = ask(&scenario, &Policy::Script(slices.clone()), 0);
            same.or_else(|| (0..SCHEDULES).find_map(|seed| ask(&scenario, &Scenario::policy(seed), seed)))
        });
        match smaller {
            Some(smaller) => best = smaller,
            None => break,
        }
    }
    loop {
        let (slices, scenario) = (best.slices(), best.scenario.clone());
        let found = fewer(&slices).find_map(|script| {
            ask(&scenario, &Policy::Script(script), 0).filter(|found| found.turns.len() < slices.len())
        });
        match found {
            Some(found) => best = found,
            None => return best,
        }
    }
}

/// Schedules with fewer switches: without some slices, or with a slice merged with the next one of
/// its thread.
fn fewer(slices: &[Slice]) -> impl Iterator<Item = Vec<Slice>> + '_ {
    let sizes = std::iter::successors(Some(slices.len() / 2), |&size| (size > 1).then_some(size / 2));
    let without = sizes.filter(|&size| size > 0).flat_map(move |size| {
        (0..slices.len()).step_by(size).map(move |at| {
            let mut less = slices.to_vec();
            less.drain(at..(at + size).min(slices.len()));
            less
        })
    });
    let joined = (0..slices.len()).filter_map(move |at| {
        let next = (at + 1..slices.len()).find(|&next| slices[next].thread == slices[at].thread)?;
        let mut less = slices.to_vec();
        less[at].steps += less[next].steps;
        less.remove(next);
        Some(less)
    });
    without.chain(joined)
}

/// Maximum number of turns in a report.
const TURNS_MAX: usize = 40;

/// Formats a finding as a report.
pub struct FindingReport<'f> {
    /// The crash of the machine, in words.
    pub crash: &'f str,
    /// The finding.
    pub finding: &'f Finding,
}

impl fmt::Display for FindingReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let finding = self.finding;
        let before = &finding.scenario.plan.before;
        let before: Vec<String> = before.iter().map(ToString::to_string).collect();
        if !before.is_empty() {
            writeln!(f, "  before: {}.", before.join(", "))?;
        }
        if finding.scenario.moment.is_some() {
            writeln!(f, "  a first crash interrupted two threads; the store was recovered.")?;
        }
        for death in &finding.scenario.crashes {
            writeln!(f, "  {death}.")?;
        }
        let end = self.end();
        let shown = finding.turns.len().saturating_sub(TURNS_MAX);
        if shown > 0 {
            writeln!(f, "  ({shown} turns are not shown.)")?;
        }
        for (place, turn) in finding.turns.iter().enumerate().skip(shown) {
            let from = place.checked_sub(1).map_or(0, |before| finding.turns[before].until);
            if from > end {
                break;
            }
            self.describe_turn(f, turn, from, turn.until.min(end))?;
        }
        match &finding.crash {
            None => write!(f, "  {}.", finding.wrong),
            Some((trace, found)) => {
                writeln!(f, "  then {}.", self.crash)?;
                let name = |index| finding.calls.numbered(index).map(|call| call.act.to_string());
                describe_lines(f, ReportedTrace { trace, born: 0, name: &name }, found)?;
                write!(f, "  after recovery {}.", finding.wrong)
            }
        }
    }
}

impl FindingReport<'_> {
    /// The time of the crash.
    fn end(&self) -> u64 {
        let Some((trace, found)) = &self.finding.crash else { return u64::MAX };
        let marks = trace.events().iter().take(found.event + 1).filter_map(|event| match event.what {
            What::Mark(mark) if mark > 1 => Some(mark),
            _ => None,
        });
        let call =
            |mark: u64| self.finding.calls.numbered((mark - 2) as usize / 2).map(|call| (call, mark % 2));
        let last = marks.fold(None, |_, mark| Some(mark)).and_then(call);
        last.map_or(0, |(call, ended)| match &call.returned {
            Some((at, _)) if ended == 1 => *at,
            _ => call.called,
        })
    }

    fn describe_turn(&self, f: &mut fmt::Formatter<'_>, turn: &Turn, from: u64, until: u64) -> fmt::Result {
        let thread = usize::from(turn.slice.thread);
        let mut events = Vec::new();
        for call in self.finding.calls.calls.iter().filter(|call| call.thread == thread) {
            let is_in = |at: u64| at > from && at <= until;
            let returned = call.returned.as_ref().filter(|(at, _)| is_in(*at));
            match (is_in(call.called), returned) {
                (true, Some((_, answer))) => events.push(format!("{} returns {answer}", call.act)),
                (true, None) => events.push(format!("{} begins", call.act)),
                (false, Some((_, answer))) => {
                    events.push(format!("{} continues and returns {answer}", call.act))
                }
                (false, None)
                    if call.called <= from && call.returned.as_ref().is_none_or(|(at, _)| *at > until) =>
                {
                    events.push(format!("{} continues", call.act));
                }
                (false, None) => {}
            }
        }
        let what = if events.is_empty() { "ends".to_string() } else { events.join("; ") };
        write!(f, "  thread {thread}: {what}")?;
        match turn.after.map(describe_access) {
            Some(last) => writeln!(f, "; {} steps, the last {last}.", turn.slice.steps),
            None => writeln!(f, "."),
        }
    }
}

fn describe_access((access, offset, site): Last) -> String {
    let what = match access {
        Access::Load => "a load of",
        Access::Store => "a store to",
        Access::Rmw => "a read-modify-write of",
        Access::RmwFailed => "a compare-and-swap that fails, of",
        Access::Copy(_) | Access::StreamedCopy(_) => "a copy to",
        Access::Read(_) => "a read of bytes at",
    };
    format!("{what} {offset:#x} ({})", place(site))
}
