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
use super::place::Place;
use super::shape::{BucketShape, Entry};
use super::stripes::LockedStripes;
use super::tables::{DataTables, Slot};
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::Guard;

/// Copies that are written but not valid yet.
#[derive(Default)]
pub(super) struct CopyBatch(Vec<(Slot, u8)>);

impl<M: MappedMedium, K: BucketShape> DataTables<M, K> {
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
        if self.is_crowding(copies, at) || !self.base.try_lock_bucket(guard, held, at) {
            return false;
        }
        let (region, bucket) = (self.base.pool.region(), self.base.bucket(to, home));
        let meta = meta(region.medium(), bucket);
        let taken = copies.0.iter().filter(|(slot, _)| slot.place == to && slot.index == home);
        let free = meta.free::<K>() & !taken.fold(0, |taken, (slot, _)| taken | 1 << slot.slot);
        // The same limit as in `vacancy`.
        if meta.slot_lock::<K>() != SlotLock::None || free.count_ones() as usize * 4 <= K::SLOTS {
            return false;
        }
        let slot = choose::<K>(free, entry.tag);
        self.base.announce(at);
        K::write(guard, bucket, slot, K::placed(entry, false));
        // PERSIST: fenced before it is valid.
        region.write_back(&bucket[line_of::<K>(slot)]);
        copies.0.push((Slot { place: to, index: home, slot }, entry.tag));
        true
    }

    /// Whether the batch writes to another bucket with this one's lock.
    fn is_crowding(&self, copies: &CopyBatch, at: Offset<Bucket>) -> bool {
        let mut others = copies.0.iter().map(|(slot, _)| slot.place.bucket(slot.index));
        others.any(|other| other != at && self.base.stripe_of(other) == self.base.stripe_of(at))
    }

    /// Makes the copies valid, durably.
    pub(super) fn publish_copies(&self, copies: &mut CopyBatch) {
        if copies.0.is_empty() {
            return;
        }
        let region = self.base.pool.region();
        // PERSIST: every copy, before it is valid.
        region.fence();
        for (nth, &(at, tag)) in copies.0.iter().enumerate() {
            self.publish(at, tag);
            let is_last = copies.0[nth + 1..].iter().all(|(other, _)| other.index != at.index);
            if is_last {
                // PERSIST: fenced below.
                region.write_back(&self.base.bucket(at.place, at.index)[0]);
            }
        }
        // PERSIST: every copy is valid before its original slot is not.
        region.fence();
        copies.0.clear();
    }
}

#[cfg(test)]
#[path = "tests/together.rs"]
mod tests;
