//! `cargo lab planted`: does the lab find bugs that were planted, into the indexes, the engine, the pool, and into what participants of a shared pool do for their dead?

use super::breadth::WIDE;
use super::crash::{cores, failed, number};
use super::progress::Progress;
use super::replay::Which;
use super::say;
use super::schedules::Schedules;
use super::session::{Session, Tally};
use clap::Args;
use std::process::ExitCode;
use terrace_index::{Bug, plant};
use terrace_lab::{Accident, Deaths, StoreBug, Watch, meeting, suite};
use terrace_testkit::crash::{Lab, Limits, Profile, Seen};
use terrace_testkit::schedule::Stage;

/// A run in which each bug was found, which is looked at first: bug, target and seed, a line each. If the bug is not there any more, for a history means something else since the code
/// has changed, it is looked for everywhere.
/// Made by `cargo lab planted --anew | awk '$3 == "in" { sub(",", "", $4); print $1, $2, $4 }'`.
const KNOWN: &str = include_str!("known.txt");

/// Which bugs are to be found in which targets.
const PLANTED: [(&str, &[Bug]); 8] = [
    ("clht", &Bug::OF_CLHT),
    ("clht-bytes", &Bug::OF_CLHT),
    ("turbo", &Bug::OF_TURBO),
    ("turbo-bytes", &Bug::OF_TURBO),
    ("rewo", &Bug::OF_REWO),
    ("rewo-bytes", &Bug::OF_REWO),
    ("level", &Bug::OF_LEVEL),
    ("level-bytes", &Bug::OF_LEVEL),
];

/// What only recoveries that crash come by, or what comes after a kill.
const DEEP: Limits = Limits {
    exhaustive: [32, 8, 4],
    samples: [16, 4, 2],
    events_one_in: [8, 16],
    nested_one_in: [8192, 512, 0],
    revived_one_in: 2048,
    again_one_in: Limits::AGAIN_ONE_IN,
};

#[derive(Args)]
pub(crate) struct Planted {
    /// Only bugs whose names contain this.
    #[arg(long)]
    only: Option<String>,
    /// Deaths within which each bug of participants is to be found.
    #[arg(long, default_value_t = 20_000)]
    deaths: u64,
    /// States within which each bug is to be found in each target; a single history of byte strings may have some hundred thousand.
    #[arg(long, default_value_t = 3_000_000)]
    states: u64,
    /// States in which nothing may be found where no bug is planted. `cargo lab crash` looks at more.
    #[arg(long, default_value_t = 30_000)]
    sound_states: u64,
    /// Another seed, other histories.
    #[arg(long, default_value = "0x5eed", value_parser = number)]
    seed: u64,
    /// Looks for them everywhere, and not where they were found before.
    #[arg(long)]
    anew: bool,
}

/// What came of looking for a bug.
enum Fate {
    /// The run, how much was looked at, and what was wrong.
    Found {
        seed: String,
        after: String,
        wrong: String,
    },
    NotFound {
        after: String,
    },
}

impl Planted {
    pub(crate) fn run(&self) -> ExitCode {
        let missed = self.in_indexes() + self.in_stores() + self.in_participants();
        for (target, _) in PLANTED.iter().filter(|_| self.only.is_none()) {
            if let Some((seed, finding)) = self.search(target, self.sound_states).finding {
                return failed(&format!("{seed} of {target}: without a bug, {}", finding.wrong));
            }
        }
        if missed == 0 { ExitCode::SUCCESS } else { failed(&format!("{missed} planted bugs were not found")) }
    }

    /// Whether a bug is asked for.
    fn is_asked(&self, bug: &str) -> bool {
        self.only.as_ref().is_none_or(|only| bug.contains(only))
    }

    /// How many bugs of indexes were missed.
    fn in_indexes(&self) -> u32 {
        let mut missed = 0;
        for (target, bugs) in PLANTED {
            for &bug in bugs.iter().filter(|&&bug| is_in(bug, target) && self.is_asked(&format!("{bug:?}"))) {
                plant(Some(bug));
                missed += self.look_for(&format!("{bug:?}"), target, || match is_race(bug) {
                    true => self.race(target),
                    false => fate(self.search(target, self.states)),
                });
                plant(None);
            }
        }
        missed
    }

    /// How many bugs of the engine and of the pool were missed.
    fn in_stores(&self) -> u32 {
        let mut missed = 0;
        for bug in StoreBug::all().filter(|bug| self.is_asked(&bug.to_string())) {
            bug.plant(true);
            let target = bug.target();
            missed += self.look_for(&bug.to_string(), target, || fate(self.search(target, self.states)));
            bug.plant(false);
        }
        missed
    }

    /// How many bugs of participants were missed.
    fn in_participants(&self) -> u32 {
        use terrace_pool::Bug::{self, QueueNotMended, SuperblockLeft};
        let mut missed = 0;
        for bug in Bug::OF_PARTICIPANTS.into_iter().filter(|bug| self.is_asked(&format!("{bug:?}"))) {
            // Two have to do with memory and growth.
            let target = if matches!(bug, QueueNotMended | SuperblockLeft) { "cells" } else { "clht" };
            terrace_pool::plant(Some(bug));
            missed += self.look_for(&format!("{bug:?}"), target, || self.die_with(bug, target));
            terrace_pool::plant(None);
        }
        missed
    }

