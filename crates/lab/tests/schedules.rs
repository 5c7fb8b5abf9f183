//! Schedules of the targets: a sample of each, and the planted bugs that they must find.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it says how fast it was")]

use std::time::Instant;
use terrace_lab::targets::{Cells, ClhtBytes, ClhtU64, DirectEngine};
use terrace_testkit::crash::{Memory, Profile, Seen, Target};
use terrace_testkit::schedule::{Crashes, Finding, LIMITS, Policy, Scenario, Stage, Story, minimise, run};

fn explore<T: Target>(runs: u64) {
    let stage = Stage::new();
    let start = Instant::now();
    let (mut steps, mut turns) = (0, 0);
    for seed in 0..runs {
        let scenario = Scenario::draw::<T>(seed);
        let policy = Scenario::policy(seed);
        let memory = Memory::<true>::zeroed(T::BYTES.0, T::BYTES.1).unwrap();
        let run = run::<T, _>(&stage, memory, &scenario, &policy, seed).unwrap();
        steps += run.ran.steps;
        turns += run.ran.turns.len() as u64;
        if let Some(finding) = Finding::of_run(&scenario, run) {
            let again = |scenario: &Scenario, policy: &Policy, seed| {
                let memory = Memory::<true>::zeroed(T::BYTES.0, T::BYTES.1).unwrap();
                Finding::of_run(
                    scenario,
                    terrace_testkit::schedule::run::<T, _>(&stage, memory, scenario, policy, seed).ok()?,
                )
            };
            let finding = minimise(finding, 2000, again);
            panic!("seed {seed}:\n{}", Story { crash: "", finding: &finding });
        }
    }
    println!(
        "{}: {runs} runs, {} steps, {} turns a run, {:?} a run",
        T::NAME,
        steps / runs,
        turns / runs,
        start.elapsed() / runs as u32
    );
}

#[test]
fn clht() {
    explore::<ClhtU64>(2000);
}

#[test]
fn clht_bytes() {
    explore::<ClhtBytes>(2000);
}

#[test]
fn cells() {
    explore::<Cells>(2000);
}

#[test]
fn direct() {
    explore::<DirectEngine>(1000);
}

fn crash<T: Target>(runs: u64, profile: Profile) {
    let (stage, seen, start) = (Stage::new(), Seen::new(), Instant::now());
    let mut judged = 0;
    let crashes = Crashes { profile, limits: LIMITS, seen: &seen, is_over: &|| false, fault: None };
    for seed in 0..runs {
        let scenario = Scenario::draw_to_crash::<T>(seed);
        let crashed = crashes.run::<T>(&stage, &scenario, &Scenario::policy(seed), seed);
        judged += crashed.explored.runs;
        if let Some(finding) = crashed.finding {
            let finding = Finding::of_crash(&scenario, *finding);
            let seen = Seen::new();
            let crashes = Crashes { seen: &seen, ..crashes };
            let again = |scenario: &Scenario, policy: &Policy, seed| {
                let crashed = crashes.run::<T>(&stage, scenario, policy, seed);
                crashed.finding.map(|crash| Finding::of_crash(scenario, *crash))
            };
            let finding = minimise(finding, 300, again);
            panic!("seed {seed}:\n{}", Story { crash: profile.crash(), finding: &finding });
        }
    }
    println!("{}: {runs} runs, {judged} states, {} distinct, {:?}", T::NAME, seen.len(), start.elapsed());
}

#[test]
fn clht_crashes() {
    crash::<ClhtU64>(50, Profile::Pmem);
    crash::<ClhtU64>(50, Profile::Shm);
}

#[test]
fn clht_bytes_crashes() {
    crash::<ClhtBytes>(50, Profile::Pmem);
}

#[test]
fn cells_crashes() {
    crash::<Cells>(50, Profile::Pmem);
}

#[test]
fn direct_crashes() {
    crash::<DirectEngine>(30, Profile::Pmem);
}
