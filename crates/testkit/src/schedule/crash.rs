//! A run with a power failure after each of its stores: the answers that threads got by then must
//! be durable.
//!
//! The crash explorer processes the trace of the run, and the condition is durable linearizability.
//! Recovery must find a content that some order of the calls leaves: every returned call takes
//! effect in it with its actual answer, any other call may. So the answer of a reader pins a value,
//! too: not only its writer relies on its durability.
//!
//! Some runs crash twice. The store is recovered from everything visible at some moment, including
//! the locks of the dead threads; then it continues with other threads and crashes again.

use super::calls::{Calls, Contents, Outcomes};
use super::crew::{On, PoolGroup};
use super::medium::Scheduled;
use super::model::Weakening;
use super::policy::{Policy, Slice};
use super::reach::Reach;
use super::run::{Run, prepare, run_on, run_threads};
use super::scenario::Scenario;
use super::stage::{RunResult, Scheduler, number};
use super::weak::{UsedOrderings, Weakened};
use crate::crash::{
    CheckMode, Expectation, Explored, Explorer, Fault, Judge, Limits, Memory, Oracles, Profile, Seen,
    Subject, Target, ViolatingState, Violation, catch_panic, read, scratch,
};
use crate::{Layered, Recording, Role, Trace, What};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// The mark between the preparation and the calls.
const MARK_BEGIN: u64 = 1;

/// The settings for runs with a power failure.
pub struct CrashSettings<'c> {
    /// The kind of memory.
    pub profile: Profile,
    /// The limits of each search.
    pub limits: Limits,
    /// The states checked so far, shared by all threads.
    pub seen: &'c Seen,
    /// Polled now and then; true stops the run.
    pub is_over: &'c dyn Fn() -> bool,
    /// The fault injected into all traces; runs that it does not change are skipped.
    pub fault: Option<Fault>,
}

/// The default limits of a search for crashes of schedules: less for each run than in a search of
/// one thread, for there are more runs.
pub const LIMITS: Limits = Limits {
    exhaustive: [64, 1, 1],
    samples: [24, 1, 1],
    events_one_in: [4, 1],
    nested_one_in: [0, 0, 0],
    revived_one_in: 0,
    again_one_in: Limits::RECHECK_ONE_IN,
};

/// As [`LIMITS`], for a search for an injected fault, which explores only where it shows.
const FAULTY: Limits = Limits { exhaustive: [16, 1, 1], samples: [8, 1, 1], events_one_in: [1; 2], ..LIMITS };

/// A run and its violating crash.
#[derive(Debug)]
pub struct Crash {
    /// The schedule.
    pub ran: RunResult,
    /// The calls.
    pub calls: Calls,
    /// The trace of the medium.
    pub trace: Trace,
    /// The violating state; `None` if a check failed without a crash.
    pub found: Option<ViolatingState>,
    /// The violation.
    pub wrong: Violation,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct CrashOutcome {
    /// Counters of the exploration.
    pub explored: Explored,
    /// The schedule of the run.
    pub slices: Vec<Slice>,
    /// Number of participants that crashed.
    pub deaths: u64,
    /// The finding, if any.
    pub finding: Option<Box<Crash>>,
}

impl CrashSettings<'_> {
    /// Executes `scenario` once and crashes it everywhere.
    pub fn run<T: Target>(
        &self,
        scheduler: &Scheduler,
        scenario: &Scenario,
        policy: &Policy,
        seed: u64,
    ) -> CrashOutcome {
        if T::WITHOUT_CACHE && !self.profile.has_volatile_cache() {
            self.run_on::<T, false>(scheduler, scenario, policy, seed)
        } else {
            self.run_on::<T, true>(scheduler, scenario, policy, seed)
        }
    }

