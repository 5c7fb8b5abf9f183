//! One run: executes and records a history once, then explores all of its crashes.

use super::explore::{Explored, Explorer, Judge, Limits, ViolatingState};
use super::faults::Fault;
use super::marks::{MARK_CREATED, mark_begin, mark_end};
use super::memory::Memory;
use super::oracles::{Oracles, Step, apply_checked, catch_panic, check_memory, check_scan, same};
use super::rules::Profile;
use super::seen::Seen;
use super::subject::{Plan, Subject, Target, Version, scratch};
use crate::observer::Violation;
use crate::threads::disable_sleep;
use crate::trace::Replay;
use crate::{Event, Layered, Recording, Role, Trace};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use terrace_medium::MappedMedium;

/// An executed history.
#[derive(Clone, Debug)]
pub struct History {
    /// The operations and their effects.
    pub steps: Vec<Step>,
    /// All events of the medium, beginning with zeroed memory.
    pub trace: Trace,
    /// The first event whose crashes are explored.
    pub from: usize,
    /// Parts of the pool that recovery resets, in bytes.
    pub scratch: Vec<Range<u64>>,
    /// Whether an injected fault changed it.
    pub is_faulty: bool,
}

/// Executes `plan` without a crash and records it.
pub fn record<T: Target, const VOLATILE: bool>(plan: &Plan) -> Result<History, Violation> {
    let memory = Memory::<VOLATILE>::zeroed_reused(T::BYTES.0, T::BYTES.1);
    let memory = memory.map_err(|error| error.to_string())?;
    memory.begin();
    let medium = Arc::new(Recording::over(memory));
    let subject: T::Subject<Layered<VOLATILE>> = T::Subject::create(Layered::over(medium.clone()), plan);
    let mut from = if plan.creation { 0 } else { medium.len() };
    medium.mark(MARK_CREATED);
    let mut model = vec![None; plan.keys];
    let mut steps = Vec::new();
    for (index, op) in plan.before.iter().chain(&plan.ops).enumerate() {
        if index == plan.before.len() && !plan.creation {
            from = medium.len();
        }
        medium.mark(mark_begin(index));
        let effects = apply_checked(&subject, op, &mut model)?;
        medium.mark(mark_end(index));
        steps.push(Step { op: op.clone(), effects });
    }
    let trace = medium.trace();
    let scratch = scratch(subject.pool().layout()).to_vec();
    check_unharmed(&subject, &model)?;
    subject.abandon();
    Ok(History { steps, trace, from, scratch, is_faulty: false })
}

/// The checks at the end of a run without a crash.
fn check_unharmed<M: MappedMedium>(
    subject: &impl Subject<M>,
    model: &[Option<Version>],
) -> Result<(), Violation> {
    same(subject, model, "at the end")?;
    check_scan(subject, model)?;
    check_memory(subject)
}

/// A failed run.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its plan.
    pub plan: Plan,
    /// The history, if it completed without a crash.
    pub history: Option<History>,
    /// The violating state; `None` if a check failed without any crash.
    pub found: Option<ViolatingState>,
    /// The violation.
    pub wrong: Violation,
}

/// How the runs of one target are explored.
pub struct Lab<'l> {
    /// The kind of memory.
    pub profile: Profile,
    /// The limits of each search.
    pub limits: Limits,
    /// The states checked so far, shared by all threads.
    pub seen: &'l Seen,
    /// Polled now and then; true stops the run.
    pub is_over: &'l dyn Fn() -> bool,
    /// The fault injected into all traces.
    pub fault: Option<Fault>,
    /// Whether to skip runs that the fault does not change.
    pub only_faulty: bool,
}

/// The result of a run.
pub struct Outcome {
    /// Counters of the exploration.
    pub explored: Explored,
    /// Number of operations during which crashes were explored.
    pub operations: usize,
    /// The finding, if any.
    pub finding: Option<Box<Finding>>,
}

impl<'l> Lab<'l> {
    /// A lab without an injected fault that completes every run.
    pub fn new(profile: Profile, limits: Limits, seen: &'l Seen) -> Self {
        Self { profile, limits, seen, is_over: &|| false, fault: None, only_faulty: false }
    }
}

