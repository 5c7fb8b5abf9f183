//! A thread that was refused memory waits for a collection, or polls until none is pending, and
//! allocates. It must find the memory that the sweep freed (`gc/concurrent.rs`,
//! `base.rs`, `sync/locked.rs`). Also: memory counted as leaked is no longer counted after
//! it was collected.
//!
//! Usually the next pin, or another barrier of the refused thread, hides a missing ordering. Not so
//! if pins have no barrier of their own, and a pinned thread holds the epoch back.

use super::{
    Medium, Script, Shared, assert_detected, block, fill, mark_blocks, mark_sized_blocks, options, prepare,
    visit,
};
use std::sync::Arc;
use terrace_pool::Marker;
use terrace_testkit::ProcessGroup;
use terrace_testkit::schedule::cues::{after, before, late, old_but, to};
use terrace_testkit::schedule::{Breakpoint, Scheduler, Stop, Weak, mark};

const IS_PENDING: &str = "phase.is-unclean";
const IS_MARKING: &str = "phase.is-marking";
const IS_COLLECTION_PENDING: &str = "collection.is-pending";
const IS_HELD: &str = "lock.is-held";
/// The end of an unclean collection; of a concurrent collection; and its completion.
const END_UNCLEAN: &str = "phase.end-unclean";
const END_CONCURRENT: &str = "phase.end-concurrent";
const COLLECTED: &str = "collection.complete";
const MARKING: &str = "phase.start-marking";
/// In the sweep of the first unit.
const SWEEP: &str = "sweep.count-unclean";
const SWEEP_CONCURRENT: &str = "sweep.count-concurrent";

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
    Old { is_requested: bool },
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
    if garbage != (Garbage::Old { is_requested: false }) {
        pool.request_collection();
    }
    (pool, all)
}

/// How a thread learns that memory was freed.
#[derive(Clone, Copy, PartialEq)]
enum Signal {
    Poll,
    Reclaim,
}

