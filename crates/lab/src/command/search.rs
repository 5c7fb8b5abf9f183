//! The search of `cargo lab orders`. First, runs in which no order is missing: of each order that one passes it is noted which loads could be of something older without it. Then each order by itself: in runs in which threads
//! linger at it, more such loads are looked for; and runs that have some are repeated with the order missing and one kind of them old, those at one place of the source, once or each time, or with all of them; and so are
//! runs of the same scenario in which threads take turns otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_lab::{KINDS_OF_RUNS, Meeting, Met, Trial};
use terrace_testkit::crash::{Dice, Wrong};
use terrace_testkit::schedule::{Aim, Crossing, Differences, Missing, Reach, Stage, Weak, Weakening};

/// Runs of a target that one scout looks through, one after the other: where threads linger follows from those before.
const ROUND: u64 = 500;
/// One in so many runs is one in which nobody lingers.
const PLAIN: u64 = 5;
/// Runs that are kept of an order for each place of a load, at most.
const KEPT: usize = 12;
/// Lines from one order to another that has to do with it.
const NEAR: u32 = 12;
/// Who lags behind does so by 2 stores, 4, 8 and so on, so many times.
const LAGS: u64 = 8;
/// Runs of those that are directed, to one that looks for more.
const DIRECTED: u64 = 3;
/// One in so many runs is one in which threads change hands at it, at what has to do with it, and nowhere else.
const CROSSING: u64 = 3;

/// A run in which an order makes a difference to a load at a place.
#[derive(Clone)]
struct Candidate {
    meeting: &'static Meeting,
    trial: Trial,
    /// Loads at that place that could be of something older.
    loads: u64,
    /// Times that it was tried.
    tried: u64,
}

/// What is known of an order.
#[derive(Clone, Default)]
pub(super) struct Known {
    /// The targets that pass by it.
    passers: Vec<&'static Meeting>,
    /// Where what it comes with is stored, or loaded: the other sides of it.
    partners: BTreeSet<&'static Location<'static>>,
    /// Runs in which there is a race without it.
    raced: Vec<(&'static Meeting, Trial)>,
    /// Runs in which it makes a difference, by the place of the load, each with the times that it was aimed at.
    places: BTreeMap<&'static Location<'static>, (u64, Vec<Candidate>)>,
}

/// Looks through so many runs of each target. What is wrong with no order missing ends it.
pub(super) fn scout(
    targets: &[&'static Meeting],
    runs: u64,
    kind: Option<u64>,
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
                    let round = of_round(&stage, meeting, first..(first + ROUND).min(runs), kind);
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((number, round));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(number, _)| *number);
    let mut known: BTreeMap<Weakening, Known> = BTreeMap::new();
    for (_, round) in found {
        for (weakening, found) in round? {
            known.entry(weakening).or_default().add(found);
        }
    }
    Ok(known)
}

/// The run with this number, of those of one kind if it is said.
fn of_kind(number: u64, kind: Option<u64>) -> u64 {
    kind.map_or(number, |kind| KINDS_OF_RUNS * number + kind % KINDS_OF_RUNS)
}

/// One scout's runs.
fn of_round(
    stage: &Stage,
    meeting: &'static Meeting,
    runs: std::ops::Range<u64>,
    kind: Option<u64>,
) -> Result<BTreeMap<Weakening, Known>, Wrong> {
    let mut found: BTreeMap<Weakening, Known> = BTreeMap::new();
    // How often threads have lingered at each.
    let mut lingered: BTreeMap<&'static Location<'static>, u64> = BTreeMap::new();
    for run in runs {
        let least = lingered.iter().min_by_key(|(_, times)| **times).map(|(&site, _)| site);
        let lingers = least.filter(|_| !run.is_multiple_of(PLAIN));
        lingers.into_iter().for_each(|site| *lingered.entry(site).or_default() += 1);
        let trial = Trial { lingers, ..Trial::number(of_kind(run, kind)) };
        // What is old with all orders is shown in some, so that they take other ways.
        let reach = match run % 6 {
            1 => Reach::of_run(run),
            4 => Reach::at(Aim::Lagging { stores: 2 << (run / 6 % LAGS), but: None }, true),
            _ => Reach::NONE,
        };
        let met = meeting.meet(stage, &trial, Missing::Each, reach);
        if let Some(wrong) = met.wrong {
            return Err(format!("{}, run {trial}, with nothing weakened: {wrong}", meeting.name));
        }
        for weakening in met.passed {
            lingered.entry(weakening.site).or_default();
            let known = found.entry(weakening).or_insert_with(|| Known::of(meeting));
            let site = weakening.site;
            known.partners.extend(met.pairs.iter().filter(|pair| pair.0 == site).map(|pair| pair.1));
            known.partners.extend(met.pairs.iter().filter(|pair| pair.1 == site).map(|pair| pair.0));
            let is_raced = met.raced.contains_key(&weakening);
            known.note(meeting, &trial, met.differences.get(&weakening), is_raced);
        }
    }
    Ok(found)
}

impl Known {
    fn of(meeting: &'static Meeting) -> Self {
        Self { passers: vec![meeting], ..Self::default() }
    }

