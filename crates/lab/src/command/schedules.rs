//! `cargo lab schedules`: runs threads in many interleavings.

use super::arguments::{cores, failed, number};
use super::progress::Progress;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terrace_lab::{
    FaultProfile, Monitor, RunResult, SCHEDULE_TARGETS, ScheduleSeed, ScheduleTarget, schedule_target,
};
use terrace_testkit::crash::{Explored, Seen};
use terrace_testkit::schedule::{Finding, FindingReport, Scheduler};

/// Maximum number of runs for minimising a finding.
const TRIES: usize = 3000;

#[derive(Args)]
pub(crate) struct Schedules {
    /// clht, clht-bytes, clht-remote, cells, blocks, direct, turbo, turbo-bytes, rewo, rewo-bytes,
    /// level, level-bytes, art, art-bytes, hot, hot-bytes, bwtree, bwtree-bytes, masstree,
    /// masstree-bytes, sptree, sptree-bytes, or all.
    target: String,
    /// Number of runs of each target, each with another scenario and schedule.
    #[arg(long, default_value_t = 10_000)]
    runs: u64,
    /// Stops each target after this many seconds, even with fewer runs.
    #[arg(long)]
    seconds: Option<u64>,
    /// The faults of each run. none; pmem, shm, eadr, remote: power fails at its stores, on this
    /// kind of memory; weak: threads see stores of others as late as the C11 memory model allows;
    /// one-dies: some participants of a shared pool crash while the others continue; heirs: the
    /// first participant crashes, and the others start after it. one-dies+pmem, heirs+pmem and so
    /// on: then power fails, too.
    #[arg(long, default_value = "none", value_parser = FaultProfile::named)]
    crash: FaultProfile,
    /// Stops each target after this many crash states or, without a power failure, this many
    /// crashed threads.
    #[arg(long)]
    states: Option<u64>,
    /// Seed of the runs.
    #[arg(long, default_value = "0x5eed", value_parser = number)]
    seed: u64,
    /// Number of runs at a time; default: one per core.
    #[arg(long)]
    jobs: Option<usize>,
    /// Prints one JSON object per target instead of text.
    #[arg(long)]
    json: bool,
}

/// The targets of a comma-separated list of names, or all.
fn named(name: &str) -> Result<Vec<&'static ScheduleTarget>, String> {
    if name == "all" {
        return Ok(SCHEDULE_TARGETS.iter().collect());
    }
    let one = |name: &str| {
        schedule_target(name).ok_or_else(|| {
            let names: Vec<&str> = SCHEDULE_TARGETS.iter().map(|target| target.name).collect();
            format!("there is no target `{name}`; there are {}, and all", names.join(", "))
        })
    };
    name.split(',').map(one).collect()
}

/// The results of a target's runs.
#[derive(Default)]
pub(crate) struct Tally {
    runs: u64,
    steps: u64,
    turns: u64,
    pub(crate) deaths: u64,
    explored: Explored,
    elapsed: Duration,
    pub(crate) finding: Option<(ScheduleSeed, Finding)>,
}

impl Tally {
    fn add(&mut self, seed: ScheduleSeed, result: RunResult) {
        self.runs += 1;
        self.steps += result.steps;
        self.turns += result.turns;
        self.deaths += result.deaths;
        self.explored += result.explored;
        if let Some(finding) = result.finding {
            self.finding.get_or_insert((seed, finding));
        }
    }
}

impl Schedules {
    /// The schedules that `cargo lab crash` runs for crashed participants.
    pub(crate) fn of_crashes(crash: FaultProfile, target: &str, states: u64, seed: u64) -> Self {
        // The multi-threaded target of the pool is `cells`.
        let target = if target == "pool" { "cells" } else { target }.to_string();
        let (runs, seconds, jobs, json) = (u64::MAX, None, None, false);
        Self { target, runs, seconds, crash, states: Some(states), seed, jobs, json }
    }

    pub(crate) fn with(self, jobs: Option<usize>, json: bool) -> Self {
        Self { jobs, json, ..self }
    }

    pub(crate) fn run(&self) -> ExitCode {
        let targets = match named(&self.target) {
            Ok(targets) => targets,
            Err(why) => return failed(&why),
        };
        let progress = Progress::new(self.json);
        let mut sound = true;
        for target in targets {
            let tally = self.session(target, &progress);
            sound &= tally.finding.is_none();
            let mut out = std::io::stdout().lock();
            let text = if self.json {
                self.json_of(target, &tally).to_string()
            } else {
                self.text_of(target, tally)
            };
            let _ = writeln!(out, "{text}");
        }
        if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    pub(crate) fn session(&self, target: &'static ScheduleTarget, progress: &Progress) -> Tally {
        let session = Session {
            asked: self,
            target,
            seen: Seen::new(),
            stop: AtomicBool::new(false),
            next: AtomicU64::new(0),
            deaths: AtomicU64::new(0),
            tally: Mutex::default(),
            start: Instant::now(),
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.unwrap_or_else(cores) {
                scope.spawn(|| session.work(progress));
            }
        });
        let mut tally = session.tally.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        tally.elapsed = session.start.elapsed();
        progress.clear();
        tally
    }

