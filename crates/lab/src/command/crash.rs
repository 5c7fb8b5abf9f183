//! `cargo lab crash`.

use super::breadth::{Breadth, again};
use super::progress::Progress;
use super::schedules::Schedules;
use super::session::{Session, Tally};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use terrace_lab::{Accident, RunSeed, SUITES, Suite, suite};
use terrace_testkit::crash::{Finding, Lab, Limits, Profile, Seen, Story};

/// Attempts at making a finding smaller.
const TRIES: usize = 400;

#[derive(Args)]
pub(crate) struct Crash {
    /// pool, clht, clht-bytes, turbo, turbo-bytes, rewo, rewo-bytes, level, level-bytes, direct, full, or all.
    target: String,
    /// Distinct states to judge, of each target under each profile.
    #[arg(long, default_value_t = 100_000)]
    states: u64,
    /// Another seed, other histories.
    #[arg(long, default_value = "0x5eed", value_parser = number)]
    seed: u64,
    /// Only this kind of memory: pmem, shm, eadr, arm, file, remote. Or one-dies: of several participants some die and the others go on, and no power fails; one-dies+pmem and so
    /// on: then it does. (In those, each death is a state if there is no crash.)
    #[arg(long, value_parser = asked)]
    profile: Option<Asked>,
    #[command(flatten)]
    breadth: Breadth,
    /// Threads; as many as there are cores if not said.
    #[arg(long)]
    jobs: Option<usize>,
    /// Prints one JSON object a session instead of text.
    #[arg(long)]
    json: bool,
}

/// A number, decimal or hexadecimal.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|error| format!("`{text}` is no number: {error}"))
}

/// What a target is put through.
#[derive(Clone, Copy)]
enum Asked {
    Crash(Profile),
    Deaths(Accident),
}

fn asked(text: &str) -> Result<Asked, String> {
    match Accident::named(text) {
        Ok(accident) if accident.is_mortal() => Ok(Asked::Deaths(accident)),
        _ => profile(text)
            .map(Asked::Crash)
            .map_err(|why| format!("{why}, one-dies, one-dies+pmem, heirs+pmem")),
    }
}

pub(crate) fn profile(text: &str) -> Result<Profile, String> {
    let names = || Profile::ALL.map(Profile::name).join(", ");
    Profile::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| format!("there are {}", names()))
}

/// The targets that a name stands for.
pub(crate) fn targets(name: &str) -> Result<Vec<(usize, &'static Suite)>, String> {
    let all = || SUITES.iter().filter_map(|each| suite(each.name));
    match (name, suite(name)) {
        ("all", _) => Ok(all().collect()),
        (_, Some(found)) => Ok(vec![found]),
        _ => {
            let names: Vec<&str> = all().map(|(_, suite)| suite.name).collect();
            Err(format!("there is no target `{name}`; there are {}, and all", names.join(", ")))
        }
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Crash {
    pub(crate) fn run(&self) -> ExitCode {
        let asked = match self.profile {
            Some(Asked::Deaths(accident)) => {
                let deaths = Schedules::of_deaths(accident, &self.target, self.states, self.seed);
                return deaths.with(self.jobs, self.json).run();
            }
            Some(Asked::Crash(profile)) => Some(profile),
            None => None,
        };
        let targets = match targets(&self.target) {
            Ok(targets) => targets,
            Err(why) => return failed(&why),
        };
        let progress = Progress::new(self.json);
        let mut sound = true;
        for (place, suite) in targets {
            for &profile in asked.as_ref().map_or(suite.profiles, std::slice::from_ref) {
                let session = Session {
                    place,
                    suite,
                    profile,
                    seed: self.seed,
                    states: self.states,
                    jobs: self.jobs.unwrap_or_else(cores),
                    limits: self.breadth.limits(),
                    fault: None,
                    only_faulty: false,
                    runs_max: u64::MAX,
                };
                let tally = session.run(&progress);
                sound &= tally.finding.is_none();
                self.report(&session, tally);
            }
        }
        if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn report(&self, session: &Session<'_>, tally: Tally) {
        let mut out = std::io::stdout().lock();
        let text = if self.json {
            json_of(session, &tally).to_string()
        } else {
            let mut text = summary(session, &tally);
            if let Some((seed, finding)) = tally.finding {
                text += &tell(session.suite, seed, finding, session.limits);
            }
            text
        };
        let _ = writeln!(out, "{text}");
    }
}

pub(crate) fn failed(why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {why}");
    ExitCode::from(2)
}

fn summary(session: &Session<'_>, tally: &Tally) -> String {
    let explored = &tally.explored;
    let rate = explored.runs as f64 / tally.cpu.as_secs_f64();
    let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    let exhaustive = 100.0 - share(explored.sampled, explored.points);
    let settled = share(explored.settled, explored.stores);
    format!(
        "{:<10} {:<6} {} distinct states ({} after a kill or in one of {} crashed recoveries) in {} runs of {} histories, {:.1} s, {:.0} a core second; \
         {} points, {exhaustive:.1}% of them exhaustively; {settled:.1}% of {} stores taken for durable by age",
        session.suite.name,
        session.profile.name(),
        explored.distinct,
        explored.nested,
        explored.recoveries,
        explored.runs,
        tally.histories,
        tally.elapsed.as_secs_f64(),
        rate,
        explored.points,
        explored.stores,
    )
}

fn json_of(session: &Session<'_>, tally: &Tally) -> Value {
    let explored = &tally.explored;
    json!({
        "target": session.suite.name,
        "profile": session.profile.name(),
        "seed": format!("{:#x}", session.seed),
        "exhaustive": session.limits.exhaustive[0],
        "events_one_in": session.limits.events_one_in[0],
        "states_distinct": explored.distinct,
        "states_nested": explored.nested,
        "states_judged": explored.runs,
        "recoveries_crashed": explored.recoveries,
        "points": explored.points,
        "points_sampled": explored.sampled,
        "stores": explored.stores,
        "stores_settled": explored.settled,
        "histories": tally.histories,
        "operations": tally.operations,
        "jobs": session.jobs,
        "elapsed_s": tally.elapsed.as_secs_f64(),
        "cpu_s": tally.cpu.as_secs_f64(),
        "finding": tally.finding.as_ref().map(|(seed, finding)| json!({
            "replay": seed.to_string(),
            "wrong": finding.wrong,
        })),
    })
}

/// The story of a finding, made as small as it gets.
pub(crate) fn tell(suite: &Suite, seed: RunSeed, finding: Box<Finding>, limits: Limits) -> String {
    let seen = Seen::new();
    let lab = Lab::new(seed.profile, limits, &seen);
    let operations = finding.plan.before.len() + finding.plan.ops.len();
    let finding = suite.minimise(&lab, finding, TRIES);
    let left = finding.plan.before.len() + finding.plan.ops.len();
    let story = Story { target: suite.name, crash: seed.profile.crash(), finding: &finding };
    format!(
        "\n{}, profile {}, seed {seed}: WRONG\n{story}\n  again: cargo lab replay {seed}{}    minimised from {operations} operations to {left}",
        suite.name,
        seed.profile.name(),
        again(limits),
    )
}
