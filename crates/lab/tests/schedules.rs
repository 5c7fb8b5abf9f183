//! Schedules of the targets: a sample of each, and the planted bugs that they must find.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it says how fast it was")]

use std::time::Instant;
use terrace_lab::targets::{ClhtBytes, ClhtU64};
use terrace_testkit::crash::{Dice, Memory, Target};
use terrace_testkit::schedule::{Policy, Scenario, Stage, run};

fn explore<T: Target>(runs: u64) {
    let stage = Stage::new();
    let start = Instant::now();
    let (mut steps, mut turns) = (0, 0);
    for seed in 0..runs {
        let scenario = Scenario::draw::<T>(seed);
        let mut dice = Dice::new(seed);
        let length = 32 << dice.roll(6);
        let policy = Policy::draw(&mut dice, length);
        let memory = Memory::<true>::zeroed(T::BYTES.0, T::BYTES.1).unwrap();
        let run = run::<T, _>(&stage, memory, &scenario, &policy, seed).unwrap();
        steps += run.ran.steps;
        turns += run.ran.turns.len() as u64;
        if let Some(wrong) = run.wrong {
            panic!("seed {seed}: {wrong}\n{:#?}", run.calls);
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
