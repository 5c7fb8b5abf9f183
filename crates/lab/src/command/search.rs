//! The search of `cargo lab orders`: first runs in which no order is missing and of each that is passed it is noted who could load something older without it; then just these runs
//! again, with one order missing and what it makes older shown, a load at a time, a word at a time, all at once; and others of the same scenarios.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_lab::{Meeting, Met, Trial};
use terrace_testkit::crash::Wrong;
use terrace_testkit::schedule::{Aim, Missing, Reach, Stage, Weakening};

/// Runs of a target that one scout looks through, one after the other: where threads linger follows from those before.
const ROUND: u64 = 100;
/// One in so many runs of a scout is one in which nobody lingers.
const PLAIN: u64 = 4;
/// Runs that are kept of an order, of each target.
const KEPT: usize = 24;
/// Differences of a run that are shown one by one, at most; and words.
const SHOWN: u64 = 8;
const WORDS: u32 = 5;

/// A run in which an order makes a difference.
#[derive(Clone)]
pub(super) struct Candidate {
    pub(super) meeting: &'static Meeting,
    pub(super) trial: Trial,
    /// Loads that could be of something older.
    differences: u64,
    /// Whether there is a race without it.
    raced: bool,
}

/// What is known of an order.
#[derive(Clone, Default)]
pub(super) struct Known {
    /// The targets that pass by it.
    pub(super) passers: Vec<&'static Meeting>,
    /// Runs in which it makes a difference, those with a race first, and by turns of all targets.
    pub(super) candidates: Vec<Candidate>,
}

/// Looks through so many runs of each target. What is wrong with no order missing ends it.
pub(super) fn scout(
    targets: &[&'static Meeting],
    runs: u64,
    cores: usize,
) -> Result<BTreeMap<Weakening, Known>, Wrong> {
    let rounds = runs.div_ceil(ROUND);
    let all: Vec<_> =
        (0..rounds).flat_map(|round| targets.iter().map(move |&meeting| (meeting, round * ROUND))).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let stage = Stage::new();
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(&(meeting, first)) = all.get(number) else { break };
                    let round = of_round(&stage, meeting, first..(first + ROUND).min(runs));
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((number, meeting, round));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(number, ..)| *number);
    let mut known: BTreeMap<Weakening, Known> = BTreeMap::new();
    for (_, meeting, round) in found {
        for (weakening, candidates) in round? {
            let known = known.entry(weakening).or_default();
            if known.passers.iter().all(|passer| passer.name != meeting.name) {
                known.passers.push(meeting);
            }
            known.candidates.extend(candidates);
        }
    }
    known.values_mut().for_each(|known| known.candidates = by_turns(std::mem::take(&mut known.candidates)));
    Ok(known)
}

/// One scout's runs.
fn of_round(
    stage: &Stage,
    meeting: &'static Meeting,
    runs: std::ops::Range<u64>,
) -> Result<BTreeMap<Weakening, Vec<Candidate>>, Wrong> {
    let mut found: BTreeMap<Weakening, Vec<Candidate>> = BTreeMap::new();
    // How often threads have lingered at each, or it made a difference by itself.
    let mut looked: BTreeMap<Weakening, u64> = BTreeMap::new();
    for run in runs {
        let least = looked.iter().min_by_key(|(_, looks)| **looks).map(|(&it, _)| it);
        let lingers = least.filter(|_| !run.is_multiple_of(PLAIN));
        let trial = Trial { lingers: lingers.map(|it| it.site), ..Trial::number(run) };
        // What is old with all orders is shown in some, so that they take other ways.
        let reach = if run % 3 == 1 { Reach::of_run(run) } else { Reach::NONE };
        let Met { passed, differences, raced, wrong } = meeting.meet(stage, &trial, Missing::Each, reach);
        if let Some(wrong) = wrong {
            return Err(format!("{}, run {run}, with nothing weakened: {wrong}", meeting.name));
        }
        lingers.into_iter().for_each(|it| *looked.entry(it).or_default() += 4);
        for weakening in passed {
            looked.entry(weakening).or_default();
            found.entry(weakening).or_default();
        }
        let without = differences.keys().chain(raced.keys());
        let all: std::collections::BTreeSet<Weakening> = without.copied().collect();
        for weakening in all {
            *looked.entry(weakening).or_default() += 1;
            let candidates = found.entry(weakening).or_default();
            let raced = raced.contains_key(&weakening);
            if candidates.len() < KEPT || raced {
                let differences = differences.get(&weakening).copied().unwrap_or(0);
                candidates.push(Candidate { meeting, trial, differences, raced });
            }
        }
    }
    Ok(found)
}

/// Those with a race first; and then one of each target after the other.
fn by_turns(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut of_target: BTreeMap<&str, usize> = BTreeMap::new();
    let numbered = candidates.into_iter().map(|candidate| {
        let number = of_target.entry(candidate.meeting.name).or_default();
        *number += 1;
        ((!candidate.raced, *number), candidate)
    });
    let mut numbered: Vec<_> = numbered.collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, candidate)| candidate).collect()
}

impl Candidate {
    /// The runs that it is tried in, one after the other.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (Trial, Reach)> + '_ {
        const ALL: Aim = Aim::Words(u64::MAX);
        let spread = move |count: u64| {
            let shown = self.differences.min(count);
            (0..shown).map(move |nth| nth * self.differences / shown)
        };
        let one = |first| Reach::at(Aim::Differences { first, count: 1 }, true);
        let from = |first| Reach::at(Aim::Differences { first, count: u64::MAX }, true);
        let word = |word: u32| Reach::at(Aim::Words(1 << word), true);
        let but = |word: u32| Reach::at(Aim::Words(!(1 << word)), true);
        let first = if self.raced { Reach::NONE } else { Reach::at(ALL, true) };
        let same = std::iter::once(first)
            .chain(spread(SHOWN).map(one))
            .chain((0..WORDS).map(word))
            .chain((0..WORDS).map(but))
            .chain(spread(4).skip(1).map(from))
            .chain([Reach::at(ALL, false)])
            .map(|reach| (self.trial, reach));
        let others = (0..).map(|other: u64| {
            let schedule = self.trial.schedule ^ (other + 1) << 32;
            let reach = match other % 3 {
                0 => Reach::at(ALL, true),
                1 => Reach { seed: other, ..Reach::of_run(6 * (other / 3) + 24) },
                _ => Reach::at(Aim::Words(other / 3 * 0x9e37_79b9 ^ other), other % 2 == 0),
            };
            (Trial { schedule, ..self.trial }, reach)
        });
        same.chain(others)
    }
}
