//! `cargo lab replay`: repeats the run of a finding.

use super::arguments::failed;
use super::breadth::Breadth;
use super::crash::describe;
use super::progress::Progress;
use super::schedules::replay;
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Instant;
use terrace_lab::{RunSeed, SUITES, ScheduleSeed, suite};
use terrace_testkit::crash::{Lab, Seen};

#[derive(Args)]
pub(crate) struct Replay {
    /// The seed that the finding names. It encodes target, profile and run; the program must be the
    /// same.
    seed: Seed,
    #[command(flatten)]
    breadth: Breadth,
    /// Prints one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// The seed of a single-threaded or a multi-threaded run.
#[derive(Clone, Copy)]
pub(super) enum Seed {
    Crash(RunSeed),
    Schedule(ScheduleSeed),
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') { text.parse().map(Self::Schedule) } else { text.parse().map(Self::Crash) }
    }
}

impl Replay {
    pub(crate) fn run(&self) -> ExitCode {
        match self.seed {
            Seed::Crash(seed) => self.crash(seed),
            Seed::Schedule(seed) => replay(seed, self.json),
        }
    }

    fn crash(&self, seed: RunSeed) -> ExitCode {
        let found = SUITES.get(seed.suite).and_then(|each| suite(each.name));
        let Some((_, suite)) = found else {
            return failed(&format!("{seed} names no target: give the seed of a finding"));
        };
        let (seen, limits, start) = (Seen::new(), self.breadth.limits(), Instant::now());
        let progress = Progress::new(self.json);
        let is_over = || {
            progress.show([suite.name, seed.profile.name()], (seen.len(), None), "states", start);
            false
        };
        let lab = Lab { is_over: &is_over, ..Lab::new(seed.profile, limits, &seen) };
        let outcome = suite.run(&lab, &suite.plan(seed.run));
        progress.clear();
        let mut out = std::io::stdout().lock();
        let states = outcome.explored.distinct;
        let wrong = outcome.finding.as_ref().map(|finding| finding.wrong.clone());
        let sound = wrong.is_none();
        let text = match (self.json, outcome.finding) {
            (true, _) => {
                json!({ "target": suite.name, "profile": seed.profile.name(), "states_distinct": states, "finding": wrong })
                    .to_string()
            }
            (_, Some(finding)) => describe(suite, seed, finding, limits),
            (_, None) => format!("{}: all {states} states of this run are sound", suite.name),
        };
        let _ = writeln!(out, "{text}");
        if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
