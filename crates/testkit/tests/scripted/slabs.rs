//! Reuse of memory: units released and taken again, slabs that are full, listed and full again, the
//! reserve, and the concurrent sweep (`allocator/granules.rs`, `allocator/slabs.rs`,
//! `gc/concurrent.rs`).

use super::{
    BLOCK, Medium, PER_SLAB, Script, Shared, assert_detected, block, blocks, check_content, fill,
    mark_blocks, mark_sized_blocks, options, pool_with, verified, visit, with_barriers, word,
};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use terrace_pool::Marker;
use terrace_testkit::crash::Violation;
use terrace_testkit::schedule::cues::{after, before, late, old_at, old_but, to};
use terrace_testkit::schedule::{Breakpoint, Scheduler, Stop, Weak, mark};

/// Blocks that fill a limbo chunk, by their bytes.
const PER_CHUNK: usize = 5;
/// Size of a unit.
const UNIT: usize = 4096;
/// Sizes that use up all memory: a limbo chunk, a unit, a part of one, a granule.
const ALL_SIZES: [usize; 4] = [512, UNIT, 1024, 64];

/// The final check: drains limbo if asked, then verifies the allocator.
fn judge(pool: &Shared, drains: bool) -> Box<dyn FnOnce() -> Result<(), Violation> + Send> {
    let pool = pool.clone();
    Box::new(move || {
        (0..if drains { 8 } else { 0 }).for_each(|_| _ = pool.reclaim_nonblocking());
        verified(&pool)
    })
}

/// A listed slab without taken blocks is released, and another thread takes granules of its unit.
fn released(scheduler: &Scheduler, medium: Medium) -> Script {
    let (pool, ()) = pool_with(scheduler, medium, options(), |pool| {
        let guard = pool.pin();
        let all = blocks(&guard, PER_SLAB + 1);
        all[..PER_SLAB].iter().for_each(|&at| guard.free(at, BLOCK));
    });
    let (gives, takes) = (pool.clone(), pool.clone());
    let giver = move || assert!(gives.reclaim_nonblocking(), "a slab is released");
    let taker = move || {
        visit(&takes);
        let guard = takes.pin();
        while block(&guard, 1024, 7).is_some() {}
    };
    let early = "granules.record";
    let breakpoints = vec![to(1, Stop::Mark(1)), to(0, Stop::End), old_at(1, Stop::End, early)];
    Script { threads: vec![Box::new(giver), Box::new(taker)], breakpoints, judge: judge(&pool, false) }
}

#[test]
fn granule_state_follows_the_state_of_the_slab_before() {
    let swap = "unit.free";
    assert_detected(released, swap, Weak::Release, "the copy of a unit's granule bits");
    let exchange = "granules.take";
    assert_detected(released, exchange, Weak::Acquire, "the copy of a unit's granule bits");
}

/// The same during a concurrent collection. Nothing else is free, so the thread that released the
/// unit takes it again.
fn released_during_collection(scheduler: &Scheduler, medium: Medium, breakpoints: Vec<Breakpoint>) -> Script {
    let (pool, (owned, rest)) = pool_with(scheduler, medium, options(), |pool| {
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
            mark_sized_blocks(marker, &rest);
        });
    };
    let giver = move || {
        visit(&gives);
        gives.reclaim_nonblocking();
        let guard = gives.pin();
        let new = block(&guard, UNIT, 7);
        mark(2);
        new.into_iter().for_each(|at| check_content(&guard, at, UNIT));
        new.into_iter().for_each(|at| guard.free(at, UNIT));
    };
    Script { threads: vec![Box::new(collector), Box::new(giver)], breakpoints, judge: judge(&pool, false) }
}

const RELEASE: &str = "unit.release";

#[test]
fn inspection_sees_the_release_of_a_unit() {
    let looks = "inspect.announce";
    let state = "inspect.state";
    let marking = "phase.start-marking";
    let breakpoints = vec![
        to(1, Stop::Mark(1)),
        to(0, before(looks)),
        to(1, Stop::Mark(2)),
        old_at(0, before(marking), state),
        to(1, Stop::End),
    ];
    let play = move |scheduler: &Scheduler, medium: Medium| {
        released_during_collection(scheduler, medium, breakpoints.clone())
    };
    assert_detected(play, RELEASE, Weak::Total, "is not as it was written");
}

