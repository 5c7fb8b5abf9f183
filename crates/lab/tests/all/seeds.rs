//! Regression tests: earlier findings, by their seeds.

use terrace_lab::{Monitor, RunResult, RunSeed, SUITES, ScheduleSeed, schedule_target};
use terrace_testkit::crash::{Lab, Limits, Profile, Seen};
use terrace_testkit::schedule::Scheduler;

/// Repeats a run up to `states` crash states, and fails if it finds something or has fewer states.
/// Recoveries crash as often as they did when these seeds were found.
fn assert_sound(seed: &str, states: u64) {
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

/// The suites that came last had the seeds of the first ones.
#[test]
fn seed_names_its_suite_and_its_profile() {
    for (suite, profile) in (0..SUITES.len()).flat_map(|suite| Profile::ALL.map(|each| (suite, each))) {
        let seed = RunSeed::new(suite, profile, 7, suite as u64);
        assert_eq!(seed.to_string().parse(), Ok(seed), "{}", SUITES[suite].name);
    }
    let old: RunSeed = "0x3385b66190125042".parse().expect("a seed");
    assert_eq!((SUITES[old.suite].name, old.profile), ("direct", Profile::File));
}

/// Repeats a run with several threads.
fn replay(seed: &str) -> RunResult {
    let seed: ScheduleSeed = seed.parse().expect("the seed of a finding");
    let (scheduler, seen) = (Scheduler::new(), Seen::new());
    let monitor = Monitor { seen: &seen, is_over: &|| false, fault: None };
    schedule_target(seed.target).expect("a target").run(&scheduler, &monitor, seed)
}

/// A recovery cleared the allocator's words, the reserve among them, and restored the reserve
/// later: after a kill in between, a full pool had no reserve.
#[test]
fn killed_recovery_leaves_a_full_pool_its_reserve() {
    assert_sound("0x41e7e7cda9fef177", 20);
    assert_sound("0x42f97240baa0b2a7", 20);
}

/// After a power failure the superblock was older than the rest of the pool, and a salvage waited
/// for revalidations that no thread completed.
#[test]
fn salvage_ends_with_an_outdated_superblock() {
    assert_sound("0x3385b66190125042", 12_000);
}

/// A process crashed between a batch's last record and the batch's end. Its descriptor named
/// records that others had replaced and freed; finishing the batch treated the reused blocks as its
/// records.
#[test]
fn orphaned_batch_names_no_freed_records() {
    let result = replay("direct/heirs/0x1fc23e7737e36c");
    assert_eq!((result.finding.map(|finding| finding.wrong), result.deaths), (None, 1));
}

/// A key took the slot of a removed one while a reader checked the bucket for damage. The meta word
/// had its old value again, so the reader reported the new key as one with a wrong tag.
#[test]
fn new_key_in_a_reused_slot_is_no_damage() {
    let result = replay("turbo-bytes/weak/0x3a76437f9a4a4f");
    assert_eq!(result.finding.map(|finding| finding.wrong), None);
}

/// A reader with an outdated view of a slot as filled found a key that was being put back into it,
/// which the next reader did not find yet.
#[test]
fn key_put_back_into_its_slot_is_not_visible_too_early() {
    let result = replay("rewo-bytes/weak/0x9644e2444d8db3");
    assert_eq!(result.finding.map(|finding| finding.wrong), None);
}

/// A thread that took a slot for one pin cleared the pin by a store without Release. Its last reads
/// were not ordered before the next epoch, and so not before the reuse of the blocks.
#[test]
fn returning_a_thread_slot_orders_its_reads_before_reuse() {
    let result = replay("blocks/weak/0x80d5fb003ff30");
    assert_eq!(result.finding.map(|finding| finding.wrong), None);
}
