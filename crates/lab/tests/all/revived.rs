//! A process is killed, another one continues with the content of the caches, then power fails. A
//! search spends little time on that, so in these histories many events are such kills: every other
//! event where a fault was found once.

use terrace_lab::RunSeed;
use terrace_testkit::crash::{Lab, Limits, Profile, Seen};
use terrace_testkit::times;

/// Runs histories of a target in which one event in `revived_one_in` is a kill.
fn assert_survives(target: &str, histories: std::ops::Range<u64>, revived_one_in: u64) {
    let (place, suite) = terrace_lab::suite(target).expect("a target");
    let limits = Limits {
        exhaustive: [16, 8, 4],
        samples: [4, 4, 2],
        revived_one_in,
        nested_one_in: [0; 3],
        ..Limits::default()
    };
    let more = (histories.end - histories.start) * (times() - 1);
    for number in histories.start..histories.end + more {
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
    assert_survives("clht", 0..3, 32);
    assert_survives("clht-bytes", 0..2, 32);
}

#[test]
fn turbo_survives_a_kill_and_then_a_power_failure() {
    assert_survives("turbo", 0..3, 32);
    assert_survives("turbo-bytes", 0..2, 32);
}

#[test]
fn rewo_survives_a_kill_and_then_a_power_failure() {
    assert_survives("rewo", 0..3, 32);
    assert_survives("rewo-bytes", 0..2, 32);
}

#[test]
fn level_survives_a_kill_and_then_a_power_failure() {
    assert_survives("level", 0..1, 32);
    assert_survives("level-bytes", 0..1, 32);
}

#[test]
fn art_survives_a_kill_and_then_a_power_failure() {
    assert_survives("art", 0..3, 32);
    assert_survives("art-bytes", 0..2, 32);
}

#[test]
fn hot_survives_a_kill_and_then_a_power_failure() {
    assert_survives("hot", 0..3, 32);
    assert_survives("hot-bytes", 0..2, 32);
}

#[test]
fn bwtree_survives_a_kill_and_then_a_power_failure() {
    assert_survives("bwtree", 0..3, 32);
    assert_survives("bwtree-bytes", 0..2, 32);
}

#[test]
fn masstree_survives_a_kill_and_then_a_power_failure() {
    assert_survives("masstree", 0..3, 32);
    assert_survives("masstree-bytes", 0..2, 32);
}

#[test]
fn sptree_survives_a_kill_and_then_a_power_failure() {
    assert_survives("sptree", 0..3, 32);
    assert_survives("sptree-bytes", 0..2, 32);
}

#[test]
fn pool_survives_a_kill_and_then_a_power_failure() {
    assert_survives("pool", 0..3, 32);
    // An open trusted a superblock that was not durable yet, and overwrote the other copy.
    assert_survives("pool", 3..4, 2);
}

#[test]
fn full_pool_survives_a_kill_and_then_a_power_failure() {
    // The killed process had announced memory whose hints were not durable.
    assert_survives("full", 0..4, 2);
}

#[test]
fn engine_survives_a_kill_and_then_a_power_failure() {
    assert_survives("direct", 0..1, 32);
    // A recovery finished a batch whose commit was not durable yet.
    assert_survives("direct", 2..3, 2);
}
