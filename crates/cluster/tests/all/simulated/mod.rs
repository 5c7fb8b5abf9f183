//! A cluster in the fabric's simulation: one memory node, serving nodes, clients, and whatever may
//! happen to them. Every key's history has an order, and no two nodes answer for a slot.
//!
//! ```text
//!   Client ── Request ──▶ Serving: Owner, ShardLog ── one-sided writes ─▶ Memory: segments, Cursor
//!          ◀── Reply ───      unmerged, cache      ── control channel ─▶  Arbiter, Kept, a map
//! ```
//! The state machines are those of the real nodes. What drives them there are threads; here it is
//! events, as small as does the job. A [`Mistake`](shared::Mistake) is one in the driver; those in
//! the state machines are listed in `crates/mutants/faults/cluster.toml`.
//!
//! `TERRACE_SIMULATIONS` is the number of runs, `TERRACE_SIMULATION` the seed of a single one, of
//! which all is printed.

mod client;
mod managers;
mod memory;
mod run;
mod serving;
mod shared;

use run::{Outcome, run};
use shared::Mistake;
use std::time::Duration;

const RUNS: u64 = 600;
/// Further runs: they have found faults, or faults that were made on purpose.
const SEEDS: [u64; 4] = [1784, 2735, 6527, 6729];
/// Runs within which each mistake is found.
const FOUND_IN: u64 = 1000;

/// The time that this thread has run.
fn worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Panics with all that happened in a run that fails.
fn tell(seed: u64, wrong: &str) -> ! {
    let again = run(seed, None, true);
    panic!(
        "seed {seed}: {wrong}\n{}\nTERRACE_SIMULATION={seed} repeats it: {} events",
        again.trace.join("\n"),
        again.events
    );
}

#[test]
fn keys_have_a_history_whatever_fails() {
    if let Some(seed) = number("TERRACE_SIMULATION") {
        let Outcome { wrong, trace, events, .. } = run(seed, None, true);
        println!("{}\n{events} events", trace.join("\n"));
        assert_eq!(wrong, None);
        return;
    }
    let began = worked();
    let (runs, mut total) = (number("TERRACE_SIMULATIONS").unwrap_or(RUNS), Outcome::default());
    for seed in (0..runs).chain(SEEDS) {
        let outcome = run(seed, None, false);
        if let Some(wrong) = &outcome.wrong {
            tell(seed, wrong);
        }
        total.add(&outcome);
    }
    let seconds = (worked() - began).as_secs_f64();
    println!(
        "{runs} runs, {} calls answered, {} without an answer, {} faults; {} events in {seconds:.1} s of a core: \
         {:.0} a second",
        total.answered,
        total.unknown,
        total.faults,
        total.events,
        total.events as f64 / seconds
    );
    assert!(total.answered > 50 * runs, "clients were answered");
    assert!(total.unknown < total.answered / 2, "most calls were answered");
}

#[test]
fn same_seed_gives_the_same_run() {
    for seed in [0, 1, 17] {
        let (one, other) = (run(seed, None, true), run(seed, None, true));
        assert!(one.trace.len() > 20);
        assert_eq!((one.trace, one.events, one.answered), (other.trace, other.events, other.answered));
    }
}

#[test]
fn each_mistake_is_found() {
    let mistakes = [
        Mistake::NoLease,
        Mistake::LeaseFromReply,
        Mistake::RegionsRevokedOnly,
        Mistake::GrantedUnmerged,
        Mistake::AnsweredBeforeArrival,
        Mistake::ReadBeforeArrival,
        Mistake::MergedToldEarly,
        Mistake::MergedNotedEarly,
        Mistake::BatchInPieces,
        Mistake::CacheKept,
        Mistake::OverlayDroppedEarly,
        Mistake::FencingForgotten,
        Mistake::ReleasedEarly,
    ];
    let mut missed = Vec::new();
    for mistake in mistakes {
        let (began, mut events) = (worked(), 0);
        let found = (0..FOUND_IN).find_map(|seed| {
            let outcome = run(seed, Some(mistake), false);
            events += outcome.events;
            outcome.wrong.map(|wrong| (seed, wrong))
        });
        let took = worked() - began;
        match found {
            Some((seed, wrong)) => {
                let what = wrong.lines().next().unwrap_or_default();
                println!("{mistake:?}: run {seed}, {events} events, {took:.1?}: {what}");
            }
            None => missed.push(mistake),
        }
    }
    assert!(missed.is_empty(), "not found in {FOUND_IN} runs: {missed:?}");
}
