//! Tests of `together.rs`.

use super::super::super::test_pools::pool;
use super::super::ops::Rewo;
use super::*;
use crate::{PointIndex, U64};
use terrace_testkit::TappedPmem;

#[test]
fn batch_writes_one_bucket_for_each_lock() {
    let pool = pool::<TappedPmem>(1 << 20);
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 3).unwrap();
    let (guard, to) = (map.pool().pin(), map.base().view().directory().cells[0]);
    let (mut held, mut copies) = (LockedStripes::none(), CopyBatch::default());
    let entry = |key: u64| Entry { tag: key as u8, key, word: key };
    let mut copy = |home, key| map.tables.add_copy(&guard, &mut held, (to, home), entry(key), &mut copies);
    // Two locks: that of each second bucket.
    assert_eq!(
        [copy(1, 10), copy(3, 11), copy(1, 12), copy(2, 13), copy(0, 14)],
        [true, false, true, true, false]
    );
    assert_eq!((copies.0.len(), map.len()), (3, 0));
    assert_eq!((copies.0[0].0.index, copies.0[1].0.index), (1, 1));
    assert_ne!(copies.0[0].0.slot, copies.0[1].0.slot);
    assert_eq!(copies.0[0].0.slot, copies.0[2].0.slot, "each bucket by itself");
    let (counts, ()) = pool.medium().during(|| map.tables.publish_copies(&mut copies));
    assert_eq!((copies.0.len(), map.len()), (0, 3));
    assert_eq!((counts.write_backs, counts.fences), (2, 2), "each bucket once");
    // Nothing is written while another thread has the lock.
    drop(held);
    let other = map.base().lock_buckets(&guard, &[to.bucket(4)]);
    let locked = || {
        map.tables.add_copy(&guard, &mut LockedStripes::none(), (to, 6), entry(15), &mut CopyBatch::default())
    };
    assert!(!locked());
    drop(other);
    assert!(locked());
}

#[test]
fn batch_needs_room_and_no_locked_slot() {
    let pool = pool::<TappedPmem>(1 << 20);
    let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 3).unwrap();
    let (guard, to) = (map.pool().pin(), map.base().view().directory().cells[0]);
    let entry = Entry { tag: 1, key: 1, word: 1 };
    let taken = |free: u32, mark| {
        let valid = all_slots::<U64>() >> free;
        store_meta(pool.medium(), map.base().bucket(to, 5), Meta(0).becoming::<U64>(valid, mark));
        map.tables.add_copy(&guard, &mut LockedStripes::none(), (to, 5), entry, &mut CopyBatch::default())
    };
    assert_eq!([0, 1, 3, 4, 14].map(|free| taken(free, SlotLock::None)), [false, false, false, true, true]);
    assert!(!taken(14, SlotLock::Slot(3)) && !taken(14, SlotLock::Moving));
}
