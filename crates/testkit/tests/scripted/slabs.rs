//! Memory that changes hands: units that are given back and taken anew, slabs that are full, listed and full again, the reserve, and what a sweep frees beside others (`pool/pages.rs`, `pool/slabs.rs`, `pool/doubt.rs`).

use super::{
    BLOCK, Medium, PER_SLAB, Scene, Shared, block, blocks, come, fill, keep, keep_all, look_at, misses,
    options, pool_with, verified, with_barriers, word,
};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use terrace_pool::Marker;
use terrace_testkit::crash::Wrong;
use terrace_testkit::schedule::cues::{before, behind, late, old_at, old_but, to};
use terrace_testkit::schedule::{Cue, Stage, Stop, Weak, mark};

/// Blocks that fill a page of limbo, by their bytes.
const A_PAGE: usize = 5;
/// Bytes of a unit.
const UNIT: usize = 4096;
/// Of pages of limbo, and of more memory: of a unit, of a part of one, of a granule.
const ALL_SIZES: [usize; 4] = [512, UNIT, 1024, 64];

/// The judge frees what waits, and looks at the allocator.
fn judge(pool: &Shared, drains: bool) -> Box<dyn FnOnce() -> Result<(), Wrong> + Send> {
    let pool = pool.clone();
    Box::new(move || {
        (0..if drains { 8 } else { 0 }).for_each(|_| _ = pool.reclaim_nonblocking());
        verified(&pool)
    })
}

/// A slab that is listed and of which no block is taken is given back, and another takes granules of it.
fn given_back(stage: &Stage, medium: Medium) -> Scene {
    let (pool, ()) = pool_with(stage, medium, options(), |pool| {
        let guard = pool.pin();
        let all = blocks(&guard, PER_SLAB + 1);
        all[..PER_SLAB].iter().for_each(|&at| guard.free(at, BLOCK));
    });
    let (gives, takes) = (pool.clone(), pool.clone());
    let giver = move || assert!(gives.reclaim_nonblocking(), "a slab is given back");
    let taker = move || {
        come(&takes);
        let guard = takes.pin();
        while block(&guard, 1024, 7).is_some() {}
    };
    let early = "granules.record";
    let cues = vec![to(1, Stop::Mark(1)), to(0, Stop::End), old_at(1, Stop::End, early)];
    Scene { acts: vec![Box::new(giver), Box::new(taker)], cues, judge: judge(&pool, false) }
}

#[test]
fn what_is_noted_of_granules_comes_behind_what_was_noted_of_the_slab_that_was_there() {
    let swap = "unit.free";
    misses(given_back, swap, Weak::Release, "the copy of a unit's granule bits");
    let exchange = "granules.take";
    misses(given_back, exchange, Weak::Acquire, "the copy of a unit's granule bits");
}

/// The same while somebody collects; nothing else is free, and who has given the unit back takes it.
fn given_back_beside(stage: &Stage, medium: Medium, cues: Vec<Cue>) -> Scene {
    let (pool, (owned, rest)) = pool_with(stage, medium, options(), |pool| {
        let guard = pool.pin();
        let all = blocks(&guard, PER_SLAB + 1);
        let rest = fill(&guard, &ALL_SIZES);
        all[..PER_SLAB].iter().for_each(|&at| guard.free(at, BLOCK));
        drop(guard);
        pool.request_collection();
        (all[PER_SLAB], rest)
    });
    let (collects, gives) = (pool.clone(), pool.clone());
    let collector = move || {
        collects.collect(&mut |marker: &mut Marker<'_>| {
            marker.mark(owned, BLOCK);
            keep_all(marker, &rest);
        });
    };
    let giver = move || {
        come(&gives);
        gives.reclaim_nonblocking();
        let guard = gives.pin();
        let new = block(&guard, UNIT, 7);
        mark(2);
        new.into_iter().for_each(|at| look_at(&guard, at, UNIT));
        new.into_iter().for_each(|at| guard.free(at, UNIT));
    };
    Scene { acts: vec![Box::new(collector), Box::new(giver)], cues, judge: judge(&pool, false) }
}

