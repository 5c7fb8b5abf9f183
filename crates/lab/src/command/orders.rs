//! `cargo lab orders`: is each order of the memory that the source asks for missed where it is not there?

use super::crash::{cores, failed};
use super::excused::line;
use super::say;
use super::schedules::named;
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use terrace_lab::{Meeting, Weakly};
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

/// What came of an order that was missing.
#[derive(Default)]
struct Fate {
    missed: Option<Missed>,
    runs: u64,
    /// Runs in which somebody could load something older for it.
    differing: u64,
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
                        let fate = self.fate(&stage, *weakening, passers);
                        self.report(*weakening, &fate);
                        if fate.missed.is_none() {
                            let mut survivors = survivors.lock().unwrap_or_else(PoisonError::into_inner);
                            survivors.push((*weakening, fate.differing != 0));
                        }
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

    fn fate(&self, stage: &Stage, weakening: Weakening, passers: &Passers) -> Fate {
        let (short, mut fate) = (self.runs.div_ceil(SHORT), Fate::default());
        for looks in [0..short, short..self.runs] {
            for meeting in passers {
                for run in looks.clone() {
                    let Weakly { differences, wrong } = meeting.weakened(stage, weakening, run);
                    fate.runs += 1;
                    fate.differing += u64::from(differences != 0);
                    if let Some(wrong) = wrong {
                        fate.missed = Some(Missed { target: meeting.name, run, wrong });
                        return fate;
                    }
                }
            }
        }
        fate
    }

    fn report(&self, weakening: Weakening, fate: &Fate) {
        let Fate { missed, runs, differing } = fate;
        if self.json {
            let missed = missed.as_ref();
            return say(&json!({
                "place": weakening.place(),
                "weakened": lost(weakening),
                "missed": missed.is_some(),
                "target": missed.map(|missed| missed.target),
                "run": missed.map(|missed| missed.run),
                "wrong": missed.map(|missed| &missed.wrong),
                "runs": runs,
                "differing": differing,
            })
            .to_string());
        }
        let fate = match missed {
            Some(Missed { target, run, wrong }) => format!("missed by {target} in run {run}: {wrong}"),
            None => format!("NOT MISSED in {runs} runs, {differing} of which it makes a difference to"),
        };
        say(&format!("{:<28} {:<8} {fate}", weakening.place(), lost(weakening)));
    }

    fn sum_up(&self, all: usize, survivors: &[(Weakening, bool)]) {
        let missed = all - survivors.len();
        let without = survivors.iter().filter(|(_, differs)| !differs).count();
        if self.json {
            let sum = json!({ "orders": all, "missed": missed, "without a difference": without });
            return say(&sum.to_string());
        }
        for (survivor, differs) in survivors {
            say(&format!(
                "{} {} {:<8} {}",
                if *differs { "not missed:          " } else { "without a difference:" },
                survivor.place(),
                lost(*survivor),
                line(survivor.site).unwrap_or_default()
            ));
        }
        say(&format!(
            "{missed} of {all} orders were missed, {:.1}%; {without} others made no difference to what anybody could load",
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
