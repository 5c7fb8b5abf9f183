//! `cargo lab orders`: is each order of the memory that the source asks for missed where it is not there?

use super::crash::{cores, failed};
use super::equivalent::line;
use super::say;
use super::schedules::named;
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use terrace_lab::Meeting;
use terrace_testkit::crash::Wrong;
use terrace_testkit::schedule::{Stage, Weak, Weakening};

/// Runs of each target that are looked through for what can be weakened.
const LOOKED_THROUGH: u64 = 300;
/// A first look at all targets has one in so many of the runs.
const SHORT: u64 = 20;

#[derive(Args)]
pub(crate) struct Orders {
    /// clht, clht-bytes, cells, direct, turbo, turbo-bytes, rewo, rewo-bytes, level, level-bytes, or all.
    target: String,
    /// Runs of each target that passes by an order after which nobody has missed it.
    #[arg(long, default_value_t = 2000)]
    runs: u64,
    /// Only places whose file and line contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Prints one JSON object an order instead of text.
    #[arg(long)]
    json: bool,
}

/// The targets that pass by an order.
type Passers = Vec<&'static Meeting>;

/// Who missed an order, in which run, and what was wrong then.
struct Missed {
    target: &'static str,
    run: u64,
    wrong: Wrong,
}

impl Orders {
    pub(crate) fn run(&self) -> ExitCode {
        let targets = match named(&self.target) {
            Ok(targets) => targets,
            Err(why) => return failed(&why),
        };
        let all = match self.all(&targets) {
            Ok(all) => all,
            Err(why) => return failed(&why),
        };
        let (next, survivors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..cores() {
                scope.spawn(|| {
                    let stage = Stage::new();
                    while let Some((weakening, passers)) = all.get(next.fetch_add(1, Relaxed)) {
                        let missed = self.missed(&stage, *weakening, passers);
                        if missed.is_none() {
                            survivors.lock().unwrap_or_else(PoisonError::into_inner).push(*weakening);
                        }
                        self.report(*weakening, missed);
                    }
                });
            }
        });
        let mut survivors = survivors.into_inner().unwrap_or_else(PoisonError::into_inner);
        survivors.sort();
        self.sum_up(all.len(), &survivors);
        if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Every order that threads pass by where they meet.
    fn all(&self, targets: &[&'static Meeting]) -> Result<Vec<(Weakening, Passers)>, Wrong> {
        let stage = Stage::new();
        let mut all: BTreeMap<Weakening, Passers> = BTreeMap::new();
        for &meeting in targets {
            for run in 0..LOOKED_THROUGH {
                let passed = meeting.passed(&stage, run);
                let passed = passed.map_err(|wrong| {
                    format!("{}, run {run}, with nothing weakened: {wrong}", meeting.name)
                })?;
                for weakening in passed {
                    let passers = all.entry(weakening).or_default();
                    if passers.last().is_none_or(|last| last.name != meeting.name) {
                        passers.push(meeting);
                    }
                }
            }
        }
        // What the targets themselves do is no part of what is tested.
        all.retain(|it, _| !it.site.file().contains("lab/src") && it.place().contains(&self.only));
        Ok(all.into_iter().collect())
    }

    fn missed(&self, stage: &Stage, weakening: Weakening, passers: &Passers) -> Option<Missed> {
        let short = self.runs.div_ceil(SHORT);
        let looks = [0..short, short..self.runs];
        looks
            .into_iter()
            .flat_map(|runs| passers.iter().map(move |meeting| (meeting, runs.clone())))
            .find_map(|(meeting, mut runs)| {
                runs.find_map(|run| {
                    let wrong = meeting.weakened(stage, weakening, run)?;
                    Some(Missed { target: meeting.name, run, wrong })
                })
            })
    }

    fn report(&self, weakening: Weakening, missed: Option<Missed>) {
        if self.json {
            let missed = missed.as_ref();
            return say(&json!({
                "place": weakening.place(),
                "weakened": lost(weakening),
                "missed": missed.is_some(),
                "target": missed.map(|missed| missed.target),
                "run": missed.map(|missed| missed.run),
                "wrong": missed.map(|missed| &missed.wrong),
            })
            .to_string());
        }
        let fate = match missed {
            Some(Missed { target, run, wrong }) => format!("missed by {target} in run {run}: {wrong}"),
            None => "NOT MISSED".to_string(),
        };
        say(&format!("{:<28} {:<8} {fate}", weakening.place(), lost(weakening)));
    }

    fn sum_up(&self, all: usize, survivors: &[Weakening]) {
        let missed = all - survivors.len();
        if self.json {
            return say(&json!({ "orders": all, "missed": missed }).to_string());
        }
        for survivor in survivors {
            say(&format!(
                "not missed: {} {:<8} {}",
                survivor.place(),
                lost(*survivor),
                line(survivor.site).unwrap_or_default()
            ));
        }
        say(&format!(
            "{missed} of {all} orders were missed, {:.1}%",
            100.0 * missed as f64 / all.max(1) as f64
        ));
    }
}

fn lost(it: Weakening) -> &'static str {
    match it.weak {
        Weak::Acquire => "acquire",
        Weak::Release => "release",
        Weak::Total => "total",
    }
}
