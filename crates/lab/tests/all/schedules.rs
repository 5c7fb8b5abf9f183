//! Schedules of all targets with several threads: a sample of each.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "the tests print their speed")]

use std::collections::BTreeSet;
use std::time::Instant;
use terrace_lab::{CrashKind, FaultProfile, Monitor, SCHEDULE_TARGETS, ScheduleSeed, schedule_target};
use terrace_testkit::crash::{Explored, Op, Profile, Seen};
use terrace_testkit::schedule::{FindingReport, Scheduler, Slice, ThreadOp, Weak, Weakening};
use terrace_testkit::{stride, times};

#[test]
fn seed_is_parsed_from_its_text() {
    for deaths in [CrashKind::None, CrashKind::Some, CrashKind::First] {
        for crash in [None, Some(Profile::Pmem), Some(Profile::Shm)] {
            let seed = ScheduleSeed::new("cells", FaultProfile::of(deaths, crash), 7, 3);
            assert_eq!(seed.to_string().parse(), Ok(seed));
        }
    }
    let weak = ScheduleSeed::new("cells", FaultProfile::named("weak").unwrap(), 7, 3);
    assert_eq!((weak.to_string().parse(), weak.fault_profile.is_weak), (Ok(weak), true));
    assert!("clht/none".parse::<ScheduleSeed>().is_err());
    assert!("clht/one-dies+/0x1".parse::<ScheduleSeed>().is_err());
    assert!("shoe/none/0x1".parse::<ScheduleSeed>().unwrap_err().contains("no target `shoe`"));
}

#[test]
fn same_seed_gives_the_same_run() {
    let (scheduler, other) = (Scheduler::new(), Scheduler::new());
    let seen = Seen::new();
    let monitor = Monitor { seen: &seen, is_over: &|| false, fault: None };
    for target in &SCHEDULE_TARGETS {
        for number in 0..12 {
            let deaths = [CrashKind::None, CrashKind::Some, CrashKind::First][number as usize % 3];
            let fault_profile = FaultProfile::of(deaths, None);
            let seed = ScheduleSeed::new(target.name, fault_profile, 1, number);
            let [one, two] = [&scheduler, &other].map(|scheduler| target.run(scheduler, &monitor, seed));
            assert_eq!((one.steps, one.turns), (two.steps, two.turns), "{seed}");
        }
    }
}

/// Does the first `runs` runs of a target.
fn explore(name: &str, fault_profile: &str, runs: u64) {
    let runs = runs * times();
    let target = schedule_target(name).expect("a target");
    let fault_profile = FaultProfile::named(fault_profile).unwrap();
    let (scheduler, seen, start) = (Scheduler::new(), Seen::new(), Instant::now());
    let monitor = Monitor { seen: &seen, is_over: &|| false, fault: None };
    let (mut steps, mut turns, mut explored) = (0, 0, Explored::default());
    for run in 0..runs {
        let seed = ScheduleSeed { target: target.name, fault_profile, run };
        let result = target.run(&scheduler, &monitor, seed);
        (steps, turns) = (steps + result.steps, turns + result.turns);
        explored += result.explored;
        if let Some(finding) = result.finding {
            let finding = target.minimise(&scheduler, fault_profile, finding, 300);
            panic!(
                "{seed}:\n{}",
                FindingReport { crash: fault_profile.power_loss_text(), finding: &finding }
            );
        }
    }
    println!(
        "{name}: {runs} runs of {} steps and {} turns, {} states, {:?}",
        steps / runs,
        turns / runs,
        explored.distinct,
        start.elapsed()
    );
}

/// As [`explore`], for an index over integers: many runs without faults, a few with a medium's.
fn explore_integers(name: &str) {
    explore(name, "none", 1000);
    explore(name, "pmem", 25);
}

/// The same over byte strings.
fn explore_strings(name: &str) {
    explore(name, "none", 500);
    explore(name, "shm", 25);
}

#[test]
fn clht() {
    explore("clht", "none", 2000);
}

#[test]
fn clht_bytes() {
    explore("clht-bytes", "none", 2000);
}

#[test]
fn clht_remote() {
    explore("clht-remote", "none", 500);
    explore("clht-remote", "pmem", 25);
}

crate::on_each_index!(explore_integers, explore_strings);

#[test]
fn cells() {
    explore("cells", "none", 2000);
}

#[test]
fn direct() {
    explore("direct", "none", 300);
}

#[test]
fn clht_crashes() {
    explore("clht", "pmem", 50);
    explore("clht", "shm", 50);
}

#[test]
fn clht_bytes_crashes() {
    explore("clht-bytes", "pmem", 50);
}

#[test]
fn cells_crashes() {
    explore("cells", "pmem", 50);
}

#[test]
fn direct_crashes() {
    explore("direct", "pmem", 8);
}

#[test]
fn all_targets_on_weak_memory() {
    SCHEDULE_TARGETS.iter().for_each(|target| explore(target.name, "weak", 60));
}

/// A reader gets a key repeatedly while a writer removes it and puts it back. The reader is
/// suspended at each of its first steps, for any number of the writer's steps.
#[test]
fn removed_key_put_back_is_read_consistently() {
    let scheduler = Scheduler::new();
    let turn = |thread, steps| Slice { thread, steps };
    let get = ThreadOp::Get(0);
    for target in SCHEDULE_TARGETS.iter().filter(|target| target.name != "cells") {
        let follow = |turns: &[Slice]| {
            let writer = vec![ThreadOp::Do(Op::Remove(0)), ThreadOp::Do(Op::Put(0, 2))];
            let result =
                target.run_script(&scheduler, vec![Op::Put(0, 1)], vec![vec![get.clone(); 3], writer], turns);
            assert_eq!(result.finding.map(|it| it.wrong), None, "{}: {turns:?}", target.name);
            result.steps as u32
        };
        let (all, start) = (follow(&[]), Instant::now());
        for read in (1..16).step_by(stride(3)) {
            for written in 1..all {
                follow(&[turn(0, read), turn(1, written), turn(0, u32::MAX)]);
            }
        }
        println!("{}: {all} steps, {:?}", target.name, start.elapsed());
    }
}

#[test]
fn weakened_lock_orderings_are_detected() {
    let (scheduler, clht) = (Scheduler::new(), schedule_target("clht").unwrap());
    let run_weak = |run, missing| clht.run_weak(&scheduler, run, missing);
    let passed = (0..20).flat_map(|run| run_weak(run, None).passed);
    let of_lock: BTreeSet<_> = passed.filter(|it| it.place().starts_with("sync/locked.rs")).collect();
    let is_detected = |it: &Weakening| (0..200).any(|run| run_weak(run, Some(*it)).wrong.is_some());
    let detected: BTreeSet<Weak> = of_lock.into_iter().filter(is_detected).map(|it| it.weak).collect();
    assert_eq!(detected, [Weak::Acquire, Weak::Release].into());
}