    /// The faults that can be injected into the calls of the threads of `scenario`.
    pub fn faults<T: Target>(
        &self,
        scheduler: &Scheduler,
        scenario: &Scenario,
        policy: &Policy,
        seed: u64,
    ) -> BTreeSet<Fault> {
        let scenario = Scenario { moment: None, ..scenario.clone() };
        let recorded = if T::WITHOUT_CACHE && !self.profile.has_volatile_cache() {
            record::<T, false>(scheduler, &scenario, None, policy, seed)
        } else {
            record::<T, true>(scheduler, &scenario, None, policy, seed)
        };
        recorded.map_or_else(|_| BTreeSet::new(), |recorded| Fault::of(&recorded.trace))
    }

    fn run_on<T: Target, const V: bool>(
        &self,
        scheduler: &Scheduler,
        scenario: &Scenario,
        policy: &Policy,
        seed: u64,
    ) -> CrashOutcome {
        let base = match scenario.moment {
            None => None,
            Some(moment) => match self.first_crash::<T, V>(scheduler, scenario, moment, seed) {
                Ok(image) => Some(image),
                Err(crash) => return CrashOutcome { finding: Some(crash), ..CrashOutcome::default() },
            },
        };
        let rest = Box::new(policy.clone());
        let policy = match self.fault {
            // The schedule is fixed already.
            _ if matches!(policy, Policy::Script(_)) => policy,
            // The thread with the fault is delayed, so that others are affected; or it returns its
            // result immediately, before others repair the fault.
            Some(Fault { site, .. }) if seed % 4 == 1 => &Policy::Hurrying { at: site, rest },
            Some(Fault { site, .. }) if !seed.is_multiple_of(4) => &Policy::Holding { at: site, rest },
            _ => policy,
        };
        match record::<T, V>(scheduler, scenario, base.as_deref(), policy, seed) {
            Err(wrong) => broken(wrong),
            Ok(recorded) => {
                self.explore::<T, V>(scenario, base.as_deref().unwrap_or_default(), recorded, seed)
            }
        }
    }

    /// As [`run`](super::run()), under the weak memory model. If a crashed thread lost stores and
    /// all checks passed, power failures after each store are explored, too. A violation then
    /// counts as one of the run.
    pub fn run_weak<T: Target, const V: bool>(
        &self,
        scheduler: &Scheduler,
        (missing, reach): (Option<Weakening>, Reach),
        scenario: &Scenario,
        policy: &Policy,
        seed: u64,
    ) -> (Result<Run, Violation>, UsedOrderings) {
        let memory = Memory::<V>::zeroed(T::BYTES.0, T::BYTES.1).expect("memory for a run");
        let recording = Recording::over(memory);
        recording.identify_threads_by(number);
        let weak = Weakened::over(recording, missing, reach, scenario.apart());
        let (passed, watched) = (weak.passed(), Arc::new(Scheduled::over(weak)));
        let recording = || watched.below().below();
        let recorded = Cell::new(None);
        let begins = || recording().mark(MARK_BEGIN);
        let ends = |subject: &On<T, V>| {
            let scratch = scratch(subject.pool().layout()).to_vec();
            recorded.set(Some((recording().trace(), scratch)));
        };
        let medium = Layered::<V>::over(watched.clone());
        let mut run = run_on::<T, V>(scheduler, medium, scenario, policy, seed, &begins, &ends);
        if let (Ok(run), Some((trace, scratch))) = (&mut run, recorded.take())
            && run.wrong.is_none()
            && passed.has_lost_stores()
        {
            let (ran, calls) = (RunResult { wrong: None, ..RunResult::default() }, run.calls.clone());
            let recorded = Recorded { ran, calls, trace, scratch };
            let crashed = self.explore::<T, V>(scenario, &[], recorded, seed);
            run.wrong = crashed.finding.map(|crash| crash.wrong);
        }
        (run, passed)
    }