const GIVEN_UP: &str = "unit.release";

#[test]
fn who_looks_into_a_unit_sees_that_it_was_given_back_before() {
    let looks = "inspect.announce";
    let state = "inspect.state";
    let marking = "phase.start-marking";
    let cues = vec![
        to(1, Stop::Mark(1)),
        to(0, before(looks)),
        to(1, Stop::Mark(2)),
        old_at(0, before(marking), state),
        to(1, Stop::End),
    ];
    let play = move |stage: &Stage, medium: Medium| given_back_beside(stage, medium, cues.clone());
    misses(play, GIVEN_UP, Weak::Total, "is not as it was written");
}

#[test]
fn who_gives_a_unit_back_sees_that_somebody_looks_into_it() {
    let sweeping = "unit.sweeping";
    // The reserve comes first, and then the slab.
    let clears = "marks.clear";
    let marking = "phase.start-marking";
    let cues = vec![
        to(1, Stop::Mark(1)),
        to(0, Stop::Before(clears, 1)),
        old_at(1, Stop::Mark(2), sweeping),
        to(0, before(marking)),
        to(1, Stop::End),
    ];
    let play = move |stage: &Stage, medium: Medium| given_back_beside(stage, medium, cues.clone());
    misses(play, sweeping, Weak::Total, "is not as it was written");
}

/// Between two steps of who frees a block of a full slab, others list that, own it, fill it, and leave it full again.
fn full_again(stage: &Stage, medium: Medium) -> Scene {
    let (pool, all) = pool_with(stage, medium, options(), |pool| blocks(&pool.pin(), 2 * PER_SLAB + 1));
    let (frees, lists, fills) = (pool.clone(), pool.clone(), pool.clone());
    let (first, second, other) = (all[0], all[1], all[PER_SLAB]);
    let freer = move || {
        come(&frees);
        frees.pin().free(first, BLOCK);
    };
    let lister = move || {
        come(&lists);
        lists.pin().free(second, BLOCK);
        mark(2);
        // Of another slab: the list is not as it was.
        lists.pin().free(other, BLOCK);
    };
    let filler = move || {
        come(&fills);
        // The two that are free, and one of another slab.
        let found = blocks(&fills.pin(), 3);
        assert_eq!(found[..2], [first, second]);
    };
    let state = "slab.free-state";
    let link = "slab.push";
    let cues = vec![
        to(1, Stop::Mark(1)),
        to(2, Stop::Mark(1)),
        to(3, Stop::Mark(1)),
        to(1, behind(state)),
        to(2, Stop::Mark(2)),
        to(3, Stop::End),
        to(2, Stop::End),
        old_at(1, Stop::End, link),
    ];
    let nobody = || ();
    Scene {
        acts: vec![Box::new(nobody), Box::new(freer), Box::new(lister), Box::new(filler)],
        cues,
        judge: judge(&pool, false),
    }
}

#[test]
fn who_lists_a_slab_that_has_been_in_the_list_since_links_it_behind_that() {
    let list = "slab.list";
    misses(full_again, list, Weak::Acquire, "in its list if and only if its state is Listed");
}

const TAKE_RESERVED: &str = "reserve.take";

