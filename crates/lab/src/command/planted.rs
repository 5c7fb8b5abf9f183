//! `cargo lab planted`: does the lab find bugs that were planted, into the indexes, the engine, the pool, and into what participants of a shared pool do for their dead?

use super::breadth::WIDE;
use super::crash::{cores, failed, number};
use super::progress::Progress;
use super::say;
use super::schedules::Schedules;
use super::session::{Session, Tally};
use clap::Args;
use std::process::ExitCode;
use terrace_index::{Bug, plant};
use terrace_lab::{Accident, Deaths, StoreBug, meeting, suite};
use terrace_testkit::crash::{Limits, Profile};

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
                let (is_found, fate) = match is_race(bug) {
                    true => self.race(target),
                    false => fate(&self.search(target, self.states)),
                };
                plant(None);
                missed += u32::from(!is_found);
                say(&format!("{:<24} {target:<10} {fate}", format!("{bug:?}")));
            }
        }
        missed
    }

    /// How many bugs of the engine and of the pool were missed.
    fn in_stores(&self) -> u32 {
        let mut missed = 0;
        for bug in StoreBug::all().filter(|bug| self.is_asked(&bug.to_string())) {
            bug.plant(true);
            let (is_found, fate) = fate(&self.search(bug.target(), self.states));
            bug.plant(false);
            missed += u32::from(!is_found);
            say(&format!("{bug:<24} {:<10} {fate}", bug.target()));
        }
        missed
    }

    /// How many bugs of participants were missed.
    fn in_participants(&self) -> u32 {
        let mut missed = 0;
        for bug in
            terrace_pool::Bug::OF_PARTICIPANTS.into_iter().filter(|bug| self.is_asked(&format!("{bug:?}")))
        {
            terrace_pool::plant(Some(bug));
            let found = self.die_with(bug);
            terrace_pool::plant(None);
            missed += u32::from(found.is_none());
            let fate = found.unwrap_or_else(|| format!("NOT FOUND in {} deaths", self.deaths));
            say(&format!("{:<24} {fate}", format!("{bug:?}")));
        }
        missed
    }

    /// What is wrong where participants die who have this bug.
    fn die_with(&self, bug: terrace_pool::Bug) -> Option<String> {
        use terrace_pool::Bug::{QueueNotMended, SuperblockLeft, UnfencedForgotten};
        let (target, crash, states) = match bug {
            // What is not durable shows after a loss of power only.
            UnfencedForgotten => ("clht", Some(Profile::Pmem), 4 * self.states),
            // These have to do with memory and growth.
            QueueNotMended | SuperblockLeft => ("cells", None, self.deaths),
            _ => ("clht", None, self.deaths),
        };
        // Who comes to what a dead one has left builds upon it: that is a run of heirs.
        let deaths = if bug == UnfencedForgotten { Deaths::First } else { Deaths::Some };
        let session = Schedules::of_deaths(Accident::of(deaths, crash), target, states, self.seed);
        let tally = session.session(meeting(target)?, &Progress::new(false));
        let (_, finding) = tally.finding?;
        Some(format!("{target:<10} after {} deaths, {}", tally.deaths, finding.wrong))
    }

    /// What is found where threads race, and nothing crashes.
    fn race(&self, target: &str) -> (bool, String) {
        const RUNS: u64 = 100_000;
        let meeting = meeting(target).expect("a target");
        let tally = Schedules::of_races(target, RUNS, self.seed).session(meeting, &Progress::new(false));
        match tally.finding {
            Some((seed, finding)) => (true, format!("in {seed}, {}", finding.wrong)),
            None => (false, format!("NOT FOUND in {RUNS} runs")),
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

/// Whether it was found, and after how long.
fn fate(tally: &Tally) -> (bool, String) {
    let states = tally.explored.distinct;
    match &tally.finding {
        Some((_, finding)) => (true, format!("after {states} states, {}", finding.wrong)),
        None => (false, format!("NOT FOUND in {states} states")),
    }
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
