//! Participants of a shared pool crash while the others continue: a sample of each target.
//! `cargo lab schedules all --crash one-dies` runs more.

use terrace_lab::{CrashKind, FaultProfile, Monitor, ScheduleSeed, schedule_target};
use terrace_testkit::crash::{Profile, Seen};
use terrace_testkit::schedule::Scheduler;

/// Does `runs` runs in which some threads crash while the others continue, and half as many in
/// which the others start after the first one has crashed.
fn explore(name: &str, power_loss: Option<Profile>, runs: u64) {
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

#[test]
fn turbo() {
    explore("turbo", None, 200);
    explore("turbo", Some(Profile::Pmem), 8);
}

#[test]
fn turbo_bytes() {
    explore("turbo-bytes", None, 150);
    explore("turbo-bytes", Some(Profile::Pmem), 6);
}

#[test]
fn rewo() {
    explore("rewo", None, 200);
    explore("rewo", Some(Profile::Pmem), 8);
}

#[test]
fn rewo_bytes() {
    explore("rewo-bytes", None, 150);
    explore("rewo-bytes", Some(Profile::Pmem), 6);
}

#[test]
fn level() {
    explore("level", None, 200);
    explore("level", Some(Profile::Pmem), 8);
}

#[test]
fn level_bytes() {
    explore("level-bytes", None, 150);
    explore("level-bytes", Some(Profile::Pmem), 6);
}

#[test]
fn art() {
    explore("art", None, 200);
    explore("art", Some(Profile::Pmem), 8);
}

#[test]
fn art_bytes() {
    explore("art-bytes", None, 150);
    explore("art-bytes", Some(Profile::Pmem), 6);
}

#[test]
fn cells() {
    explore("cells", None, 200);
    explore("cells", Some(Profile::Pmem), 8);
}

#[test]
fn direct() {
    explore("direct", None, 150);
    explore("direct", Some(Profile::Shm), 10);
}
