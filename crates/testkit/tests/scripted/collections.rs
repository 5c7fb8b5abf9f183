//! A thread that was refused memory waits for a collection, or polls until none is pending, and
//! allocates. It must find the memory that the sweep freed (`pool/doubt.rs`, `pool/shared.rs`,
//! `pool/lock.rs`). Also: memory counted as leaked is no longer counted after it was collected.
//!
//! Usually the next pin, or another barrier of the refused thread, hides a missing ordering. Not so
//! if pins have no barrier of their own, and a pinned thread holds the epoch back.

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
/// The end of an unclean collection; of a concurrent collection; and its completion.
const SETTLED: &str = "phase.end-unclean";
const SETTLED_BESIDE: &str = "phase.end-concurrent";
const COLLECTED: &str = "collection.complete";
const MARKING: &str = "phase.start-marking";
/// In the sweep of the first unit.
const SWEEP: &str = "sweep.count-unclean";
const SWEEP_BESIDE: &str = "sweep.count-concurrent";

const COLLECTOR: u8 = 0;
const ASKER: u8 = 1;
/// Pinned in an old epoch.
const HOLDER: u8 = 2;

/// Size of blocks: whole units.
const UNIT: usize = 4096;

/// The garbage in a full pool.
#[derive(Clone, Copy, PartialEq)]
enum Garbage {
    /// From an earlier open; with or without a pending collection as well.
    Old { is_doubted: bool },
    /// From this open, which is the first one or not.
    New { is_first: bool },
}

/// A pool without free memory, of which one unit is garbage. Returns all blocks but this one.
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
        pool.doubt();
    }
    (pool, all)
}

/// How a thread learns that memory was freed.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    ByAsking,
    ByRelief,
}