    fn text_of(&self, target: &ScheduleTarget, tally: Tally) -> String {
        let mut text = format!(
            "{:<10} {:<13} {} runs, {} steps and {} turns per run, {:.1} s, {:.0} runs per second",
            target.name,
            self.crash,
            tally.runs,
            tally.steps / tally.runs.max(1),
            tally.turns / tally.runs.max(1),
            tally.elapsed.as_secs_f64(),
            tally.runs as f64 / tally.elapsed.as_secs_f64(),
        );
        if self.crash.has_crashes() {
            text += &format!("; {} crashed threads", tally.deaths);
        }
        if self.crash.power_loss.is_some() {
            text +=
                &format!("; {} distinct states of {} judged", tally.explored.distinct, tally.explored.runs);
        }
        if let Some((seed, finding)) = tally.finding {
            text += &describe(target, seed, finding);
        }
        text
    }

    fn json_of(&self, target: &ScheduleTarget, tally: &Tally) -> Value {
        json!({
            "target": target.name,
            "crash": self.crash.to_string(),
            "seed": format!("{:#x}", self.seed),
            "runs": tally.runs,
            "steps": tally.steps,
            "turns": tally.turns,
            "deaths": tally.deaths,
            "states_distinct": tally.explored.distinct,
            "states_judged": tally.explored.runs,
            "elapsed_s": tally.elapsed.as_secs_f64(),
            "finding": tally.finding.as_ref().map(|(seed, finding)| json!({
                "replay": seed.to_string(),
                "wrong": finding.wrong,
            })),
        })
    }
}

/// What the jobs of one target share.
struct Session<'s> {
    asked: &'s Schedules,
    target: &'static ScheduleTarget,
    seen: Seen,
    stop: AtomicBool,
    next: AtomicU64,
    deaths: AtomicU64,
    tally: Mutex<Tally>,
    start: Instant,
}

impl Session<'_> {
    /// Whether there was a finding, or enough is done.
    fn is_over(&self) -> bool {
        let Schedules { crash, states, seconds, .. } = self.asked;
        let judged = || if crash.power_loss.is_some() { self.seen.len() } else { self.deaths.load(Relaxed) };
        self.stop.load(Relaxed)
            || states.is_some_and(|states| judged() >= states)
            || seconds.is_some_and(|seconds| self.start.elapsed().as_secs() >= seconds)
    }

    /// Runs one seed after the other, until the session is over.
    fn work(&self, progress: &Progress) {
        let Schedules { crash, runs, seed, .. } = *self.asked;
        let scheduler = Scheduler::new();
        let is_over = || self.is_over();
        while !is_over() {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= runs {
                break;
            }
            let seed = ScheduleSeed::new(self.target.name, crash, seed, number);
            let monitor = Monitor { seen: &self.seen, is_over: &is_over, fault: None };
            let result = self.target.run(&scheduler, &monitor, seed);
            self.stop.fetch_or(result.finding.is_some(), Relaxed);
            self.deaths.fetch_add(result.deaths, Relaxed);
            self.tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).add(seed, result);
            let names = [self.target.name, &crash.to_string()];
            // Without a number of runs, only time or states limit them.
            let wanted = (runs < u64::MAX).then_some(runs);
            progress.show(names, (number, wanted), "runs", self.start);
        }
    }
}

/// A report of a finding, after minimising it.
fn describe(target: &ScheduleTarget, seed: ScheduleSeed, finding: Finding) -> String {
    let size = |finding: &Finding| (finding.scenario.len(), finding.turns.len());
    let (operations, turns) = size(&finding);
    let finding = target.minimise(&Scheduler::new(), seed.fault_profile, finding, TRIES);
    let (operations_left, turns_left) = size(&finding);
    let story = FindingReport { crash: seed.fault_profile.power_loss_text(), finding: &finding };
    format!(
        "\n{seed}: WRONG\n{story}\n  to repeat: cargo lab replay {seed}    minimised from {operations} operations and {turns} turns to \
         {operations_left} and {turns_left}"
    )
}

/// Repeats the run with this seed.
pub(crate) fn replay(seed: ScheduleSeed, as_json: bool) -> ExitCode {
    let Some(target) = schedule_target(seed.target) else {
        return failed(&format!("there is no target {}", seed.target));
    };
    let seen = Seen::new();
    let result =
        target.run(&Scheduler::new(), &Monitor { seen: &seen, is_over: &|| false, fault: None }, seed);
    let sound = result.finding.is_none();
    let text = match (as_json, result.finding) {
        (true, finding) => {
            let wrong = finding.map(|finding| finding.wrong);
            json!({ "target": seed.target, "crash": seed.fault_profile.to_string(), "steps": result.steps, "finding": wrong }).to_string()
        }
        (_, Some(finding)) => describe(target, seed, finding),
        (_, None) => format!("{seed}: this run is sound, as are {} states", result.explored.distinct),
    };
    let _ = writeln!(std::io::stdout(), "{text}");
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
