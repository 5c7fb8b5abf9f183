//! Schedules of the targets: a sample of each.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it says how fast it was")]

use std::collections::BTreeSet;
use std::time::Instant;
use terrace_lab::{Accident, Deaths, MEETINGS, ScheduleSeed, Watch, meeting};
use terrace_testkit::crash::{Explored, Op, Profile, Seen};
use terrace_testkit::schedule::{Act, Slice, Stage, Story, Weak, Weakening};

#[test]
fn the_word_of_a_run_is_read_back() {
    for deaths in [Deaths::None, Deaths::Some, Deaths::First] {
        for crash in [None, Some(Profile::Pmem), Some(Profile::Shm)] {
            let seed = ScheduleSeed::new("cells", Accident::of(deaths, crash), 7, 3);
            assert_eq!(seed.to_string().parse(), Ok(seed));
        }
    }
    let weak = ScheduleSeed::new("cells", Accident::named("weak").unwrap(), 7, 3);
    assert_eq!((weak.to_string().parse(), weak.accident.is_weak), (Ok(weak), true));
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
        for number in 0..36 {
            let deaths = [Deaths::None, Deaths::Some, Deaths::First][number as usize % 3];
            let accident = Accident::of(deaths, None);
            let seed = ScheduleSeed::new(meeting.name, accident, 1, number);
            let [one, two] = [&stage, &other].map(|stage| meeting.run(stage, &watch, seed));
            assert_eq!((one.steps, one.turns), (two.steps, two.turns), "{seed}");
        }
    }
}

/// The first runs of a target.
fn explore(target: &str, accident: &str, runs: u64) {
    let meeting = meeting(target).expect("a target whose threads meet");
    let accident = Accident::named(accident).unwrap();
    let (stage, seen, start) = (Stage::new(), Seen::new(), Instant::now());
    let watch = Watch { seen: &seen, is_over: &|| false, fault: None };
    let (mut steps, mut turns, mut explored) = (0, 0, Explored::default());
    for run in 0..runs {
        let seed = ScheduleSeed { target: meeting.name, accident, run };
        let done = meeting.run(&stage, &watch, seed);
        (steps, turns) = (steps + done.steps, turns + done.turns);
        explored += done.explored;
        if let Some(finding) = done.finding {
            let finding = meeting.smaller(&stage, accident, finding, 300);
            panic!("{seed}:\n{}", Story { crash: accident.story(), finding: &finding });
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
    explore("clht", "none", 2000);
}

#[test]
fn clht_bytes() {
    explore("clht-bytes", "none", 2000);
}

#[test]
fn turbo() {
    explore("turbo", "none", 2000);
    explore("turbo", "pmem", 50);
}

#[test]
fn turbo_bytes() {
    explore("turbo-bytes", "none", 1000);
    explore("turbo-bytes", "shm", 50);
}

#[test]
fn rewo() {
    explore("rewo", "none", 2000);
    explore("rewo", "pmem", 50);
}

#[test]
fn rewo_bytes() {
    explore("rewo-bytes", "none", 1000);
    explore("rewo-bytes", "shm", 50);
}

#[test]
fn level() {
    explore("level", "none", 2000);
    explore("level", "pmem", 50);
}

#[test]
fn level_bytes() {
    explore("level-bytes", "none", 1000);
    explore("level-bytes", "shm", 50);
}

#[test]
fn cells() {
    explore("cells", "none", 2000);
}

#[test]
fn direct() {
    explore("direct", "none", 1000);
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
    explore("direct", "pmem", 30);
}

#[test]
fn on_a_memory_that_is_weak() {
    MEETINGS.iter().for_each(|meeting| explore(meeting.name, "weak", 250));
}

/// One reads a key, again and again, while another takes it away and brings it back: wherever the reader is held up, and however long.
#[test]
fn a_key_that_comes_back_is_there_once_for_all() {
    let stage = Stage::new();
    let turn = |thread, steps| Slice { thread, steps };
    let get = Act::Get(0);
    for meeting in MEETINGS.iter().filter(|meeting| meeting.name != "cells") {
        let follow = |turns: &[Slice]| {
            let writer = vec![Act::Do(Op::Remove(0)), Act::Do(Op::Put(0, 2))];
            let done = meeting.follow(&stage, vec![Op::Put(0, 1)], vec![vec![get.clone(); 3], writer], turns);
            assert_eq!(done.finding.map(|it| it.wrong), None, "{}: {turns:?}", meeting.name);
            done.steps as u32
        };
        let (all, start) = (follow(&[]), Instant::now());
        for read in 1..16 {
            for written in 1..all {
                follow(&[turn(0, read), turn(1, written), turn(0, u32::MAX)]);
            }
        }
        println!("{}: {all} steps, {:?}", meeting.name, start.elapsed());
    }
}

#[test]
fn an_order_that_the_lock_lacks_is_missed() {
    let (stage, clht) = (Stage::new(), meeting("clht").unwrap());
    let met = |run, missing| clht.meet(&stage, run, missing);
    let passed = (0..20).flat_map(|run| met(run, None).passed);
    let of_lock: BTreeSet<_> = passed.filter(|it| it.place().starts_with("pool/lock.rs")).collect();
    let is_missed = |it: &Weakening| (0..200).any(|run| met(run, Some(*it)).wrong.is_some());
    let missed: BTreeSet<Weak> = of_lock.into_iter().filter(is_missed).map(|it| it.weak).collect();
    assert_eq!(missed, [Weak::Acquire, Weak::Release].into());
}
