//! `cargo lab mutants`: is the lab any good?

use super::crash::{cores, failed, number, profile, targets};
use super::excused::why_excused;
use super::progress::Progress;
use super::say;
use super::session::Session;
use clap::Args;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use terrace_lab::{Accident, Deaths, MEETINGS, RunSeed, ScheduleSeed, Suite, Watch};
use terrace_testkit::crash::{Fault, Lab, Limits, Profile, Seen};
use terrace_testkit::schedule::Stage;

/// Histories that are looked through for places.
const HISTORIES: u64 = 200;
/// So many times the states of a target are judged at most where threads meet.
const MEETING_SHARE: u64 = 8;
/// Runs of several threads, and as many in which some of them die, that are looked through.
const MEETING_RUNS: u64 = 40;
/// So many times the runs that were asked for are tried at most, for those that come by a place.
const TRIES: u64 = 8;
/// A short look has one in so many of the states, histories and runs.
const SHORT: u64 = 20;

/// How long and at what a target looks for a mutant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// First, at [`SHORT`] of everything: most mutants do not live longer, and those that one target cannot kill may fall in another, or where threads meet.
    Short,
    Long,
    /// At what a process leaves to one that comes after it, and hardly anything else.
    AtKills,
}

impl Look {
    /// The search by one thread, which that by several follows each time.
    const ROUNDS: [&[Self]; 2] = [&[Self::Short], &[Self::AtKills, Self::Long]];

    /// This one's share of `all`.
    fn share(self, all: u64) -> u64 {
        if self == Self::Short { all.div_ceil(SHORT) } else { all }
    }

    /// Histories of so many: one that is killed at every other event takes as long as hundreds that are not.
    fn histories(self, all: u64) -> u64 {
        if self == Self::Long { all } else { all.div_ceil(SHORT) }
    }
}

