//! Checks that the lab, or a test, finds each known fault of the product.
//!
//! The lab is built once, from a copy of the workspace with a switch for each fault. For each fault
//! it first repeats the run that found the fault before. After a change of the code, the seed may
//! generate another history that does not show the fault. Then it searches with as many runs as
//! usual.
//!
//! A target may be a package instead, with the name of one of its tests. That test must
//! fail with the fault, and pass without.

mod by_lab;
mod by_tests;
mod edit;
mod list;
#[cfg(test)]
mod tests;

use crate::Outcome;
use crate::program::{LAB, Switched, Workspace, print_status};
use by_lab::{Finding, Lab};
use list::Fault;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How to search for faults.
pub(crate) struct Search<'s> {
    /// Only faults whose names contain one of these; empty: all.
    pub(crate) only: &'s [String],
    /// Whether to skip the runs that found the faults before.
    pub(crate) anew: bool,
    /// Number of runs at a time.
    pub(crate) jobs: usize,
}

/// A fault, a target that must find it, and the seed of the run that did.
#[derive(Clone, Copy)]
struct Case<'f> {
    number: usize,
    fault: &'f Fault,
    target: &'f str,
    seed: &'f str,
}

/// Searches for each fault in each of its targets. Fails if one is not found.
pub(crate) fn run(directory: &Path, search: &Search<'_>) -> Outcome<()> {
    let faults = list::load(Path::new("."))?;
    // Inject all faults, whichever are selected, so that nothing is built again for others.
    let workspace = inject(directory, &faults)?;
    let cases = faults.iter().enumerate().flat_map(|(number, fault)| cases(number, fault));
    let is_selected = |name: &str| search.only.iter().any(|only| name.contains(only.as_str()));
    let cases = cases.filter(|case| search.only.is_empty() || is_selected(&case.fault.name));
    let cases: Vec<Case<'_>> = cases.collect();
    print_status(&format!("{} searches for {} faults", cases.len(), faults.len()));
    let (by_tests, by_lab): (Vec<_>, Vec<_>) = cases.into_iter().partition(Case::is_test);
    let mut missing = by_tests::run(&workspace, &faults, &by_tests, directory, search.jobs)?;
    if !by_lab.is_empty() {
        missing.extend(run_lab(&workspace, &faults, by_lab, search)?);
    }
    missing
        .iter()
        .for_each(|case| print_status(&format!("NOT FOUND: {} by {}", case.fault.name, case.target)));
    if missing.is_empty() { Ok(()) } else { Err(format!("{} faults were not found", missing.len()).into()) }
}

/// Searches by the lab. Returns the cases without a finding.
fn run_lab<'f>(
    workspace: &Workspace,
    faults: &[Fault],
    cases: Vec<Case<'f>>,
    search: &Search<'_>,
) -> Outcome<Vec<Case<'f>>> {
    check_builds(workspace, faults, &LAB)?;
    let lab = Lab { program: workspace.lab()? };
    let is_known = |case: &Case<'_>| !search.anew && !case.seed.is_empty();
    let (known, mut not_found): (Vec<_>, Vec<_>) = cases.into_iter().partition(is_known);
    check_runs(&lab, &known, search.jobs)?;
    let found = in_parallel(&known, search.jobs, |case| lab.replay(case.seed, case.number))?;
    not_found.extend(report(&known, found));
    // Each search uses all cores.
    let found = in_parallel(&not_found, 1, |case| lab.search(case.target, case.seed, case.number))?;
    Ok(report(&not_found, found))
}

fn cases(number: usize, fault: &Fault) -> impl Iterator<Item = Case<'_>> {
    fault.found.iter().map(move |(target, seed)| Case { number, fault, target, seed })
}

impl Case<'_> {
    /// Whether a test must find it, and not the lab.
    fn is_test(&self) -> bool {
        self.target.starts_with("terrace-")
    }
}

/// Makes a copy of the workspace with a switch for each fault.
fn inject(directory: &Path, faults: &[Fault]) -> Outcome<Workspace> {
    let files = list::by_file(faults);
    let workspace = Workspace::copy(directory, &files.keys().copied().collect())?;
    let switched = files.into_iter().map(|(file, edits)| {
        let text = edit::with_switches(&std::fs::read_to_string(file)?, &edits)?;
        Ok(Switched { file: file.into(), text })
    });
    workspace.inject(switched.collect::<Outcome<Vec<_>>>()?)?;
    Ok(workspace)
}

/// Runs this cargo command in the copy. Fails with the name of a fault that does not compile.
fn check_builds(workspace: &Workspace, faults: &[Fault], arguments: &[&str]) -> Outcome<()> {
    let broken = workspace.broken(arguments)?;
    let Some((number, error)) = broken.first_key_value() else { return Ok(()) };
    let name = faults.get(*number).map_or("no fault", |fault| &fault.name);
    Err(format!("the copy does not compile, because of {name}:\n{error}").into())
}

/// Fails if a listed run finds a failure without any fault. Checks a few states of each run;
/// `./test` checks many.
fn check_runs(lab: &Lab, cases: &[Case<'_>], jobs: usize) -> Outcome<()> {
    let seeds: BTreeSet<&str> = cases.iter().map(|case| case.seed).collect();
    let seeds: Vec<&str> = seeds.into_iter().collect();
    let found = in_parallel(&seeds, jobs, |seed| lab.replay_wide(seed, None))?;
    match seeds.iter().zip(found).find_map(|(seed, found)| Some((seed, found?))) {
        Some((seed, Finding { failure, .. })) => {
            Err(format!("{seed} fails without a fault: {failure}").into())
        }
        None => Ok(()),
    }
}

/// Prints the results. Returns the cases without a finding.
fn report<'f>(cases: &[Case<'f>], found: Vec<Option<Finding>>) -> Vec<Case<'f>> {
    let mut not_found = Vec::new();
    for (case, found) in cases.iter().zip(found) {
        let Case { fault, target, seed, .. } = case;
        match found {
            Some(Finding { run, failure }) if run == *seed => {
                print_status(&format!("{:<32} {target:<12} {failure}", fault.name));
            }
            Some(Finding { run, failure }) => {
                print_status(&format!(
                    "{:<32} {target:<12} now found by {run} instead of {seed}: {failure}",
                    fault.name
                ));
            }
            None => not_found.push(*case),
        }
    }
    not_found
}

/// Calls `work` for each item, on `jobs` threads. Returns the results in the order of the items.
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