    /// The memory after the operations of the plan were cut off at some moment, with everything
    /// visible kept. Every profile allows that.
    fn first_crash<T: Target, const V: bool>(
        &self,
        scheduler: &Scheduler,
        scenario: &Scenario,
        moment: u64,
        seed: u64,
    ) -> Result<Vec<u64>, Box<Crash>> {
        let before = Scenario { threads: scenario.first.clone(), moment: None, ..scenario.clone() };
        let policy = scenario.first_policy();
        let recorded = record::<T, V>(scheduler, &before, None, &policy, seed);
        let recorded = recorded.map_err(|wrong| broken(wrong).finding.expect("it is broken"))?;
        if recorded.ran.wrong.is_some() {
            return Err(recorded.into_finding(None));
        }
        let from = recorded.from();
        let events = recorded.trace.events().len();
        let until = from + moment as usize % (events - from + 1);
        let mut image = vec![0; T::BYTES.1 / 8];
        recorded.trace.replay(&mut image, until);
        Ok(image)
    }

    fn explore<T: Target, const V: bool>(
        &self,
        scenario: &Scenario,
        base: &[u64],
        mut recorded: Recorded,
        seed: u64,
    ) -> CrashOutcome {
        let (slices, deaths) = (recorded.ran.slices(), recorded.ran.died.len() as u64);
        let mut explored = Explored::default();
        if recorded.ran.wrong.is_some() {
            // A fault shows only after a crash, so a failure before is not due to it.
            let finding = self.fault.is_none().then(|| recorded.into_finding(None));
            return CrashOutcome { explored, slices, deaths, finding };
        }
        if let Some(fault) = &self.fault {
            let faulty = fault.inject_into(&recorded.trace);
            if faulty.events().iter().all(|event| event.role == Role::Done) {
                return CrashOutcome { explored, slices, deaths, finding: None };
            }
            recorded.trace = faulty;
        }
        let memory = Memory::<V>::zeroed(T::BYTES.1, T::BYTES.1).expect("memory for crash states");
        for range in &recorded.scratch {
            (range.start / 64..range.end / 64).for_each(|line| memory.set_scratch(line as usize));
        }
        let mut judge = Durable::<T, V>::new(scenario, &recorded.calls, self);
        let limits = if self.fault.is_some() { FAULTY } else { self.limits };
        let mut explorer = Explorer::new(memory, self.profile.rules(), limits, self.seen, self.is_over)
            .for_fault(self.fault.is_some());
        let found = explorer.explore((base, &recorded.trace), recorded.from(), seed, &mut judge);
        explored += explorer.explored;
        let finding = found.map(|found| recorded.into_finding(Some(found)));
        CrashOutcome { explored, slices, deaths, finding }
    }
}

fn broken(wrong: Violation) -> CrashOutcome {
    let (ran, calls, trace) = (RunResult::default(), Calls::default(), Trace::default());
    CrashOutcome {
        finding: Some(Box::new(Crash { ran, calls, trace, found: None, wrong })),
        ..CrashOutcome::default()
    }
}

/// An executed run.
struct Recorded {
    ran: RunResult,
    calls: Calls,
    trace: Trace,
    scratch: Vec<Range<u64>>,
}

impl Recorded {
    /// The event at which the calls begin.
    fn from(&self) -> usize {
        let is_it = |what: &What| matches!(what, What::Mark(MARK_BEGIN));
        self.trace.events().iter().position(|event| is_it(&event.what)).unwrap_or(0)
    }

    fn into_finding(self, found: Option<ViolatingState>) -> Box<Crash> {
        let wrong = found.as_ref().map(|found| found.wrong.clone()).or(self.ran.wrong.clone());
        let wrong = wrong.unwrap_or_default();
        Box::new(Crash { ran: self.ran, calls: self.calls, trace: self.trace, found, wrong })
    }
}

