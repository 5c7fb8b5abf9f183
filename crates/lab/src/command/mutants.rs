//! `cargo lab mutants`: is the lab any good?

use super::crash::{cores, failed, number, profile, targets};
use super::progress::Progress;
use super::session::{Session, Tally};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use terrace_lab::{RunSeed, Suite};
use terrace_testkit::crash::{Fault, Lab, Limits, Profile, Seen};

/// Histories that are looked through for places.
const HISTORIES: u64 = 200;

#[derive(Args)]
pub(crate) struct Mutants {
    /// pool, clht, clht-bytes, direct, or all.
    target: String,
    /// Distinct states after which a mutant has survived.
    #[arg(long, default_value_t = 200_000)]
    states: u64,
    /// Another seed, other histories.
    #[arg(long, default_value = "0x5eed", value_parser = number)]
    seed: u64,
    /// The kind of memory: pmem, eadr, remote.
    #[arg(long, value_parser = profile, default_value = "pmem")]
    profile: Profile,
    /// Only places whose file and line hold this, for instance `resize.rs`.
    #[arg(long)]
    only: Option<String>,
    /// Prints one JSON object a mutant instead of text.
    #[arg(long)]
    json: bool,
}

/// A fault, and whether it is only in recoveries.
type Mutant = (Fault, bool);

impl Mutants {
    pub(crate) fn run(&self) -> ExitCode {
        let targets = match targets(&self.target) {
            Ok(targets) => targets,
            Err(why) => return failed(&why),
        };
        let progress = Progress::new(self.json);
        let mut survivors = 0;
        for (place, suite) in targets {
            let mutants = self.mutants(place, suite);
            let total = mutants.len();
            let mut killed = 0;
            for mutant in mutants {
                let tally = self.session((place, suite), mutant).run(&progress);
                killed += usize::from(tally.finding.is_some());
                self.report(suite, mutant, &tally);
            }
            survivors += total - killed;
            if !self.json {
                let share = 100.0 * killed as f64 / total.max(1) as f64;
                say(&format!("{}: {killed} of {total} mutants killed, {share:.1}%", suite.name));
            }
        }
        if survivors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Every fault of every place that some history or its recovery comes by.
    fn mutants(&self, place: usize, suite: &Suite) -> Vec<Mutant> {
        let seen = Seen::new();
        let (profile, limits) = (self.profile, Limits::default());
        let lab = Lab { profile, limits, seen: &seen, is_over: &|| false, fault: None, only_faulty: false };
        let mut found: BTreeMap<Fault, bool> = BTreeMap::new();
        for number in 0..HISTORIES {
            let run = RunSeed::new(place, self.profile, self.seed, number).run;
            let [history, recovery] = suite.faults(&lab, &suite.plan(run));
            recovery.into_iter().for_each(|fault| _ = found.entry(fault).or_insert(true));
            history.into_iter().for_each(|fault| _ = found.insert(fault, false));
        }
        let wanted = |fault: &Fault| self.only.as_ref().is_none_or(|only| fault.place().contains(only));
        found.into_iter().filter(|(fault, _)| wanted(fault)).collect()
    }

    fn session<'s>(&self, (place, suite): (usize, &'s Suite), (fault, in_recovery): Mutant) -> Session<'s> {
        // Many histories find more than all states of a few.
        let limits = Limits { exhaustive: [256, 16, 8], samples: [64, 8, 4], ..Limits::default() };
        let nested_one_in = if in_recovery { [64, 64, 0] } else { limits.nested_one_in };
        Session {
            place,
            suite,
            profile: self.profile,
            seed: self.seed,
            states: self.states,
            jobs: cores(),
            limits: Limits { nested_one_in, ..limits },
            fault: Some(fault),
            only_faulty: !in_recovery,
            runs_max: 20_000,
        }
    }

    fn report(&self, suite: &Suite, (fault, in_recovery): Mutant, tally: &Tally) {
        let wrong = tally.finding.as_ref().map(|(_, finding)| finding.wrong.as_str());
        if self.json {
            return say(&json!({
                "target": suite.name,
                "profile": self.profile.name(),
                "place": fault.place(),
                "fault": fault.kind.name(),
                "in_recovery_only": in_recovery,
                "killed": wrong.is_some(),
                "states_distinct": tally.explored.distinct,
                "wrong": wrong,
                "replay": tally.finding.as_ref().map(|(seed, _)| seed.to_string()),
            })
            .to_string());
        }
        let fate = match wrong {
            Some(wrong) => format!("killed after {} states: {wrong}", tally.explored.distinct),
            None => format!("SURVIVED {} states of {} histories", tally.explored.distinct, tally.histories),
        };
        let note = if in_recovery { " (in recovery)" } else { "" };
        say(&format!("{:<36} {:<32} {fate}", format!("{}{note}", fault.place()), fault.kind.name()));
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