#[derive(Args)]
pub(crate) struct Mutants {
    /// pool, clht, clht-bytes, turbo, turbo-bytes, rewo, rewo-bytes, level, level-bytes, direct, full, or all.
    target: String,
    /// Distinct states of each target after which a mutant has survived.
    #[arg(long, default_value_t = 200_000)]
    states: u64,
    /// Histories of each target that a mutant has survived, too, however few of their states show it.
    #[arg(long, default_value_t = 20_000)]
    histories: u64,
    /// Runs of several threads, of each target and kind of accident, that come by its place and that a mutant has survived besides; at most 8 times as many that do not.
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

/// The targets whose threads may come by the place of a fault, by name.
type Meets = BTreeSet<&'static str>;

/// The run that killed a mutant.
struct Killer {
    target: &'static str,
    /// Its seed. (No command repeats it: the mutant is planted here only.)
    run: String,
    wrong: String,
}

impl Mutants {
    pub(crate) fn run(&self) -> ExitCode {
        let targets = match targets(&self.target) {
            Ok(targets) => targets,
            Err(why) => return failed(&why),
        };
        let mut mutants: BTreeMap<Fault, (Vec<Passer<'_>>, Meets)> = BTreeMap::new();
        for (place, suite) in targets {
            for (fault, in_recovery) in self.faults(place, suite) {
                let (passers, meets) = mutants.entry(fault).or_default();
                passers.push(Passer { place, suite, in_recovery });
                meets.insert(suite.name);
            }
        }
        for (fault, meets) in self.faults_of_meetings() {
            mutants.entry(fault).or_default().1.extend(meets);
        }
        mutants.retain(|fault, _| self.is_wanted(fault));
        let all = mutants.len();
        mutants.retain(|fault, _| !self.is_excused(*fault));
        let excused = all - mutants.len();
        let progress = Progress::new(self.json);
        let survivors: Vec<Fault> = mutants
            .iter()
            .filter(|(fault, (passers, meets))| !self.is_killed(**fault, passers, meets, &progress))
            .map(|(fault, _)| *fault)
            .collect();
        self.sum_up(mutants.len(), excused, &survivors);
        if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Every fault of every place that some history or its recovery comes by, and whether only recoveries do.
    fn faults(&self, place: usize, suite: &Suite) -> BTreeMap<Fault, bool> {
        let seen = Seen::new();
        let lab = Lab::new(self.profile, Limits::default(), &seen);
        let mut found: BTreeMap<Fault, bool> = BTreeMap::new();
        for number in 0..HISTORIES {
            let run = RunSeed::new(place, self.profile, self.seed, number).run;
            let [history, recovery] = suite.faults(&lab, &suite.plan(run));
            recovery.into_iter().for_each(|fault| _ = found.entry(fault).or_insert(true));
            history.into_iter().for_each(|fault| _ = found.insert(fault, false));
        }
        found
    }

    /// Every fault of every place that threads come by where they meet, or survivors after a death: some histories of one thread never do.
    fn faults_of_meetings(&self) -> BTreeMap<Fault, Meets> {
        let stage = Stage::new();
        let meetings = MEETINGS.iter().filter(|meeting| self.target == "all" || self.target == meeting.name);
        let mut found: BTreeMap<Fault, Meets> = BTreeMap::new();
        let runs = meetings.flat_map(|meeting| self.accidents().map(|it| (meeting, it)));
        for (meeting, accident) in runs {
            let seed = |number| ScheduleSeed::new(meeting.name, accident, self.seed, number);
            let faults = (0..MEETING_RUNS).flat_map(|run| meeting.faults(&stage, self.profile, seed(run)));
            faults.for_each(|fault| _ = found.entry(fault).or_default().insert(meeting.name));
        }
        found
    }

    /// What happens to threads: power fails, and it fails after some of them have died, while the others went on or before they came.
    fn accidents(&self) -> [Accident; 3] {
        [Deaths::None, Deaths::Some, Deaths::First].map(|deaths| Accident::of(deaths, Some(self.profile)))
    }

    /// What the targets themselves store is no part of what is tested.
    fn is_wanted(&self, fault: &Fault) -> bool {
        let place = fault.place();
        !place.starts_with("targets/") && self.only.as_ref().is_none_or(|only| place.contains(only))
    }

    /// Whether the fault is known to be none; says why.
    fn is_excused(&self, fault: Fault) -> bool {
        let Some(because) = why_excused(fault) else { return false };
        say(&match self.json {
            true => {
                let (place, fault) = (fault.place(), fault.kind.name());
                json!({ "place": place, "fault": fault, "excused": because }).to_string()
            }
            false => format!("{:<28} {:<31} {because}", fault.place(), fault.kind.name()),
        });
        true
    }

    /// Whether any of the targets that come by the fault shows that something is wrong.
    fn is_killed(&self, fault: Fault, passers: &[Passer<'_>], meets: &Meets, progress: &Progress) -> bool {
        let mut states = 0;
        let killer = Look::ROUNDS.iter().find_map(|looks| {
            let alone = looks.iter().find_map(|&look| {
                passers
                    .iter()
                    .find_map(|&passer| self.killed_by_one(fault, passer, look, &mut states, progress))
            });
            alone.or_else(|| self.killed_by_threads(fault, meets, looks[0].share(self.runs), &mut states))
        });
        let is_killed = killer.is_some();
        self.report(fault, states, killer);
        is_killed
    }

    fn killed_by_one(
        &self,
        fault: Fault,
        passer: Passer<'_>,
        look: Look,
        states: &mut u64,
        progress: &Progress,
    ) -> Option<Killer> {
        let tally = self.session(passer, fault, look).run(progress);
        *states += tally.explored.distinct;
        let (seed, finding) = tally.finding?;
        Some(Killer { target: passer.suite.name, run: seed.to_string(), wrong: finding.wrong })
    }

    /// What one thread makes durable for another shows only where they meet. Of a place that threads seldom come by, most runs tell nothing, and take little time.
    fn killed_by_threads(&self, fault: Fault, meets: &Meets, runs: u64, states: &mut u64) -> Option<Killer> {
        let meetings = MEETINGS.iter().filter(|meeting| meets.contains(meeting.name));
        let kinds: Vec<_> = meetings.flat_map(|it| self.accidents().map(|accident| (it, accident))).collect();
        let (next, came) = (AtomicU64::new(0), AtomicU64::new(0));
        let (stop, seen, killer) = (AtomicBool::new(false), Seen::new(), Mutex::new(None));
        let is_over = || {
            let enough = came.load(Relaxed) >= runs * kinds.len() as u64;
            enough || stop.load(Relaxed) || seen.len() >= MEETING_SHARE * self.states
        };
        std::thread::scope(|scope| {
            for _ in 0..cores() {
                scope.spawn(|| {
                    let stage = Stage::new();
                    let watch = Watch { seen: &seen, is_over: &is_over, fault: Some(fault) };
                    while !is_over() {
                        // No kinds, no runs: enough of them before the first.
                        let number = next.fetch_add(1, Relaxed);
                        let (run, kind) = (number / kinds.len() as u64, number as usize % kinds.len());
                        if run >= TRIES * runs {
                            break;
                        }
                        let (meeting, accident) = kinds[kind];
                        let seed = ScheduleSeed::new(meeting.name, accident, self.seed, run);
                        let done = meeting.run(&stage, &watch, seed);
                        if done.explored.runs > 0 {
                            came.fetch_add(1, Relaxed);
                        }
                        if let Some(finding) = done.finding {
                            stop.store(true, Relaxed);
                            let found =
                                Killer { target: meeting.name, run: seed.to_string(), wrong: finding.wrong };
                            *killer.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
                        }
                    }
                });
            }
        });
        *states += seen.len();
        killer.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn session<'s>(&self, passer: Passer<'s>, fault: Fault, look: Look) -> Session<'s> {
        // What a process leaves to the next one shows only if that one reads it, and then loses it.
        let [killed, recovered] = match look {
            Look::AtKills => [2, 0],
            _ if passer.in_recovery => [2, 4],
            _ => [16, 256],
        };
        let here = if look == Look::AtKills { [1, 1] } else { [64, 32] };
        let limits = Limits {
            exhaustive: [here[0], 32, 8],
            samples: [here[1], 16, 4],
            events_one_in: [1; 2],
            nested_one_in: [recovered, 0, 0],
            revived_one_in: killed,
            again_one_in: Limits::AGAIN_ONE_IN,
        };
        Session {
            place: passer.place,
            suite: passer.suite,
            profile: self.profile,
            seed: self.seed,
            states: look.share(self.states).max(1),
            jobs: cores(),
            limits,
            fault: Some(fault),
            only_faulty: !passer.in_recovery,
            runs_max: look.histories(self.histories).max(1),
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
                "run": killer.map(|killer| &killer.run),
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

    fn sum_up(&self, all: usize, excused: usize, survivors: &[Fault]) {
        let killed = all - survivors.len();
        if self.json {
            return say(&json!({ "mutants": all, "killed": killed, "excused": excused }).to_string());
        }
        for fault in survivors {
            say(&format!("survivor: {}, {}", fault.place(), fault.kind.name()));
        }
        let share = 100.0 * killed as f64 / all.max(1) as f64;
        say(&format!("{killed} of {all} mutants killed by some target, {share:.1}%; {excused} do not count"));
    }
}
