//! `cargo lab mutants`: is the lab any good?

use super::crash::{cores, failed, number, profile, targets};
use super::progress::Progress;
use super::session::Session;
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use terrace_lab::{MEETINGS, RunSeed, ScheduleSeed, Suite, Watch};
use terrace_testkit::crash::{Fault, Lab, Limits, Profile, Seen};
use terrace_testkit::schedule::Stage;

/// Histories that are looked through for places.
const HISTORIES: u64 = 200;
/// First, each target has this share of the states: most mutants do not live longer, and those that one target cannot kill may fall in another.
const FIRST_SHARE: u64 = 20;

#[derive(Args)]
pub(crate) struct Mutants {
    /// pool, clht, clht-bytes, direct, or all.
    target: String,
    /// Distinct states of each target after which a mutant has survived.
    #[arg(long, default_value_t = 200_000)]
    states: u64,
    /// Runs of several threads that a mutant has survived besides, of each target.
    #[arg(long, default_value_t = 2000)]
    runs: u64,
    /// Another seed, other histories.
    #[arg(long, default_value = "0x5eed", value_parser = number)]
    seed: u64,
    /// The kind of memory: arm asks for every fence that any machine needs; or pmem, remote.
    #[arg(long, value_parser = profile, default_value = "arm")]
    profile: Profile,
    /// Only places whose file and line hold this, for instance `resize.rs`.
    #[arg(long)]
    only: Option<String>,
    /// Prints one JSON object a mutant instead of text.
    #[arg(long)]
    json: bool,
}

/// A target that comes by the place of a fault, and whether only its recoveries do.
#[derive(Clone, Copy)]
struct Passer<'s> {
    place: usize,
    suite: &'s Suite,
    in_recovery: bool,
}

/// The run that killed a mutant.
struct Killer {
    target: &'static str,
    /// Repeats it, with the mutant planted.
    replay: String,
    wrong: String,
}

impl Mutants {
    pub(crate) fn run(&self) -> ExitCode {
        let targets = match targets(&self.target) {
            Ok(targets) => targets,
            Err(why) => return failed(&why),
        };
        let mut mutants: BTreeMap<Fault, Vec<Passer<'_>>> = BTreeMap::new();
        for (place, suite) in targets {
            for (fault, in_recovery) in self.faults(place, suite) {
                mutants.entry(fault).or_default().push(Passer { place, suite, in_recovery });
            }
        }
        let progress = Progress::new(self.json);
        let survivors: Vec<Fault> = mutants
            .iter()
            .filter(|(fault, passers)| !self.is_killed(**fault, passers, &progress))
            .map(|(fault, _)| *fault)
            .collect();
        self.sum_up(mutants.len(), &survivors);
        if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Every fault of every place that some history or its recovery comes by, and whether only recoveries do.
    fn faults(&self, place: usize, suite: &Suite) -> BTreeMap<Fault, bool> {
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
        // What the targets themselves store is no part of what is tested.
        found.retain(|fault, _| !fault.place().starts_with("targets/"));
        found.retain(|fault, _| self.only.as_ref().is_none_or(|only| fault.place().contains(only)));
        found
    }

    /// Whether any of the targets that come by the fault shows that something is wrong.
    fn is_killed(&self, fault: Fault, passers: &[Passer<'_>], progress: &Progress) -> bool {
        let mut states = 0;
        for share in [self.states / FIRST_SHARE, self.states] {
            for &passer in passers {
                let tally = self.session(passer, fault, share).run(progress);
                states += tally.explored.distinct;
                if let Some((seed, finding)) = tally.finding {
                    let (target, replay) = (passer.suite.name, seed.to_string());
                    self.report(fault, states, Some(Killer { target, replay, wrong: finding.wrong }));
                    return true;
                }
            }
        }
        let killer = self.killed_by_threads(fault, &mut states);
        let is_killed = killer.is_some();
        self.report(fault, states, killer);
        is_killed
    }

    /// What one thread makes durable for another shows only where they meet.
    fn killed_by_threads(&self, fault: Fault, states: &mut u64) -> Option<Killer> {
        let (stage, seen) = (Stage::new(), Seen::new());
        let watch = Watch { seen: &seen, is_over: &|| false, fault: Some(fault) };
        for run in 0..self.runs {
            for meeting in &MEETINGS {
                let seed = ScheduleSeed::new(meeting.name, Some(self.profile), self.seed, run);
                let done = meeting.run(&stage, &watch, seed);
                *states += done.explored.distinct;
                if let Some(finding) = done.finding {
                    let replay = seed.to_string();
                    return Some(Killer { target: meeting.name, replay, wrong: finding.wrong });
                }
            }
        }
        None
    }

    fn session<'s>(&self, passer: Passer<'s>, fault: Fault, states: u64) -> Session<'s> {
        // Many histories find more than all states of a few.
        let exhaustive = Limits { exhaustive: [32, 8, 4], samples: [16, 4, 2], ..Limits::default() };
        // What a process leaves to the next one shows only if that one reads it, and then loses it.
        let limits = if passer.in_recovery {
            Limits { revived_one_in: 4, nested_one_in: [64, 64, 0], ..exhaustive }
        } else {
            Limits { revived_one_in: 64, ..exhaustive }
        };
        Session {
            place: passer.place,
            suite: passer.suite,
            profile: self.profile,
            seed: self.seed,
            states,
            jobs: cores(),
            limits,
            fault: Some(fault),
            only_faulty: !passer.in_recovery,
            runs_max: 20_000,
        }
    }

    fn report(&self, fault: Fault, states: u64, killer: Option<Killer>) {
        if self.json {
            let killer = killer.as_ref();
            return say(&json!({
                "target": killer.map(|killer| killer.target),
                "profile": self.profile.name(),
                "place": fault.place(),
                "fault": fault.kind.name(),
                "killed": killer.is_some(),
                "states_distinct": states,
                "wrong": killer.map(|killer| &killer.wrong),
                "replay": killer.map(|killer| &killer.replay),
            })
            .to_string());
        }
        let fate = match killer {
            Some(Killer { target, wrong, .. }) => {
                format!("killed by {target} after {states} states: {wrong}")
            }
            None => format!("SURVIVED {states} states"),
        };
        say(&format!("{:<28} {:<31} {fate}", fault.place(), fault.kind.name()));
    }

    fn sum_up(&self, all: usize, survivors: &[Fault]) {
        let killed = all - survivors.len();
        if self.json {
            return say(&json!({ "mutants": all, "killed": killed }).to_string());
        }
        for fault in survivors {
            say(&format!("survivor: {}, {}", fault.place(), fault.kind.name()));
        }
        let share = 100.0 * killed as f64 / all.max(1) as f64;
        say(&format!("{killed} of {all} mutants killed by some target, {share:.1}%"));
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
