//! Tests of `stripes.rs`.

use super::super::super::test_pools::pool;
use super::super::ops::Rewo;
use super::*;
use crate::KeyKind;
use crate::{PointIndex, U64};
use terrace_medium::Dram;
use terrace_testkit::TappedPmem;

#[test]
fn collection_recounts_stripes_under_their_locks() {
    let pool = pool::<Dram>(1 << 20);
    let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 4, 2).unwrap();
    let guard = pool.pin();
    (0..40).for_each(|key| _ = map.insert(&guard, &key, key).unwrap());
    let counts = || {
        (0..16)
            .map(|stripe| map.base().stripe_word(stripe, KEYS).load(pool.medium(), Relaxed))
            .collect::<Vec<_>>()
    };
    let (before, place) = (counts(), map.base().view().directory().cells[0]);
    assert!(!(place.start() / BLOCK as u64).is_multiple_of(16), "else a wrong stripe would look right");
    assert_eq!((before.iter().sum::<u64>(), before.iter().filter(|&&keys| keys > 0).count()), (40, 4));
    (0..16).for_each(|stripe| map.base().set_keys(stripe, 1000));
    pool.reachable(&mut |marker| map.trace(&guard, marker, |_, _| ()));
    assert_eq!((counts(), map.len()), (before, 40));
}

#[test]
fn locks_are_released_in_reverse_and_at_most_eight() {
    let pool = pool::<Dram>(1 << 20);
    let map = Rewo::<Dram, U64>::with_shape(&pool, "map", 4, 4).unwrap();
    let (guard, place) = (pool.pin(), map.base().view().directory().cells[0]);
    let is_free = |index| map.base().try_lock_bucket(&guard, &mut LockedStripes::none(), place.bucket(index));
    let mut held = LockedStripes::none();
    assert!((0..8).all(|index| map.base().try_lock_bucket(&guard, &mut held, place.bucket(index))));
    assert_eq!(held.len(), 8);
    assert!(map.base().try_lock_bucket(&guard, &mut held, place.bucket(3)), "it is held already");
    assert!(!map.base().try_lock_bucket(&guard, &mut held, place.bucket(8)) && is_free(8), "one too many");
    held.release_after(8);
    assert!((0..8).all(|index| !is_free(index)));
    held.release_after(6);
    assert_eq!([5, 6, 7].map(is_free), [false, true, true]);
    assert!(map.base().try_lock_bucket(&guard, &mut held, place.bucket(9)) && held.len() == 7);
    held.release_unfenced(map.base().stripe_of(place.bucket(2)));
    assert_eq!([1, 2, 3, 9].map(is_free), [false, true, false, false]);
    drop(held);
    assert!((0..10).all(is_free));
}

/// If the writer dies before it has written the bucket back, the next holder of its lock does
/// so.
#[test]
fn stores_are_announced_as_pending() {
    let pool = pool::<TappedPmem>(1 << 20);
    let map = Rewo::<TappedPmem, U64>::with_shape(&pool, "map", 4, 2).unwrap();
    let (guard, place) = (pool.pin(), map.base().view().directory().cells[0]);
    let home = place.home(U64::hash(&7, map.tables.seed));
    let changes: [&dyn Fn(); 3] =
        [&|| _ = map.insert(&guard, &7, 1).unwrap(), &|| _ = map.update(&guard, &7, 2), &|| {
            _ = map.remove(&guard, &7)
        }];
    for change in changes {
        change();
        for index in 0..4 {
            let pending = map.base().stripe_word(map.base().stripe_of(place.bucket(index)), PENDING);
            let noted = if index == home { place.bucket(home).raw() } else { 0 };
            assert_eq!(pending.load(pool.medium(), Relaxed), noted);
            pending.store(pool.medium(), 0, Relaxed);
        }
    }
}
