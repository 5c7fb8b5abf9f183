//! A finding as one tells it: what was done, which stores were lost and whose they were, what recovery then answered.

use super::explore::{Fate, Found};
use super::run::{Finding, History};
use crate::{Event, Trace, What};
use std::fmt;
use std::panic::Location;

/// Lines that a story shows; of more, it says how many.
const LINES_MAX: usize = 6;

/// Tells a finding.
pub struct Story<'f> {
    /// The target's name.
    pub target: &'f str,
    /// What happened to the machine.
    pub crash: &'f str,
    /// What was found.
    pub finding: &'f Finding,
}

impl fmt::Display for Story<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (history, found) = match (&self.finding.history, &self.finding.found) {
            (Some(history), Some(found)) => (history, found),
            _ => {
                self.tell_plan(f)?;
                return write!(f, "  without any crash, {}.", self.finding.wrong);
            }
        };
        self.tell_operations(f, history, found)?;
        tell_lines(f, &history.trace, found)?;
        if let Some(nested) = &found.nested {
            writeln!(f, "  the recovery from that was cut off in its turn.")?;
            tell_lines(f, &nested.0, &nested.1)?;
        }
        write!(f, "  after recovery {}.", self.finding.wrong)
    }
}

impl Story<'_> {
    fn tell_plan(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for op in self.finding.plan.before.iter().chain(&self.finding.plan.ops) {
            writeln!(f, "  {op}")?;
        }
        Ok(())
    }

    /// The operations up to the crash.
    fn tell_operations(&self, f: &mut fmt::Formatter<'_>, history: &History, found: &Found) -> fmt::Result {
        let mut under_way = None;
        let mut returned = Vec::new();
        for event in history.trace.events().iter().take(found.event + 1) {
            let What::Mark(note) = event.what else { continue };
            match note {
                0 | 1 => {}
                note if note % 2 == 0 => under_way = Some((note - 2) as usize / 2),
                note => {
                    returned.push((note - 3) as usize / 2);
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
            Some(index) => writeln!(f, "  {} was under way; then {}.", name(index), self.crash),
            None => writeln!(f, "  then {}.", self.crash),
        }
    }
}

/// The stores that were lost, and those that were kept although they came later.
pub(crate) fn tell_lines(f: &mut fmt::Formatter<'_>, trace: &Trace, found: &Found) -> fmt::Result {
    let last = trace.events().get(found.event);
    if let Some(event) = last.filter(|event| is_store(event)) {
        writeln!(f, "  the last store was {}.", tell_store(trace, event, None))?;
    }
    let telling: Vec<&Fate> = found.lines.iter().filter(|fate| !fate.lost.is_empty()).collect();
    for fate in telling.iter().take(LINES_MAX) {
        let lost = fate.lost.first().and_then(|&event| trace.events().get(event as usize));
        let kept = fate.kept.last().and_then(|&event| trace.events().get(event as usize));
        if let Some(lost) = lost {
            let more = fate.lost.len() - 1;
            let more = if more == 0 { String::new() } else { format!(" and {more} later ones of its line") };
            writeln!(
                f,
                "  lost: {}{more}; {}.",
                tell_store(trace, lost, Some(fate.line)),
                why(trace, lost, fate, found.event)
            )?;
        }
        if let Some(kept) = kept {
            writeln!(f, "  kept: {}.", tell_store(trace, kept, Some(fate.line)))?;
        }
    }
    if telling.len() > LINES_MAX {
        writeln!(f, "  and {} more lines lost something.", telling.len() - LINES_MAX)?;
    }
    let kept: Vec<&Fate> = found.lines.iter().filter(|fate| fate.lost.is_empty()).collect();
    for fate in kept.iter().take(LINES_MAX) {
        if let Some(event) = fate.kept.last().and_then(|&event| trace.events().get(event as usize)) {
            writeln!(f, "  kept: {}.", tell_store(trace, event, Some(fate.line)))?;
        }
    }
    Ok(())
}

fn is_store(event: &Event) -> bool {
    matches!(event.what, What::Store { .. } | What::Rmw { .. } | What::Copy(_) | What::StreamedCopy(_))
}

fn tell_store(trace: &Trace, event: &Event, line: Option<u32>) -> String {
    let mut words =
        trace.stored(event).filter(|(word, _)| line.is_none_or(|line| word / 8 == u64::from(line)));
    let place = place(event.site);
    match (words.next(), words.next()) {
        (Some((word, value)), None) => format!("{:#x} = {value:#x} ({place})", word * 8),
        (Some((word, _)), Some(_)) => format!("a copy to {:#x} ({place})", word * 8),
        _ => format!("nothing ({place})"),
    }
}

/// How far the lost store was on its way.
fn why(trace: &Trace, lost: &Event, fate: &Fate, until: usize) -> &'static str {
    let from = fate.lost[0] as usize;
    let later = trace.events().get(from + 1..=until.min(trace.events().len() - 1)).unwrap_or_default();
    let line = u64::from(fate.line) * 64;
    let written_back =
        later.iter().any(|event| matches!(event.what, What::WriteBack { line: at } if at == line));
    match (lost.what, written_back) {
        (What::StreamedCopy(_), _) => "streamed but not fenced",
        (_, true) => "written back but not fenced",
        (_, false) => "never written back",
    }
}

/// The end of a path, and the line.
pub(crate) fn place(site: &Location<'_>) -> String {
    let parts: Vec<&str> = site.file().rsplit('/').take(3).collect();
    let file: Vec<&str> = parts.into_iter().rev().filter(|&part| part != "src").collect();
    format!("{}:{}", file.join("/"), site.line())
}
