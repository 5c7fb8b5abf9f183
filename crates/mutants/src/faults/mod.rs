//! `cargo mutate --faults`: does the lab find each known fault of the product?
//!
//! The lab is built once, of a copy of the workspace that has a switch for each fault. A fault is looked for in the run in which it was found before; if that run does not show it
//! any more, since a seed means another history once the code has changed, in as many runs as the lab does in a search.

mod edit;
mod lab;
mod list;

use crate::Outcome;
use crate::program::{LAB, Switched, Workspace, say};
use lab::{Finding, Lab};
use list::Fault;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How faults are looked for.
pub(crate) struct Search<'s> {
    /// Only faults whose names contain one of these, if there are any.
    pub(crate) only: &'s [String],
    /// Skips the runs in which they were found before.
    pub(crate) anew: bool,
    /// Runs of the lab at a time.
    pub(crate) jobs: usize,
}

/// A fault and a target that has to find it, with the run that did before.
#[derive(Clone, Copy)]
struct Case<'f> {
    number: usize,
    fault: &'f Fault,
    target: &'f str,
    seed: &'f str,
}

/// Looks for each fault in each of its targets. Fails if one is not found.
pub(crate) fn run(directory: &Path, search: &Search<'_>) -> Outcome<()> {
    let faults = list::load(Path::new("."))?;
    // With all of them whichever are asked for, so that the lab need not be built once more.
    let lab = build(directory, &faults)?;
    let cases = faults.iter().enumerate().flat_map(|(number, fault)| cases(number, fault));
    let is_wanted = |name: &str| search.only.iter().any(|only| name.contains(only.as_str()));
    let cases = cases.filter(|case| search.only.is_empty() || is_wanted(&case.fault.name));
    let cases: Vec<Case<'_>> = cases.collect();
    say(&format!("{} searches for {} faults", cases.len(), faults.len()));
    let is_known = |case: &Case<'_>| !search.anew && !case.seed.is_empty();
    let (known, mut left): (Vec<_>, Vec<_>) = cases.into_iter().partition(is_known);
    check_runs(&lab, &known, search.jobs)?;
    let found = in_parallel(&known, search.jobs, |case| lab.replay(case.seed, case.number))?;
    left.extend(report(&known, found));
    // A search takes all processors.
    let found = in_parallel(&left, 1, |case| lab.search(case.target, case.seed, case.number))?;
    let missed = report(&left, found);
    missed.iter().for_each(|case| say(&format!("NOT FOUND: {} by {}", case.fault.name, case.target)));
    if missed.is_empty() { Ok(()) } else { Err(format!("{} faults were not found", missed.len()).into()) }
}

fn cases(number: usize, fault: &Fault) -> impl Iterator<Item = Case<'_>> {
    fault.found.iter().map(move |(target, seed)| Case { number, fault, target, seed })
}

/// The lab with a switch for each fault.
fn build(directory: &Path, faults: &[Fault]) -> Outcome<Lab> {
    let files = list::by_file(faults);
    let workspace = Workspace::copy(directory, &files.keys().copied().collect())?;
    let switched = files.into_iter().map(|(file, edits)| {
        let text = edit::with_switches(&std::fs::read_to_string(file)?, &edits)?;
        Ok(Switched { file: file.into(), text })
    });
    workspace.put_in(switched.collect::<Outcome<Vec<_>>>()?)?;
    let wrong = workspace.wrong(&LAB)?;
    if let Some((number, story)) = wrong.first_key_value() {
        let name = faults.get(*number).map_or("no fault", |fault| &fault.name);
        return Err(format!("the copy does not compile, because of {name}:\n{story}").into());
    }
    Ok(Lab { program: workspace.lab()? })
}

/// Fails if a run of the list finds something in the product as it is, in a few of its states: `./test` looks into many.
fn check_runs(lab: &Lab, cases: &[Case<'_>], jobs: usize) -> Outcome<()> {
    let seeds: BTreeSet<&str> = cases.iter().map(|case| case.seed).collect();
    let seeds: Vec<&str> = seeds.into_iter().collect();
    let found = in_parallel(&seeds, jobs, |seed| lab.glance(seed, None))?;
    match seeds.iter().zip(found).find_map(|(seed, found)| Some((seed, found?))) {
        Some((seed, Finding { wrong, .. })) => Err(format!("{seed}, without a fault: {wrong}").into()),
        None => Ok(()),
    }
}

/// Says what was found. Returns the cases of which nothing was.
fn report<'f>(cases: &[Case<'f>], found: Vec<Option<Finding>>) -> Vec<Case<'f>> {
    let mut left = Vec::new();
    for (case, found) in cases.iter().zip(found) {
        let Case { fault, target, seed, .. } = case;
        match found {
            Some(Finding { run, wrong }) if run == *seed => {
                say(&format!("{:<32} {target:<12} {wrong}", fault.name));
            }
            Some(Finding { run, wrong }) => {
                say(&format!("{:<32} {target:<12} now in {run}, in place of {seed}: {wrong}", fault.name));
            }
            None => left.push(*case),
        }
    }
    left
}

/// What comes of each item, in their order, with so many threads.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> Outcome<R> + Sync,
) -> Outcome<Vec<R>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(item) = items.get(number) else { break };
                    let outcome = work(item).map_err(|error| error.to_string());
                    done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((number, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect::<Result<_, String>>()?)
}
