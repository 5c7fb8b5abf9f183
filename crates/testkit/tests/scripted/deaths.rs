//! What is needed because somebody dies who shares the pool: `pool/seats.rs`, `pool/notes.rs`, `pool/participants.rs`.

use super::{Medium, Scene, Shared, block, look_at, made, misses, options, verified, word};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use terrace_pool::{Geometry, Lock};
use terrace_testkit::Company;
use terrace_testkit::schedule::cues::{before, behind, late, to};
use terrace_testkit::schedule::{Stage, Stop, Weak, mark};

/// Participants of a pool, who are told of deaths as the lab's are.
fn company(medium: &Medium) -> Company {
    let (company, told) = (Company::default(), medium.clone());
    company.tell(move |dead| told.told(dead as usize));
    company
}

/// Two participants of a new pool, and something that the first one makes.
fn two<T: Send + 'static>(
    stage: &Stage,
    (company, medium): (&Company, &Medium),
    geometry: Geometry,
    make: impl FnOnce(&[Shared; 2]) -> T + Send + 'static,
) -> ([Shared; 2], T) {
    let (company, medium) = (company.clone(), medium.clone());
    made(stage, move || {
        let pools = [true, false].map(|first| join(&company, &medium, geometry, first));
        let made = make(&pools);
        (pools, made)
    })
}

/// Two blocks of the first of the two.
fn two_blocks(pools: &[Shared; 2]) -> [u64; 2] {
    let guard = pools[0].pin();
    [(); 2].map(|()| block(&guard, BLOCK, 0).expect("room"))
}

/// Another participant; the first one makes the pool.
fn join(company: &Company, medium: &Medium, geometry: Geometry, first: bool) -> Shared {
    let ((_, member), options) = (company.join(), options().geometry(geometry));
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

/// A thread that dies has been stopped, for good as far as anybody looks.
fn kill(company: &Company, medium: &Medium, dead: u8) {
    medium.died(usize::from(dead));
    company.kill(u64::from(dead));
}

/// The bytes of the blocks.
const BLOCK: usize = 64;

const NOTED: &str = "intent.record";
/// Who asks whether it may keep its seat passes it.
const BARRIER: &str = "slot.barrier";

#[test]
fn what_looks_like_a_lock_of_the_dead_is_left_alone() {
    // One who dies has noted a lock, has let it go and given its block up, which holds data since that look like it; and then has noted another.
    let scene = |stage: &Stage, medium: Medium| {
        let company = company(&medium);
        let ([survives, dies], [first, second]) =
            two(stage, (&company, &medium), Geometry::tiny(), two_blocks);
        let held = Arc::new(AtomicU64::new(0));
        let looks_like = held.clone();
        let survivor = move || {
            let guard = survives.pin();
            lock(&survives, first).try_acquire(&guard).expect("it is free").release();
            guard.free(first, BLOCK);
            let data = (0..256).map_while(|_| block(&guard, BLOCK, looks_like.load(Relaxed)));
            assert!(data.into_iter().any(|at| at == first), "the block is used again");
            mark(1);
            kill(&company, &medium, DEAD);
            assert_eq!(survives.recover_dead(), 1);
            look_at(&guard, first, BLOCK);
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
        let cues = vec![
            to(DEAD, Stop::Mark(1)),
            to(SURVIVOR, Stop::Mark(1)),
            to(DEAD, behind(NOTED)),
            to(SURVIVOR, Stop::End),
        ];
        Scene { acts: vec![Box::new(survivor), Box::new(dead)], cues, judge: Box::new(|| Ok(())) }
    };
    misses(scene, NOTED, Weak::Release, "is not as it was written");
}

#[test]
fn who_finds_that_another_has_the_place_of_a_dead_one_has_all_that_that_one_stored() {
    let scene = |stage: &Stage, medium: Medium| {
        let company = company(&medium);
        // There is no other place.
        let geometry = Geometry { participants: 2, ..Geometry::tiny() };
        let ([survives, dies], [locked, data]) = two(stage, (&company, &medium), geometry, two_blocks);
        let judged = survives.clone();
        let survivor = move || {
            let guard = survives.pin();
            mark(1);
            let held = lock(&survives, locked).acquire(&guard);
            // It is nobody else's while the lock is held.
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
            kill(&company, &medium, DEAD);
            let pool = join(&company, &medium, geometry, false);
            pool.abandon();
        };
        let attached = "participant.attach";
        let cues = vec![
            to(SURVIVOR, Stop::Mark(1)),
            to(OTHER, Stop::Mark(1)),
            to(DEAD, Stop::Mark(1)),
            to(OTHER, behind(attached)),
            to(SURVIVOR, Stop::End),
        ];
        let acts: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(survivor), Box::new(dead), Box::new(other)];
        Scene { acts, cues, judge: Box::new(move || verified(&judged)) }
    };
    let holder = "participant.holder";
    misses(scene, holder, Weak::Acquire, "a race: thread 0 comes");
}

#[test]
fn of_two_who_take_the_last_seats_one_does_not_keep_it() {
    // Of four seats the first is kept, and the second one a dead one's. Two threads pass by that, to the next ones, and one of them takes its seat while the others' are counted, so that
    // the count is one too low. Then somebody takes the second seat, and the one that has passed by it the fourth.
    let scene = |stage: &Stage, medium: Medium| {
        let company = company(&medium);
        let geometry = Geometry::tiny();
        let ([pool, dead], offset) = two(stage, (&company, &medium), geometry, |pools| {
            let offset = block(&pools[0].pin(), BLOCK, 0).expect("room");
            drop(pools[1].pin());
            offset
        });
        company.kill(1);
        dead.abandon();
        let of = || pool.clone();
        let (recovers, takes, comes, passes) = (of(), of(), of(), of());
        let recoverer = move || {
            mark(1);
            assert_eq!(recovers.recover_dead(), 1);
        };
        let taker = move || {
            mark(1);
            takes.pin().retire(offset, BLOCK);
            // All threads pass a barrier, as where the epoch moves on.
            takes.reclaim_nonblocking();
        };
        let comer = move || {
            mark(1);
            drop(comes.pin());
        };
        let passer = move || {
            mark(1);
            drop(passes.pin());
        };
        let take = "lock.take";
        let count = "slot.count";
        let looks = "lock.is-held";
        let cues = vec![
            to(SURVIVOR, Stop::Mark(1)),
            to(OTHER, Stop::Mark(1)),
            to(LAST, before(take)),
            to(DEAD, before(take)),
            to(SURVIVOR, before(count)),
            to(DEAD, Stop::End),
            to(SURVIVOR, Stop::End),
            to(OTHER, Stop::End),
            to(LAST, behind(BARRIER)),
            // It counts the four seats.
            late(LAST, Stop::Behind(looks, 3)),
            to(LAST, Stop::End),
        ];
        let judge = move || {
            // Nobody else is about, so who waits for a seat waits for ever.
            terrace_pool::rest_with(|| panic!("who comes late waits for a seat"));
            drop(join(&company, &medium, geometry, false).pin());
            drop(pool);
            Ok(())
        };
        let acts: Vec<Box<dyn FnOnce() + Send>> =
            vec![Box::new(recoverer), Box::new(taker), Box::new(comer), Box::new(passer)];
        Scene { acts, cues, judge: Box::new(judge) }
    };
    misses(scene, BARRIER, Weak::Total, "afterwards, it panicked: who comes late waits for a seat");
}
