//! What the scripts of trees share: their operations, and the outcome of a run.

use terrace_testkit::crash::{Key, Limits, Memory, Op, Profile, Seen, Target, Version, Violation};
use terrace_testkit::schedule::cues::{after, to};
use terrace_testkit::schedule::{
    Breakpoint, CrashSettings, LIMITS, Policy, Scenario, Scheduler, Slice, Stop, ThreadOp, run, run_unchecked,
};

/// The profile of the runs that lose power.
pub(super) const PMEM: Profile = Profile::Pmem;

pub(super) fn put(key: Key) -> Op {
    Op::Put(key, 0x1000 + key as Version)
}

pub(super) fn acts(ops: &[Op]) -> Vec<ThreadOp> {
    ops.iter().cloned().map(ThreadOp::Do).collect()
}

pub(super) const fn put_of(key: Key) -> Op {
    Op::Put(key, 0x2000 + key as Version)
}

/// How a run ended: what is wrong, and whether threads died.
pub(super) struct Outcome {
    pub(super) wrong: Option<Violation>,
    pub(super) has_died: bool,
}

impl Outcome {
    fn of(wrong: Option<Violation>, has_died: bool) -> Self {
        let wrong = wrong.filter(|wrong| !wrong.contains("of the script was not reached"));
        Self { wrong, has_died }
    }
}

/// A run in this order, without a power failure.
pub(super) fn outcome<T: Target>(scenario: &Scenario, policy: &Policy, seed: u64) -> Outcome {
    let memory = Memory::<true>::zeroed(T::BYTES.0, T::BYTES.1).expect("memory for a run");
    match run::<T, true>(&Scheduler::new(), memory, scenario, policy, seed) {
        Ok(run) => Outcome::of(run.wrong, !run.ran.died.is_empty()),
        Err(wrong) => Outcome::of(Some(wrong), false),
    }
}

/// The steps after which thread 1, which runs first, has done the access with this name. A script
/// of breakpoints has further steps, at names.
pub(super) fn steps_to<T: Target>(scenario: &Scenario, name: &'static str) -> u32 {
    let last_of_first_turn = |policy: &Policy| {
        let memory = Memory::<true>::zeroed(T::BYTES.0, T::BYTES.1).expect("memory for a run");
        let ran = run_unchecked::<T, true>(&Scheduler::new(), memory, scenario, policy, 1).expect("a run");
        ran.turns.first().expect("a turn").after
    };
    let place = last_of_first_turn(&script(&[to(1, after(name)), to(0, Stop::End)]));
    let first =
        |steps| Policy::Script(vec![Slice { thread: 1, steps }, Slice { thread: 0, steps: u32::MAX }]);
    let found = (1..).find(|&steps| last_of_first_turn(&first(steps)) == place);
    found.expect("the access")
}

/// The changes of memory that the first thread makes in this call, if it runs alone.
pub(super) fn changes_of<T: Target>(scenario: &Scenario, call: usize) -> u64 {
    let memory = Memory::<true>::zeroed(T::BYTES.0, T::BYTES.1).expect("memory for a run");
    let ran = run_unchecked::<T, true>(&Scheduler::new(), memory, scenario, &Scenario::sequential(), 1);
    ran.expect("a run").changes[0][call]
}

/// A run in this order, in which power fails at one event in so many.
pub(super) fn outcome_without_power<T: Target>(
    scenario: &Scenario,
    policy: &Policy,
    events_one_in: u64,
) -> Outcome {
    let seen = Seen::new();
    let limits = Limits { events_one_in: [events_one_in, 1], ..LIMITS };
    let crashes = CrashSettings { profile: PMEM, limits, seen: &seen, is_over: &|| false, fault: None };
    let outcome = crashes.run::<T>(&Scheduler::new(), scenario, policy, 1);
    Outcome::of(outcome.finding.map(|crash| crash.wrong), outcome.deaths > 0)
}

pub(super) fn script(breakpoints: &[Breakpoint]) -> Policy {
    Policy::Cued(breakpoints.to_vec())
}