/// A reserve is set aside while two others want a page of it each.
fn new_reserve(stage: &Stage, medium: Medium) -> Scene {
    let (pool, all) = pool_with(stage, medium, options(), |pool| {
        let guard = pool.pin();
        let all = blocks(&guard, 2);
        fill(&guard, &ALL_SIZES);
        drop(guard);
        pool.drop_reserve();
        all
    });
    let sets_aside = pool.clone();
    let setter = move || _ = sets_aside.collect(&mut |_: &mut Marker<'_>| ());
    let retirer = |at: u64| {
        let pool = pool.clone();
        move || {
            come(&pool);
            pool.pin().retire(at, BLOCK);
        }
    };
    let look = "reserve.taken";
    let cues = vec![
        to(1, Stop::Mark(1)),
        to(2, Stop::Mark(1)),
        to(0, Stop::End),
        old_at(1, behind(look), look),
        old_at(1, Stop::End, TAKE_RESERVED),
        to(2, Stop::End),
    ];
    let acts: Vec<Box<dyn FnOnce() + Send>> =
        vec![Box::new(setter), Box::new(retirer(all[0])), Box::new(retirer(all[1]))];
    Scene { acts, cues, judge: judge(&pool, false) }
}

#[test]
fn who_finds_a_new_reserve_finds_its_bitmap_clear() {
    let reserve = "reserve.read";
    misses(new_reserve, reserve, Weak::Acquire, "bytes in small blocks");
}

/// A page of the reserve leaves its queue, where another one has just come behind it; and is somebody else's then.
fn page_again(stage: &Stage, medium: Medium) -> Scene {
    let (pool, all) = pool_with(stage, medium, options(), |pool| {
        let guard = pool.pin();
        let all = blocks(&guard, 3 * A_PAGE);
        let rest = fill(&guard, &ALL_SIZES);
        all[..A_PAGE].iter().for_each(|&at| guard.retire(at, BLOCK));
        drop(guard);
        // The time of the first page is past, and nobody has looked.
        pool.request_collection();
        pool.collect(&mut |marker: &mut Marker<'_>| {
            keep(marker, &all, BLOCK);
            keep_all(marker, &rest);
        });
        let guard = pool.pin();
        all[A_PAGE..2 * A_PAGE - 1].iter().for_each(|&at| guard.retire(at, BLOCK));
        all[2 * A_PAGE - 1..].to_vec()
    });
    let (closes, takes) = (pool.clone(), pool.clone());
    let last = all[0];
    let closer = move || closes.pin().retire(last, BLOCK);
    let taker = move || {
        come(&takes);
        let guard = takes.pin();
        all[1..].iter().for_each(|&at| guard.retire(at, BLOCK));
    };
    let next = "limbo.link";
    let cues = vec![to(1, Stop::Mark(1)), to(0, Stop::End), old_at(1, Stop::End, next)];
    Scene { acts: vec![Box::new(closer), Box::new(taker)], cues, judge: judge(&pool, true) }
}

#[test]
fn a_page_of_the_reserve_leads_to_nothing_that_came_behind_it_in_another_queue() {
    misses(page_again, TAKE_RESERVED, Weak::Acquire, "the count of invalid frees");
}

/// While the collector is at the sweep, somebody takes a page of the reserve.
fn swept_reserve(stage: &Stage, medium: Medium) -> Scene {
    let (pool, (all, rest)) = pool_with(stage, medium, options(), |pool| {
        let guard = pool.pin();
        let all = blocks(&guard, A_PAGE);
        let rest = fill(&guard, &ALL_SIZES);
        drop(guard);
        pool.request_collection();
        (all, rest)
    });
    let (collects, takes) = (pool.clone(), pool.clone());
    let kept = all.clone();
    let collector = move || {
        collects.collect(&mut |marker: &mut Marker<'_>| {
            keep(marker, &kept, BLOCK);
            keep_all(marker, &rest);
        });
    };
    let taker = move || {
        come(&takes);
        let guard = takes.pin();
        guard.retire(all[0], BLOCK);
        mark(2);
        all[1..].iter().for_each(|&at| guard.retire(at, BLOCK));
    };
    // The reserve is the first slab of all.
    let look = "sweep.taken";
    let marked = "sweep.mark";
    let cues = vec![
        to(1, Stop::Mark(1)),
        to(0, before(look)),
        to(1, Stop::Mark(2)),
        old_at(0, Stop::End, marked),
        to(1, Stop::End),
    ];
    Scene { acts: vec![Box::new(collector), Box::new(taker)], cues, judge: judge(&pool, true) }
}

