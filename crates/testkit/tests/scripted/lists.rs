//! The collector walks a list of slabs while other threads remove and re-add slabs:
//! `pool/orphans.rs`.

use super::{
    BLOCK, Medium, PER_SLAB, Script, assert_detected, block, blocks, mark_blocks, options, pool_with,
    verified, visit,
};
use terrace_pool::Marker;
use terrace_testkit::schedule::cues::{after, before, late, to};
use terrace_testkit::schedule::{Scheduler, Stop, Weak, mark};

/// The walk's load of a link, and its second load of the head.
const LINK: &str = "walk.link";
const HEAD: &str = "walk.head-again";
const PUSHED_LINK: &str = "slab.push";
const OWNED_LINK: &str = "slab.own";

const COLLECTOR: u8 = 0;
const OTHER: u8 = 1;

/// Four slabs: one is full, and three in the list have a free block each, the last one first. The
/// first slab of the list is removed and added again, and perhaps removed `again`.
fn scene(scheduler: &Scheduler, medium: Medium, again: bool) -> Script {
    let (pool, blocks) = pool_with(scheduler, medium, options(), |pool| {
        let guard = pool.pin();
        let blocks = blocks(&guard, 4 * PER_SLAB + 1);
        (1..4).for_each(|slab| guard.free(blocks[slab * PER_SLAB], BLOCK));
        drop(guard);
        pool.request_collection();
        blocks
    });
    let (collects, changes, judged) = (pool.clone(), pool.clone(), pool);
    let is_kept = |&(nth, _): &(usize, &u64)| nth > 0 && nth % PER_SLAB != 0 || nth == 4 * PER_SLAB;
    let kept: Vec<u64> = blocks.iter().enumerate().filter(is_kept).map(|(_, &at)| at).collect();
    let collector =
        move || _ = collects.collect(&mut |marker: &mut Marker<'_>| mark_blocks(marker, &kept, BLOCK));
    let other = move || {
        visit(&changes);
        let guard = changes.pin();
        // This fills the first slab of the list and takes the second. Then a block of the full slab
        // is freed, which lists that slab, and one of the first.
        let [first, second] = [(); 2].map(|()| block(&guard, BLOCK, 5).expect("a slab with room"));
        guard.free(blocks[0], BLOCK);
        guard.free(first, BLOCK);
        let third = if again { block(&guard, BLOCK, 5) } else { None };
        drop(guard);
        mark(2);
        let guard = changes.pin();
        // Each slab is in exactly one place.
        let taken: Vec<u64> = (0..4 * PER_SLAB).filter_map(|_| block(&guard, BLOCK, 7)).collect();
        taken.into_iter().chain([second]).chain(third).for_each(|at| guard.free(at, BLOCK));
    };
    let breakpoints = vec![
        to(OTHER, Stop::Mark(1)),
        to(COLLECTOR, before(LINK)),
        to(OTHER, Stop::Mark(2)),
        to(COLLECTOR, after(LINK)),
        late(COLLECTOR, after(HEAD)),
        to(COLLECTOR, before(LINK)),
        late(COLLECTOR, after(LINK)),
        to(COLLECTOR, Stop::End),
    ];
    Script {
        threads: vec![Box::new(collector), Box::new(other)],
        breakpoints,
        judge: Box::new(move || verified(&judged)),
    }
}

#[test]
fn walk_that_follows_a_new_link_sees_the_list_changed() {
    let damage = "the count of invalid frees and damaged lists: expected 0, found 1";
    let scene = |again| move |scheduler: &Scheduler, medium| scene(scheduler, medium, again);
    assert_detected(scene(false), LINK, Weak::Acquire, damage);
    assert_detected(scene(false), PUSHED_LINK, Weak::Release, damage);
    assert_detected(scene(true), OWNED_LINK, Weak::Release, damage);
}
