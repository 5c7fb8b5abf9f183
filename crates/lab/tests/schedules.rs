//! Schedules of the targets: a sample of each.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it says how fast it was")]

use std::time::Instant;
use terrace_lab::{Accident, Deaths, MEETINGS, ScheduleSeed, Watch, meeting};
use terrace_testkit::crash::{Explored, Profile, Seen};
use terrace_testkit::schedule::{Stage, Story};

#[test]
fn the_word_of_a_run_is_read_back() {
    for deaths in [Deaths::None, Deaths::Some, Deaths::First] {
        for crash in [None, Some(Profile::Pmem), Some(Profile::Shm)] {
            let seed = ScheduleSeed::new("cells", Accident { deaths, crash }, 7, 3);
            assert_eq!(seed.to_string().parse(), Ok(seed));
        }
    }
    assert!("clht/none".parse::<ScheduleSeed>().is_err());
    assert!("clht/one-dies+/0x1".parse::<ScheduleSeed>().is_err());
    assert!("shoe/none/0x1".parse::<ScheduleSeed>().unwrap_err().contains("no target `shoe`"));
}

#[test]
fn the_same_word_gives_the_same_run() {
    let (stage, other) = (Stage::new(), Stage::new());
    let seen = Seen::new();
    let watch = Watch { seen: &seen, is_over: &|| false, fault: None };
    for meeting in &MEETINGS {
        for number in 0..40 {
            let deaths = [Deaths::None, Deaths::Some, Deaths::First][number as usize % 3];
            let accident = Accident { deaths, crash: None };
            let seed = ScheduleSeed::new(meeting.name, accident, 1, number);
            let [one, two] = [&stage, &other].map(|stage| meeting.run(stage, &watch, seed));
            assert_eq!((one.steps, one.turns), (two.steps, two.turns), "{seed}");
        }
    }
}

/// The first runs of a target, on a medium that crashes or does not.
fn explore(target: &str, crash: Option<Profile>, runs: u64) {
    let meeting = meeting(target).expect("a target whose threads meet");
    let (stage, seen, start) = (Stage::new(), Seen::new(), Instant::now());
    let watch = Watch { seen: &seen, is_over: &|| false, fault: None };
    let (mut steps, mut turns, mut explored) = (0, 0, Explored::default());
    for run in 0..runs {
        let seed =
            ScheduleSeed { target: meeting.name, accident: Accident { crash, ..Accident::default() }, run };
        let done = meeting.run(&stage, &watch, seed);
        (steps, turns) = (steps + done.steps, turns + done.turns);
        explored += done.explored;
        if let Some(finding) = done.finding {
            let finding = meeting.smaller(&stage, crash, finding, 300);
            let crash = crash.map_or("", Profile::crash);
            panic!("{seed}:\n{}", Story { crash, finding: &finding });
        }
    }
    println!(
        "{target}: {runs} runs of {} steps and {} turns, {} states, {:?}",
        steps / runs,
        turns / runs,
        explored.distinct,
        start.elapsed()
    );
}

#[test]
fn clht() {
    explore("clht", None, 2000);
}

#[test]
fn clht_bytes() {
    explore("clht-bytes", None, 2000);
}

#[test]
fn turbo() {
    explore("turbo", None, 2000);
    explore("turbo", Some(Profile::Pmem), 50);
}

#[test]
fn turbo_bytes() {
    explore("turbo-bytes", None, 1000);
    explore("turbo-bytes", Some(Profile::Shm), 50);
}

#[test]
fn rewo() {
    explore("rewo", None, 2000);
    explore("rewo", Some(Profile::Pmem), 50);
}

#[test]
fn rewo_bytes() {
    explore("rewo-bytes", None, 1000);
    explore("rewo-bytes", Some(Profile::Shm), 50);
}

#[test]
fn level() {
    explore("level", None, 2000);
    explore("level", Some(Profile::Pmem), 50);
}

#[test]
fn level_bytes() {
    explore("level-bytes", None, 1000);
    explore("level-bytes", Some(Profile::Shm), 50);
}

#[test]
fn cells() {
    explore("cells", None, 2000);
}

#[test]
fn direct() {
    explore("direct", None, 1000);
}

#[test]
fn clht_crashes() {
    explore("clht", Some(Profile::Pmem), 50);
    explore("clht", Some(Profile::Shm), 50);
}

#[test]
fn clht_bytes_crashes() {
    explore("clht-bytes", Some(Profile::Pmem), 50);
}

#[test]
fn cells_crashes() {
    explore("cells", Some(Profile::Pmem), 50);
}

#[test]
fn direct_crashes() {
    explore("direct", Some(Profile::Pmem), 30);
}
