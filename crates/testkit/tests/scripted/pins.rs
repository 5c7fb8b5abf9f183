//! Orderings between two barriers of the epoch: `reclaim/epoch.rs`. One thread advances the epoch,
//! one removes a block from its slot and retires it, one reads it.

use super::{
    BLOCK, Medium, PER_SLAB, Script, Shared, assert_detected, block, blocks, check_content, options,
    pool_with, visit, word,
};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use terrace_testkit::schedule::cues::{after, before, late, to};
use terrace_testkit::schedule::{Breakpoint, Scheduler, Stop, Weak, mark};

const READ_EPOCH: &str = "epoch.read";
const SET_PIN: &str = "pin.set";
const CHECK_PIN: &str = "epoch.check-pin";
const BARRIER: &str = "epoch.barrier";
const ADVANCE: &str = "epoch.advance";

/// Advances the epoch.
const MOVER: u8 = 0;
const READER: u8 = 1;
/// Removes the block.
const TAKER: u8 = 2;
/// Reuses the block, if the advancing thread does not.
const USER: u8 = 3;

/// Blocks that are retired in addition, to fill a limbo chunk.
const SMALL: usize = 16;
const OTHERS: usize = 30;

/// Allocates until it gets this block.
fn use_again(pool: &Shared, offset: u64) {
    let guard = pool.pin();
    let _ = (0..64).map_while(|_| block(&guard, BLOCK, 7)).find(|&new| new == offset);
}

/// The threads. `again` says whether the reader pins once more.
fn scene(scheduler: &Scheduler, medium: Medium, again: bool, breakpoints: &[Breakpoint]) -> Script {
    let (pool, (slot, others)) = pool_with(scheduler, medium, options(), |pool| {
        let guard = pool.pin();
        let slot = block(&guard, 64, 0).expect("room");
        // One block more than a slab, so that a slab is full and freeing a block lists it.
        let blocks = blocks(&guard, PER_SLAB + 1);
        let others: Vec<u64> = (0..OTHERS).filter_map(|_| block(&guard, SMALL, 5)).collect();
        word(pool, slot).store(pool.medium(), blocks[0], Relaxed);
        // Something is retired, so that reclaiming advances the epoch.
        guard.retire(blocks[PER_SLAB], BLOCK);
        (slot, others)
    });
    let of = || pool.clone();
    let (moves, reads, takes, uses) = (of(), of(), of(), of());
    let first = word(&pool, slot).load(pool.medium(), Relaxed);
    let mover = move || {
        for turn in 1..=3 {
            moves.reclaim_nonblocking();
            mark(turn);
        }
        use_again(&moves, first);
    };
    let reader = move || {
        visit(&reads);
        let guard = reads.pin();
        let offset = word(&reads, slot).load(reads.medium(), Acquire);
        mark(2);
        if offset != 0 {
            check_content(&guard, offset, BLOCK);
        }
        drop(guard);
        mark(3);
        if again {
            let _guard = reads.pin();
            mark(4);
        }
    };
    let taker = move || {
        visit(&takes);
        let guard = takes.pin();
        let offset = word(&takes, slot).swap(takes.medium(), 0, AcqRel);
        guard.retire(offset, BLOCK);
        others.iter().for_each(|&other| guard.retire(other, SMALL));
    };
    let user = move || {
        visit(&uses);
        uses.reclaim_nonblocking();
        use_again(&uses, first);
    };
    Script {
        threads: vec![Box::new(mover), Box::new(reader), Box::new(taker), Box::new(user)],
        breakpoints: breakpoints.to_vec(),
        judge: Box::new(|| Ok(())),
    }
}

/// All threads have accessed the pool. The block is removed and retired in an epoch that ends right
/// after that; the advancing thread does not know that any thread was pinned in it.
fn taken_out() -> Vec<Breakpoint> {
    vec![
        to(READER, Stop::Mark(1)),
        to(TAKER, Stop::Mark(1)),
        to(USER, Stop::Mark(1)),
        to(MOVER, before(ADVANCE)),
        to(TAKER, Stop::End),
        to(MOVER, after(ADVANCE)),
    ]
}

/// The advancing thread checks all thread slots up to that of a thread, of which it sees the old
/// state.
fn sees_old_pin_of(thread: u8) -> Breakpoint {
    late(MOVER, Stop::After(CHECK_PIN, u32::from(thread)))
}

#[test]
fn pin_sees_removals_two_epochs_before() {
    let breakpoints = [
        taken_out(),
        vec![
            sees_old_pin_of(TAKER),
            to(MOVER, after(BARRIER)),
            to(MOVER, after(ADVANCE)),
            to(READER, after(READ_EPOCH)),
            late(READER, Stop::Mark(2)),
            to(MOVER, Stop::End),
            to(READER, Stop::End),
        ],
    ]
    .concat();
    let scene = |scheduler: &Scheduler, medium: Medium| scene(scheduler, medium, false, &breakpoints);
    assert_detected(scene, READ_EPOCH, Weak::Acquire, "a race: thread 1 accesses");
}

/// A reader has loaded the epoch but sets its pin one epoch late, and still sees the removed block.
/// The thread that advances the epoch twice checks its slot before the pin is visible, and again
/// after it was cleared.
fn slow_reader(again: bool) -> Vec<Breakpoint> {
    [
        taken_out(),
        vec![
            to(READER, before(SET_PIN)),
            sees_old_pin_of(TAKER),
            to(MOVER, after(BARRIER)),
            to(MOVER, after(ADVANCE)),
            to(READER, after(SET_PIN)),
            late(READER, Stop::Mark(2)),
            sees_old_pin_of(READER),
            to(MOVER, after(BARRIER)),
            to(READER, Stop::Mark(if again { 4 } else { 3 })),
            to(MOVER, after(ADVANCE)),
        ],
    ]
    .concat()
}

#[test]
fn advancing_the_epoch_follows_the_last_reads() {
    let breakpoints = [slow_reader(false), vec![to(MOVER, Stop::End)]].concat();
    let scene = |scheduler: &Scheduler, medium: Medium| scene(scheduler, medium, false, &breakpoints);
    assert_detected(scene, CHECK_PIN, Weak::Acquire, "a race: thread 0 accesses");
}

#[test]
fn second_pin_passes_on_the_reads_of_the_first() {
    let breakpoints = [slow_reader(true), vec![to(MOVER, Stop::End)]].concat();
    let scene = |scheduler: &Scheduler, medium: Medium| scene(scheduler, medium, true, &breakpoints);
    assert_detected(scene, SET_PIN, Weak::Release, "a race: thread 0 accesses");
}

#[test]
fn observing_a_new_epoch_follows_the_last_reads() {
    let breakpoints = [slow_reader(false), vec![to(USER, Stop::End)]].concat();
    let scene = |scheduler: &Scheduler, medium: Medium| scene(scheduler, medium, false, &breakpoints);
    assert_detected(scene, ADVANCE, Weak::Release, "a race: thread 3 accesses");
    assert_detected(scene, READ_EPOCH, Weak::Acquire, "a race: thread 3 accesses");
}
