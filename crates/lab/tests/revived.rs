//! A process is killed, another one goes on with what it finds in the caches, then power fails. Most of a search's time goes elsewhere, so here many events
//! of some histories are such kills: every other one where a fault was found once.

use terrace_lab::RunSeed;
use terrace_testkit::crash::{Lab, Limits, Profile, Seen};

/// Histories of a target, in which one event in so many is a kill.
fn survives(target: &str, histories: std::ops::Range<u64>, revived_one_in: u64) {
    let (place, suite) = terrace_lab::suite(target).expect("a target");
    let limits = Limits {
        exhaustive: [16, 8, 4],
        samples: [4, 4, 2],
        revived_one_in,
        nested_one_in: [0; 3],
        ..Limits::default()
    };
    for number in histories {
        let seen = Seen::new();
        let seed = RunSeed::new(place, Profile::Pmem, 0x5eed, number);
        let lab = Lab::new(Profile::Pmem, limits, &seen);
        let outcome = suite.run(&lab, &suite.plan(seed.run));
        if let Some(finding) = outcome.finding {
            panic!("{target}, run {number}: {}", finding.wrong);
        }
    }
}

#[test]
fn clht_survives_a_kill_and_then_a_power_failure() {
    survives("clht", 0..3, 32);
    survives("clht-bytes", 0..2, 32);
}

#[test]
fn turbo_survives_a_kill_and_then_a_power_failure() {
    survives("turbo", 0..3, 32);
    survives("turbo-bytes", 0..2, 32);
}

#[test]
fn rewo_survives_a_kill_and_then_a_power_failure() {
    survives("rewo", 0..3, 32);
    survives("rewo-bytes", 0..2, 32);
}

#[test]
fn level_survives_a_kill_and_then_a_power_failure() {
    survives("level", 0..2, 32);
    survives("level-bytes", 0..1, 32);
}

#[test]
fn the_pool_survives_a_kill_and_then_a_power_failure() {
    survives("pool", 0..3, 32);
    // A superblock was believed that was not durable yet, and the other copy written over.
    survives("pool", 3..4, 2);
}

#[test]
fn a_full_pool_survives_a_kill_and_then_a_power_failure() {
    // Who was killed had told of memory of which the hints were not durable.
    survives("full", 0..4, 2);
}

#[test]
fn the_engine_survives_a_kill_and_then_a_power_failure() {
    survives("direct", 0..2, 32);
    // A batch was finished by a commit that was not durable yet.
    survives("direct", 2..3, 2);
}
