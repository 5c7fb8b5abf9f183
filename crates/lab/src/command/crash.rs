//! `cargo lab crash`: explores crash states of single-threaded histories.

use super::arguments::{cores, failed, number, profile, targets};
use super::breadth::{Breadth, replay_flags};
use super::progress::Progress;
use super::schedules::Schedules;
use super::session::{Session, Tally};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use terrace_lab::{FaultProfile, RunSeed, Suite};
use terrace_testkit::crash::{Finding, FindingReport, Lab, Limits, Profile, Seen};

/// Maximum number of runs for minimising a finding.
const TRIES: usize = 400;

#[derive(Args)]
pub(crate) struct Crash {
    /// pool, clht, clht-bytes, turbo, turbo-bytes, rewo, rewo-bytes, level, level-bytes, art,
    /// art-bytes, hot, hot-bytes, bwtree, bwtree-bytes, masstree, masstree-bytes, sptree,
    /// sptree-bytes, direct, full, files, tiered, disk, or all.
    target: String,
    /// Number of distinct states to check, of each target under each profile.
    #[arg(long, default_value_t = 100_000)]
    states: u64,
    /// Seed of the histories.
    #[arg(long, default_value = "0x5eed", value_parser = number)]
    seed: u64,
    /// Only this kind of memory: pmem, shm, eadr, arm, file, remote. Or one-dies: some participants
    /// of a shared pool crash while the others continue; one-dies+pmem and so on: then power fails,
    /// too. Without a power failure, each crashed participant counts as a state.
    #[arg(long, value_parser = conditions)]
    profile: Option<Conditions>,
    #[command(flatten)]
    breadth: Breadth,
    /// Number of threads; default: one per core.
    #[arg(long)]
    jobs: Option<usize>,
    /// Prints one JSON object per session instead of text.
    #[arg(long)]
    json: bool,
}

/// The conditions of a session: a power failure of one thread's run, or crashed participants.
#[derive(Clone, Copy)]
enum Conditions {
    PowerLoss(Profile),
    Crashes(FaultProfile),
}

fn conditions(text: &str) -> Result<Conditions, String> {
    match FaultProfile::named(text) {
        Ok(fault_profile) if fault_profile.has_crashes() => Ok(Conditions::Crashes(fault_profile)),
        _ => profile(text)
            .map(Conditions::PowerLoss)
            .map_err(|why| format!("{why}, one-dies, one-dies+pmem, heirs+pmem")),
    }
}

impl Crash {
    pub(crate) fn run(&self) -> ExitCode {
        let chosen = match self.profile {
            Some(Conditions::Crashes(fault_profile)) => {
                let schedules = Schedules::of_crashes(fault_profile, &self.target, self.states, self.seed);
                return schedules.with(self.jobs, self.json).run();
            }
            Some(Conditions::PowerLoss(profile)) => Some(profile),
            None => None,
        };
        let targets = match targets(&self.target) {
            Ok(targets) => targets,
            Err(why) => return failed(&why),
        };
        let progress = Progress::new(self.json);
        let mut sound = true;
        for (place, suite) in targets {
            for &profile in chosen.as_ref().map_or(suite.profiles, std::slice::from_ref) {
                let session = self.session(place, suite, profile);
                let tally = session.run(&progress);
                sound &= tally.finding.is_none();
                self.report(&session, tally);
            }
        }
        if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn session<'s>(&self, place: usize, suite: &'s Suite, profile: Profile) -> Session<'s> {
        Session {
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
        }
    }

    fn report(&self, session: &Session<'_>, tally: Tally) {
        let mut out = std::io::stdout().lock();
        let text = if self.json {
            json_of(session, &tally).to_string()
        } else {
            let mut text = summary(session, &tally);
            if let Some((seed, finding)) = tally.finding {
                text += &describe(session.suite, seed, finding, session.limits);
            }
            text
        };
        let _ = writeln!(out, "{text}");
    }
}

fn summary(session: &Session<'_>, tally: &Tally) -> String {
    let explored = &tally.explored;
    let rate = explored.runs as f64 / tally.cpu.as_secs_f64();
    let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    let exhaustive = 100.0 - share(explored.sampled, explored.points);
    let settled = share(explored.settled, explored.stores);
    format!(
        "{:<10} {:<6} {} distinct states ({} after a kill or in one of {} crashed recoveries) in {} runs of {} histories, {:.1} s, {:.0} per core second; \
         {} points, {exhaustive:.1}% of them exhaustively; {settled:.1}% of {} stores assumed durable by age",
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

/// A report of a finding, after minimising it.
pub(crate) fn describe(suite: &Suite, seed: RunSeed, finding: Box<Finding>, limits: Limits) -> String {
    let seen = Seen::new();
    let lab = Lab::new(seed.profile, limits, &seen);
    let operations = finding.plan.before.len() + finding.plan.ops.len();
    let finding = suite.minimise(&lab, finding, TRIES);
    let left = finding.plan.before.len() + finding.plan.ops.len();
    let story = FindingReport { target: suite.name, crash: seed.profile.crash(), finding: &finding };
    format!(
        "\n{}, profile {}, seed {seed}: WRONG\n{story}\n  to repeat: cargo lab replay {seed}{}    minimised from {operations} operations to {left}",
        suite.name,
        seed.profile.name(),
        replay_flags(limits),
    )
}
