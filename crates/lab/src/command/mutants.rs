//! `cargo lab mutants`: injects faults at all write-backs and fences, to test that the lab detects
//! them.

use super::arguments::{cores, failed, number, profile, targets};
use super::excused::exemption_reason;
use super::print_line;
use super::progress::Progress;
use super::session::Session;
use clap::Args;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use terrace_lab::{
    CrashKind, FaultProfile, Monitor, RunSeed, SCHEDULE_TARGETS, ScheduleSeed, ScheduleTarget, Suite,
};
use terrace_testkit::crash::{Fault, Lab, Limits, Profile, Seen};
use terrace_testkit::schedule::Scheduler;

/// Number of histories that are searched for places of faults.
const HISTORIES: u64 = 200;
/// Multi-threaded runs check at most this many times the states of a target.
const SCHEDULE_SHARE: u64 = 8;
/// Number of multi-threaded runs, for each fault profile, that are searched for places of faults.
const SCHEDULE_RUNS: u64 = 40;
/// At most this many times the requested runs are tried, to find runs that reach a place.
const TRIES: u64 = 8;
/// A short search has this fraction of the states, histories and runs.
const SHORT: u64 = 20;

/// The extent of one search for a mutant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// The first search, at 1/[`SHORT`] of everything: most mutants are killed by it, and others by
    /// another target or a multi-threaded run.
    Short,
    /// The full search.
    Long,
    /// Mostly states that a killed process leaves to its successor.
    AtKills,
}

impl Effort {
    /// The rounds of single-threaded searches; a multi-threaded one follows each round.
    const ROUNDS: [&[Self]; 2] = [&[Self::Short], &[Self::AtKills, Self::Long]];

    /// The share of `all` for this extent.
    fn share(self, all: u64) -> u64 {
        if self == Self::Short { all.div_ceil(SHORT) } else { all }
    }

    /// The share of `all` histories: one with a kill at every other event takes as long as hundreds
    /// without kills.
    fn histories(self, all: u64) -> u64 {
        if self == Self::Long { all } else { all.div_ceil(SHORT) }
    }
}

#[derive(Args)]
pub(crate) struct Mutants {
    /// pool, clht, clht-bytes, turbo, turbo-bytes, rewo, rewo-bytes, level, level-bytes, art,
    /// art-bytes, hot, hot-bytes, bwtree, bwtree-bytes, masstree, masstree-bytes, sptree,
    /// sptree-bytes, direct, full, files, tiered, or all.
    target: String,
    /// Number of distinct states of each target after which a mutant has survived.
    #[arg(long, default_value_t = 200_000)]
    states: u64,
    /// Number of histories of each target after which a mutant has survived, even with fewer
    /// states.
    #[arg(long, default_value_t = 20_000)]
    histories: u64,
    /// Number of multi-threaded runs that reach the mutant's place, of each target and fault
    /// profile, after which it has survived; at most 8 times as many runs are tried.
    #[arg(long, default_value_t = 2000)]
    runs: u64,
    /// Seed of the histories.
    #[arg(long, default_value = "0x5eed", value_parser = number)]
    seed: u64,
    /// The kind of memory: arm needs every fence that any machine needs; or pmem, remote.
    #[arg(long, value_parser = profile, default_value = "arm")]
    profile: Profile,
    /// Only places whose file and line contain this, for instance `resize.rs`.
    #[arg(long)]
    only: Option<String>,
    /// Prints one JSON object per mutant instead of text.
    #[arg(long)]
    json: bool,
}

/// A target whose runs reach the place of a fault, and whether only its recoveries do.
#[derive(Clone, Copy)]
struct FaultTarget<'s> {
    place: usize,
    suite: &'s Suite,
    in_recovery: bool,
}

/// The names of the multi-threaded targets that may reach the place of a fault.
type TargetNames = BTreeSet<&'static str>;

/// The run that killed a mutant.
struct Killer {
    target: &'static str,
    /// Its seed. No command repeats it, as only this one injects the fault.
    run: String,
    wrong: String,
}

