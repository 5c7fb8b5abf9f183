//! Tests of `slabs`.

use super::*;
use crate::allocator::words::ROUND;
use crate::pool::Pool;
use crate::tests::fixtures::{collection, exclusive_pool};
use std::collections::BTreeSet;
use terrace_medium::Dram;

#[test]
fn a_head_that_comes_back_is_another_one() {
    assert_eq!(head_word(5 << 32 | 7, 9), 6 << 32 | 9);
    assert_eq!(head_word(6 << 32 | 9, 7), 7 << 32 | 7);
    assert_eq!(head_word(!0, 1), 1);
}

#[test]
fn the_reserve_hands_out_each_of_its_blocks_once() {
    // With more blocks than a word has bits.
    let pool = Pool::<Dram>::anonymous(64 << 20).unwrap();
    let inner = &pool.0;
    let class = inner.units().classes.get(inner.units().classes.of(512).unwrap()).unwrap();
    let start = inner.base().shared().reserve.load(pool.medium(), Relaxed);
    let taken: Vec<u64> = std::iter::from_fn(|| inner.heap().take_from_reserve(class)).collect();
    let expected: BTreeSet<u64> =
        (0..u64::from(class.blocks)).map(|block| start + class.position(block)).collect();
    assert!(class.words > 1 && taken.len() == class.blocks as usize);
    assert_eq!(taken.into_iter().collect::<BTreeSet<u64>>(), expected);
}

#[test]
fn only_what_is_a_reserve_is_gone_on_with_as_one() {
    let pool = exclusive_pool::<Dram>();
    let (inner, medium) = (&pool.0, pool.medium());
    let number = inner.units().classes.of(512).unwrap();
    let offset = inner.base().shared().reserve.load(medium, Relaxed);
    let entry = inner.units().unit(inner.units().unit_at(offset).unwrap());
    let is_one = |state: UnitState, taken: u64| {
        entry.state.store(medium, state.0, Relaxed);
        entry.taken.store(medium, taken, Relaxed);
        inner.heap().restore_reserve_slab(offset, number)
    };
    let reserve = UnitState::slab(inner.base().open_seq, number, UnitUse::Reserve);
    assert!(is_one(reserve, !0) && !inner.heap().restore_reserve_slab(offset + 512, number));
    assert!(!is_one(reserve, !1) && !is_one(UnitState(reserve.0 ^ 1), !0));
    assert!(!is_one(reserve.with(UnitUse::Full), !0));
    assert!(!is_one(UnitState::slab(inner.base().open_seq, number - 1, UnitUse::Reserve), !0));
}

#[test]
fn list_to_no_slab_is_cut_and_its_memory_leaks() {
    let pool = exclusive_pool::<Dram>();
    let (inner, medium) = (&pool.0, pool.medium());
    let number = inner.units().classes.of(64).unwrap();
    let list = &inner.base().shared().lists[number].head;
    let damaged = inner
        .heap()
        .granules
        .take_unit(number, inner.units().classes.get(number).unwrap(), UnitUse::Listed)
        .unwrap();
    inner.units().unit(damaged).state.store(medium, UnitState::quarantined(inner.base().open_seq).0, Relaxed);
    // Beyond the pool, a damaged unit, and one that never was a slab.
    for (times, unit) in (1..).zip([1 << 20, damaged, 0]) {
        list.store(medium, unit + 1, Relaxed);
        assert_eq!(inner.heap().pop(number), None);
        assert_eq!(list.load(medium, Relaxed) & low(UNIT_BITS), 0);
        assert_eq!((pool.faults(), pool.space().lost), (times, times << inner.units().classes.slab_log2));
    }
    // The list stays while a unit is being revalidated: it is usable again once that is done.
    let revalidating = UnitState::slab(inner.base().open_seq, number, UnitUse::Revalidating);
    inner.units().unit(damaged).state.store(medium, revalidating.0, Relaxed);
    pool.request_collection();
    list.store(medium, damaged + 1, Relaxed);
    assert_eq!((inner.heap().pop(number), list.load(medium, Relaxed)), (None, damaged + 1));
    assert_eq!(pool.faults(), 3);
    pool.abandon();
}

#[test]
fn reserve_block_taken_during_collection_is_kept() {
    let pool = exclusive_pool::<Dram>();
    let inner = &pool.0;
    let class = inner.units().classes.get(inner.units().classes.of(512).unwrap()).unwrap();
    collection(inner).start_marking();
    let unit = inner.units().unit_at(inner.heap().take_from_reserve(class).unwrap()).unwrap();
    assert_eq!(inner.units().inspect_unit(unit, |state| collection(inner).sweep_unit(unit, state)), (0, 0));
    assert_eq!(inner.units().count_blocks(unit, class), 1);
}

#[test]
fn list_is_scanned_if_an_eighth_may_be_empty() {
    let pool = exclusive_pool::<Dram>();
    let (inner, medium) = (&pool.0, pool.medium());
    let list = &inner.base().shared().lists[inner.units().classes.of(64).unwrap()];
    let is_looked_through = |emptied: u64, kept: u64| {
        list.emptied.store(medium, emptied, Relaxed);
        list.kept.store(medium, kept, Relaxed);
        assert_eq!(inner.heap().release_likely_empty_slabs(), 0, "there is no slab in it");
        list.emptied.load(medium, Relaxed) == 0
    };
    assert!(!is_looked_through(3, 24) && is_looked_through(4, 31));
    assert!(is_looked_through(1, 0) && is_looked_through(1, 7) && !is_looked_through(1, 8));
}

#[test]
fn only_emptied_listed_slabs_are_counted() {
    let pool = exclusive_pool::<Dram>();
    let (inner, guard) = (&pool.0, pool.pin());
    let number = inner.units().classes.of(24).unwrap();
    let class = inner.units().classes.get(number).unwrap();
    assert!(class.words > 1);
    let take = || guard.alloc(24).unwrap().fenced_later().into_offset();
    let blocks: Vec<u64> = (0..=class.blocks).map(|_| take()).collect();
    let (owned, full) = blocks.split_last().unwrap();
    let emptied = || inner.base().shared().lists[number].emptied.load(pool.medium(), Relaxed);
    guard.free(*owned, 24);
    assert_eq!(emptied(), 0, "its owner has it");
    for &block in full {
        assert_eq!(emptied(), 0);
        guard.free(block, 24);
    }
    assert_eq!((emptied(), inner.heap().release_likely_empty_slabs(), emptied()), (1, 1, 0));
}

#[test]
fn take_ownership_records_only_this_round() {
    let pool = exclusive_pool::<Dram>();
    let (inner, medium) = (&pool.0, pool.medium());
    let number = inner.units().classes.of(64).unwrap();
    let class = inner.units().classes.get(number).unwrap();
    collection(inner).start_marking();
    let unit = inner.heap().granules.take_unit(number, class, UnitUse::Owned).unwrap();
    inner.heap().disown(unit, number, class);
    let link = &inner.units().unit(unit).link;
    assert_eq!(link.load(medium, Relaxed) & ROUND, 1 << 32);
    collection(inner).start_marking();
    assert!(inner.heap().take_ownership(unit, number));
    assert_eq!(link.load(medium, Relaxed) & ROUND, 2 << 32);
}
