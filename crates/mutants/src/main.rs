//! `cargo mutate PACKAGE`: the mutants of a package that are asked for, as cargo-mutants lists them, in one program with a switch for each, and which of them no test notices.
//!
//! `cargo mutate --faults`: the same for the [list of known faults](faults), which the lab has to find.
//!
//! cargo-mutants builds each mutant by itself, which takes a minute for a test that takes a second. Here the package is compiled once, and a mutant costs those tests that come by it, each in a process of its own, until one fails.

mod apart;
mod faults;
mod judge;
mod list;
mod program;
mod rewrite;

use clap::Parser;
use judge::Verdict;
use list::Mutant;
use program::say;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Puts mutants of a package into one program, and says which of them no test notices.
#[derive(Parser)]
#[command(name = "cargo mutate")]
struct Arguments {
    /// The package, for example terrace-pool.
    #[arg(required_unless_present = "faults")]
    package: Option<String>,
    /// Puts the known faults of the product into the lab, and says which of them the lab does not find.
    #[arg(long, conflicts_with_all = ["package", "file", "ask", "program"])]
    faults: bool,
    /// Looks for faults everywhere, and not in the runs in which they were found before.
    #[arg(long, requires = "faults")]
    anew: bool,
    /// Only mutants of files that end in this; may be given several times.
    #[arg(long)]
    file: Vec<String>,
    /// Also asks the tests of this package; may be given several times.
    #[arg(long)]
    ask: Vec<String>,
    /// Only builds and asks these test programs: `lib`, or what a file in `tests` is called; may be given several times.
    #[arg(long)]
    program: Vec<String>,
    /// Only mutants, or faults, whose name contains this; may be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// Only one mutant in so many, the same each time.
    #[arg(long, default_value_t = 1)]
    one_in: usize,
    /// Which of so many, from 0: another number, other mutants.
    #[arg(long, default_value_t = 0)]
    from: usize,
    /// Only asks tests that take no longer than so many seconds.
    #[arg(long, default_value_t = 600)]
    longest: u64,
    /// Mutants judged at a time; as many as there are processors if it is not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Where the copy of the workspace and its programs go.
    #[arg(long, default_value = "target/mutants")]
    directory: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Outcome<()> {
    std::fs::create_dir_all(&arguments.directory)?;
    let directory = arguments.directory.canonicalize()?;
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    match &arguments.package {
        Some(package) => mutate(package, arguments, &directory, jobs),
        None => {
            faults::run(&directory, &faults::Search { only: &arguments.only, anew: arguments.anew, jobs })
        }
    }
}

/// Judges the mutants of a package that are asked for.
fn mutate(package: &str, arguments: &Arguments, directory: &Path, jobs: usize) -> Outcome<()> {
    let is_wanted = |mutant: &Mutant| {
        (arguments.file.is_empty() || arguments.file.iter().any(|file| mutant.file.ends_with(file.as_str())))
            && (arguments.only.is_empty()
                || arguments.only.iter().any(|only| mutant.name.contains(only.as_str())))
    };
    let listed = list::list(package)?.into_iter().filter(is_wanted);
    // Only what is asked is put in: a switch for each of thousands takes longer to compile than to judge.
    let mutants: Vec<Mutant> = listed.skip(arguments.from).step_by(arguments.one_in).collect();
    let files = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
    let workspace = program::Workspace::copy(directory, &files)?;
    say(&format!("{package}: {} mutants, put into one program", mutants.len()));
    let built = workspace.build(package, &mutants, &arguments.ask, &arguments.program)?;
    let witnesses = judge::witnesses(
        &built.programs,
        &directory.join("scratch"),
        Duration::from_secs(arguments.longest),
    )?;
    let (left_out, asked): (Vec<usize>, Vec<usize>) =
        (0..mutants.len()).partition(|number| built.left_out.contains(number));
    say(&format!(
        "{}; {} mutants are left out, {} judged",
        judge::describe(&witnesses),
        left_out.len(),
        asked.len()
    ));
    let verdicts = judge_all(&mutants, &asked, &witnesses, directory, jobs);
    report(&mutants, &left_out, &verdicts)
}

/// Judges so many mutants at a time, and says of each that is not killed what came of it.
fn judge_all(
    mutants: &[Mutant],
    asked: &[usize],
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
                while let Some(&number) = asked.get(next.fetch_add(1, Relaxed)) {
                    let verdict = judge::judge(number, witnesses, &scratch);
                    if verdict != Verdict::Killed {
                        say(&format!("{verdict:?}: {}", mutants[number].name));
                    }
                    verdicts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(number, verdict);
                }
            });
        }
    });
    verdicts.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A table by file, and what was missed.
fn report(mutants: &[Mutant], left_out: &[usize], verdicts: &BTreeMap<usize, Verdict>) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    let files: std::collections::BTreeSet<&str> =
        verdicts.keys().chain(left_out).map(|&number| mutants[number].file.as_str()).collect();
    writeln!(
        out,
        "| file | judged | killed | hung | missed | no test comes by | left out |\n|---|---|---|---|---|---|---|"
    )?;
    let row = |name: &str, is_its: &dyn Fn(usize) -> bool| {
        let count = |wanted: Verdict| {
            verdicts.iter().filter(|(number, verdict)| is_its(**number) && **verdict == wanted).count()
        };
        let [killed, hung, missed, unseen] =
            [Verdict::Killed, Verdict::Hung, Verdict::Missed, Verdict::Unseen].map(count);
        let out = left_out.iter().filter(|number| is_its(**number)).count();
        format!(
            "| {name} | {} | {killed} | {hung} | {missed} | {unseen} | {out} |",
            killed + hung + missed + unseen
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
