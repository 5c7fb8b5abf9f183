//! Tests of `grow`.

use super::*;
use crate::allocator::zones::Hint;
use crate::format::layout::Geometry;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::Dram;

#[test]
fn a_pool_grows_within_what_it_reserved_and_never_shrinks() {
    let options = crate::PoolOptions::anonymous().size(64 << 10).max_size(4 << 20);
    let pool = options.create::<Dram>().unwrap();
    assert_eq!(pool.grow((1 << 20) + 5).unwrap(), 1 << 20);
    assert_eq!(pool.size(), 1 << 20);
    assert_eq!(pool.grow(1 << 20).unwrap(), 1 << 20);
    assert!(matches!(pool.grow(64 << 10), Err(GrowError::Smaller { .. })));
    let error = pool.grow(8 << 20).unwrap_err();
    assert!(error.to_string().contains("cannot grow to 8.0 MiB while it is open: 4.0 MiB were reserved"));
    assert!(matches!(pool.grow(u64::MAX), Err(GrowError::Reserved { .. })));
    assert_eq!(pool.size(), 1 << 20);
}

#[test]
fn a_shared_pool_grows_to_the_last_byte_that_all_have_reserved() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = crate::PoolOptions::at(directory.path().join("pool")).size(64 << 10).max_size(4 << 20);
    let options = options.shared(true);
    let [one, other] = [(); 2].map(|()| options.open_or_create::<terrace_medium::Shm>().unwrap());
    assert_eq!(one.grow(4 << 20).unwrap(), 4 << 20);
    assert_eq!(other.size(), 4 << 20);
    let refused = other.grow((4 << 20) + PAGE).unwrap_err();
    assert!(matches!(refused, GrowError::Reserved { reserved, .. } if reserved == 4 << 20), "{refused}");
    assert_eq!(options.open::<terrace_medium::Shm>().unwrap().size(), 4 << 20, "a later participant, too");
}

#[test]
fn partial_last_unit_is_searched_after_growth() {
    let options = crate::PoolOptions::anonymous().size((1 << 20) + PAGE).max_size(4 << 20);
    let pool = options.create::<Dram>().unwrap();
    let (size, zones) = (pool.size(), &pool.0.units().zones);
    let last = zones.units(size) - 1;
    let there = zones.usable(last, size);
    assert!(there != 0 && there != !0, "the last unit is in the pool in part: {there:#x}");
    let guard = pool.pin();
    for bytes in [PAGE as usize, 64] {
        while let Ok(block) = guard.alloc(bytes) {
            block.fenced_later().into_offset();
        }
    }
    let zone = zones.of_unit(last);
    let is_hinted = |hint| {
        let (word, bit) = pool.0.units().hint_word(hint, &zone, last);
        word.load(pool.medium(), Relaxed) & bit != 0
    };
    assert!(is_hinted(Hint::Empty) && is_hinted(Hint::Room));
    drop(guard);
    pool.grow(size + PAGE).unwrap();
    assert!(pool.pin().alloc(PAGE as usize).is_ok(), "the new memory lies in that unit alone");
}

#[test]
fn refused_thread_searches_again_after_growth() {
    let options = crate::PoolOptions::anonymous().size(1 << 20).max_size(4 << 20);
    let pool = options.geometry(crate::tests::fixtures::geometry()).create::<Dram>().unwrap();
    let (size, zones) = (pool.size(), &pool.0.units().zones);
    let last = zones.units(size) - 1;
    assert!(zones.of_unit(last).end() > last + 1, "the next unit is of the same zone");
    let guard = pool.pin();
    let is_refused = || guard.alloc(PAGE as usize).map(|block| block.fenced_later().into_offset()).is_err();
    while !is_refused() {}
    guard.free(zones.start_of(last), PAGE as usize);
    let other = || {
        let guard = pool.pin();
        drop(guard.alloc(64).unwrap());
        assert_eq!(pool.0.units().revalidate(last).usage(), crate::allocator::zones::UnitUse::Owned);
        // It owns a slab without an allocated block, which only it can release.
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(pool.pin().alloc(PAGE as usize).is_err())).join().unwrap()
        });
        pool.grow(size + PAGE).unwrap();
        assert!(guard.alloc(2 * PAGE as usize).is_ok());
    };
    std::thread::scope(|scope| scope.spawn(other).join().unwrap());
}

#[test]
fn join_fails_if_growth_exceeds_reserved_addresses() {
    let (directory, [growing]) =
        crate::tests::fixtures::participants::<terrace_medium::Shm, 1>(Geometry::tiny());
    growing.0.base().claim_size(MAX_POOL);
    let options = crate::PoolOptions::at(directory.path().join("pool")).shared(true).max_size(4 << 20);
    let refused = options.open::<terrace_medium::Shm>().err().unwrap().to_string();
    let says = |part: &str| assert!(refused.contains(part), "{refused}");
    ["has grown to ", " and 4.0 MiB were reserved", "--max-size of at least that"].into_iter().for_each(says);
    growing.0.base().claim_size(growing.size());
    assert!(options.open::<terrace_medium::Shm>().is_ok());
}