impl Mutants {
    pub(crate) fn run(&self) -> ExitCode {
        let targets = match targets(&self.target) {
            Ok(targets) => targets,
            Err(why) => return failed(&why),
        };
        let mut mutants: BTreeMap<Fault, (Vec<FaultTarget<'_>>, TargetNames)> = BTreeMap::new();
        for (place, suite) in targets {
            for (fault, in_recovery) in self.faults(place, suite) {
                let (fault_targets, schedule_targets) = mutants.entry(fault).or_default();
                fault_targets.push(FaultTarget { place, suite, in_recovery });
                schedule_targets.insert(suite.name);
            }
        }
        for (fault, schedule_targets) in self.schedule_faults() {
            mutants.entry(fault).or_default().1.extend(schedule_targets);
        }
        mutants.retain(|fault, _| self.is_wanted(fault));
        let all = mutants.len();
        mutants.retain(|fault, _| !self.is_exempt(*fault));
        let exempt = all - mutants.len();
        let progress = Progress::new(self.json);
        let survivors: Vec<Fault> = mutants
            .iter()
            .filter(|(fault, (fault_targets, schedule_targets))| {
                !self.is_killed(**fault, fault_targets, schedule_targets, &progress)
            })
            .map(|(fault, _)| *fault)
            .collect();
        self.sum_up(mutants.len(), exempt, &survivors);
        if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Every fault of every place that some history or its recovery reaches, and whether only
    /// recoveries reach it.
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

    /// Every fault of every place that multi-threaded runs reach, with crashed threads or without;
    /// single-threaded histories never reach some of these places.
    fn schedule_faults(&self) -> BTreeMap<Fault, TargetNames> {
        let scheduler = Scheduler::new();
        let targets =
            SCHEDULE_TARGETS.iter().filter(|target| self.target == "all" || self.target == target.name);
        let mut found: BTreeMap<Fault, TargetNames> = BTreeMap::new();
        let runs = targets.flat_map(|target| self.fault_profiles().map(|it| (target, it)));
        for (target, fault_profile) in runs {
            let seed = |number| ScheduleSeed::new(target.name, fault_profile, self.seed, number);
            let faults =
                (0..SCHEDULE_RUNS).flat_map(|run| target.faults(&scheduler, self.profile, seed(run)));
            faults.for_each(|fault| _ = found.entry(fault).or_default().insert(target.name));
        }
        found
    }

    /// The fault profiles of multi-threaded runs: power fails, after no thread, some threads or the
    /// first thread has crashed.
    fn fault_profiles(&self) -> [FaultProfile; 3] {
        [CrashKind::None, CrashKind::Some, CrashKind::First]
            .map(|deaths| FaultProfile::of(deaths, Some(self.profile)))
    }

    /// Whether a fault is requested. Stores of the targets themselves are not under test.
    fn is_wanted(&self, fault: &Fault) -> bool {
        let place = fault.place();
        !place.starts_with("targets/") && self.only.as_ref().is_none_or(|only| place.contains(only))
    }

    /// Whether the fault is exempt; prints the reason.
    fn is_exempt(&self, fault: Fault) -> bool {
        let Some(because) = exemption_reason(fault) else { return false };
        print_line(&match self.json {
            true => {
                let (place, fault) = (fault.place(), fault.kind.name());
                json!({ "place": place, "fault": fault, "excused": because }).to_string()
            }
            false => format!("{:<28} {:<31} {because}", fault.place(), fault.kind.name()),
        });
        true
    }

    /// Whether any target that reaches the fault detects it.
    fn is_killed(
        &self,
        fault: Fault,
        fault_targets: &[FaultTarget<'_>],
        schedule_targets: &TargetNames,
        progress: &Progress,
    ) -> bool {
        let mut states = 0;
        let killer = Effort::ROUNDS.iter().find_map(|efforts| {
            let alone = efforts.iter().find_map(|&effort| {
                fault_targets.iter().find_map(|&fault_target| {
                    self.killed_by_one(fault, fault_target, effort, &mut states, progress)
                })
            });
            alone.or_else(|| {
                self.killed_by_threads(fault, schedule_targets, efforts[0].share(self.runs), &mut states)
            })
        });
        let is_killed = killer.is_some();
        self.report(fault, states, killer);
        is_killed
    }

    fn killed_by_one(
        &self,
        fault: Fault,
        fault_target: FaultTarget<'_>,
        effort: Effort,
        states: &mut u64,
        progress: &Progress,
    ) -> Option<Killer> {
        let tally = self.session(fault_target, fault, effort).run(progress);
        *states += tally.explored.distinct;
        let (seed, finding) = tally.finding?;
        Some(Killer { target: fault_target.suite.name, run: seed.to_string(), wrong: finding.wrong })
    }

    /// Searches in multi-threaded runs: only these detect missing durability between threads. Runs
    /// that do not reach the place take little time.
    fn killed_by_threads(
        &self,
        fault: Fault,
        schedule_targets: &TargetNames,
        runs: u64,
        states: &mut u64,
    ) -> Option<Killer> {
        let targets = SCHEDULE_TARGETS.iter().filter(|target| schedule_targets.contains(target.name));
        let kinds: Vec<_> =
            targets.flat_map(|it| self.fault_profiles().map(|fault_profile| (it, fault_profile))).collect();
        let search = ThreadSearch {
            fault,
            seed: self.seed,
            runs,
            states: SCHEDULE_SHARE * self.states,
            kinds,
            next: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            seen: Seen::new(),
            killer: Mutex::new(None),
        };
        std::thread::scope(|scope| {
            for _ in 0..cores() {
                scope.spawn(|| search.work());
            }
        });
        *states += search.seen.len();
        search.killer.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn session<'s>(&self, fault_target: FaultTarget<'s>, fault: Fault, effort: Effort) -> Session<'s> {
        // A fault in what a process leaves shows only if the next process reads it and then power
        // fails.
        let [killed, recovered] = match effort {
            Effort::AtKills => [2, 0],
            _ if fault_target.in_recovery => [2, 4],
            _ => [16, 256],
        };
        let here = if effort == Effort::AtKills { [1, 1] } else { [64, 32] };
        let limits = Limits {
            exhaustive: [here[0], 32, 8],
            samples: [here[1], 16, 4],
            events_one_in: [1; 2],
            nested_one_in: [recovered, 0, 0],
            revived_one_in: killed,
            again_one_in: Limits::RECHECK_ONE_IN,
        };
        Session {
            place: fault_target.place,
            suite: fault_target.suite,
            profile: self.profile,
            seed: self.seed,
            states: effort.share(self.states).max(1),
            jobs: cores(),
            limits,
            fault: Some(fault),
            only_faulty: !fault_target.in_recovery,
            runs_max: effort.histories(self.histories).max(1),
        }
    }

    fn report(&self, fault: Fault, states: u64, killer: Option<Killer>) {
        if self.json {
            let killer = killer.as_ref();
            return print_line(
                &json!({
                    "target": killer.map(|killer| killer.target),
                    "profile": self.profile.name(),
                    "place": fault.place(),
                    "fault": fault.kind.name(),
                    "killed": killer.is_some(),
                    "states_distinct": states,
                    "wrong": killer.map(|killer| &killer.wrong),
                    "run": killer.map(|killer| &killer.run),
                })
                .to_string(),
            );
        }
        let fate = match killer {
            Some(Killer { target, wrong, .. }) => {
                format!("killed by {target} after {states} states: {wrong}")
            }
            None => format!("SURVIVED {states} states"),
        };
        print_line(&format!("{:<28} {:<31} {fate}", fault.place(), fault.kind.name()));
    }

    fn sum_up(&self, all: usize, exempt: usize, survivors: &[Fault]) {
        let killed = all - survivors.len();
        if self.json {
            return print_line(&json!({ "mutants": all, "killed": killed, "excused": exempt }).to_string());
        }
        for fault in survivors {
            print_line(&format!("survivor: {}, {}", fault.place(), fault.kind.name()));
        }
        let share = 100.0 * killed as f64 / all.max(1) as f64;
        print_line(&format!(
            "{killed} of {all} mutants killed by some target, {share:.1}%; {exempt} are exempt"
        ));
    }
}

/// A search for one fault in multi-threaded runs, which several jobs share.
struct ThreadSearch {
    fault: Fault,
    seed: u64,
    /// Runs of each kind that reach the place, after which the fault has survived.
    runs: u64,
    /// States after which it has survived.
    states: u64,
    kinds: Vec<(&'static ScheduleTarget, FaultProfile)>,
    next: AtomicU64,
    reached: AtomicU64,
    stop: AtomicBool,
    seen: Seen,
    killer: Mutex<Option<Killer>>,
}

impl ThreadSearch {
    fn is_over(&self) -> bool {
        let enough = self.reached.load(Relaxed) >= self.runs * self.kinds.len() as u64;
        enough || self.stop.load(Relaxed) || self.seen.len() >= self.states
    }

    /// Runs one seed after the other, until the search is over.
    fn work(&self) {
        let scheduler = Scheduler::new();
        let is_over = || self.is_over();
        let monitor = Monitor { seen: &self.seen, is_over: &is_over, fault: Some(self.fault) };
        while !is_over() {
            // Without kinds, the search is over before the first run.
            let number = self.next.fetch_add(1, Relaxed);
            let (run, kind) = (number / self.kinds.len() as u64, number as usize % self.kinds.len());
            if run >= TRIES * self.runs {
                break;
            }
            let (target, fault_profile) = self.kinds[kind];
            let seed = ScheduleSeed::new(target.name, fault_profile, self.seed, run);
            let result = target.run(&scheduler, &monitor, seed);
            if result.explored.runs > 0 {
                self.reached.fetch_add(1, Relaxed);
            }
            if let Some(finding) = result.finding {
                self.stop.store(true, Relaxed);
                let found = Killer { target: target.name, run: seed.to_string(), wrong: finding.wrong };
                *self.killer.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            }
        }
    }
}