#[test]
fn a_page_of_the_reserve_that_is_taken_beside_the_sweep_is_no_garbage() {
    misses(swept_reserve, TAKE_RESERVED, Weak::Release, "the count of invalid frees");
}

/// Of a slab that is owned and has no free block, one block is garbage; it is swept, and its owner leaves it.
fn left_beside_the_sweep(stage: &Stage, medium: Medium, cues: Vec<Cue>) -> Scene {
    let (pool, all) = pool_with(stage, medium, options(), |pool| {
        let all = blocks(&pool.pin(), PER_SLAB);
        pool.request_collection();
        all
    });
    let (owns, collects) = (pool.clone(), pool.clone());
    let owner = move || {
        come(&owns);
        block(&owns.pin(), BLOCK, 7).expect("room");
        mark(2);
    };
    let collector = move || {
        come(&collects);
        collects.collect(&mut |marker: &mut Marker<'_>| keep(marker, &all[1..], BLOCK));
    };
    Scene { acts: vec![Box::new(owner), Box::new(collector)], cues, judge: judge(&pool, false) }
}

const SWEEP: &str = "sweep.free";

#[test]
fn who_leaves_a_slab_sees_what_the_sweep_has_freed_of_it() {
    let holding = "slab.fill";
    // Before it counts bytes, for which all pass a barrier.
    let swept = "phase.end-concurrent";
    let cues = vec![to(0, Stop::Mark(1)), to(1, before(swept)), late(0, behind(holding)), to(0, Stop::End)];
    let play = move |stage: &Stage, medium: Medium| left_beside_the_sweep(stage, medium, cues.clone());
    misses(play, SWEEP, Weak::Total, "a slab in no list");
}

#[test]
fn who_has_swept_a_slab_sees_that_it_was_left() {
    let state = "sweep.state";
    let cues = vec![to(1, before(SWEEP)), to(0, Stop::Mark(2)), old_at(1, Stop::End, state)];
    let play = move |stage: &Stage, medium: Medium| left_beside_the_sweep(stage, medium, cues.clone());
    misses(play, state, Weak::Total, "a slab in no list");
}

/// A block is taken out of its slot and left to nobody while the collector marks. Who is pinned one epoch later still sees it in the slot, and has gone one epoch before the last grace ends; who uses it again has been there since.
fn garbage_that_was_read(stage: &Stage, medium: Medium) -> Scene {
    let (pool, (slot, all)) = pool_with(stage, medium, with_barriers(), |pool| {
        let guard = pool.pin();
        let slot = block(&guard, 64, 0).expect("room");
        let all = blocks(&guard, PER_SLAB);
        word(pool, slot).store(pool.medium(), all[0], Relaxed);
        drop(guard);
        pool.request_collection();
        (slot, all)
    });
    let of = || pool.clone();
    let (uses, reads, loses, collects) = (of(), of(), of(), of());
    let garbage = all[0];
    let user = move || {
        let guard = uses.pin();
        mark(1);
        assert_eq!(block(&guard, BLOCK, 7), Some(garbage), "the one that the sweep has freed");
    };
    let reader = move || {
        come(&reads);
        // Moves the epoch on.
        reads.reclaim_blocking();
        let guard = reads.pin();
        mark(2);
        let found = word(&reads, slot).load(reads.medium(), Acquire);
        if found != 0 {
            look_at(&guard, found, BLOCK);
        }
        mark(3);
    };
    let loser = move || {
        come(&loses);
        let guard = loses.pin();
        word(&loses, slot).swap(loses.medium(), 0, AcqRel);
        mark(2);
        drop(guard);
        loses.reclaim_blocking();
        mark(3);
        loses.reclaim_blocking();
    };
    let collector = move || {
        come(&collects);
        collects.collect(&mut |marker: &mut Marker<'_>| {
            marker.mark(slot, 64);
            keep(marker, &all[1..], BLOCK);
            match word(&collects, slot).load(collects.medium(), Acquire) {
                0 => {}
                at => marker.mark(at, BLOCK),
            }
            mark(2);
        });
    };
    let second_grace = "granules.exclude-freed";
    let epoch = "epoch.read";
    let [user_at, reader_at, loser_at, collector_at] = [0, 1, 2, 3];
    let cues = vec![
        to(reader_at, Stop::Mark(1)),
        to(loser_at, Stop::Mark(1)),
        to(collector_at, before(second_grace)),
        to(loser_at, Stop::Mark(2)),
        to(collector_at, Stop::Mark(2)),
        // It knows in which epoch the last grace begins.
        to(collector_at, behind(epoch)),
        to(reader_at, Stop::Mark(2)),
        late(reader_at, Stop::Mark(3)),
        to(loser_at, Stop::Mark(3)),
        to(user_at, Stop::Mark(1)),
        to(reader_at, Stop::End),
        to(loser_at, Stop::End),
        to(collector_at, behind(SWEEP)),
        to(user_at, Stop::End),
    ];
    Scene {
        acts: vec![Box::new(user), Box::new(reader), Box::new(loser), Box::new(collector)],
        cues,
        judge: judge(&pool, false),
    }
}