#[test]
fn release_of_a_unit_sees_its_inspection() {
    let sweeping = "unit.sweeping";
    // The reserve is swept first, then this slab.
    let clears = "marks.clear";
    let marking = "phase.start-marking";
    let breakpoints = vec![
        to(1, Stop::Mark(1)),
        to(0, Stop::Before(clears, 1)),
        old_at(1, Stop::Mark(2), sweeping),
        to(0, before(marking)),
        to(1, Stop::End),
    ];
    let play = move |scheduler: &Scheduler, medium: Medium| {
        released_during_collection(scheduler, medium, breakpoints.clone())
    };
    assert_detected(play, sweeping, Weak::Total, "is not as it was written");
}

/// While one thread frees a block of a full slab, others list the slab, own it, fill it and leave
/// it full again.
fn full_again(scheduler: &Scheduler, medium: Medium) -> Script {
    let (pool, all) = pool_with(scheduler, medium, options(), |pool| blocks(&pool.pin(), 2 * PER_SLAB + 1));
    let (frees, lists, fills) = (pool.clone(), pool.clone(), pool.clone());
    let (first, second, other) = (all[0], all[1], all[PER_SLAB]);
    let freer = move || {
        visit(&frees);
        frees.pin().free(first, BLOCK);
    };
    let lister = move || {
        visit(&lists);
        lists.pin().free(second, BLOCK);
        mark(2);
        // A block of another slab, so that the list changes.
        lists.pin().free(other, BLOCK);
    };
    let filler = move || {
        visit(&fills);
        // The two free blocks, and one of another slab.
        let found = blocks(&fills.pin(), 3);
        assert_eq!(found[..2], [first, second]);
    };
    let state = "slab.free-state";
    let link = "slab.push";
    let breakpoints = vec![
        to(1, Stop::Mark(1)),
        to(2, Stop::Mark(1)),
        to(3, Stop::Mark(1)),
        to(1, after(state)),
        to(2, Stop::Mark(2)),
        to(3, Stop::End),
        to(2, Stop::End),
        old_at(1, Stop::End, link),
    ];
    let nobody = || ();
    Script {
        threads: vec![Box::new(nobody), Box::new(freer), Box::new(lister), Box::new(filler)],
        breakpoints,
        judge: judge(&pool, false),
    }
}

#[test]
fn relisted_slab_gets_a_current_link() {
    let list = "slab.list";
    assert_detected(full_again, list, Weak::Acquire, "in its list if and only if its state is Listed");
}

const TAKE_RESERVED: &str = "reserve.take";

/// A reserve is set aside while two other threads each need a chunk of it.
fn new_reserve(scheduler: &Scheduler, medium: Medium) -> Script {
    let (pool, all) = pool_with(scheduler, medium, options(), |pool| {
        let guard = pool.pin();
        let all = blocks(&guard, 2);
        fill(&guard, &ALL_SIZES);
        drop(guard);
        pool.testing().drop_reserve();
        all
    });
    let sets_aside = pool.clone();
    let setter = move || _ = sets_aside.collect(&mut |_: &mut Marker<'_>| ());
    let retirer = |at: u64| {
        let pool = pool.clone();
        move || {
            visit(&pool);
            pool.pin().retire(at, BLOCK);
        }
    };
    let look = "reserve.taken";
    let breakpoints = vec![
        to(1, Stop::Mark(1)),
        to(2, Stop::Mark(1)),
        to(0, Stop::End),
        old_at(1, after(look), look),
        old_at(1, Stop::End, TAKE_RESERVED),
        to(2, Stop::End),
    ];
    let threads: Vec<Box<dyn FnOnce() + Send>> =
        vec![Box::new(setter), Box::new(retirer(all[0])), Box::new(retirer(all[1]))];
    Script { threads, breakpoints, judge: judge(&pool, false) }
}

#[test]
fn new_reserve_has_a_clear_bitmap() {
    let reserve = "reserve.read";
    assert_detected(new_reserve, reserve, Weak::Acquire, "bytes in small blocks");
}

/// A chunk of the reserve leaves its queue right after another chunk was linked behind it, and is
/// then reused by another thread.
fn chunk_again(scheduler: &Scheduler, medium: Medium) -> Script {
    let (pool, all) = pool_with(scheduler, medium, options(), |pool| {
        let guard = pool.pin();
        let all = blocks(&guard, 3 * PER_CHUNK);
        let rest = fill(&guard, &ALL_SIZES);
        all[..PER_CHUNK].iter().for_each(|&at| guard.retire(at, BLOCK));
        drop(guard);
        // The grace period of the first chunk has passed, but no thread has reclaimed it.
        pool.request_collection();
        pool.collect(&mut |marker: &mut Marker<'_>| {
            mark_blocks(marker, &all, BLOCK);
            mark_sized_blocks(marker, &rest);
        });
        let guard = pool.pin();
        all[PER_CHUNK..2 * PER_CHUNK - 1].iter().for_each(|&at| guard.retire(at, BLOCK));
        all[2 * PER_CHUNK - 1..].to_vec()
    });
    let (closes, takes) = (pool.clone(), pool.clone());
    let last = all[0];
    let closer = move || closes.pin().retire(last, BLOCK);
    let taker = move || {
        visit(&takes);
        let guard = takes.pin();
        all[1..].iter().for_each(|&at| guard.retire(at, BLOCK));
    };
    let next = "limbo.link";
    let breakpoints = vec![to(1, Stop::Mark(1)), to(0, Stop::End), old_at(1, Stop::End, next)];
    Script { threads: vec![Box::new(closer), Box::new(taker)], breakpoints, judge: judge(&pool, true) }
}

