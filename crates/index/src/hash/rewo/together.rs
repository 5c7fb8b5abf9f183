//! Copies of several keys that share their fences: what a resize moves out of one bucket.
//!
//! Each step of a move is fenced before the next, and it is one step for all of them: (1) the slots of the old bucket are locked; (2) the copies are written; (3) they are made valid; (4) the old slots are invalid. So a
//! crash between (3) and (4) leaves some of the keys, or all, in both tables, alike, with their old slots locked, as if they had moved one by one.
//!
//! Under one lock only one bucket may be not durable. So of a stripe only one bucket is among those that are written together, and their locks are held until they are durable.

use super::bucket::*;
use super::ops::Rewo;
use super::place::Place;
use super::shape::{Entry, Nests};
use super::stripes::Held;
use super::write::Slot;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::Guard;

/// Copies that are written and not valid yet.
#[derive(Default)]
pub(super) struct Together(Vec<(Slot, u8)>);

impl<M: MappedMedium, K: Nests> Rewo<M, K> {
    /// Writes a copy of a key into its first bucket in table `to`, if that has plenty of room, and nobody else has its lock. Whether it has.
    pub(super) fn copy_together<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        held: &mut Held<'g, M>,
        (to, home): (Place, u64),
        entry: Entry,
        copies: &mut Together,
    ) -> bool {
        let at = to.bucket(home);
        if self.is_crowding(copies, at) || !self.try_hold(guard, held, at) {
            return false;
        }
        let (region, bucket) = (self.pool.region(), self.bucket(to, home));
        let meta = meta(region.medium(), bucket);
        let taken = copies.0.iter().filter(|(slot, _)| slot.place == to && slot.index == home);
        let free = meta.free::<K>() & !taken.fold(0, |taken, (slot, _)| taken | 1 << slot.slot);
        // As `vacancy` has it.
        if meta.mark::<K>() != Mark::None || free.count_ones() as usize * 4 <= K::SLOTS {
            return false;
        }
        let slot = choose::<K>(free, entry.tag);
        self.announce(at);
        K::write(guard, bucket, slot, K::turned(entry, false));
        // PERSIST: fenced before it is valid.
        region.write_back(&bucket[line_of::<K>(slot)]);
        copies.0.push((Slot { place: to, index: home, slot }, entry.tag));
        true
    }

    /// Whether another bucket with the lock of this one is written to.
    fn is_crowding(&self, copies: &Together, at: Offset<Bucket>) -> bool {
        let mut others = copies.0.iter().map(|(slot, _)| slot.place.bucket(slot.index));
        others.any(|other| other != at && self.stripe_of(other) == self.stripe_of(at))
    }

    /// Makes the copies valid, for good.
    pub(super) fn publish_together(&self, copies: &mut Together) {
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
        // PERSIST: every copy is valid before its slot is not.
        region.fence();
        copies.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::power::pool;
    use super::*;
    use crate::{PointIndex, U64};
    use terrace_medium::Pmem;
    use terrace_testkit::Counting;

    #[test]
    fn two_buckets_of_one_lock_are_not_written_together() {
        let pool = pool::<Counting<Pmem>>(1 << 20);
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 3).unwrap();
        let (guard, to) = (map.pool().pin(), map.view().directory().cells[0]);
        let (mut held, mut copies) = (Held::none(), Together::default());
        let entry = |key: u64| Entry { tag: key as u8, key, word: key };
        let mut copy = |home, key| map.copy_together(&guard, &mut held, (to, home), entry(key), &mut copies);
        // Two locks: that of each second bucket.
        assert_eq!(
            [copy(1, 10), copy(3, 11), copy(1, 12), copy(2, 13), copy(0, 14)],
            [true, false, true, true, false]
        );
        assert_eq!((copies.0.len(), map.len()), (3, 0));
        assert_eq!((copies.0[0].0.index, copies.0[1].0.index), (1, 1));
        assert_ne!(copies.0[0].0.slot, copies.0[1].0.slot);
        assert_eq!(copies.0[0].0.slot, copies.0[2].0.slot, "each bucket by itself");
        let (counts, ()) = pool.medium().during(|| map.publish_together(&mut copies));
        assert_eq!((copies.0.len(), map.len()), (0, 3));
        assert_eq!((counts.write_backs, counts.fences), (2, 2), "each bucket once");
        // Where another has the lock nothing is written.
        drop(held);
        let other = map.hold(&guard, &[to.bucket(4)]);
        let locked =
            || map.copy_together(&guard, &mut Held::none(), (to, 6), entry(15), &mut Together::default());
        assert!(!locked());
        drop(other);
        assert!(locked());
    }

    #[test]
    fn only_a_bucket_with_plenty_of_room_and_no_locked_slot_is_written_to() {
        let pool = pool::<Counting<Pmem>>(1 << 20);
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 3).unwrap();
        let (guard, to) = (map.pool().pin(), map.view().directory().cells[0]);
        let entry = Entry { tag: 1, key: 1, word: 1 };
        let taken = |free: u32, mark| {
            let valid = all_slots::<U64>() >> free;
            store_meta(pool.medium(), map.bucket(to, 5), Meta(0).becoming::<U64>(valid, mark));
            map.copy_together(&guard, &mut Held::none(), (to, 5), entry, &mut Together::default())
        };
        assert_eq!([0, 1, 3, 4, 14].map(|free| taken(free, Mark::None)), [false, false, false, true, true]);
        assert!(!taken(14, Mark::Slot(3)) && !taken(14, Mark::Moving));
    }
}
