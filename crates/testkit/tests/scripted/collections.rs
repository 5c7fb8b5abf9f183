//! Who was refused memory waits for a collection, or asks until none is needed, and allocates: what the sweep has freed has to be found (`pool/doubt.rs`, `pool/shared.rs`, `pool/lock.rs`). And what is said to be lost
//! is not lost any more once it is collected.
//!
//! Mostly the next pin, or a barrier of who was refused once more, makes up for what is missing: not where pins have none of their own, and somebody who is pinned holds the epoch up.

use super::{Medium, Scene, Shared, block, come, fill, keep, keep_all, made, misses, options};
use std::sync::Arc;
use terrace_pool::Marker;
use terrace_testkit::Company;
use terrace_testkit::schedule::cues::{before, behind, late, old_but, to};
use terrace_testkit::schedule::{Cue, Stage, Stop, Weak, mark};

const IS_PENDING: &str = "phase.is-unclean";
const IS_MARKING: &str = "phase.is-marking";
const IS_DOUBTED: &str = "collection.is-pending";
const IS_HELD: &str = "lock.is-held";
/// The end of a collection of what earlier eras left; of one beside others, and that it is over.
const SETTLED: &str = "phase.end-unclean";
const SETTLED_BESIDE: &str = "phase.end-concurrent";
const COLLECTED: &str = "collection.complete";
const MARKING: &str = "phase.start-marking";
/// In the sweep of the first unit.
const SWEEP: &str = "sweep.count-unclean";
const SWEEP_BESIDE: &str = "sweep.count-concurrent";

const COLLECTOR: u8 = 0;
const ASKER: u8 = 1;
/// Is pinned in an epoch that is over.
const HOLDER: u8 = 2;

/// Bytes of blocks: whole units.
const UNIT: usize = 4096;

/// What is left in a full pool.
#[derive(Clone, Copy, PartialEq)]
enum Garbage {
    /// By an earlier era; and besides, something is doubted or nothing.
    Old { is_doubted: bool },
    /// In this era, which is the first one or not.
    New { is_first: bool },
}

/// A pool in which all memory is taken, and a unit of it is garbage. With all blocks but that.
fn full(medium: Medium, garbage: Garbage) -> (Shared, Vec<u64>) {
    let pool = options().create_on(medium.clone()).expect("a pool");
    let guard = pool.pin();
    let mut all: Vec<u64> = std::iter::from_fn(|| block(&guard, UNIT, 3)).collect();
    let last = all.pop().expect("units");
    if garbage == (Garbage::New { is_first: false }) {
        guard.free(last, UNIT);
    }
    drop(guard);
    let pool = if garbage == (Garbage::New { is_first: true }) {
        pool
    } else {
        pool.abandon();
        options().open_on(medium).expect("the pool")
    };
    if garbage == (Garbage::New { is_first: false }) {
        let new = block(&pool.pin(), UNIT, 5);
        assert_eq!(new, Some(last), "the one that is free");
    }
    if garbage != (Garbage::Old { is_doubted: false }) {
        pool.request_collection();
    }
    (pool, all)
}

/// How it is that somebody knows that memory came back.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    ByAsking,
    ByRelief,
}