#[test]
fn reserve_chunk_has_no_link_of_its_old_queue() {
    assert_detected(chunk_again, TAKE_RESERVED, Weak::Acquire, "the count of invalid frees");
}

/// A thread takes a chunk of the reserve during the sweep.
fn swept_reserve(scheduler: &Scheduler, medium: Medium) -> Script {
    let (pool, (all, rest)) = pool_with(scheduler, medium, options(), |pool| {
        let guard = pool.pin();
        let all = blocks(&guard, PER_CHUNK);
        let rest = fill(&guard, &ALL_SIZES);
        drop(guard);
        pool.request_collection();
        (all, rest)
    });
    let (collects, takes) = (pool.clone(), pool.clone());
    let kept = all.clone();
    let collector = move || {
        collects.collect(&mut |marker: &mut Marker<'_>| {
            mark_blocks(marker, &kept, BLOCK);
            mark_sized_blocks(marker, &rest);
        });
    };
    let taker = move || {
        visit(&takes);
        let guard = takes.pin();
        guard.retire(all[0], BLOCK);
        mark(2);
        all[1..].iter().for_each(|&at| guard.retire(at, BLOCK));
    };
    // The reserve is the very first slab.
    let look = "sweep.taken";
    let marked = "sweep.mark";
    let breakpoints = vec![
        to(1, Stop::Mark(1)),
        to(0, before(look)),
        to(1, Stop::Mark(2)),
        old_at(0, Stop::End, marked),
        to(1, Stop::End),
    ];
    Script { threads: vec![Box::new(collector), Box::new(taker)], breakpoints, judge: judge(&pool, true) }
}

#[test]
fn reserve_chunk_taken_during_the_sweep_is_kept() {
    assert_detected(swept_reserve, TAKE_RESERVED, Weak::Release, "the count of invalid frees");
}

