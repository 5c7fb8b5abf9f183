//! What is needed between two barriers of the epoch: `pool/epoch.rs`. One thread moves it on, one takes a block out of its slot and retires it, one reads it.

use super::{
    BLOCK, Medium, PER_SLAB, Scene, Shared, block, blocks, come, look_at, misses, options, pool_with, word,
};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use terrace_testkit::schedule::cues::{before, behind, late, to};
use terrace_testkit::schedule::{Cue, Stage, Stop, Weak, mark};

const LOOK_AT_THE_EPOCH: &str = "epoch.read";
const ANNOUNCEMENT: &str = "pin.set";
const LOOK_AT_A_SEAT: &str = "epoch.check-pin";
const BARRIER: &str = "epoch.barrier";
const MOVE_ON: &str = "epoch.advance";

/// Moves the epoch on.
const MOVER: u8 = 0;
const READER: u8 = 1;
/// Takes the block out.
const TAKER: u8 = 2;
/// Uses it again, where that is not the one who moves the epoch on.
const USER: u8 = 3;

/// What is retired besides, to fill a page of limbo.
const SMALL: usize = 16;
const OTHERS: usize = 30;

/// Uses memory until it is the block's.
fn use_again(pool: &Shared, offset: u64) {
    let guard = pool.pin();
    let _ = (0..64).map_while(|_| block(&guard, BLOCK, 7)).find(|&new| new == offset);
}

/// The threads. `again` says whether the reader pins once more.
fn scene(stage: &Stage, medium: Medium, again: bool, cues: &[Cue]) -> Scene {
    let (pool, (slot, others)) = pool_with(stage, medium, options(), |pool| {
        let guard = pool.pin();
        let slot = block(&guard, 64, 0).expect("room");
        // A slab and one more: all of it is taken, so that who frees one lists the slab.
        let blocks = blocks(&guard, PER_SLAB + 1);
        let others: Vec<u64> = (0..OTHERS).filter_map(|_| block(&guard, SMALL, 5)).collect();
        word(pool, slot).store(pool.medium(), blocks[0], Relaxed);
        // Something waits, so that who tidies up moves the epoch on.
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
        come(&reads);
        let guard = reads.pin();
        let offset = word(&reads, slot).load(reads.medium(), Acquire);
        mark(2);
        if offset != 0 {
            look_at(&guard, offset, BLOCK);
        }
        drop(guard);
        mark(3);
        if again {
            let _guard = reads.pin();
            mark(4);
        }
    };
    let taker = move || {
        come(&takes);
        let guard = takes.pin();
        let offset = word(&takes, slot).swap(takes.medium(), 0, AcqRel);
        guard.retire(offset, BLOCK);
        others.iter().for_each(|&other| guard.retire(other, SMALL));
    };
    let user = move || {
        come(&uses);
        uses.reclaim_nonblocking();
        use_again(&uses, first);
    };
    Scene {
        acts: vec![Box::new(mover), Box::new(reader), Box::new(taker), Box::new(user)],
        cues: cues.to_vec(),
        judge: Box::new(|| Ok(())),
    }
}

/// All have been in the pool; and the block is taken out and retired in an epoch that is over right behind that, of which the mover does not know that anybody was pinned in it.
fn taken_out() -> Vec<Cue> {
    vec![
        to(READER, Stop::Mark(1)),
        to(TAKER, Stop::Mark(1)),
        to(USER, Stop::Mark(1)),
        to(MOVER, before(MOVE_ON)),
        to(TAKER, Stop::End),
        to(MOVER, behind(MOVE_ON)),
    ]
}

/// The mover looks at all seats up to that of a thread, which it sees as it was before.
fn misses_pin_of(thread: u8) -> Cue {
    late(MOVER, Stop::Behind(LOOK_AT_A_SEAT, u32::from(thread)))
}

#[test]
fn who_pins_sees_what_was_taken_out_two_epochs_before() {
    let cues = [
        taken_out(),
        vec![
            misses_pin_of(TAKER),
            to(MOVER, behind(BARRIER)),
            to(MOVER, behind(MOVE_ON)),
            to(READER, behind(LOOK_AT_THE_EPOCH)),
            late(READER, Stop::Mark(2)),
            to(MOVER, Stop::End),
            to(READER, Stop::End),
        ],
    ]
    .concat();
    let scene = |stage: &Stage, medium: Medium| scene(stage, medium, false, &cues);
    misses(scene, LOOK_AT_THE_EPOCH, Weak::Acquire, "a race: thread 1 comes");
}

/// A reader that has looked at the epoch is announced one epoch late, and has what was taken out before; who moves the epoch on twice comes by before it is seen, and by its seat once more when it has gone.
fn slow_reader(again: bool) -> Vec<Cue> {
    [
        taken_out(),
        vec![
            to(READER, before(ANNOUNCEMENT)),
            misses_pin_of(TAKER),
            to(MOVER, behind(BARRIER)),
            to(MOVER, behind(MOVE_ON)),
            to(READER, behind(ANNOUNCEMENT)),
            late(READER, Stop::Mark(2)),
            misses_pin_of(READER),
            to(MOVER, behind(BARRIER)),
            to(READER, Stop::Mark(if again { 4 } else { 3 })),
            to(MOVER, behind(MOVE_ON)),
        ],
    ]
    .concat()
}

#[test]
fn who_moves_the_epoch_on_has_the_last_reads_behind_it() {
    let cues = [slow_reader(false), vec![to(MOVER, Stop::End)]].concat();
    let scene = |stage: &Stage, medium: Medium| scene(stage, medium, false, &cues);
    misses(scene, LOOK_AT_A_SEAT, Weak::Acquire, "a race: thread 0 comes");
}

#[test]
fn who_pins_again_hands_on_what_was_read_under_the_last_pin() {
    let cues = [slow_reader(true), vec![to(MOVER, Stop::End)]].concat();
    let scene = |stage: &Stage, medium: Medium| scene(stage, medium, true, &cues);
    misses(scene, ANNOUNCEMENT, Weak::Release, "a race: thread 0 comes");
}

#[test]
fn who_finds_that_the_epoch_has_moved_on_has_the_last_reads_behind_it() {
    let cues = [slow_reader(false), vec![to(USER, Stop::End)]].concat();
    let scene = |stage: &Stage, medium: Medium| scene(stage, medium, false, &cues);
    misses(scene, MOVE_ON, Weak::Release, "a race: thread 3 comes");
    misses(scene, LOOK_AT_THE_EPOCH, Weak::Acquire, "a race: thread 3 comes");
}