    /// Looks for a bug that is planted where it was found before, and then by `search`; says what came of it. 1 if it is not found.
    fn look_for(&self, bug: &str, target: &str, search: impl FnOnce() -> Fate) -> u32 {
        let known = if self.anew { None } else { known(bug, target) };
        let fate = known.and_then(|seed| self.look_at(seed)).unwrap_or_else(search);
        let (missed, fate) = match fate {
            Fate::Found { seed, after, wrong } => (0, format!("in {seed}, after {after}, {wrong}")),
            Fate::NotFound { after } => (1, format!("NOT FOUND in {after}")),
        };
        say(&format!("{bug:<24} {target:<10} {fate}"));
        missed
    }

    /// What is wrong in this run, if anything.
    fn look_at(&self, seed: &str) -> Option<Fate> {
        let wrong = match seed.parse().ok()? {
            Which::Crash(seed) => [WIDE, DEEP].into_iter().find_map(|limits| {
                let seen = Seen::new();
                let (is_over, suite) = (|| seen.len() >= self.states, terrace_lab::SUITES.get(seed.suite)?);
                let lab = Lab { is_over: &is_over, ..Lab::new(seed.profile, limits, &seen) };
                Some(suite.run(&lab, &suite.plan(seed.run)).finding?.wrong)
            }),
            Which::Schedule(seed) => {
                let watch = Watch { seen: &Seen::new(), is_over: &|| false, fault: None };
                meeting(seed.target)?.run(&Stage::new(), &watch, seed).finding.map(|finding| finding.wrong)
            }
        };
        Some(Fate::Found { seed: seed.into(), after: "one run".into(), wrong: wrong? })
    }

    /// What is wrong where participants die who have this bug.
    fn die_with(&self, bug: terrace_pool::Bug, target: &str) -> Fate {
        // What is not durable shows after a loss of power only, and who comes to what a dead one has left builds upon it: that is a run of heirs.
        let (deaths, crash, states) = match bug {
            terrace_pool::Bug::UnfencedForgotten => (Deaths::First, Some(Profile::Pmem), 4 * self.states),
            _ => (Deaths::Some, None, self.deaths),
        };
        let session = Schedules::of_deaths(Accident::of(deaths, crash), target, states, self.seed);
        let tally = session.session(meeting(target).expect("a target"), &Progress::new(false));
        let after = format!("{} deaths", tally.deaths);
        match tally.finding {
            Some((seed, finding)) => Fate::Found { seed: seed.to_string(), after, wrong: finding.wrong },
            None => Fate::NotFound { after },
        }
    }

    /// What is found where threads race, and nothing crashes.
    fn race(&self, target: &str) -> Fate {
        const RUNS: u64 = 100_000;
        let meeting = meeting(target).expect("a target");
        let tally = Schedules::of_races(target, RUNS, self.seed).session(meeting, &Progress::new(false));
        match tally.finding {
            Some((seed, finding)) => {
                Fate::Found { seed: seed.to_string(), after: "some runs".into(), wrong: finding.wrong }
            }
            None => Fate::NotFound { after: format!("{RUNS} runs") },
        }
    }

    /// A few states of each of many histories; and, if that finds nothing, many of each, with crashes of recoveries and with kills.
    fn search(&self, target: &str, states: u64) -> Tally {
        let wide = self.session(target, states / 5, WIDE);
        if wide.finding.is_some() {
            return wide;
        }
        let mut deep = self.session(target, states, DEEP);
        deep.explored += wide.explored;
        deep
    }

    fn session(&self, target: &str, states: u64, limits: Limits) -> Tally {
        let (place, suite) = suite(target).expect("a target");
        let session = Session {
            place,
            suite,
            profile: Profile::Pmem,
            seed: self.seed,
            states,
            jobs: cores(),
            limits,
            fault: None,
            only_faulty: false,
            runs_max: u64::MAX,
        };
        session.run(&Progress::new(false))
    }
}

/// Whether it was found, where, and after how long.
fn fate(tally: Tally) -> Fate {
    let after = format!("{} states", tally.explored.distinct);
    match tally.finding {
        Some((seed, finding)) => Fate::Found { seed: seed.to_string(), after, wrong: finding.wrong },
        None => Fate::NotFound { after },
    }
}

/// The seed of the run in which a bug was found before.
fn known(bug: &str, target: &str) -> Option<&'static str> {
    KNOWN.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [of, at, seed] if of == bug && at == target => Some(seed),
        _ => None,
    })
}

/// Whether it takes two threads: a bug of one that is wrong between two accesses only.
fn is_race(bug: Bug) -> bool {
    matches!(bug, Bug::CacheFillUnchecked | Bug::CacheSyncLate | Bug::MarkSeenLate)
}

/// Whether the target has the code that the bug is in, byte strings have no pairs; and finds it soon: those that are late take some hundred thousand states of byte strings, or runs,
/// and the same index finds them with integers.
fn is_in(bug: Bug, target: &str) -> bool {
    use Bug::*;
    let late: &[Bug] = match target {
        "clht-bytes" => &[LinkBeforeBucket, NextClearedFirst],
        "rewo-bytes" => &[CacheSyncLate, MarkSeenLate, SwitchBeforeTable],
        "level-bytes" => &[DoubleKept, MovedBeforeBuckets, Unmarked, CopyUnfenced, DuplicateSeen],
        _ => &[],
    };
    let of_pairs = target.ends_with("-bytes") && matches!(bug, PublishBeforePair | TwoWordReplace);
    !of_pairs && !late.contains(&bug)
}
