//! Tests of `concurrent`.

use super::*;
use crate::pool::Pool;
use crate::tests::fixtures::{collection, exclusive_pool};
use crate::tests::interleavings::{Hooked, hooked, offset_of};
use std::cell::Cell;
use std::rc::Rc;
use terrace_medium::{Access, Dram};

/// A block that only the test knows.
fn block<M: MappedMedium>(pool: &Pool<M>, bytes: usize) -> u64 {
    pool.pin().alloc(bytes).unwrap().fenced_later().into_offset()
}

#[test]
fn extent_traced_as_small_block_keeps_its_granule() {
    let pool = exclusive_pool::<Dram>();
    let granule = 1 << pool.0.units().zones.granule_log2();
    let bytes = 140 * granule;
    // Covers the first and the last granule of a unit, wherever the extent begins.
    for at in 0..140 {
        let extent = block(&pool, bytes as usize);
        pool.request_collection();
        let named = extent + at * granule;
        let report = pool.collect(&mut |marker| marker.mark(named + 8, 24));
        assert_eq!((report.unsound, report.freed), (1, bytes - granule), "granule {at}");
        assert!(
            pool.0.heap().granules.free_extent(named, granule),
            "granule {at} is free, and another is not"
        );
    }
}

#[test]
fn slab_block_traced_as_larger_one_is_kept() {
    let pool = exclusive_pool::<Dram>();
    let guard = pool.pin();
    let blocks: Vec<u64> = (0..150).map(|_| guard.alloc(24).unwrap().fenced_later().into_offset()).collect();
    drop(guard);
    pool.request_collection();
    let named = [0, 1, 63, 64, 149].map(|at: usize| blocks[at]);
    let report = pool.collect(&mut |marker| named.iter().for_each(|&offset| marker.mark(offset + 8, 200)));
    assert_eq!((report.unsound, report.freed), (5, 145 * 24));
    let guard = pool.pin();
    named.iter().for_each(|&offset| guard.free(offset, 24));
    drop(guard);
    assert_eq!((pool.faults(), pool.verify_memory()), (0, vec![]));
}

#[test]
fn granules_changed_during_snapshot_are_not_garbage() {
    let pool = exclusive_pool::<Dram>();
    let (inner, medium) = (&pool.0, pool.medium());
    let extents: Vec<u64> = (0..12).map(|_| block(&pool, 1000)).collect();
    let slab = inner.units().unit_at(block(&pool, 24)).unwrap();
    let old = |unit| inner.units().unit(unit).old.load(medium, Relaxed);
    collection(inner).snapshot_granules();
    let snapshot: Vec<(u64, u64)> = inner.units().all_units().map(|unit| (unit, old(unit))).collect();
    let guard = pool.pin();
    extents.iter().step_by(2).for_each(|&offset| guard.free(offset, 1000));
    drop(guard);
    // The collector has read before that they are taken, and stores it only now; the same for
    // the slab.
    for &(unit, snapshot) in &snapshot {
        let snapshot = if unit == slab { !0 } else { snapshot };
        inner.units().unit(unit).old.store(medium, snapshot, Relaxed);
    }
    collection(inner).exclude_freed_granules();
    let granule = 1u64 << inner.units().zones.granule_log2();
    let is_old = |&offset: &u64| {
        let unit = inner.units().unit_at(offset).unwrap();
        let first = (offset - inner.units().zones.start_of(unit)) / granule;
        old(unit) >> first & 1 == 1
    };
    let still: Vec<bool> = extents.iter().map(is_old).collect();
    assert_eq!(still, [false, true].repeat(6), "those that are taken, and no other");
    assert_eq!(old(slab), 0);
}

#[test]
fn a_collection_says_how_many_units_it_has_been_through() {
    let pool = exclusive_pool::<Dram>();
    let units = pool.0.units().zones.units(pool.size());
    assert!(units > 200, "a pool of 1 MiB has {units} slabs of 4 KiB");
    for _ in 0..2 {
        pool.request_collection();
        assert_eq!(pool.collect(&mut |_| ()).units, units);
    }
}

#[test]
fn blocks_taken_during_sweep_of_their_word_are_kept() {
    let pool = exclusive_pool::<Hooked>();
    let (inner, kept) = (&pool.0, block(&pool, 24));
    let (unit, class) = (inner.units().unit_at(kept).unwrap(), inner.units().classes.of(24).unwrap());
    inner.heap().drain_caches(pool.pin().thread_slot());
    collection(inner).clear_marks();
    collection(inner).start_marking();
    collection(inner).mark_concurrently(unit, kept);
    let class = inner.units().classes.get(class).unwrap();
    let marks = offset_of(inner, inner.units().mark_word(unit, class, 0));
    let (other, fresh) = (pool.clone(), Rc::new(Cell::new(0)));
    let take = {
        let fresh = fresh.clone();
        move |access, offset| {
            // Another thread marks them and takes them then.
            if (access, offset) == (Access::Load, marks) && fresh.get() == 0 {
                fresh.set(block(&other, 24));
            }
        }
    };
    let swept =
        hooked(take, || inner.units().inspect_unit(unit, |state| collection(inner).sweep_unit(unit, state)));
    assert_eq!((swept, inner.units().unit_at(fresh.get())), ((0, 0), Some(unit)));
    let guard = pool.pin();
    [kept, fresh.get()].iter().for_each(|&offset| guard.free(offset, 24));
    assert_eq!(pool.faults(), 0, "one of them was free");
}
