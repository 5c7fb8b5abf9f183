//! Tests of `compact`.

use super::*;
use crate::format::lifetime::Start;
use crate::pool::Pool;
use crate::pool::compaction::Sparse;
use crate::tests::fixtures::{exclusive_pool, reopened};
use terrace_medium::{Dram, Shm};

const BYTES: usize = 96;
const ALL: Sparse = Sparse { bytes: u64::MAX, percent: 100 };

fn take<M: MappedMedium>(pool: &Pool<M>, bytes: usize) -> Option<u64> {
    pool.pin().alloc(bytes).ok().map(|block| block.fenced_later().into_offset())
}

/// Fills the pool with blocks of `bytes` bytes, and frees three of four. Returns the rest.
fn thinned<M: MappedMedium>(pool: &Pool<M>, bytes: usize) -> Vec<u64> {
    let blocks: Vec<u64> = std::iter::from_fn(|| take(pool, bytes)).collect();
    let (kept, gone): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(nth, _)| nth % 4 == 0);
    gone.iter().for_each(|&(_, block)| pool.pin().free(block, bytes));
    kept.into_iter().map(|(_, block)| block).collect()
}

fn slab_of(pool: &Pool<impl MappedMedium>, block: u64) -> u64 {
    pool.0.units().zones.start_of(pool.0.units().zones.unit_of(block))
}

fn assert_sound(pool: &Pool<impl MappedMedium>) {
    assert_eq!((pool.verify_memory(), pool.faults()), (vec![], 0));
}

#[test]
fn full_class_is_served_by_a_larger_one_with_its_alignment() {
    let pool = exclusive_pool::<Dram>();
    let blocks: Vec<u64> = std::iter::from_fn(|| take(&pool, BYTES)).collect();
    let used = pool.space().used_by_blocks;
    assert_eq!((take(&pool, 72), take(&pool, 24)), (None, None));
    blocks[..3].iter().for_each(|&block| pool.pin().free(block, BYTES));
    // Blocks of 96 bytes do not begin at lines, and are too large for 24 bytes.
    pool.with_larger_blocks(|| assert_eq!((take(&pool, 64), take(&pool, 24)), (None, None)));
    assert_eq!(take(&pool, 72), None, "without with_larger_blocks");
    let larger: Vec<u64> = pool.with_larger_blocks(|| std::iter::from_fn(|| take(&pool, 72)).collect());
    assert_eq!((larger.len(), pool.space().used_by_blocks), (3, used));
    assert!(larger.iter().all(|block| blocks[..3].contains(block)));
    let listed = pool.reachable(&mut |marker| marker.mark(larger[0], 72));
    assert_eq!(listed, [(larger[0], BYTES as u64)]);
    larger.iter().for_each(|&block| pool.pin().free(block, 72));
    assert_eq!(pool.space().used_by_blocks, used - 3 * BYTES as u64);
    assert_sound(&pool);
    // Blocks that are free already, or of a class too far away, still count as faults.
    pool.pin().free(larger[0], 72);
    pool.pin().free(blocks[5], 24);
    assert_eq!(pool.faults(), 2);
    pool.abandon();
}

#[test]
fn block_of_a_larger_class_survives_a_collection() {
    let pool = exclusive_pool::<Dram>();
    let blocks: Vec<u64> = std::iter::from_fn(|| take(&pool, BYTES)).collect();
    pool.pin().free(blocks[0], BYTES);
    let larger = pool.with_larger_blocks(|| take(&pool, 72)).unwrap();
    pool.request_collection();
    let report = pool.collect(&mut |marker| {
        marker.mark(larger, 72);
        blocks[2..].iter().for_each(|&block| marker.mark(block, BYTES));
    });
    assert_eq!((report.unsound, report.freed), (0, BYTES as u64), "the second one is garbage");
    pool.pin().free(larger, 72);
    assert_sound(&pool);
    pool.abandon();
}

#[test]
fn nothing_is_taken_from_a_slab_that_is_being_emptied() {
    let pool = exclusive_pool::<Dram>();
    let kept = thinned(&pool, BYTES);
    let (slabs, slack) = pool.compaction().slack();
    assert!(slack * 3 > slabs * 2 && slack < slabs);
    let mut victims = pool.compaction().vacate(ALL, &|_| false);
    victims.sort_unstable();
    assert!(victims.len() as u64 * pool.compaction().slab_bytes() > slabs / 2, "{} slabs", victims.len());
    assert_eq!(pool.compaction().vacating(), victims);
    assert_sound(&pool);
    let is_inside = |block: &u64| victims.contains(&slab_of(&pool, *block));
    let more: Vec<u64> = std::iter::from_fn(|| take(&pool, BYTES)).collect();
    assert!(!more.is_empty() && !more.iter().any(is_inside));
    let mut listed: Vec<u64> = victims.iter().flat_map(|&slab| pool.pin().blocks_in(slab)).collect();
    let mut inside: Vec<u64> = kept.iter().copied().filter(is_inside).collect();
    listed.sort_unstable();
    inside.sort_unstable();
    assert_eq!(listed, inside);
    let in_use = slab_of(&pool, more[0]);
    assert!(pool.pin().blocks_in(in_use).contains(&more[0]));
    assert!(pool.pin().blocks_in(take(&pool, 3000).unwrap_or(0)).is_empty());
    // All are freed but one.
    inside[1..].iter().for_each(|&block| pool.pin().free(block, BYTES));
    let (released, left) = pool.compaction().end_vacating(&victims, false);
    assert_eq!((released + 1, left), (victims.len() as u64, vec![slab_of(&pool, inside[0])]));
    assert!(take(&pool, 3000).is_some(), "of another size");
    assert_eq!(pool.compaction().end_vacating(&pool.compaction().vacating(), true), (0, vec![]));
    assert!(
        std::iter::from_fn(|| take(&pool, BYTES))
            .any(|block| slab_of(&pool, block) == slab_of(&pool, inside[0]))
    );
    assert_sound(&pool);
    pool.abandon();
}