/// One collects; one asks for memory once it is told that some came back; one is pinned since before the sweep, in an epoch that is over.
fn scene(stage: &Stage, medium: Medium, garbage: Garbage, told: Told, cues: &[Cue]) -> Scene {
    let (pool, all) = made(stage, move || full(medium, garbage));
    let of = || pool.clone();
    let (collects, asks, holds) = (of(), of(), of());
    let collector = move || _ = collects.collect(&mut |marker: &mut Marker<'_>| keep(marker, &all, UNIT));
    let asker = move || {
        come(&asks);
        let is_told = match told {
            Told::ByAsking => !asks.needs_collection(),
            Told::ByRelief => asks.reclaim_blocking(),
        };
        let is_had = block(&asks.pin(), UNIT, 7).is_some();
        assert!(is_had || !is_told, "it is told that memory came back, and what came back is not found");
    };
    let holder = move || {
        come(&holds);
        let guard = holds.pin();
        // Who is refused has moved the epoch on.
        assert_eq!(block(&guard, UNIT, 9), None, "nothing has come back yet");
        mark(2);
    };
    Scene {
        acts: vec![Box::new(collector), Box::new(asker), Box::new(holder)],
        cues: cues.to_vec(),
        judge: Box::new(|| Ok(())),
    }
}

/// All have been in the pool, and who asks stands there.
fn begun(asker: Stop) -> Vec<Cue> {
    vec![to(ASKER, Stop::Mark(1)), to(HOLDER, Stop::Mark(1)), to(ASKER, asker)]
}

/// Who collects has come to the sweep; another is pinned, and the epoch moves on; then the sweep goes on until there.
fn swept(until: Stop) -> [Cue; 2] {
    [to(HOLDER, Stop::Mark(2)), to(COLLECTOR, until)]
}

/// Who asks goes on to the end, and sees nothing new but that the epoch has moved on.
fn asks() -> Cue {
    let epoch = "epoch.read";
    old_but(ASKER, Stop::End, epoch)
}

fn play(garbage: Garbage, told: Told, cues: Vec<Cue>) -> impl Fn(&Stage, Medium) -> Scene {
    move |stage, medium| scene(stage, medium, garbage, told, &cues)
}

const NOT_FOUND: &str = "what came back is not found";
const OLD: Garbage = Garbage::Old { is_doubted: false };

#[test]
fn who_is_told_that_all_doubts_are_settled_finds_what_the_sweep_freed() {
    // Between its looks at the phase and at the doubts there is all of a collection.
    let mut cues = begun(before(IS_DOUBTED));
    cues.push(to(COLLECTOR, before(SWEEP_BESIDE)));
    cues.extend(swept(behind(COLLECTED)));
    cues.extend([to(ASKER, behind(IS_DOUBTED)), asks()]);
    let play = play(Garbage::New { is_first: true }, Told::ByAsking, cues);
    misses(&play, IS_DOUBTED, Weak::Acquire, NOT_FOUND);
    misses(&play, COLLECTED, Weak::Release, NOT_FOUND);
}

#[test]
fn who_is_told_that_nothing_is_left_of_earlier_eras_finds_what_the_sweep_freed() {
    let mut cues = begun(before(IS_MARKING));
    cues.push(to(COLLECTOR, before(SWEEP)));
    cues.extend(swept(behind(SETTLED)));
    cues.extend([to(ASKER, behind(IS_MARKING)), asks()]);
    misses(play(OLD, Told::ByAsking, cues), IS_MARKING, Weak::Acquire, NOT_FOUND);
}

/// It has looked once, and waits.
fn waits() -> Stop {
    Stop::Before(IS_PENDING, 1)
}

#[test]
fn who_waits_for_the_end_of_a_collection_finds_what_the_sweep_freed() {
    let mut cues = vec![to(COLLECTOR, before(SWEEP))];
    cues.extend(begun(waits()));
    cues.extend(swept(behind(SETTLED)));
    cues.extend([to(ASKER, behind(IS_PENDING)), asks()]);
    misses(play(OLD, Told::ByRelief, cues), IS_PENDING, Weak::Acquire, NOT_FOUND);
}

#[test]
fn who_waits_until_nobody_collects_finds_what_the_sweep_freed() {
    let mut cues = vec![to(COLLECTOR, before(SWEEP))];
    cues.extend(begun(waits()));
    cues.extend(swept(Stop::End));
    cues.extend([late(ASKER, behind(IS_PENDING))]);
    cues.extend([to(ASKER, behind(IS_HELD)), asks()]);
    misses(play(OLD, Told::ByRelief, cues), IS_HELD, Weak::Acquire, NOT_FOUND);
}

#[test]
fn who_finds_the_next_collection_begun_finds_what_the_last_one_freed() {
    let mut cues = vec![to(COLLECTOR, before(SWEEP))];
    cues.extend(begun(waits()));
    cues.extend(swept(behind(MARKING)));
    cues.extend([to(ASKER, behind(IS_PENDING)), asks()]);
    let garbage = Garbage::Old { is_doubted: true };
    misses(play(garbage, Told::ByRelief, cues), MARKING, Weak::Release, NOT_FOUND);
}

#[test]
fn who_finds_the_next_collection_over_finds_what_that_one_freed() {
    let mut cues = vec![to(COLLECTOR, before(SWEEP))];
    cues.extend(begun(waits()));
    cues.push(to(COLLECTOR, before(SWEEP_BESIDE)));
    cues.extend(swept(behind(SETTLED_BESIDE)));
    cues.extend([to(ASKER, behind(IS_PENDING)), asks()]);
    let garbage = Garbage::New { is_first: false };
    misses(play(garbage, Told::ByRelief, cues), SETTLED_BESIDE, Weak::Release, NOT_FOUND);
}

/// Bytes of blocks that are retired where there is no room to note them.
const SMALL: usize = 16;
/// More than there is room for in the seat, and in what is set aside for notes.
const MANY: usize = 500;

const LOSER: u8 = 1;

const DOUBTS: &str = "collection.requests";
const LOST: &str = "lost.read";
const DOUBT: &str = "collection.request";

/// One loses a block, right before another collects.
fn losing(stage: &Stage, medium: Medium, cues: &[Cue]) -> Scene {
    let (pool, all, small) = made(stage, move || {
        let (_, member) = Company::default().join();
        let pool = options().create_shared_on(medium, member).expect("a pool");
        let guard = pool.pin();
        let small: Vec<u64> = (0..MANY).filter_map(|_| block(&guard, SMALL, 5)).collect();
        let all = fill(&guard, &[UNIT, 512, 64, SMALL]);
        drop(guard);
        (pool, Arc::new(all), small)
    });
    let (collects, loses, judged) = (pool.clone(), pool.clone(), pool);
    let kept = all.clone();
    let collector = move || {
        come(&collects);
        collects.collect(&mut |marker: &mut Marker<'_>| keep_all(marker, &kept));
    };
    let loser = move || {
        let guard = loses.pin();
        let mut is_lost = |&&at: &&u64| {
            guard.retire(at, SMALL);
            loses.space().lost != 0
        };
        assert!(small.iter().find(&mut is_lost).is_some(), "nothing is lost");
        mark(1);
    };
    let judge = move || {
        judged.collect(&mut |marker: &mut Marker<'_>| keep_all(marker, &all));
        match judged.space().lost {
            0 => Ok(()),
            lost => Err(format!("{lost} bytes are said to be lost once all is collected")),
        }
    };
    Scene { acts: vec![Box::new(collector), Box::new(loser)], cues: cues.to_vec(), judge: Box::new(judge) }
}

#[test]
fn who_collects_for_a_doubt_knows_what_was_lost_before() {
    let cues = [
        to(COLLECTOR, Stop::Mark(1)),
        to(LOSER, behind(DOUBT)),
        to(COLLECTOR, behind(DOUBTS)),
        late(COLLECTOR, behind(LOST)),
    ];
    let losing = |stage: &Stage, medium: Medium| losing(stage, medium, &cues);
    misses(losing, DOUBTS, Weak::Acquire, "bytes are said to be lost once all is collected");
    misses(losing, DOUBT, Weak::Release, "bytes are said to be lost once all is collected");
}