/// An owned slab has no free block, and one of its blocks is garbage. It is swept while its owner
/// disowns it.
fn disowned_during_sweep(scheduler: &Scheduler, medium: Medium, breakpoints: Vec<Breakpoint>) -> Script {
    let (pool, all) = pool_with(scheduler, medium, options(), |pool| {
        let all = blocks(&pool.pin(), PER_SLAB);
        pool.request_collection();
        all
    });
    let (owns, collects) = (pool.clone(), pool.clone());
    let owner = move || {
        visit(&owns);
        block(&owns.pin(), BLOCK, 7).expect("room");
        mark(2);
    };
    let collector = move || {
        visit(&collects);
        collects.collect(&mut |marker: &mut Marker<'_>| mark_blocks(marker, &all[1..], BLOCK));
    };
    Script { threads: vec![Box::new(owner), Box::new(collector)], breakpoints, judge: judge(&pool, false) }
}

const SWEEP: &str = "sweep.free";

#[test]
fn disowning_a_slab_sees_the_blocks_swept() {
    let holding = "slab.fill";
    // Before it counts bytes, which involves a barrier in all threads.
    let swept = "phase.end-concurrent";
    let breakpoints =
        vec![to(0, Stop::Mark(1)), to(1, before(swept)), late(0, after(holding)), to(0, Stop::End)];
    let play = move |scheduler: &Scheduler, medium: Medium| {
        disowned_during_sweep(scheduler, medium, breakpoints.clone())
    };
    assert_detected(play, SWEEP, Weak::Total, "a slab in no list");
}

#[test]
fn sweep_sees_that_a_slab_was_disowned() {
    let state = "sweep.state";
    let breakpoints = vec![to(1, before(SWEEP)), to(0, Stop::Mark(2)), old_at(1, Stop::End, state)];
    let play = move |scheduler: &Scheduler, medium: Medium| {
        disowned_during_sweep(scheduler, medium, breakpoints.clone())
    };
    assert_detected(play, state, Weak::Total, "a slab in no list");
}

/// A block is removed from its slot and leaked while the collector marks. A reader pinned one epoch
/// later still sees it in the slot, but unpins one epoch before the last grace period ends. The
/// thread that reuses the block has been pinned since then.
fn garbage_that_was_read(scheduler: &Scheduler, medium: Medium) -> Script {
    let (pool, (slot, all)) = pool_with(scheduler, medium, with_barriers(), |pool| {
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
        assert_eq!(block(&guard, BLOCK, 7), Some(garbage), "the block that the sweep freed");
    };
    let reader = move || {
        visit(&reads);
        // Advances the epoch.
        reads.reclaim_blocking();
        let guard = reads.pin();
        mark(2);
        let found = word(&reads, slot).load(reads.medium(), Acquire);
        if found != 0 {
            check_content(&guard, found, BLOCK);
        }
        mark(3);
    };
    let loser = move || {
        visit(&loses);
        let guard = loses.pin();
        word(&loses, slot).swap(loses.medium(), 0, AcqRel);
        mark(2);
        drop(guard);
        loses.reclaim_blocking();
        mark(3);
        loses.reclaim_blocking();
    };
    let collector = move || {
        visit(&collects);
        collects.collect(&mut |marker: &mut Marker<'_>| {
            marker.mark(slot, 64);
            mark_blocks(marker, &all[1..], BLOCK);
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
    let breakpoints = vec![
        to(reader_at, Stop::Mark(1)),
        to(loser_at, Stop::Mark(1)),
        to(collector_at, before(second_grace)),
        to(loser_at, Stop::Mark(2)),
        to(collector_at, Stop::Mark(2)),
        // It knows in which epoch the last grace period begins.
        to(collector_at, after(epoch)),
        to(reader_at, Stop::Mark(2)),
        late(reader_at, Stop::Mark(3)),
        to(loser_at, Stop::Mark(3)),
        to(user_at, Stop::Mark(1)),
        to(reader_at, Stop::End),
        to(loser_at, Stop::End),
        to(collector_at, after(SWEEP)),
        to(user_at, Stop::End),
    ];
    Script {
        threads: vec![Box::new(user), Box::new(reader), Box::new(loser), Box::new(collector)],
        breakpoints,
        judge: judge(&pool, false),
    }
}

#[test]
fn reuse_of_a_swept_block_follows_its_last_reader() {
    assert_detected(garbage_that_was_read, SWEEP, Weak::Release, "a race");
}

/// The head of the list of a size class: the word that `list` changes from zero to a link to a
/// slab.
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

/// One slab is marked as listed but is in no list, as after a crash; another is released while the
/// collector walks the list.
fn walked(scheduler: &Scheduler, medium: Medium) -> Script {
    let (pool, all) = pool_with(scheduler, medium, options(), |pool| {
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
        visit(&gives);
        assert!(gives.reclaim_nonblocking(), "a slab is released");
    };
    let collector =
        move || _ = collects.collect(&mut |marker: &mut Marker<'_>| mark_blocks(marker, &all, BLOCK));
    let head = "walk.head";
    let state = "inspect.state";
    let reserve = "reserve.orphan";
    let breakpoints = vec![
        to(1, Stop::Mark(1)),
        to(0, before(head)),
        to(1, Stop::End),
        old_but(0, before(reserve), state),
        to(0, Stop::End),
    ];
    Script { threads: vec![Box::new(collector), Box::new(giver)], breakpoints, judge: judge(&pool, false) }
}

#[test]
fn walk_that_sees_a_released_unit_sees_the_list_changed() {
    assert_detected(walked, RELEASE, Weak::Release, "in its list if and only if its state is Listed");
}