/// One thread collects; one allocates once it learns that memory was freed; one is pinned since
/// before the sweep, in an old epoch.
fn scene(
    scheduler: &Scheduler,
    medium: Medium,
    garbage: Garbage,
    signal: Signal,
    breakpoints: &[Breakpoint],
) -> Script {
    let (pool, all) = prepare(scheduler, move || full(medium, garbage));
    let of = || pool.clone();
    let (collects, asks, holds) = (of(), of(), of());
    let collector =
        move || _ = collects.collect(&mut |marker: &mut Marker<'_>| mark_blocks(marker, &all, UNIT));
    let asker = move || {
        visit(&asks);
        let is_told = match signal {
            Signal::Poll => !asks.needs_collection(),
            Signal::Reclaim => asks.reclaim_blocking(),
        };
        let is_had = block(&asks.pin(), UNIT, 7).is_some();
        assert!(is_had || !is_told, "memory was freed, but the free memory is not found");
    };
    let holder = move || {
        visit(&holds);
        let guard = holds.pin();
        // A refused allocation has advanced the epoch.
        assert_eq!(block(&guard, UNIT, 9), None, "nothing was freed yet");
        mark(2);
    };
    Script {
        threads: vec![Box::new(collector), Box::new(asker), Box::new(holder)],
        breakpoints: breakpoints.to_vec(),
        judge: Box::new(|| Ok(())),
    }
}

/// All threads have accessed the pool, and the asking thread stops there.
fn begun(asker: Stop) -> Vec<Breakpoint> {
    vec![to(ASKER, Stop::Mark(1)), to(HOLDER, Stop::Mark(1)), to(ASKER, asker)]
}

/// The collector has reached the sweep; another thread is pinned, and the epoch advances; then the
/// sweep continues to that point.
fn swept(until: Stop) -> [Breakpoint; 2] {
    [to(HOLDER, Stop::Mark(2)), to(COLLECTOR, until)]
}

/// The asking thread continues to its end and sees stale values, except for the epoch.
fn asks() -> Breakpoint {
    let epoch = "epoch.read";
    old_but(ASKER, Stop::End, epoch)
}

fn play(
    garbage: Garbage,
    signal: Signal,
    breakpoints: Vec<Breakpoint>,
) -> impl Fn(&Scheduler, Medium) -> Script {
    move |scheduler, medium| scene(scheduler, medium, garbage, signal, &breakpoints)
}

const NOT_FOUND: &str = "the free memory is not found";
const OLD: Garbage = Garbage::Old { is_requested: false };

#[test]
fn completed_collection_shows_the_memory_freed() {
    // A whole collection runs between its load of the phase and its load of the pending
    // collections.
    let mut breakpoints = begun(before(IS_COLLECTION_PENDING));
    breakpoints.push(to(COLLECTOR, before(SWEEP_CONCURRENT)));
    breakpoints.extend(swept(after(COLLECTED)));
    breakpoints.extend([to(ASKER, after(IS_COLLECTION_PENDING)), asks()]);
    let play = play(Garbage::New { is_first: true }, Signal::Poll, breakpoints);
    assert_detected(&play, IS_COLLECTION_PENDING, Weak::Acquire, NOT_FOUND);
    assert_detected(&play, COLLECTED, Weak::Release, NOT_FOUND);
}

#[test]
fn end_of_unclean_state_shows_the_memory_freed() {
    let mut breakpoints = begun(before(IS_MARKING));
    breakpoints.push(to(COLLECTOR, before(SWEEP)));
    breakpoints.extend(swept(after(END_UNCLEAN)));
    breakpoints.extend([to(ASKER, after(IS_MARKING)), asks()]);
    assert_detected(play(OLD, Signal::Poll, breakpoints), IS_MARKING, Weak::Acquire, NOT_FOUND);
}

/// It has checked once, and waits.
fn waits() -> Stop {
    Stop::Before(IS_PENDING, 1)
}

#[test]
fn waiting_for_a_collection_shows_the_memory_freed() {
    let mut breakpoints = vec![to(COLLECTOR, before(SWEEP))];
    breakpoints.extend(begun(waits()));
    breakpoints.extend(swept(after(END_UNCLEAN)));
    breakpoints.extend([to(ASKER, after(IS_PENDING)), asks()]);
    assert_detected(play(OLD, Signal::Reclaim, breakpoints), IS_PENDING, Weak::Acquire, NOT_FOUND);
}

#[test]
fn waiting_for_the_collector_lock_shows_the_memory_freed() {
    let mut breakpoints = vec![to(COLLECTOR, before(SWEEP))];
    breakpoints.extend(begun(waits()));
    breakpoints.extend(swept(Stop::End));
    breakpoints.extend([late(ASKER, after(IS_PENDING))]);
    breakpoints.extend([to(ASKER, after(IS_HELD)), asks()]);
    assert_detected(play(OLD, Signal::Reclaim, breakpoints), IS_HELD, Weak::Acquire, NOT_FOUND);
}

#[test]
fn start_of_a_collection_shows_the_last_ones_memory() {
    let mut breakpoints = vec![to(COLLECTOR, before(SWEEP))];
    breakpoints.extend(begun(waits()));
    breakpoints.extend(swept(after(MARKING)));
    breakpoints.extend([to(ASKER, after(IS_PENDING)), asks()]);
    let garbage = Garbage::Old { is_requested: true };
    assert_detected(play(garbage, Signal::Reclaim, breakpoints), MARKING, Weak::Release, NOT_FOUND);
}

#[test]
fn end_of_the_next_collection_shows_its_memory_freed() {
    let mut breakpoints = vec![to(COLLECTOR, before(SWEEP))];
    breakpoints.extend(begun(waits()));
    breakpoints.push(to(COLLECTOR, before(SWEEP_CONCURRENT)));
    breakpoints.extend(swept(after(END_CONCURRENT)));
    breakpoints.extend([to(ASKER, after(IS_PENDING)), asks()]);
    let garbage = Garbage::New { is_first: false };
    assert_detected(play(garbage, Signal::Reclaim, breakpoints), END_CONCURRENT, Weak::Release, NOT_FOUND);
}

/// Size of blocks that are retired when limbo is full.
const SMALL: usize = 16;
/// More blocks than fit in the thread slot and the memory reserved for limbo.
const MANY: usize = 500;

const LOSER: u8 = 1;

const REQUESTS: &str = "collection.requests";
const LOST: &str = "lost.read";
const REQUEST: &str = "collection.request";

/// One thread leaks a block right before another collects.
fn losing(scheduler: &Scheduler, medium: Medium, breakpoints: &[Breakpoint]) -> Script {
    let (pool, all, small) = prepare(scheduler, move || {
        let (_, member) = ProcessGroup::default().add();
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
        visit(&collects);
        collects.collect(&mut |marker: &mut Marker<'_>| mark_sized_blocks(marker, &kept));
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
        judged.collect(&mut |marker: &mut Marker<'_>| mark_sized_blocks(marker, &all));
        match judged.space().lost {
            0 => Ok(()),
            lost => Err(format!("{lost} bytes are counted as leaked after a full collection")),
        }
    };
    Script {
        threads: vec![Box::new(collector), Box::new(loser)],
        breakpoints: breakpoints.to_vec(),
        judge: Box::new(judge),
    }
}

#[test]
fn requested_collection_sees_the_leak_before_it() {
    let breakpoints = [
        to(COLLECTOR, Stop::Mark(1)),
        to(LOSER, after(REQUEST)),
        to(COLLECTOR, after(REQUESTS)),
        late(COLLECTOR, after(LOST)),
    ];
    let losing = |scheduler: &Scheduler, medium: Medium| losing(scheduler, medium, &breakpoints);
    assert_detected(losing, REQUESTS, Weak::Acquire, "bytes are counted as leaked after a full collection");
    assert_detected(losing, REQUEST, Weak::Release, "bytes are counted as leaked after a full collection");
}
