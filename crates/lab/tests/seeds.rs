//! What was found once, by its seed.

use terrace_lab::{Done, RunSeed, SUITES, ScheduleSeed, Watch, meeting};
use terrace_testkit::crash::{Lab, Limits, Seen};
use terrace_testkit::schedule::Stage;

/// Repeats a run, as far as `states`, which it has. Recoveries are crashed as often as they were when these seeds were found.
fn is_sound(seed: &str, states: u64) {
    let seed: RunSeed = seed.parse().expect("the seed of a finding");
    let (suite, seen) = (&SUITES[seed.suite], Seen::new());
    let is_over = || seen.len() >= states;
    let limits = Limits { nested_one_in: [8192, 512, 0], ..Limits::default() };
    let lab = Lab { is_over: &is_over, ..Lab::new(seed.profile, limits, &seen) };
    if let Some(finding) = suite.run(&lab, &suite.plan(seed.run)).finding {
        panic!("{seed} of {}: {}", suite.name, finding.wrong);
    }
    assert!(seen.len() >= states, "{seed} has {} states only", seen.len());
}

/// Repeats a run whose threads meet.
fn repeated(seed: &str) -> Done {
    let seed: ScheduleSeed = seed.parse().expect("the seed of a finding");
    let (stage, seen) = (Stage::new(), Seen::new());
    let watch = Watch { seen: &seen, is_over: &|| false, fault: None };
    meeting(seed.target).expect("a target").run(&stage, &watch, seed)
}

/// A recovery cleared the allocator's words, the reserve among them, and put the reserve back later: killed in between, a full pool had none.
#[test]
fn a_recovery_that_dies_leaves_a_full_pool_its_reserve() {
    is_sound("0x41e7e7cda9fef177", 20);
    is_sound("0x42f97240baa0b2a7", 20);
}

/// A superblock that a loss of power had made older than the rest let a salvage wait for arrivals that nobody ended.
#[test]
fn a_salvage_comes_to_an_end_though_the_superblock_is_older_than_the_rest() {
    is_sound("0x3385b66190125042", 12_000);
}

/// Who died between a batch's last record and its end left a descriptor that names records which others replaced and freed: what lay there by then was taken for the batch's when it was ended.
#[test]
fn a_batch_that_others_end_names_nothing_that_was_freed() {
    let done = repeated("direct/heirs/0x1fc23e7737e36c");
    assert_eq!((done.finding.map(|finding| finding.wrong), done.deaths), (None, 1));
}

/// A key that took the slot of one that went, while somebody looked whether damage had hidden it, was taken for one with a wrong tag: the meta word said what it had said before.
#[test]
fn a_key_that_comes_into_the_slot_of_another_is_no_damage() {
    let done = repeated("turbo-bytes/weak/0x3a76437f9a4a4f");
    assert_eq!(done.finding.map(|finding| finding.wrong), None);
}

/// A reader that held that a slot was filled met the key there that was on its way back into it, which the next reader did not find yet.
#[test]
fn a_key_that_comes_back_into_its_slot_is_not_there_too_soon() {
    let done = repeated("rewo-bytes/weak/0x9644e2444d8db3");
    assert_eq!(done.finding.map(|finding| finding.wrong), None);
}

/// Who gave back a seat that it had taken for one pin took the withdrawal away by a store that released nothing: who moved the epoch on need not have seen its last reads, nor who used the blocks again.
#[test]
fn who_gives_back_its_seat_has_read_before_what_it_read_is_used_again() {
    let done = repeated("blocks/weak/0x80d5fb003ff30");
    assert_eq!(done.finding.map(|finding| finding.wrong), None);
}
