//! Orderings that matter after a crash of a participant: `reclaim/slots.rs`, `sync/intents.rs`,
//! `sharing/participants.rs`.

use super::{
    Medium, Script, Shared, assert_detected, block, check_content, options, prepare, verified, word,
};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use terrace_pool::{Geometry, Lock};
use terrace_testkit::ProcessGroup;
use terrace_testkit::schedule::cues::{after, before, late, to};
use terrace_testkit::schedule::{Scheduler, Stop, Weak, mark};

/// A group of participants whose observed crashes are reported to the medium, as in the lab.
fn group(medium: &Medium) -> ProcessGroup {
    let (group, observer) = (ProcessGroup::default(), medium.clone());
    group.on_crash_observed(move |dead| observer.crash_observed(dead as usize));
    group
}

/// Two participants of a new pool, and a value made with them.
fn two<T: Send + 'static>(
    scheduler: &Scheduler,
    (group, medium): (&ProcessGroup, &Medium),
    geometry: Geometry,
    make: impl FnOnce(&[Shared; 2]) -> T + Send + 'static,
) -> ([Shared; 2], T) {
    let (group, medium) = (group.clone(), medium.clone());
    prepare(scheduler, move || {
        let pools = [true, false].map(|first| join(&group, &medium, geometry, first));
        let made = make(&pools);
        (pools, made)
    })
}

/// Allocates two blocks in the first pool.
fn two_blocks(pools: &[Shared; 2]) -> [u64; 2] {
    let guard = pools[0].pin();
    [(); 2].map(|()| block(&guard, BLOCK, 0).expect("room"))
}

/// Adds a participant; the first one creates the pool.
fn join(group: &ProcessGroup, medium: &Medium, geometry: Geometry, first: bool) -> Shared {
    let ((_, member), options) = (group.add(), options().geometry(geometry));
    let opened = if first {
        options.create_shared_on(medium.clone(), member)
    } else {
        options.share_on(medium.clone(), member)
    };
    opened.expect("a pool")
}

fn lock(pool: &Shared, at: u64) -> &Lock {
    Lock::of(word(pool, at))
}

const SURVIVOR: u8 = 0;
const DEAD: u8 = 1;
const OTHER: u8 = 2;
const LAST: u8 = 3;

/// Declares a thread dead; the script has stopped it and never continues it.
fn kill(group: &ProcessGroup, medium: &Medium, dead: u8) {
    medium.died(usize::from(dead));
    group.declare_dead(u64::from(dead));
}

/// Size of the blocks.
const BLOCK: usize = 64;

const INTENT: &str = "intent.record";
/// Passed by a thread that checks whether it may keep its thread slot.
const BARRIER: &str = "slot.barrier";

#[test]
fn recovery_leaves_data_that_looks_like_a_lock() {
    // A thread crashed after it recorded an intent for a lock, released the lock and freed its
    // block, and recorded another intent. The block is reused for data that looks like the lock
    // word.
    let scene = |scheduler: &Scheduler, medium: Medium| {
        let group = group(&medium);
        let ([survives, dies], [first, second]) =
            two(scheduler, (&group, &medium), Geometry::tiny(), two_blocks);
        let held = Arc::new(AtomicU64::new(0));
        let looks_like = held.clone();
        let survivor = move || {
            let guard = survives.pin();
            lock(&survives, first).try_acquire(&guard).expect("it is free").release();
            guard.free(first, BLOCK);
            let data = (0..256).map_while(|_| block(&guard, BLOCK, looks_like.load(Relaxed)));
            assert!(data.into_iter().any(|at| at == first), "the block is used again");
            mark(1);
            kill(&group, &medium, DEAD);
            assert_eq!(survives.recover_dead(), 1);
            check_content(&guard, first, BLOCK);
        };
        let dead = move || {
            let guard = dies.pin();
            let locked = lock(&dies, first).try_acquire(&guard).expect("it is free");
            held.store(word(&dies, first).load(dies.medium(), Relaxed), Relaxed);
            locked.release();
            mark(1);
            std::mem::forget(lock(&dies, second).try_acquire(&guard));
            std::mem::forget(guard);
        };
        let breakpoints = vec![
            to(DEAD, Stop::Mark(1)),
            to(SURVIVOR, Stop::Mark(1)),
            to(DEAD, after(INTENT)),
            to(SURVIVOR, Stop::End),
        ];
        Script { threads: vec![Box::new(survivor), Box::new(dead)], breakpoints, judge: Box::new(|| Ok(())) }
    };
    assert_detected(scene, INTENT, Weak::Release, "is not as it was written");
}