/// One thread collects; one allocates once it learns that memory was freed; one is pinned since
/// before the sweep, in an old epoch.
fn scene(stage: &Stage, medium: Medium, garbage: Garbage, told: Told, cues: &[Cue]) -> Scene {
    let (pool, all) = made(stage, move || full(medium, garbage));
    let of = || pool.clone();
    let (collects, asks, holds) = (of(), of(), of());
    let collector = move || _ = collects.collect(&mut |marker: &mut Marker<'_>| keep(marker, &all, UNIT));
    let asker = move || {
        come(&asks);
        let is_told = match told {
            Told::ByAsking => !asks.needs_collection(),
            Told::ByRelief => asks.relieve(),
        };
        let is_had = block(&asks.pin(), UNIT, 7).is_some();
        assert!(is_had || !is_told, "memory was freed, but the free memory is not found");
    };
    let holder = move || {
        come(&holds);
        let guard = holds.pin();
        // A refused allocation has advanced the epoch.
        assert_eq!(block(&guard, UNIT, 9), None, "nothing was freed yet");
        mark(2);
    };
    Scene {
        acts: vec![Box::new(collector), Box::new(asker), Box::new(holder)],
        cues: cues.to_vec(),
        judge: Box::new(|| Ok(())),
    }
}

/// All threads have accessed the pool, and the asking thread stops there.
fn begun(asker: Stop) -> Vec<Cue> {
    vec![to(ASKER, Stop::Mark(1)), to(HOLDER, Stop::Mark(1)), to(ASKER, asker)]
}

/// The collector has reached the sweep; another thread is pinned, and the epoch advances; then the
/// sweep continues to that point.
fn swept(until: Stop) -> [Cue; 2] {
    [to(HOLDER, Stop::Mark(2)), to(COLLECTOR, until)]
}

/// The asking thread continues to its end and sees stale values, except for the epoch.
fn asks() -> Cue {
    let epoch = "epoch.read";
    old_but(ASKER, Stop::End, epoch)
}

fn play(garbage: Garbage, told: Told, cues: Vec<Cue>) -> impl Fn(&Stage, Medium) -> Scene {
    move |stage, medium| scene(stage, medium, garbage, told, &cues)
}

const NOT_FOUND: &str = "the free memory is not found";
const OLD: Garbage = Garbage::Old { is_doubted: false };

#[test]
fn completed_collection_shows_the_memory_freed() {
    // A whole collection runs between its load of the phase and its load of the pending
    // collections.
    let mut cues = begun(before(IS_DOUBTED));
    cues.push(to(COLLECTOR, before(SWEEP_BESIDE)));
    cues.extend(swept(behind(COLLECTED)));
    cues.extend([to(ASKER, behind(IS_DOUBTED)), asks()]);
    let play = play(Garbage::New { is_first: true }, Told::ByAsking, cues);
    misses(&play, IS_DOUBTED, Weak::Acquire, NOT_FOUND);
    misses(&play, COLLECTED, Weak::Release, NOT_FOUND);
}

#[test]
fn end_of_unclean_state_shows_the_memory_freed() {
    let mut cues = begun(before(IS_MARKING));
    cues.push(to(COLLECTOR, before(SWEEP)));
    cues.extend(swept(behind(SETTLED)));
    cues.extend([to(ASKER, behind(IS_MARKING)), asks()]);
    misses(play(OLD, Told::ByAsking, cues), IS_MARKING, Weak::Acquire, NOT_FOUND);
}

/// It has checked once, and waits.
fn waits() -> Stop {
    Stop::Before(IS_PENDING, 1)
}

#[test]
fn waiting_for_a_collection_shows_the_memory_freed() {
    let mut cues = vec![to(COLLECTOR, before(SWEEP))];
    cues.extend(begun(waits()));
    cues.extend(swept(behind(SETTLED)));
    cues.extend([to(ASKER, behind(IS_PENDING)), asks()]);
    misses(play(OLD, Told::ByRelief, cues), IS_PENDING, Weak::Acquire, NOT_FOUND);
}

#[test]
fn waiting_for_the_collector_lock_shows_the_memory_freed() {
    let mut cues = vec![to(COLLECTOR, before(SWEEP))];
    cues.extend(begun(waits()));
    cues.extend(swept(Stop::End));
    cues.extend([late(ASKER, behind(IS_PENDING))]);
    cues.extend([to(ASKER, behind(IS_HELD)), asks()]);
    misses(play(OLD, Told::ByRelief, cues), IS_HELD, Weak::Acquire, NOT_FOUND);
}

#[test]
fn start_of_a_collection_shows_the_last_ones_memory() {
    let mut cues = vec![to(COLLECTOR, before(SWEEP))];
    cues.extend(begun(waits()));
    cues.extend(swept(behind(MARKING)));
    cues.extend([to(ASKER, behind(IS_PENDING)), asks()]);
    let garbage = Garbage::Old { is_doubted: true };
    misses(play(garbage, Told::ByRelief, cues), MARKING, Weak::Release, NOT_FOUND);
}

#[test]
fn end_of_the_next_collection_shows_its_memory_freed() {
    let mut cues = vec![to(COLLECTOR, before(SWEEP))];
    cues.extend(begun(waits()));
    cues.push(to(COLLECTOR, before(SWEEP_BESIDE)));
    cues.extend(swept(behind(SETTLED_BESIDE)));
    cues.extend([to(ASKER, behind(IS_PENDING)), asks()]);
    let garbage = Garbage::New { is_first: false };
    misses(play(garbage, Told::ByRelief, cues), SETTLED_BESIDE, Weak::Release, NOT_FOUND);
}

/// Size of blocks that are retired when limbo is full.
const SMALL: usize = 16;
/// More blocks than fit in the thread slot and the memory reserved for limbo.
const MANY: usize = 500;

const LOSER: u8 = 1;

const DOUBTS: &str = "collection.requests";
const LOST: &str = "lost.read";
const DOUBT: &str = "collection.request";

/// One thread leaks a block right before another collects.
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
        assert!(small.iter().find(&mut is_lost).is_some(), "nothing is leaked");
        mark(1);
    };
    let judge = move || {
        judged.collect(&mut |marker: &mut Marker<'_>| keep_all(marker, &all));
        match judged.space().lost {
            0 => Ok(()),
            lost => Err(format!("{lost} bytes are counted as leaked after a full collection")),
        }
    };
    Scene { acts: vec![Box::new(collector), Box::new(loser)], cues: cues.to_vec(), judge: Box::new(judge) }
}

#[test]
fn requested_collection_sees_the_leak_before_it() {
    let cues = [
        to(COLLECTOR, Stop::Mark(1)),
        to(LOSER, behind(DOUBT)),
        to(COLLECTOR, behind(DOUBTS)),
        late(COLLECTOR, behind(LOST)),
    ];
    let losing = |stage: &Stage, medium: Medium| losing(stage, medium, &cues);
    misses(losing, DOUBTS, Weak::Acquire, "bytes are counted as leaked after a full collection");
    misses(losing, DOUBT, Weak::Release, "bytes are counted as leaked after a full collection");
}
