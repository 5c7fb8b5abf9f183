//! Participants of a shared pool crash while the others continue: a sample of each target.
//! `cargo lab schedules all --crash one-dies` runs more.

use terrace_lab::{CrashKind, FaultProfile, Monitor, ScheduleSeed, schedule_target};
use terrace_testkit::crash::{Profile, Seen};
use terrace_testkit::schedule::Scheduler;
use terrace_testkit::times;

/// Does `runs` runs in which some threads crash while the others continue, and half as many in
/// which the others start after the first one has crashed.
fn explore(name: &str, power_loss: Option<Profile>, runs: u64) {
    let runs = runs * times();
    explore_kind(CrashKind::Some, name, power_loss, runs);
    explore_kind(CrashKind::First, name, power_loss, runs / 2);
}

fn explore_kind(crashes: CrashKind, name: &str, power_loss: Option<Profile>, runs: u64) {
    let (scheduler, seen, target) = (Scheduler::new(), Seen::new(), schedule_target(name).expect("a target"));
    let monitor = Monitor { seen: &seen, is_over: &|| false, fault: None };
    let fault_profile = FaultProfile::of(crashes, power_loss);
    let (mut deaths, mut states) = (0, 0);
    for number in 0..runs {
        let seed = ScheduleSeed::new(target.name, fault_profile, 0xdead, number);
        let result = target.run(&scheduler, &monitor, seed);
        if let Some(finding) = result.finding {
            panic!("{seed}: {}; `cargo lab replay {seed}` prints a report", finding.wrong);
        }
        deaths += result.deaths;
        states += result.explored.runs;
    }
    assert!(deaths > runs / 2, "{name}: {deaths} crashed threads in {runs} runs");
    assert!(power_loss.is_none() || states > 20 * runs, "{name}: {states} states in {runs} runs");
}

/// As [`explore`], for an index over integers: many runs without a loss of power, a few with one.
fn explore_integers(name: &str) {
    explore(name, None, 100);
    explore(name, Some(Profile::Pmem), 4);
}

/// The same over byte strings.
fn explore_strings(name: &str) {
    explore(name, None, 80);
    explore(name, Some(Profile::Pmem), 4);
}

#[test]
fn clht() {
    explore("clht", None, 200);
    explore("clht", Some(Profile::Pmem), 15);
}

#[test]
fn clht_bytes() {
    explore("clht-bytes", None, 150);
    explore("clht-bytes", Some(Profile::Pmem), 6);
}

crate::on_each_index!(explore_integers, explore_strings);

#[test]
fn cells() {
    explore("cells", None, 200);
    explore("cells", Some(Profile::Pmem), 8);
}

#[test]
fn direct() {
    explore("direct", None, 50);
    explore("direct", Some(Profile::Shm), 10);
}