#[test]
fn reused_participant_entry_shows_the_dead_ones_stores() {
    let scene = |scheduler: &Scheduler, medium: Medium| {
        let group = group(&medium);
        // There is no other entry.
        let geometry = Geometry { participants: 2, ..Geometry::tiny() };
        let ([survives, dies], [locked, data]) = two(scheduler, (&group, &medium), geometry, two_blocks);
        let judged = survives.clone();
        let survivor = move || {
            let guard = survives.pin();
            mark(1);
            let held = lock(&survives, locked).acquire(&guard);
            // It is private to the holder of the lock.
            let _ = guard.bytes(data, BLOCK).map(|bytes| bytes.first().copied());
            held.release();
        };
        let dead = move || {
            let guard = dies.pin();
            std::mem::forget(lock(&dies, locked).try_acquire(&guard).expect("it is free"));
            word(&dies, data).store(dies.medium(), 7, Relaxed);
            mark(1);
            std::mem::forget(guard);
        };
        let other = move || {
            mark(1);
            kill(&group, &medium, DEAD);
            let pool = join(&group, &medium, geometry, false);
            pool.abandon();
        };
        let attached = "participant.attach";
        let breakpoints = vec![
            to(SURVIVOR, Stop::Mark(1)),
            to(OTHER, Stop::Mark(1)),
            to(DEAD, Stop::Mark(1)),
            to(OTHER, after(attached)),
            to(SURVIVOR, Stop::End),
        ];
        let threads: Vec<Box<dyn FnOnce() + Send>> =
            vec![Box::new(survivor), Box::new(dead), Box::new(other)];
        Script { threads, breakpoints, judge: Box::new(move || verified(&judged)) }
    };
    let holder = "participant.holder";
    assert_detected(scene, holder, Weak::Acquire, "a race: thread 0 accesses");
}

#[test]
fn last_thread_slot_is_not_kept() {
    // Of four thread slots, the first is kept, and the second one belongs to a dead thread. Two
    // threads skip it and take the next ones. One of them does so while the others are counted, so
    // the count is one too low. Then the second slot is taken, and the fourth by the thread that
    // skipped it.
    let scene = |scheduler: &Scheduler, medium: Medium| {
        let group = group(&medium);
        let geometry = Geometry::tiny();
        let ([pool, dead], offset) = two(scheduler, (&group, &medium), geometry, |pools| {
            let offset = block(&pools[0].pin(), BLOCK, 0).expect("room");
            drop(pools[1].pin());
            offset
        });
        group.declare_dead(1);
        dead.abandon();
        let of = || pool.clone();
        let (recovers, takes, pins, passes) = (of(), of(), of(), of());
        let recoverer = move || {
            mark(1);
            assert_eq!(recovers.recover_dead(), 1);
        };
        let taker = move || {
            mark(1);
            takes.pin().retire(offset, BLOCK);
            // All threads execute a barrier, as when the epoch advances.
            takes.reclaim_nonblocking();
        };
        let pinner = move || {
            mark(1);
            drop(pins.pin());
        };
        let passer = move || {
            mark(1);
            drop(passes.pin());
        };
        let take = "lock.take";
        let count = "slot.count";
        let looks = "lock.is-held";
        let breakpoints = vec![
            to(SURVIVOR, Stop::Mark(1)),
            to(OTHER, Stop::Mark(1)),
            to(LAST, before(take)),
            to(DEAD, before(take)),
            to(SURVIVOR, before(count)),
            to(DEAD, Stop::End),
            to(SURVIVOR, Stop::End),
            to(OTHER, Stop::End),
            to(LAST, after(BARRIER)),
            // It counts the four thread slots.
            late(LAST, Stop::After(looks, 3)),
            to(LAST, Stop::End),
        ];
        let judge = move || {
            // No other thread runs, so a thread that waits for a slot would wait forever.
            terrace_pool::rest_with(|| panic!("a late thread waits for a slot"));
            drop(join(&group, &medium, geometry, false).pin());
            drop(pool);
            Ok(())
        };
        let threads: Vec<Box<dyn FnOnce() + Send>> =
            vec![Box::new(recoverer), Box::new(taker), Box::new(pinner), Box::new(passer)];
        Script { threads, breakpoints, judge: Box::new(judge) }
    };
    assert_detected(
        scene,
        BARRIER,
        Weak::Total,
        "in the final check, it panicked: a late thread waits for a slot",
    );
}
