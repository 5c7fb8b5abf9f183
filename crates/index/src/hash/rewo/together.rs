//! Copies of several keys that share their fences, for a resize that moves a bucket.
//!
//! Each step of a move is fenced before the next, and it is one step for all keys: (1) the slots of
//! the old bucket are locked; (2) the copies are written; (3) they are made valid; (4) the old
//! slots are invalidated. So a crash between (3) and (4) leaves some or all of the keys in both
//! tables, with their old slots locked, as if they had moved one by one.
//!
//! Under one lock only one bucket may be not durable. So a batch writes only one bucket of a
//! stripe, and holds the locks until the buckets are durable.

use super::bucket::*;
use super::ops::Rewo;
use super::place::Place;
use super::shape::{BucketShape, Entry};
use super::stripes::LockedStripes;
use super::write::Slot;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::Guard;

/// Copies that are written but not valid yet.
#[derive(Default)]
pub(super) struct CopyBatch(Vec<(Slot, u8)>);

impl<M: MappedMedium, K: BucketShape> Rewo<M, K> {
    /// Writes a copy of a key into its first bucket in table `to`, if that has plenty of room and
    /// no other thread holds its lock. Returns whether it did.
    pub(super) fn add_copy<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: &mut LockedStripes<'g, M>,
        (to, home): (Place, u64),
        entry: Entry,
        copies: &mut CopyBatch,
    ) -> bool {
        let at = to.bucket(home);
        if self.is_crowding(copies, at) || !self.try_lock_bucket(guard, held, at) {
            return false;
        }
        let (region, bucket) = (self.pool.region(), self.bucket(to, home));
        let meta = meta(region.medium(), bucket);
        let taken = copies.0.iter().filter(|(slot, _)| slot.place == to && slot.index == home);
        let free = meta.free::<K>() & !taken.fold(0, |taken, (slot, _)| taken | 1 << slot.slot);
        // The same limit as in `vacancy`.
        if meta.slot_lock::<K>() != SlotLock::None || free.count_ones() as usize * 4 <= K::SLOTS {
            return false;
        }
        let slot = choose::<K>(free, entry.tag);
        self.announce(at);
        K::write(guard, bucket, slot, K::placed(entry, false));
        // PERSIST: fenced before it is valid.
        region.write_back(&bucket[line_of::<K>(slot)]);
        copies.0.push((Slot { place: to, index: home, slot }, entry.tag));
        true
    }

    /// Whether the batch writes to another bucket with this one's lock.
    fn is_crowding(&self, copies: &CopyBatch, at: Offset<Bucket>) -> bool {
        let mut others = copies.0.iter().map(|(slot, _)| slot.place.bucket(slot.index));
        others.any(|other| other != at && self.stripe_of(other) == self.stripe_of(at))
    }

    /// Makes the copies valid, durably.
    pub(super) fn publish_copies(&self, copies: &mut CopyBatch) {
        if copies.0.is_empty() {
            return;
        }
        let region = self.pool.region();
        // PERSIST: every copy, before it is valid.
        region.fence();
        for (nth, &(at, tag)) in copies.0.iter().enumerate() {
            self.publish(at, tag);
            let is_last = copies.0[nth + 1..].iter().all(|(other, _)| other.index != at.index);
            if is_last {
                // PERSIST: fenced below.
                region.write_back(&self.bucket(at.place, at.index)[0]);
            }
        }
        // PERSIST: every copy is valid before its original slot is not.
        region.fence();
        copies.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::test_pools::pool;
    use super::*;
    use crate::{PointIndex, U64};
    use terrace_medium::Pmem;
    use terrace_testkit::TappedPmem;

    #[test]
    fn batch_writes_one_bucket_for_each_lock() {
        let pool = pool::<TappedPmem>(1 << 20);
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 3).unwrap();
        let (guard, to) = (map.pool().pin(), map.view().directory().cells[0]);
        let (mut held, mut copies) = (LockedStripes::none(), CopyBatch::default());
        let entry = |key: u64| Entry { tag: key as u8, key, word: key };
        let mut copy = |home, key| map.add_copy(&guard, &mut held, (to, home), entry(key), &mut copies);
        // Two locks: that of each second bucket.
        assert_eq!(
            [copy(1, 10), copy(3, 11), copy(1, 12), copy(2, 13), copy(0, 14)],
            [true, false, true, true, false]
        );
        assert_eq!((copies.0.len(), map.len()), (3, 0));
        assert_eq!((copies.0[0].0.index, copies.0[1].0.index), (1, 1));
        assert_ne!(copies.0[0].0.slot, copies.0[1].0.slot);
        assert_eq!(copies.0[0].0.slot, copies.0[2].0.slot, "each bucket by itself");
        let (counts, ()) = pool.medium().during(|| map.publish_copies(&mut copies));
        assert_eq!((copies.0.len(), map.len()), (0, 3));
        assert_eq!((counts.write_backs, counts.fences), (2, 2), "each bucket once");
        // Nothing is written while another thread has the lock.
        drop(held);
        let other = map.lock_buckets(&guard, &[to.bucket(4)]);
        let locked = || {
            map.add_copy(&guard, &mut LockedStripes::none(), (to, 6), entry(15), &mut CopyBatch::default())
        };
        assert!(!locked());
        drop(other);
        assert!(locked());
    }

    #[test]
    fn batch_needs_room_and_no_locked_slot() {
        let pool = pool::<TappedPmem>(1 << 20);
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 3).unwrap();
        let (guard, to) = (map.pool().pin(), map.view().directory().cells[0]);
        let entry = Entry { tag: 1, key: 1, word: 1 };
        let taken = |free: u32, mark| {
            let valid = all_slots::<U64>() >> free;
            store_meta(pool.medium(), map.bucket(to, 5), Meta(0).becoming::<U64>(valid, mark));
            map.add_copy(&guard, &mut LockedStripes::none(), (to, 5), entry, &mut CopyBatch::default())
        };
        assert_eq!(
            [0, 1, 3, 4, 14].map(|free| taken(free, SlotLock::None)),
            [false, false, false, true, true]
        );
        assert!(!taken(14, SlotLock::Slot(3)) && !taken(14, SlotLock::Moving));
    }
}