impl Lab<'_> {
    /// Executes and explores the run of `plan`.
    pub fn run<T: Target>(&self, plan: &Plan) -> Outcome {
        if T::WITHOUT_CACHE && !self.profile.has_volatile_cache() {
            self.run_on::<T, false>(plan)
        } else {
            self.run_on::<T, true>(plan)
        }
    }

    /// The trace of the run of `plan`, for inspection.
    pub fn record<T: Target>(&self, plan: &Plan) -> Result<History, Violation> {
        let record = || {
            if T::WITHOUT_CACHE && !self.profile.has_volatile_cache() {
                record::<T, false>(plan)
            } else {
                record::<T, true>(plan)
            }
        };
        let mut history = catch_panic(record)?;
        if let Some(fault) = &self.fault {
            history.inject(fault);
        }
        Ok(history)
    }

    /// The faults that can be injected into the run of `plan`, and into the recoveries after its
    /// end or after a kill.
    pub fn faults<T: Target>(&self, plan: &Plan) -> [BTreeSet<Fault>; 2] {
        disable_sleep();
        let Ok(history) = self.record::<T>(plan) else { return Default::default() };
        let recovered = if T::WITHOUT_CACHE && !self.profile.has_volatile_cache() {
            self.faults_of_recoveries::<T, false>(plan, &history)
        } else {
            self.faults_of_recoveries::<T, true>(plan, &history)
        };
        [Fault::of(&history.trace), recovered]
    }

    fn faults_of_recoveries<T: Target, const VOLATILE: bool>(
        &self,
        plan: &Plan,
        history: &History,
    ) -> BTreeSet<Fault> {
        /// One event in this many is tried.
        const KILLS_APART: usize = 16;
        let mut judge = Oracles::<T, VOLATILE>::new(plan, &history.steps, self.profile, None, &self.limits);
        let events = history.trace.events().len();
        let first = history.from + plan.seed as usize % KILLS_APART;
        let kills = (first..events).step_by(KILLS_APART).chain([events]);
        let mut caches = Replay::from(&[], T::BYTES.1 / 8);
        let traces = kills.flat_map(|events| {
            let image = caches.go_on(&history.trace, events);
            [judge.recovery(image), judge.revival(image)]
        });
        traces.flatten().flat_map(|trace| Fault::of(&trace)).collect()
    }

    fn run_on<T: Target, const VOLATILE: bool>(&self, plan: &Plan) -> Outcome {
        disable_sleep();
        let operations = plan.ops.len();
        let failed =
            |history, found, wrong| Some(Box::new(Finding { plan: plan.clone(), history, found, wrong }));
        let history = match self.record::<T>(plan) {
            Ok(history) => history,
            Err(wrong) => {
                return Outcome {
                    explored: Explored::default(),
                    operations,
                    finding: failed(None, None, wrong),
                };
            }
        };
        if self.only_faulty && !history.is_faulty {
            return Outcome { explored: Explored::default(), operations, finding: None };
        }
        let (explored, found) = self.explore::<T, VOLATILE>(plan, &history);
        let finding = found.and_then(|found| {
            let wrong = found.wrong.clone();
            failed(Some(history), Some(found), wrong)
        });
        Outcome { explored, operations, finding }
    }

    fn explore<T: Target, const VOLATILE: bool>(
        &self,
        plan: &Plan,
        history: &History,
    ) -> (Explored, Option<ViolatingState>) {
        let memory =
            Memory::<VOLATILE>::zeroed_reused(T::BYTES.1, T::BYTES.1).expect("memory for crash states");
        for range in &history.scratch {
            (range.start / 64..range.end / 64).for_each(|line| memory.set_scratch(line as usize));
        }
        let mut judge = Oracles::<T, VOLATILE>::new(
            plan,
            &history.steps,
            self.profile,
            self.fault.as_ref(),
            &self.limits,
        );
        let mut explorer = Explorer::new(memory, self.profile.rules(), self.limits, self.seen, self.is_over)
            .for_fault(self.fault.is_some());
        let found = explorer.explore((&[], &history.trace), history.from, plan.seed, &mut judge);
        (explorer.explored, found)
    }

    /// Searches for a smaller failing run, with fewer operations and fewer affected lines, in at
    /// most `tries` attempts.
    pub fn minimise<T: Target>(&self, finding: Box<Finding>, tries: usize) -> Box<Finding> {
        let mut best = finding;
        let mut left = tries;
        loop {
            let plan = best.plan.clone();
            let smaller = shorter(&plan).find_map(|plan| {
                left = left.checked_sub(1)?;
                // A fresh set, or states seen before would be skipped.
                let seen = Seen::new();
                let lab = Lab { seen: &seen, ..*self };
                lab.run::<T>(&plan).finding
            });
            match smaller {
                Some(finding) => best = finding,
                None => return best,
            }
        }
    }
}

/// Plans with some operations left out: first halves, then quarters, down to single operations.
fn shorter(plan: &Plan) -> impl Iterator<Item = Plan> + '_ {
    let total = plan.before.len() + plan.ops.len();
    let sizes = std::iter::successors(Some(total.div_ceil(2)), |&size| (size > 1).then(|| size.div_ceil(2)));
    let ranges = sizes.flat_map(move |size| (0..total).step_by(size.max(1)).map(move |at| at..at + size));
    ranges.filter(move |range| !range.is_empty() && total > 1).map(|range| {
        let keep = |&(index, _): &(usize, &super::subject::Op)| !range.contains(&index);
        let all = || plan.before.iter().chain(&plan.ops).enumerate();
        let before = all().take(plan.before.len()).filter(keep).map(|(_, op)| op.clone()).collect();
        let ops = all().skip(plan.before.len()).filter(keep).map(|(_, op)| op.clone()).collect();
        Plan { before, ops, ..plan.clone() }
    })
}

impl History {
    /// Injects a fault and adjusts the first event whose crashes are explored.
    fn inject(&mut self, fault: &Fault) {
        let is_delayed = |event: &&Event| event.role == Role::Belated;
        let whole = std::mem::take(&mut self.trace);
        self.trace = fault.inject_into(&whole);
        self.is_faulty = !self.trace.is_sound();
        let mut left = self.from;
        let sound = self.trace.events().iter().position(|event| {
            let is_it = left == 0;
            left -= usize::from(!is_it && !is_delayed(&event));
            is_it
        });
        self.from = sound.unwrap_or(self.from);
    }
}
