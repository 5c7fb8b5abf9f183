//! Tests that must find faults.

use super::list::Fault;
use super::{Case, check_builds, in_parallel};
use crate::Outcome;
use crate::judge::{self, End, NONE, run_test};
use crate::program::{Program, Workspace, print_status};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The programs of a package's tests.
const PROGRAMS: [&str; 2] = ["lib", "all"];
/// A test that takes longer counts as hung, and therefore as one that finds the fault.
const MAX_DURATION: Duration = Duration::from_secs(600);

/// A package, and the name of one of its tests.
type Test<'f> = (&'f str, &'f str);

/// Runs the test of each case with its fault. Returns the cases whose tests pass.
pub(super) fn run<'f>(
    workspace: &Workspace,
    faults: &[Fault],
    cases: &[Case<'f>],
    directory: &Path,
    jobs: usize,
) -> Outcome<Vec<Case<'f>>> {
    let tests: BTreeSet<Test<'_>> = cases.iter().map(|case| (case.target, case.seed)).collect();
    let programs = programs(workspace, faults, &tests)?;
    let runs = AtomicUsize::new(0);
    let run = |package: &str, test: &str, fault: &str| {
        let scratch = directory.join(format!("scratch-{}", runs.fetch_add(1, Relaxed)));
        let end = run_test(&programs[&(package, test)], test, fault, &scratch, MAX_DURATION);
        let _ = std::fs::remove_dir_all(scratch);
        end
    };
    let tests: Vec<Test<'_>> = tests.into_iter().collect();
    let ends = in_parallel(&tests, jobs, |(package, test)| Ok(run(package, test, NONE)))?;
    if let Some((test, _)) = tests.iter().zip(ends).find(|(_, end)| !end.passed()) {
        return Err(format!("the test {} of {} fails without a fault", test.1, test.0).into());
    }
    let ends = in_parallel(cases, jobs, |case| Ok(run(case.target, case.seed, &case.number.to_string())))?;
    let mut missing = Vec::new();
    for (case, end) in cases.iter().zip(ends) {
        match end {
            End::Passed => missing.push(*case),
            end => print_status(&format!("{:<32} {} {}", case.fault.name, case.seed, end.describe())),
        }
    }
    Ok(missing)
}

/// Builds the programs that have these tests. Fails if a test is missing.
fn programs<'f>(
    workspace: &Workspace,
    faults: &[Fault],
    tests: &BTreeSet<Test<'f>>,
) -> Outcome<BTreeMap<Test<'f>, Program>> {
    let mut programs = BTreeMap::new();
    for package in tests.iter().map(|(package, _)| *package).collect::<BTreeSet<_>>() {
        check_builds(workspace, faults, &["check", "--package", package])?;
        for program in workspace.programs(package, &PROGRAMS)? {
            for name in judge::tests(&program)? {
                let test = tests.iter().find(|test| **test == (package, name.as_str()));
                test.into_iter().for_each(|test| _ = programs.insert(*test, program.clone()));
            }
        }
    }
    match tests.iter().find(|test| !programs.contains_key(*test)) {
        Some((package, test)) => Err(format!("{package} has no test {test}").into()),
        None => Ok(programs),
    }
}