    /// Notes a run, and what is different in it.
    fn note(
        &mut self,
        meeting: &'static Meeting,
        trial: &Trial,
        differences: Option<&Differences>,
        is_raced: bool,
    ) {
        if is_raced && self.raced.len() < KEPT {
            self.raced.push((meeting, trial.clone()));
        }
        for (&site, &loads) in differences.into_iter().flatten() {
            let candidates = &mut self.places.entry(site).or_default().1;
            let of_this = candidates.iter().filter(|it| it.meeting.name == meeting.name).count();
            if of_this < KEPT / 2 && candidates.len() < KEPT {
                candidates.push(Candidate { meeting, trial: trial.clone(), loads, tried: 0 });
            }
        }
    }

    fn add(&mut self, other: Self) {
        for passer in other.passers {
            if self.passers.iter().all(|it| it.name != passer.name) {
                self.passers.push(passer);
            }
        }
        self.partners.extend(other.partners);
        self.raced.extend(other.raced);
        for (site, (_, more)) in other.places {
            let candidates = &mut self.places.entry(site).or_default().1;
            candidates.extend(more);
            candidates.truncate(2 * KEPT);
        }
    }
}

/// A search for a run that misses an order.
pub(super) struct Search<'s> {
    stage: &'s Stage,
    weakening: Weakening,
    known: Known,
    /// Of each passer, the looks at it, and those that have seen a difference.
    looks: Vec<(u64, u64)>,
    /// Runs so far.
    turn: u64,
    dice: Dice,
    kind: Option<u64>,
    /// Places of all orders.
    places: &'s [&'static Location<'static>],
    /// Those of others, a few lines from it.
    near: Vec<&'static Location<'static>>,
    /// The other sides of it.
    partners: Vec<&'static Location<'static>>,
}

/// What a run of it was.
pub(super) struct Tried {
    pub(super) meeting: &'static Meeting,
    pub(super) trial: Trial,
    pub(super) reach: Reach,
    pub(super) met: Met,
}

impl<'s> Search<'s> {
    pub(super) fn new(
        stage: &'s Stage,
        weakening: Weakening,
        known: &Known,
        kind: Option<u64>,
        places: &'s [&'static Location<'static>],
    ) -> Self {
        let here = weakening.site;
        let is_near = |it: &&&'static Location<'static>| {
            it.file() == here.file() && it.line() != here.line() && it.line().abs_diff(here.line()) <= NEAR
        };
        let near = places.iter().filter(is_near).copied().collect();
        let partners = known.partners.iter().copied().filter(|&it| it != here).collect();
        let looks = vec![(0, 0); known.passers.len()];
        Self {
            stage,
            weakening,
            known: known.clone(),
            looks,
            turn: 0,
            dice: Dice::new(0x6f_7264_6572),
            kind,
            places,
            near,
            partners,
        }
    }

    /// Does another run.
    pub(super) fn next(&mut self) -> Tried {
        let turn = self.turn;
        self.turn += 1;
        if let Some((meeting, trial)) = self.known.raced.get(turn as usize).cloned() {
            return self.tried(meeting, trial, Reach::NONE);
        }
        if turn % 2 == 1 {
            return self.lag(turn / 2);
        }
        let turn = turn / 2;
        match self.aimed().filter(|_| !turn.is_multiple_of(DIRECTED + 1)) {
            Some((meeting, trial, reach)) => self.tried(meeting, trial, reach),
            None => self.look(turn),
        }
    }

    /// Where threads linger in the run with this number: mostly at it; or at the other side of it, or near by, where it is decided what it comes before or behind.
    fn lingers(&mut self, number: u64) -> Option<&'static Location<'static>> {
        let here = self.weakening.site;
        match self.dice.roll(6) {
            _ if number.is_multiple_of(PLAIN) => None,
            1 | 2 if !self.partners.is_empty() => Some(*self.dice.pick(&self.partners)),
            0 if !self.near.is_empty() => Some(*self.dice.pick(&self.near)),
            _ => Some(here),
        }
    }

    /// Where threads change hands in the run with this number, if it is one of those in which they do so nowhere else: at it, and, as the dice say, at the other sides of it, at loads that it makes a difference to, near by, and at
    /// other orders that they pass.
    fn crosses(&mut self, number: u64) -> Option<Arc<Crossing>> {
        if number % CROSSING != 1 {
            return None;
        }
        let dice = &mut self.dice;
        let others = self.partners.iter().chain(self.known.places.keys());
        let mut at = vec![self.weakening.site];
        at.extend(others.copied().filter(|_| dice.roll(2) == 0));
        at.extend(self.near.iter().copied().filter(|_| dice.roll(3) == 0));
        let strangers = dice.roll(3);
        at.extend((0..strangers).filter(|_| !self.places.is_empty()).map(|_| *dice.pick(self.places)));
        Some(Arc::new(Crossing { at, near: *dice.pick(&[0, 0, 3, NEAR]) }))
    }

