//! Participants of a shared pool die, and the others go on: a sample of each target. `cargo lab schedules all --crash one-dies` does more.

use terrace_lab::{Accident, Deaths, ScheduleSeed, Watch, meeting};
use terrace_testkit::crash::{Profile, Seen};
use terrace_testkit::schedule::Stage;

/// So many runs in which some die while the others go on, and half as many in which the others come once the first one has died.
fn die(target: &str, crash: Option<Profile>, runs: u64) {
    die_as(Deaths::Some, target, crash, runs);
    die_as(Deaths::First, target, crash, runs / 2);
}

fn die_as(deaths: Deaths, target: &str, crash: Option<Profile>, runs: u64) {
    let (stage, seen, meeting) = (Stage::new(), Seen::new(), meeting(target).expect("a target"));
    let watch = Watch { seen: &seen, is_over: &|| false, fault: None };
    let accident = Accident::of(deaths, crash);
    let (mut deaths, mut states) = (0, 0);
    for number in 0..runs {
        let seed = ScheduleSeed::new(meeting.name, accident, 0xdead, number);
        let done = meeting.run(&stage, &watch, seed);
        if let Some(finding) = done.finding {
            panic!("{seed}: {}; `cargo lab replay {seed}` tells its story", finding.wrong);
        }
        deaths += done.deaths;
        states += done.explored.runs;
    }
    assert!(deaths > runs / 2, "{target}: {deaths} deaths in {runs} runs");
    assert!(crash.is_none() || states > 20 * runs, "{target}: {states} states in {runs} runs");
}

#[test]
fn clht() {
    die("clht", None, 200);
    die("clht", Some(Profile::Pmem), 15);
}

#[test]
fn clht_bytes() {
    die("clht-bytes", None, 150);
    die("clht-bytes", Some(Profile::Pmem), 6);
}

#[test]
fn turbo() {
    die("turbo", None, 200);
    die("turbo", Some(Profile::Pmem), 8);
}

#[test]
fn turbo_bytes() {
    die("turbo-bytes", None, 150);
    die("turbo-bytes", Some(Profile::Pmem), 6);
}

#[test]
fn rewo() {
    die("rewo", None, 200);
    die("rewo", Some(Profile::Pmem), 8);
}

#[test]
fn rewo_bytes() {
    die("rewo-bytes", None, 150);
    die("rewo-bytes", Some(Profile::Pmem), 6);
}

#[test]
fn level() {
    die("level", None, 200);
    die("level", Some(Profile::Pmem), 8);
}

#[test]
fn level_bytes() {
    die("level-bytes", None, 150);
    die("level-bytes", Some(Profile::Pmem), 6);
}

#[test]
fn cells() {
    die("cells", None, 200);
    die("cells", Some(Profile::Pmem), 8);
}

#[test]
fn direct() {
    die("direct", None, 150);
    die("direct", Some(Profile::Shm), 10);
}