/// Executes `scenario` once, in zeroed memory or after a crash.
fn record<T: Target, const V: bool>(
    scheduler: &Scheduler,
    scenario: &Scenario,
    base: Option<&[u64]>,
    policy: &Policy,
    seed: u64,
) -> Result<Recorded, Violation> {
    let bytes = base.map_or(T::BYTES.0, |base| base.len() * 8);
    let memory = Memory::<V>::zeroed(bytes, T::BYTES.1).map_err(|error| error.to_string())?;
    memory.set_all(base.unwrap_or_default());
    memory.begin();
    let recording = Recording::over(memory);
    recording.identify_threads_by(number);
    let watched = Arc::new(Scheduled::over(recording));
    let medium = Layered::<V>::over(watched.clone());
    let (group, initial) = match base {
        None => prepare::<T, V>(scheduler, medium, scenario)?,
        Some(_) => resume::<T, V>(scheduler, medium, scenario)?,
    };
    watched.below().mark(MARK_BEGIN);
    let (ran, calls) = run_threads(scheduler, &group, scenario, initial, policy, seed);
    let trace = watched.below().trace();
    let scratch = scratch(group.of(0).pool().layout()).to_vec();
    scheduler.detach_dead();
    group.release_all(scheduler);
    Ok(Recorded { ran, calls, trace, scratch })
}

/// Recovers the store after a crash.
fn resume<T: Target, const V: bool>(
    scheduler: &Scheduler,
    medium: Layered<V>,
    scenario: &Scenario,
) -> Result<(PoolGroup<T, V>, Contents), Violation> {
    let (below, plan) = (medium.clone(), scenario.plan.clone());
    let recovered = scheduler.alone(move || {
        let recovered =
            T::Subject::recover(below, &plan).map_err(|why| format!("the store cannot be opened: {why}"));
        let subject = recovered?.ok_or("the pool has no store any more")?;
        let model = read(&subject, plan.keys)?;
        Ok::<_, Violation>((Arc::new(subject), model))
    })?;
    let (subject, model) = recovered.map_err(|wrong| format!("before any thread started, {wrong}"))?;
    Ok((PoolGroup::exclusive(medium, subject), model))
}

/// Checks recoveries against the calls of threads.
struct Durable<'c, T, const V: bool> {
    calls: &'c Calls,
    scenario: &'c Scenario,
    oracles: Oracles<'c, T, V>,
    allowed: Outcomes,
    number: u64,
}

impl<'c, T: Target, const V: bool> Durable<'c, T, V> {
    fn new(scenario: &'c Scenario, calls: &'c Calls, crashes: &'c CrashSettings<'_>) -> Self {
        let oracles =
            Oracles::new(&scenario.plan, &[], crashes.profile, crashes.fault.as_ref(), &crashes.limits);
        let allowed = calls.outcomes(0);
        let number = allowed.number();
        Self { calls, scenario, oracles, allowed, number }
    }

    fn check(&self, found: &[Option<u64>]) -> Result<(), Violation> {
        if self.allowed.contains(found) {
            return Ok(());
        }
        self.calls.describe_difference(&self.allowed, &found.to_vec())
    }
}

impl<T: Target, const V: bool> Judge<V> for Durable<'_, T, V> {
    fn pass(&mut self, mark: u64) -> bool {
        let Some(index) = mark.checked_sub(2).map(|mark| mark as usize / 2) else { return true };
        let Some(call) = self.calls.numbered(index) else { return false };
        let now = match (&call.returned, mark % 2) {
            (Some((returned, _)), 1) => *returned,
            _ => call.called,
        };
        let allowed = self.calls.outcomes(now);
        let narrower = !self.allowed.is_subset_of(&allowed);
        self.allowed = allowed;
        self.number = self.allowed.number();
        narrower
    }

    fn expectation(&self) -> u64 {
        self.number
    }

    fn judge(&mut self, memory: &Memory<V>, point: u64) -> Result<(), Violation> {
        let mode = CheckMode::of((self.scenario.plan.seed ^ point) >> 1);
        catch_panic(|| self.oracles.judge_by(memory, mode, false, &|found| self.check(found)))
    }

    fn recovery(&mut self, image: &[u64]) -> Option<Trace> {
        self.oracles.recovery(image)
    }

    // Processes between a kill and a power failure are covered by runs of one thread.
    fn revival(&mut self, _: &[u64]) -> Option<Trace> {
        None
    }

    fn remember(&self) -> Expectation {
        Expectation::default()
    }

    fn restore(&mut self, _: Expectation) {}
}
