//! `cargo lab schedules`.

use super::crash::{cores, failed, number};
use super::progress::Progress;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terrace_lab::{Accident, Done, MEETINGS, Meeting, ScheduleSeed, Watch, meeting};
use terrace_testkit::crash::{Explored, Seen};
use terrace_testkit::schedule::{Finding, Stage, Story};

/// Runs that a finding may take to be made smaller.
const TRIES: usize = 3000;

#[derive(Args)]
pub(crate) struct Schedules {
    /// clht, clht-bytes, cells, blocks, direct, or all.
    target: String,
    /// Runs of each target, each of another scenario in another order.
    #[arg(long, default_value_t = 10_000)]
    runs: u64,
    /// Stops each target after so many seconds, even with fewer runs.
    #[arg(long)]
    seconds: Option<u64>,
    /// Crashes each run at its stores, on this kind of memory: none, pmem, shm, eadr, remote. Or lets threads see what others store as late as the C11 memory model does: weak. Or lets some of its threads die, as participants of a shared pool whose others go on: one-dies; and then crashes
    /// that: one-dies+pmem and so on. Or lets the first one die, and the others come after it: heirs, heirs+pmem.
    #[arg(long, default_value = "none", value_parser = Accident::named)]
    crash: Accident,
    /// Stops each target after so many crash states, or, where nothing crashes, deaths.
    #[arg(long)]
    states: Option<u64>,
    /// Another seed, other runs.
    #[arg(long, default_value = "0x5eed", value_parser = number)]
    seed: u64,
    /// Stages; as many as there are cores if not said.
    #[arg(long)]
    jobs: Option<usize>,
    /// Prints one JSON object a target instead of text.
    #[arg(long)]
    json: bool,
}

/// The targets that a name stands for, or several with commas between.
fn named(name: &str) -> Result<Vec<&'static Meeting>, String> {
    if name == "all" {
        return Ok(MEETINGS.iter().collect());
    }
    let one = |name: &str| {
        meeting(name).ok_or_else(|| {
            let names: Vec<&str> = MEETINGS.iter().map(|meeting| meeting.name).collect();
            format!("there is no target `{name}`; there are {}, and all", names.join(", "))
        })
    };
    name.split(',').map(one).collect()
}

/// What came of the runs of a target.
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
    fn add(&mut self, seed: ScheduleSeed, done: Done) {
        self.runs += 1;
        self.steps += done.steps;
        self.turns += done.turns;
        self.deaths += done.deaths;
        self.explored += done.explored;
        if let Some(finding) = done.finding {
            self.finding.get_or_insert((seed, finding));
        }
    }
}

impl Schedules {
    /// What `cargo lab crash` does where some of several participants die.
    pub(crate) fn of_deaths(crash: Accident, target: &str, states: u64, seed: u64) -> Self {
        // Threads that meet in a pool are those of `cells`.
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
        for meeting in targets {
            let tally = self.session(meeting, &progress);
            sound &= tally.finding.is_none();
            let mut out = std::io::stdout().lock();
            let text =
                if self.json { self.json_of(meeting, &tally).to_string() } else { self.tell(meeting, tally) };
            let _ = writeln!(out, "{text}");
        }
        if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    pub(crate) fn session(&self, meeting: &'static Meeting, progress: &Progress) -> Tally {
        let (seen, stop, next) = (Seen::new(), AtomicBool::new(false), AtomicU64::new(0));
        let (tally, start) = (Mutex::new(Tally::default()), Instant::now());
        let deaths = AtomicU64::new(0);
        let is_enough = |count: u64| self.states.is_some_and(|states| count >= states);
        let late = || {
            let judged = if self.crash.crash.is_some() { seen.len() } else { deaths.load(Relaxed) };
            is_enough(judged) || self.seconds.is_some_and(|seconds| start.elapsed().as_secs() >= seconds)
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.unwrap_or_else(cores) {
                scope.spawn(|| {
                    let stage = Stage::new();
                    let is_over = || stop.load(Relaxed) || late();
                    while !is_over() {
                        let number = next.fetch_add(1, Relaxed);
                        if number >= self.runs {
                            break;
                        }
                        let seed = ScheduleSeed::new(meeting.name, self.crash, self.seed, number);
                        let done =
                            meeting.run(&stage, &Watch { seen: &seen, is_over: &is_over, fault: None }, seed);
                        stop.fetch_or(done.finding.is_some(), Relaxed);
                        deaths.fetch_add(done.deaths, Relaxed);
                        tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).add(seed, done);
                        let who = [meeting.name, &self.crash.to_string()];
                        // As many as there is time for, or states, if no number is given.
                        let wanted = (self.runs < u64::MAX).then_some(self.runs);
                        progress.show(who, (number, wanted), "runs", start);
                    }
                });
            }
        });
        let mut tally = tally.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        tally.elapsed = start.elapsed();
        progress.clear();
        tally
    }

    fn tell(&self, meeting: &Meeting, tally: Tally) -> String {
        let mut text = format!(
            "{:<10} {:<13} {} runs, {} steps and {} turns a run, {:.1} s, {:.0} runs a second",
            meeting.name,
            self.crash,
            tally.runs,
            tally.steps / tally.runs.max(1),
            tally.turns / tally.runs.max(1),
            tally.elapsed.as_secs_f64(),
            tally.runs as f64 / tally.elapsed.as_secs_f64(),
        );
        if self.crash.is_mortal() {
            text += &format!("; {} deaths", tally.deaths);
        }
        if self.crash.crash.is_some() {
            text +=
                &format!("; {} distinct states of {} judged", tally.explored.distinct, tally.explored.runs);
        }
        if let Some((seed, finding)) = tally.finding {
            text += &tell(meeting, seed, finding);
        }
        text
    }

    fn json_of(&self, meeting: &Meeting, tally: &Tally) -> Value {
        json!({
            "target": meeting.name,
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

/// The story of a finding, made as small as it gets.
fn tell(meeting: &Meeting, seed: ScheduleSeed, finding: Finding) -> String {
    let size = |finding: &Finding| (finding.scenario.len(), finding.turns.len());
    let (operations, turns) = size(&finding);
    let finding = meeting.smaller(&Stage::new(), seed.accident, finding, TRIES);
    let (operations_left, turns_left) = size(&finding);
    let story = Story { crash: seed.accident.story(), finding: &finding };
    format!(
        "\n{seed}: WRONG\n{story}\n  again: cargo lab replay {seed}    minimised from {operations} operations and {turns} turns to \
         {operations_left} and {turns_left}"
    )
}

/// Repeats a run.
pub(crate) fn replay(seed: ScheduleSeed, as_json: bool) -> ExitCode {
    let Some(meeting) = meeting(seed.target) else {
        return failed(&format!("there is no target {}", seed.target));
    };
    let seen = Seen::new();
    let done = meeting.run(&Stage::new(), &Watch { seen: &seen, is_over: &|| false, fault: None }, seed);
    let sound = done.finding.is_none();
    let text = match (as_json, done.finding) {
        (true, finding) => {
            let wrong = finding.map(|finding| finding.wrong);
            json!({ "target": seed.target, "crash": seed.accident.to_string(), "steps": done.steps, "finding": wrong }).to_string()
        }
        (_, Some(finding)) => tell(meeting, seed, finding),
        (_, None) => format!("{seed}: this run is sound, as are {} states", done.explored.distinct),
    };
    let _ = writeln!(std::io::stdout(), "{text}");
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
