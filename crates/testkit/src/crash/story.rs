//! The report of a finding: the operations, the lost stores and their owners, and the failed check.

use super::explore::{LineFate, ViolatingState};
use super::run::{Finding, History};
use super::whose::EventOwner;
use crate::trace::place;
use crate::{Event, Trace, What};
use std::fmt;

/// Maximum number of lines listed; the report counts the rest.
const LINES_MAX: usize = 6;

/// Formats a finding as a report.
pub struct FindingReport<'f> {
    /// The target's name.
    pub target: &'f str,
    /// What happened to the machine, in words.
    pub crash: &'f str,
    /// The finding.
    pub finding: &'f Finding,
}

impl fmt::Display for FindingReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (history, found) = match (&self.finding.history, &self.finding.found) {
            (Some(history), Some(found)) => (history, found),
            _ => {
                self.describe_plan(f)?;
                return write!(f, "  without any crash, {}.", self.finding.wrong);
            }
        };
        self.describe_operations(f, history, found)?;
        let steps = history.steps.iter().map(|step| &step.op);
        // A process that follows a killed one numbers its operations after those of the history.
        let ops: Vec<_> = steps.chain(&self.finding.plan.revived).collect();
        let name = |index: usize| ops.get(index).map(ToString::to_string);
        describe_lines(f, ReportedTrace { trace: &history.trace, born: 0, name: &name }, found)?;
        let (mut before, mut outer) = (&history.trace, found);
        while let Some((trace, nested)) = outer.nested.as_deref() {
            writeln!(f, "  the recovery from that crashed, too.")?;
            // A recovery has a trace of its own; the trace after a kill continues the earlier one.
            let killed = outer.event + 1;
            let is_after_kill = before.events().get(..killed) == trace.events().get(..killed);
            let born = if is_after_kill { killed } else { 0 };
            describe_lines(f, ReportedTrace { trace, born, name: &name }, nested)?;
            (before, outer) = (trace, nested);
        }
        write!(f, "  after recovery {}.", self.finding.wrong)
    }
}

impl FindingReport<'_> {
    fn describe_plan(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for op in self.finding.plan.before.iter().chain(&self.finding.plan.ops) {
            writeln!(f, "  {op}")?;
        }
        Ok(())
    }

    /// Lists the operations up to the crash.
    fn describe_operations(
        &self,
        f: &mut fmt::Formatter<'_>,
        history: &History,
        found: &ViolatingState,
    ) -> fmt::Result {
        let mut under_way = None;
        let mut returned = Vec::new();
        for event in history.trace.events().iter().take(found.event + 1) {
            let What::Mark(mark) = event.what else { continue };
            match mark {
                0 | 1 => {}
                mark if mark % 2 == 0 => under_way = Some((mark - 2) as usize / 2),
                mark => {
                    returned.push((mark - 3) as usize / 2);
                    under_way = None;
                }
            }
        }
        let name = |index: usize| history.steps.get(index).map_or(String::new(), |step| step.op.to_string());
        let (early, late) = returned.split_at(returned.len().saturating_sub(LINES_MAX));
        if !early.is_empty() {
            writeln!(f, "  {} operations returned.", early.len())?;
        }
        for &index in late {
            writeln!(f, "  {} returned.", name(index))?;
        }
        match under_way {
            Some(index) => writeln!(f, "  {} was in progress; then {}.", name(index), self.crash),
            None => writeln!(f, "  then {}.", self.crash),
        }
    }
}

/// A trace that is reported.
#[derive(Clone, Copy)]
pub(crate) struct ReportedTrace<'t> {
    pub(crate) trace: &'t Trace,
    /// From this event on, the trace belongs to another process.
    pub(crate) born: usize,
    /// The operation with this number.
    pub(crate) name: &'t dyn Fn(usize) -> Option<String>,
}

/// Lists the stores that were lost, and later stores that were kept.
pub(crate) fn describe_lines(
    f: &mut fmt::Formatter<'_>,
    reported: ReportedTrace<'_>,
    found: &ViolatingState,
) -> fmt::Result {
    if reported.trace.events().get(found.event).is_some_and(is_store) {
        writeln!(f, "  the last was {}.", reported.store(found.event, None))?;
    }
    let losing: Vec<&LineFate> = found.lines.iter().filter(|fate| !fate.lost.is_empty()).collect();
    for fate in losing.iter().take(LINES_MAX) {
        let more = fate.lost.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" and {more} later ones to its line") };
        let lost = reported.store(fate.lost[0] as usize, Some(fate.line));
        writeln!(f, "  lost: {lost}{more}; {}.", why(reported.trace, fate, found.event))?;
        reported.describe_kept(f, fate)?;
    }
    if losing.len() > LINES_MAX {
        writeln!(f, "  and {} more lines lost something.", losing.len() - LINES_MAX)?;
    }
    let kept = found.lines.iter().filter(|fate| fate.lost.is_empty());
    kept.take(LINES_MAX).try_for_each(|fate| reported.describe_kept(f, fate))
}

fn is_store(event: &Event) -> bool {
    matches!(event.what, What::Store { .. } | What::Rmw { .. } | What::Copy(_) | What::StreamedCopy(_))
}

impl ReportedTrace<'_> {
    fn describe_kept(&self, f: &mut fmt::Formatter<'_>, fate: &LineFate) -> fmt::Result {
        match fate.kept.last() {
            Some(&kept) => writeln!(f, "  kept: {}.", self.store(kept as usize, Some(fate.line))),
            None => Ok(()),
        }
    }

    /// Describes the store of an event (to this line, if given) and its owner.
    fn store(&self, event: usize, line: Option<u32>) -> String {
        let Some(done) = self.trace.events().get(event) else { return "nothing".into() };
        let owner = self.owner(event);
        let mut words =
            self.trace.stored(done).filter(|(word, _)| line.is_none_or(|it| word / 8 == u64::from(it)));
        let place = place(done.site);
        match (words.next(), words.next()) {
            (Some((word, value)), None) => format!("{owner} store {:#x} = {value:#x} ({place})", word * 8),
            (Some((word, _)), Some(_)) => format!("{owner} copy to {:#x} ({place})", word * 8),
            _ => format!("nothing ({place})"),
        }
    }

    fn owner(&self, event: usize) -> String {
        match EventOwner::of(self.trace, event, self.born) {
            EventOwner::Operation(index) => (self.name)(index).map_or("a".into(), |name| format!("{name}'s")),
            EventOwner::Preparation => "the preparation's".into(),
            EventOwner::Recovery => "the recovery's".into(),
            EventOwner::Unowned => "a".into(),
        }
    }
}

/// How far the lost store had progressed towards durability.
fn why(trace: &Trace, fate: &LineFate, until: usize) -> &'static str {
    let from = fate.lost[0] as usize;
    let later = trace.events().get(from + 1..=until.min(trace.events().len() - 1)).unwrap_or_default();
    let line = u64::from(fate.line) * 64;
    let written_back =
        later.iter().any(|event| matches!(event.what, What::WriteBack { line: at } if at == line));
    match (trace.events().get(from).map(|lost| lost.what), written_back) {
        (Some(What::StreamedCopy(_)), _) => "streamed but not fenced",
        (_, true) => "written back but not fenced",
        (_, false) => "never written back",
    }
}
