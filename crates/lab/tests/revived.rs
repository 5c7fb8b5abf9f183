//! A process is killed, another one goes on with what it finds in the caches, then power fails. Most of a search's time goes elsewhere, so here every other event
//! of a few histories is such a kill.

use terrace_lab::RunSeed;
use terrace_testkit::crash::{Lab, Limits, Profile, Seen};

/// The first histories of a target.
fn survives(target: &str, histories: u64) {
    let (place, suite) = terrace_lab::suite(target).expect("a target");
    let limits = Limits {
        exhaustive: [16, 8, 4],
        samples: [4, 4, 2],
        revived_one_in: 2,
        nested_one_in: [0; 3],
        ..Limits::default()
    };
    for number in 0..histories {
        let seen = Seen::new();
        let seed = RunSeed::new(place, Profile::Pmem, 0x5eed, number);
        let lab = Lab {
            profile: Profile::Pmem,
            limits,
            seen: &seen,
            is_over: &|| false,
            fault: None,
            only_faulty: false,
        };
        let outcome = suite.run(&lab, &suite.plan(seed.run));
        if let Some(finding) = outcome.finding {
            panic!("{target}, run {number}: {}", finding.wrong);
        }
    }
}

#[test]
fn clht_survives_a_kill_and_then_a_power_failure() {
    survives("clht", 3);
    survives("clht-bytes", 2);
}

#[test]
fn the_pool_survives_a_kill_and_then_a_power_failure() {
    // In the fourth a superblock was believed that was not durable yet, and the other copy written over.
    survives("pool", 4);
}

#[test]
fn the_engine_survives_a_kill_and_then_a_power_failure() {
    // In the third a batch was finished by a commit that was not durable yet.
    survives("direct", 3);
}
