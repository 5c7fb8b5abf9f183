//! Bugs planted into P-CLHT: the lab finds each of them. `cargo test -p terrace-lab --features planted --test planted`
#![cfg(feature = "planted")]
#![allow(clippy::disallowed_methods, reason = "the targets are looked at side by side")]

use terrace_index::{Bug, plant};
use terrace_lab::{RunSeed, suite};
use terrace_testkit::crash::{Lab, Limits, Profile, Seen};

/// States within which each is found; a single history of byte strings may have nearly half of them.
const STATES: u64 = 800_000;

/// States in which nothing may be found where no bug is planted. `cargo lab crash` looks at more.
const SOUND_STATES: u64 = 30_000;

/// What is wrong with the first run that shows it, and after how many states.
fn find(target: &str, profile: Profile, states: u64) -> Option<(String, u64)> {
    let (place, suite) = suite(target).expect("a target");
    let seen = Seen::new();
    let is_over = || seen.len() >= states;
    // Many histories find more than all states of a few.
    let limits = Limits { exhaustive: [32, 8, 4], samples: [16, 4, 2], ..Limits::default() };
    let lab = Lab { profile, limits, seen: &seen, is_over: &is_over, fault: None, only_faulty: false };
    (0..)
        .map_while(|number| {
            (!is_over()).then(|| {
                let seed = RunSeed::new(place, profile, 0x5eed, number);
                suite.run(&lab, &suite.plan(seed.run)).finding
            })
        })
        .flatten()
        .next()
        .map(|finding| (finding.wrong, seen.len()))
}

/// One test, for the bugs are planted into the whole process.
#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for bug in Bug::OF_CLHT {
        plant(Some(bug));
        let needs_pairs = matches!(bug, Bug::PublishBeforePair | Bug::TwoWordReplace);
        let targets: &[&str] = if needs_pairs { &["clht"] } else { &["clht", "clht-bytes"] };
        let look = |target| std::thread::spawn(move || find(target, Profile::Pmem, STATES));
        let looking: Vec<_> = targets.iter().map(|&target| (target, look(target))).collect();
        for (target, found) in looking {
            match found.join().expect("a search that ends") {
                Some((wrong, states)) => eprintln!("{bug:?} in {target}: after {states} states, {wrong}"),
                None => missed.push((bug, target)),
            }
        }
    }
    plant(None);
    assert!(missed.is_empty(), "not found: {missed:?}");
    assert_eq!(find("clht", Profile::Pmem, SOUND_STATES), None, "without a bug nothing is found");
}