#[test]
fn who_uses_again_what_was_swept_comes_behind_its_last_reader() {
    misses(garbage_that_was_read, SWEEP, Weak::Release, "a race");
}

/// Of the list of a class, the head: what has just begun to lead to a slab, and led to none.
fn head_of_list(pool: &Shared, list: impl FnOnce()) -> u64 {
    let words = || -> Vec<u64> {
        (0..pool.size() / 8).map(|at| word(pool, 8 * at).load(pool.medium(), Relaxed)).collect()
    };
    let before = words();
    list();
    let is_head =
        |&(old, new): &(u64, u64)| old == 0 && new >> 32 == 1 && (1..256).contains(&(new & 0xffff_ffff));
    let found = before.into_iter().zip(words()).position(|pair| is_head(&pair));
    8 * found.expect("the head of a list") as u64
}

/// One slab says that it is listed and is in no list, as somebody leaves it who dies; another is given back while the collector walks the list.
fn walked(stage: &Stage, medium: Medium) -> Scene {
    let (pool, all) = pool_with(stage, medium, options(), |pool| {
        let guard = pool.pin();
        let all = blocks(&guard, 2 * PER_SLAB + 1);
        let head = head_of_list(pool, || guard.free(all[0], BLOCK));
        word(pool, head).store(pool.medium(), 1 << 32, Relaxed);
        all[PER_SLAB..2 * PER_SLAB].iter().for_each(|&at| guard.free(at, BLOCK));
        drop(guard);
        pool.request_collection();
        [&all[1..PER_SLAB], &all[2 * PER_SLAB..]].concat()
    });
    let (gives, collects) = (pool.clone(), pool.clone());
    let giver = move || {
        come(&gives);
        assert!(gives.reclaim_nonblocking(), "a slab is given back");
    };
    let collector = move || _ = collects.collect(&mut |marker: &mut Marker<'_>| keep(marker, &all, BLOCK));
    let head = "walk.head";
    let state = "inspect.state";
    let reserve = "reserve.orphan";
    let cues = vec![
        to(1, Stop::Mark(1)),
        to(0, before(head)),
        to(1, Stop::End),
        old_but(0, before(reserve), state),
        to(0, Stop::End),
    ];
    Scene { acts: vec![Box::new(collector), Box::new(giver)], cues, judge: judge(&pool, false) }
}

#[test]
fn a_walk_that_finds_a_unit_given_back_finds_that_the_list_has_changed() {
    misses(walked, GIVEN_UP, Weak::Release, "in its list if and only if its state is Listed");
}