#[test]
fn slabs_that_are_full_or_left_out_stay() {
    let pool = exclusive_pool::<Dram>();
    while take(&pool, BYTES).is_some() {}
    assert!(pool.compaction().vacate(ALL, &|_| false).is_empty());
    let pool = exclusive_pool::<Dram>();
    let kept = thinned(&pool, BYTES);
    assert!(pool.compaction().vacate(ALL, &|_| true).is_empty());
    assert!(pool.compaction().vacate(Sparse { bytes: u64::MAX, percent: 10 }, &|_| false).is_empty());
    assert!(
        pool.compaction().vacate(Sparse { bytes: BYTES as u64 - 1, percent: 100 }, &|_| false).is_empty()
    );
    kept.iter().for_each(|&block| pool.pin().free(block, BYTES));
    // Empty slabs are released at once.
    let free = pool.space().free;
    assert!(pool.compaction().vacate(ALL, &|_| false).is_empty() && pool.space().free > free + (512 << 10));
    assert_sound(&pool);
    pool.abandon();
}

#[test]
fn garbage_in_a_slab_that_is_being_emptied_is_collected() {
    let pool = exclusive_pool::<Dram>();
    thinned(&pool, BYTES);
    let victims = pool.compaction().vacate(ALL, &|_| false);
    pool.request_collection();
    pool.collect(&mut |_| {});
    assert_eq!(pool.compaction().end_vacating(&victims, false), (victims.len() as u64, vec![]));
    assert_sound(&pool);
}

#[test]
fn close_and_crash_leave_no_slab_that_is_being_emptied() {
    for start in [Start::Clean, Start::Unclean] {
        let mut kept = Vec::new();
        let (_directory, pool) = reopened::<Shm>(start, |pool| {
            kept = thinned(pool, BYTES);
            assert!(!pool.compaction().vacate(ALL, &|_| false).is_empty());
        });
        pool.collect(&mut |marker| kept.iter().for_each(|&block| marker.mark(block, BYTES)));
        assert!(pool.compaction().vacating().is_empty());
        assert_sound(&pool);
        assert_eq!(pool.space().used_by_blocks, (kept.len() * BYTES) as u64, "{start:?}");
        assert!(kept.iter().all(|&block| take(&pool, BYTES) != Some(block)));
    }
}

#[test]
fn nothing_is_taken_in_a_window_before_it_is_closed() {
    let pool = exclusive_pool::<Dram>();
    let kept = thinned(&pool, BYTES);
    let bytes = 3 * pool.compaction().slab_bytes();
    let window = pool.compaction().cheapest_window(bytes, &|_| 0, &|_| false).unwrap();
    assert_eq!(window.end - window.start, bytes);
    let slabs = pool.compaction().open_window(&window);
    assert!(slabs.iter().all(|slab| window.contains(slab)));
    let inside: Vec<u64> = kept.iter().copied().filter(|block| window.contains(block)).collect();
    inside.iter().for_each(|&block| pool.pin().free(block, BYTES));
    assert_eq!(pool.compaction().end_vacating(&slabs, false), (slabs.len() as u64, vec![]));
    assert!(pool.compaction().used_units_in(&window).is_empty());
    assert_eq!(take(&pool, bytes as usize), None);
    assert!(std::iter::from_fn(|| take(&pool, BYTES)).all(|block| !window.contains(&block)));
    pool.compaction().close_window();
    assert_eq!(take(&pool, bytes as usize), Some(window.start));
    assert_sound(&pool);
    pool.abandon();
}

#[test]
fn window_leaves_out_what_cannot_be_moved() {
    let pool = exclusive_pool::<Dram>();
    let large = take(&pool, 5000).unwrap();
    let kept = thinned(&pool, BYTES);
    let of_large = pool.0.units().zones.unit_of(large);
    let whole = |movable: &dyn Fn(u64) -> u32, stays: &dyn Fn(u64) -> bool| {
        pool.compaction().cheapest_window(pool.compaction().slab_bytes(), movable, stays)
    };
    let first = whole(&|_| 0, &|_| false).unwrap();
    let other = whole(&|_| 0, &|slab| slab == first.start).unwrap();
    assert!(first != other && kept.iter().any(|block| other.contains(block)));
    // Without slabs, only units of the large extent are left, if they are movable.
    let is_slab = |slab: u64| kept.iter().any(|&block| slab_of(&pool, block) == slab);
    assert_eq!(whole(&|_| 0, &is_slab), None);
    let mut counts = Vec::new();
    pool.compaction().for_each_unit_of(large, 5000, &mut |unit, granules| counts.push((unit, granules)));
    assert!(counts.iter().any(|&(unit, _)| unit == of_large));
    let movable = |unit| counts.iter().find(|count| count.0 == unit).map_or(0, |count| count.1);
    let found = whole(&movable, &is_slab);
    assert!(found.is_none_or(|window| {
        counts.iter().any(|&(unit, _)| pool.0.units().zones.start_of(unit) == window.start)
    }));
    pool.abandon();
}
