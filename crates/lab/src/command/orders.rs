//! `cargo lab orders`: is each order of the memory that the source asks for missed where it is not there?

use super::crash::{cores, failed};
use super::excused::line;
use super::say;
use super::schedules::named;
use super::search::{Known, Search, Tried, scout};
use clap::Args;
use serde_json::json;
use std::collections::BTreeSet;
use std::panic::Location;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use terrace_lab::Meeting;
use terrace_testkit::crash::{Wrong, place};
use terrace_testkit::schedule::{Stage, Weak, Weakening};

#[derive(Args)]
pub(crate) struct Orders {
    /// clht, clht-bytes, cells, blocks, stories, direct, turbo, turbo-bytes, rewo, rewo-bytes, level, level-bytes, several of them with commas between, or all.
    target: String,
    /// Runs of each target that are looked through for orders that make a difference.
    #[arg(long, default_value_t = 2000)]
    scouted: u64,
    /// Runs without an order after which nobody has missed it.
    #[arg(long, default_value_t = 2000)]
    runs: u64,
    /// Only places whose file and line contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Only runs of this kind, of twenty-four: what `stories` tells goes by it, and how the threads of others meet.
    #[arg(long)]
    kind: Option<u64>,
    /// Prints one JSON object an order instead of text.
    #[arg(long)]
    json: bool,
}

/// Places of the source.
type Places = Vec<&'static Location<'static>>;

/// Who missed an order, in which run, and what was wrong then.
struct Missed {
    target: &'static str,
    run: String,
    wrong: Wrong,
}

/// What came of an order that was missing.
#[derive(Default)]
struct Fate {
    missed: Option<Missed>,
    runs: u64,
    /// Runs in which somebody could load something older for it.
    differing: u64,
    /// The places of these loads.
    places: Vec<String>,
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
        let (all, places) = all;
        let (next, survivors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..cores() {
                scope.spawn(|| {
                    let stage = Stage::new();
                    while let Some((weakening, known)) = all.get(next.fetch_add(1, Relaxed)) {
                        let fate = self.fate(&stage, *weakening, known, &places);
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

    /// Every order that threads pass by where they meet, and what is known of it; and the places of all of them, whether asked for or not.
    fn all(&self, targets: &[&'static Meeting]) -> Result<(Vec<(Weakening, Known)>, Places), Wrong> {
        let mut all = scout(targets, self.scouted, self.kind, cores())?;
        let places: BTreeSet<&'static Location<'static>> = all.keys().map(|it| it.site).collect();
        // What the targets themselves do is no part of what is tested.
        all.retain(|it, _| !it.site.file().contains("lab/src") && it.place().contains(&self.only));
        Ok((all.into_iter().collect(), places.into_iter().collect()))
    }

    fn fate(&self, stage: &Stage, weakening: Weakening, known: &Known, places: &Places) -> Fate {
        let (mut fate, mut search) =
            (Fate::default(), Search::new(stage, weakening, known, self.kind, places));
        while fate.missed.is_none() && fate.runs < self.runs {
            let Tried { meeting, trial, reach, met } = search.next();
            fate.runs += 1;
            fate.differing += u64::from(!met.differences.is_empty() || !met.raced.is_empty());
            let run = || format!("{trial}, {reach}");
            fate.missed = met.wrong.map(|wrong| Missed { target: meeting.name, run: run(), wrong });
        }
        fate.places = search.places().into_iter().map(place).collect();
        fate
    }

    fn report(&self, weakening: Weakening, fate: &Fate) {
        let Fate { missed, runs, differing, places } = fate;
        if self.json {
            let missed = missed.as_ref();
            return say(&json!({
                "place": weakening.place(),
                "weakened": lost(weakening),
                "missed": missed.is_some(),
                "target": missed.map(|missed| missed.target),
                "run": missed.map(|missed| &missed.run),
                "wrong": missed.map(|missed| &missed.wrong),
                "runs": runs,
                "differing": differing,
                "differing at": places,
            })
            .to_string());
        }
        let fate = match missed {
            Some(Missed { target, run, wrong }) => format!("missed by {target} in run {run}: {wrong}"),
            None => format!(
                "NOT MISSED in {runs} runs, {differing} of which it makes a difference to, at {}",
                places.join(", ")
            ),
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