    /// A run in which threads linger at it, and all see what others do as late as may be, but for what the order belongs to.
    fn lag(&mut self, number: u64) -> Tried {
        let lingers = self.lingers(number);
        let passers = &self.known.passers;
        let mut meeting = passers[number as usize % passers.len()];
        let mut trial = Trial { lingers, ..Trial::number(of_kind(number | 1 << 41, self.kind)) };
        // Of two, one does what is done in a run in which it makes a difference.
        let candidates: Vec<&Candidate> =
            self.known.places.values().flat_map(|(_, candidates)| candidates).collect();
        if number % 2 == 1 && !candidates.is_empty() {
            let candidate = *self.dice.pick(&candidates);
            (meeting, trial.scenario) = (candidate.meeting, candidate.trial.scenario);
            if number % 4 == 3 {
                trial.lingers = candidate.trial.lingers;
            }
        }
        trial.crosses = self.crosses(number);
        // Who is in no order of all does itself not see what was, or is not seen.
        let but = (self.weakening.weak != Weak::Total).then_some(self.weakening.site);
        let aim = Aim::Lagging { stores: 2 << self.dice.roll(LAGS), but };
        self.tried(meeting, trial, Reach::at(aim, true))
    }

    fn tried(&self, meeting: &'static Meeting, trial: Trial, reach: Reach) -> Tried {
        let met = meeting.meet(self.stage, &trial, Missing::One(self.weakening), reach);
        Tried { meeting, trial, reach, met }
    }

    /// A run in which threads linger at it: sees what would be different, or shows it, as chance says.
    fn look(&mut self, turn: u64) -> Tried {
        let number = turn / (DIRECTED + 1);
        let lingers = self.lingers(number);
        let passers = &self.known.passers;
        // By turns all of them, and the one of which most looks are of use.
        let of_use = (0..passers.len()).max_by_key(|&at| {
            let (looks, differing) = self.looks[at];
            (1 + differing) * 1_000_000 / (1 + looks)
        });
        let by_turns = (number / 2) as usize % passers.len();
        let at = if number.is_multiple_of(2) { by_turns } else { of_use.unwrap_or(by_turns) };
        let meeting = passers[at];
        let run = number | 1 << 40;
        let crosses = self.crosses(number);
        let trial = Trial { lingers, crosses, ..Trial::number(of_kind(run, self.kind)) };
        let reach = if number % 4 < 3 { Reach::NONE } else { Reach::of_run(number / 4) };
        let tried = self.tried(meeting, trial.clone(), reach);
        let differences = tried.met.differences.get(&self.weakening);
        self.looks[at].0 += 1;
        self.looks[at].1 += u64::from(differences.is_some());
        if reach.aim == Aim::None {
            self.known.note(meeting, &trial, differences, false);
        }
        tried
    }

    /// A run that has a difference, at the place that was least aimed at.
    fn aimed(&mut self) -> Option<(&'static Meeting, Trial, Reach)> {
        // What lies in the same part of the source mostly has more to do with it.
        let folder =
            |site: &Location<'_>| site.file().rsplit_once('/').map_or("", |parts| parts.0).to_string();
        let here = folder(self.weakening.site);
        let rank = |site: &Location<'_>, times: u64| if folder(site) == here { times } else { 3 * times + 2 };
        let places = self.known.places.iter_mut();
        let (&site, (times, candidates)) = places.min_by_key(|(site, (times, _))| rank(site, *times))?;
        *times += 1;
        let candidate = candidates.iter_mut().min_by_key(|candidate| candidate.tried)?;
        let (meeting, trial, loads, tried) =
            (candidate.meeting, candidate.trial.clone(), candidate.loads, candidate.tried);
        candidate.tried += 1;
        let nth = |tried: u64| tried * loads / 4 % loads.max(1);
        let (aim, is_same) = match tried {
            0 => (Aim::Place(site, 0), true),
            1 => (Aim::Words(u64::MAX), true),
            2..6 => (Aim::Once(site, nth(tried - 2)), true),
            6 => (Aim::Place(site, loads / 2), true),
            // Of the same scenario, in another order.
            other if other % 2 == 0 => (Aim::Place(site, 0), false),
            _ => (Aim::Words(self.dice.bits() | self.dice.bits()), false),
        };
        let schedule = if is_same { trial.schedule } else { self.dice.bits() >> 8 };
        let reach = Reach::at(aim, tried < 8 || self.dice.roll(2) == 0);
        Some((meeting, Trial { schedule, ..trial }, reach))
    }

    /// Places of loads that it makes a difference to.
    pub(super) fn places(&self) -> BTreeSet<&'static Location<'static>> {
        self.known.places.keys().copied().collect()
    }
}
