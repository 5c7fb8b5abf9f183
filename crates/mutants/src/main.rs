//! `cargo mutate PACKAGE` builds the selected mutants of a package, as cargo-mutants lists them,
//! into one program with a switch for each. It reports the mutants that survive all tests.
//!
//! `cargo mutate --faults` does the same with the [list of known faults](faults), which the lab
//! must find.
//!
//! cargo-mutants builds each mutant separately, which takes a minute for a test of a second. Here
//! the package is compiled once. A mutant then costs only the tests that reach it, each in its own
//! process, until one fails.

mod apart;
mod faults;
mod judge;
mod list;
mod program;
mod rewrite;

use clap::Parser;
use judge::Verdict;
use list::Mutant;
use program::print_status;
use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Builds mutants of a package into one program and reports those that survive its tests.
#[derive(Parser)]
#[command(name = "cargo mutate")]
struct Arguments {
    /// Name of the package, for example terrace-pool.
    #[arg(required_unless_present = "faults")]
    package: Option<String>,
    /// Injects the known faults into the product and reports those that the lab does not find.
    #[arg(long, conflicts_with_all = ["package", "file", "ask", "program"])]
    faults: bool,
    /// Searches for each fault from the beginning instead of repeating the run that found it
    /// before.
    #[arg(long, requires = "faults")]
    anew: bool,
    /// Only mutants of files whose path ends in this; may be given several times.
    #[arg(long)]
    file: Vec<String>,
    /// Also runs the tests of this package; may be given several times.
    #[arg(long)]
    ask: Vec<String>,
    /// Builds and runs only these test programs: `lib`, or the name of a file in `tests`; may be
    /// given several times.
    #[arg(long)]
    program: Vec<String>,
    /// Only mutants, or faults, whose name contains this; may be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// Only one in this many mutants, the same ones each time.
    #[arg(long, default_value_t = 1)]
    one_in: usize,
    /// Index of the first mutant, from 0: with --one-in, another index selects other mutants.
    #[arg(long, default_value_t = 0)]
    from: usize,
    /// Only runs tests that take at most this many seconds.
    #[arg(long, default_value_t = 600)]
    longest: u64,
    /// Mutants judged at a time; by default one per core.
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// Directory for the copy of the workspace and its programs.
    #[arg(long, default_value = "target/mutants")]
    directory: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_status(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Outcome<()> {
    std::fs::create_dir_all(&arguments.directory)?;
    let directory = arguments.directory.canonicalize()?;
    let default = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = arguments.jobs.unwrap_or_else(default).get();
    match &arguments.package {
        Some(package) => mutate(package, arguments, &directory, jobs),
        None => {
            faults::run(&directory, &faults::Search { only: &arguments.only, anew: arguments.anew, jobs })
        }
    }
}

/// Judges the selected mutants of a package.
fn mutate(package: &str, arguments: &Arguments, directory: &Path, jobs: usize) -> Outcome<()> {
    let is_selected = |mutant: &Mutant| {
        (arguments.file.is_empty() || arguments.file.iter().any(|file| mutant.file.ends_with(file.as_str())))
            && (arguments.only.is_empty()
                || arguments.only.iter().any(|only| mutant.name.contains(only.as_str())))
    };
    let listed = list::list(package)?.into_iter().filter(is_selected);
    // Inject only selected mutants: thousands of switches take longer to compile than the tests to
    // run.
    let mutants: Vec<Mutant> = listed.skip(arguments.from).step_by(arguments.one_in).collect();
    let files = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
    let workspace = program::Workspace::copy(directory, &files)?;
    print_status(&format!("{package}: {} mutants in one program", mutants.len()));
    let built = workspace.build(package, &mutants, &arguments.ask, &arguments.program)?;
    let witnesses = judge::witnesses(
        &built.programs,
        &directory.join("scratch"),
        Duration::from_secs(arguments.longest),
    )?;
    let (left_out, judged): (Vec<usize>, Vec<usize>) =
        (0..mutants.len()).partition(|number| built.left_out.contains(number));
    print_status(&format!(
        "{}; {} mutants left out, {} to judge",
        judge::describe(&witnesses),
        left_out.len(),
        judged.len()
    ));
    let verdicts = judge_all(&mutants, &judged, &witnesses, directory, jobs);
    report(&mutants, &left_out, &verdicts)
}

/// Judges `jobs` mutants at a time, and prints the verdict of each that is not killed.
fn judge_all(
    mutants: &[Mutant],
    judged: &[usize],
    witnesses: &[judge::Witness],
    directory: &Path,
    jobs: usize,
) -> BTreeMap<usize, Verdict> {
    let (next, verdicts) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let (next, verdicts) = (&next, &verdicts);
            let scratch = directory.join(format!("scratch-{job}"));
            scope.spawn(move || {
                while let Some(&number) = judged.get(next.fetch_add(1, Relaxed)) {
                    let verdict = judge::judge(number, witnesses, &scratch);
                    if verdict != Verdict::Killed {
                        print_status(&format!("{verdict:?}: {}", mutants[number].name));
                    }
                    verdicts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(number, verdict);
                }
            });
        }
    });
    verdicts.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Prints a table by file, and the mutants that were not killed.
fn report(mutants: &[Mutant], left_out: &[usize], verdicts: &BTreeMap<usize, Verdict>) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    let files: std::collections::BTreeSet<&str> =
        verdicts.keys().chain(left_out).map(|&number| mutants[number].file.as_str()).collect();
    writeln!(
        out,
        "| file | judged | killed | hung | survived | not reached | left out |\n|---|---|---|---|---|---|---|"
    )?;
    let row = |name: &str, belongs: &dyn Fn(usize) -> bool| {
        let count = |wanted: Verdict| {
            verdicts.iter().filter(|(number, verdict)| belongs(**number) && **verdict == wanted).count()
        };
        let [killed, hung, survived, not_reached] =
            [Verdict::Killed, Verdict::Hung, Verdict::Survived, Verdict::NotReached].map(count);
        let out = left_out.iter().filter(|number| belongs(**number)).count();
        format!(
            "| {name} | {} | {killed} | {hung} | {survived} | {not_reached} | {out} |",
            killed + hung + survived + not_reached
        )
    };
    for file in files {
        writeln!(out, "{}", row(&format!("`{file}`"), &|number| mutants[number].file == file))?;
    }
    writeln!(out, "{}", row("all", &|_| true))?;
    for (number, verdict) in verdicts {
        if *verdict != Verdict::Killed {
            writeln!(out, "{verdict:?}: {}", mutants[*number].name)?;
        }
    }
    Ok(())
}
