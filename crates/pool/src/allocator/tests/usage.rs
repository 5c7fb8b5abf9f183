//! Tests of `usage`.

use super::*;
use crate::format::layout::PAGE;
use crate::pool::Pool;
use crate::tests::fixtures::{exclusive_pool, reopened};
use terrace_medium::Dram;

fn take<M: MappedMedium>(pool: &Pool<M>, count: usize, bytes: usize) {
    let guard = pool.pin();
    (0..count).for_each(|_| _ = guard.alloc(bytes).unwrap().fenced_later().into_offset());
}

#[test]
fn every_byte_is_free_or_used_for_something() {
    let pool = exclusive_pool::<Dram>();
    let zones = &pool.0.units().zones;
    let heads =
        pool.0.units().zones().flat_map(|zone| pool.0.units().units_in(&zone).map(move |unit| (zone, unit)));
    let heads: u64 =
        heads.map(|(zone, unit)| u64::from(zones.header_granules(&zone, unit).count_ones())).sum();
    let slab = 1 << zones.slab_log2;
    let metadata = zones.base + (heads << zones.granule_log2());
    let empty = pool.space();
    let free = pool.size() - metadata - slab;
    let expected = Space { size: 1 << 20, metadata, slab_free: slab, free, ..Space::default() };
    assert_eq!(Space { largest_free_extent: 0, ..empty }, expected);
    take(&pool, 3, 1000);
    take(&pool, 2, 64);
    let used = Space {
        used_by_blocks: 3 * 1024 + 128,
        slab_free: 2 * slab - 128,
        free: free - 3 * 1024 - slab,
        ..expected
    };
    assert_eq!(Space { largest_free_extent: 0, ..pool.space() }, used);
    let guard = pool.pin();
    guard.retire(guard.alloc(64).unwrap().fenced_later().into_offset(), 64);
    let space = pool.space();
    assert_eq!((space.waiting_bytes, space.readers, space.blocking_readers), (64, 1, 0));
    assert_eq!(space.used_by_blocks, used.used_by_blocks + 64 + 512, "its entry is in a chunk");
    pool.0.epochs().try_advance();
    assert_eq!(pool.space().blocking_readers, 1);
}

#[test]
fn quarantined_memory_is_counted_once() {
    let pool = Pool::<Dram>::anonymous((1 << 20) + PAGE).unwrap();
    let (inner, zones) = (&pool.0, &pool.0.units().zones);
    let (before, counted) = (pool.space(), inner.units().count_all());
    // A unit with a zone's header, one that is free as a whole, and the last one, which lies in
    // the pool in part.
    let last = zones.units(pool.size()) - 1;
    let is_free = |&unit: &u64| inner.units().unit(unit).taken.load(pool.medium(), Relaxed) == 0;
    let free = inner.units().all_units().find(is_free).unwrap();
    assert!(0 < free && free < last && zones.usable(last, pool.size()) != !0);
    let granules = |unit| {
        let usable = zones.usable(unit, pool.size());
        u64::from((usable & !zones.header_granules(&zones.of_unit(unit), unit)).count_ones())
    };
    let bytes = [0, free, last].map(granules).iter().sum::<u64>() << zones.granule_log2();
    for unit in [0, free, last] {
        inner.units().unit(unit).state.store(
            pool.medium(),
            UnitState::quarantined(inner.base().open_seq).0,
            Relaxed,
        );
        inner.units().unit(unit).taken.store(pool.medium(), !0, Relaxed);
    }
    let expected = Space { damaged: bytes, free: before.free - bytes, ..before };
    assert_eq!(Space { largest_free_extent: before.largest_free_extent, ..pool.space() }, expected);
    assert_eq!(inner.units().count_all(), counted);
    pool.abandon();
}

#[test]
fn the_longest_free_run_is_what_can_be_had_in_one_piece() {
    let pool = Pool::<Dram>::anonymous((1 << 20) + PAGE).unwrap();
    let longest = pool.space().largest_free_extent;
    let guard = pool.pin();
    drop(guard.alloc(longest as usize).unwrap());
    assert_eq!(guard.alloc(longest as usize + 1).err().unwrap().longest, Some(longest));
    drop(guard);
    // Memory beyond the pool is not free, whatever a damaged pool says of it.
    pool.0
        .units()
        .all_units()
        .for_each(|unit| pool.0.units().unit(unit).taken.store(pool.medium(), !0, Relaxed));
    assert_eq!(pool.0.units().longest_free_run(), 0);
    pool.abandon();
}

#[test]
fn only_cleanly_closed_units_are_counted_by_their_bitmaps() {
    for (start, expected) in [(Start::Clean, (128, 3 * 1024)), (Start::Unclean, (0, 0))] {
        let (_directory, pool) = reopened::<Dram>(start, |pool| {
            take(pool, 3, 1000);
            take(pool, 2, 64);
        });
        assert_eq!(pool.0.units().count_all(), expected, "{start:?}");
    }
}

#[test]
fn a_sum_below_zero_is_nothing() {
    let pool = exclusive_pool::<Dram>();
    let sum = |value: u64| {
        let base = &pool.0.base().shared().small_base;
        base.store(pool.medium(), value, Relaxed);
        pool.0.base().sum(base, |slot| &slot.small_bytes)
    };
    let most = u64::MAX / 2;
    assert_eq!([0, 8, most, most + 1, u64::MAX - 7].map(sum), [0, 8, most, 0, 0]);
    pool.abandon();
}

#[test]
fn until_it_is_collected_what_a_death_left_is_used() {
    let mut before = Space::default();
    let (_directory, pool) = reopened::<Dram>(Start::Unclean, |pool| {
        take(pool, 3, 1000);
        take(pool, 2, 64);
        before = pool.space();
    });
    let slab = 1 << pool.0.units().zones.slab_log2;
    let guess = Space {
        used_by_blocks: 3 * 1024 + slab,
        slab_free: before.slab_free - (slab - 128),
        collecting: true,
        ..before
    };
    assert_eq!(pool.space(), guess);
    // One of these units is revalidated, and a new one is taken.
    take(&pool, 1, 64);
    assert_eq!(pool.verify_memory(), []);
    pool.collect(&mut |_| ());
    let space = pool.space();
    assert_eq!((space.used_by_blocks, space.collecting, space.metadata), (64, false, before.metadata));
}

#[test]
fn a_run_goes_on_from_word_to_word() {
    let words = [!0, 0, 0x8000_0000_0000_0001, 0x00ff_0000, 0, 0, !1, !0 << 63, 0x5555_5555_5555_5555];
    let (mut run, mut longest_of_words) = (0, 0);
    let (mut bit_run, mut longest) = (0, 0);
    for taken in words.into_iter().cycle().take(30) {
        for bit in 0..64 {
            bit_run = if taken >> bit & 1 == 0 { bit_run + 1 } else { 0 };
            longest = longest.max(bit_run);
        }
        longest_of_words = longest_run(&mut run, taken).max(longest_of_words);
        assert_eq!((run, longest_of_words), (bit_run, longest), "{taken:#x}");
    }
}
