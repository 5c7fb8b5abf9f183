//! Scans and the collector's walk.
//!
//! Scans go in the order of homes, which is that of hashes, so a position means the same in a shard
//! of any size. The collector walks shard by shard.

use super::bucket::{Bucket, meta};
use super::directory::*;
use super::ops::{Turbo, descriptor_bytes, place_bytes};
use super::shape::{BucketShape, Entry};
use crate::Position;
use crate::cursor::POSITION_BITS;
use std::ops::{ControlFlow, Range};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker};

// The bits of a shard and of a home fit into a cursor.
const _: () = assert!(SHARDS_LOG2_MAX + BUCKETS_LOG2_MAX <= POSITION_BITS);

impl<M: MappedMedium, K: BucketShape> Turbo<M, K> {
    /// See [`PointIndex::scan`](crate::PointIndex::scan). Takes no lock: a key that is present
    /// throughout stays in its slot, or its shard is rehashed; then the old buckets do not change
    /// until this reader has been unpinned.
    pub(super) fn scan_from(
        &self,
        guard: &Guard<'_, M>,
        from: Position,
        at_least: usize,
        mut each: impl FnMut(u64),
    ) -> Position {
        let (mut position, mut seen) = (from, 0);
        loop {
            let (shard, inner) = self.route(position);
            let place = self.place(shard);
            let first = if place.is_none() { 0 } else { place.home(inner) };
            // As many homes as would have enough keys in half full buckets.
            let homes = (at_least.saturating_sub(seen) as u64 / (K::SLOTS as u64 / 2)).saturating_add(1);
            let end = first.saturating_add(homes).min(place.buckets());
            self.visit(guard, shard, place, first..end, |entry| {
                seen += 1;
                each(entry.word);
            });
            position = self.position_of(shard, place, end);
            if position == 0 || seen >= at_least {
                return position;
            }
        }
    }

    /// The position where home `index` of a shard begins: behind the last home, the next shard;
    /// behind the last shard, 0.
    fn position_of(&self, shard: usize, place: Place, index: u64) -> Position {
        let start = |shard: usize| (shard as u64) << 1 << (63 - self.shard_bits());
        if index == place.buckets() {
            // 2^64, and so 0, behind the last shard.
            return start(shard + 1);
        }
        start(shard) | index << 1 << (63 - place.log2()) >> self.shard_bits()
    }

    /// Visits every key with its home among `homes`. These keys lie there, or behind, as far as the
    /// buckets are full.
    fn visit(
        &self,
        guard: &Guard<'_, M>,
        shard: usize,
        place: Place,
        homes: Range<u64>,
        mut each: impl FnMut(Entry),
    ) {
        let Some(mut index) = Some(homes.start).filter(|_| !homes.is_empty()) else { return };
        for visited in 1..=place.buckets() {
            let bucket = self.bucket(place, index);
            let is_full = meta(self.pool.medium(), bucket).is_full::<K>();
            K::for_each(guard, bucket, |_, entry| {
                if homes.contains(&place.home(K::inner(entry, self.seed, self.shard_bits()))) {
                    each(entry);
                }
                ControlFlow::Continue(())
            });
            self.persist_visited(shard, bucket);
            if visited >= homes.end - homes.start && !is_full {
                return;
            }
            index = place.next(index);
        }
    }

    /// As `persist_read`, for one bucket.
    fn persist_visited(&self, shard: usize, bucket: &Bucket) {
        let region = self.pool.region();
        let lock = self.descriptor(shard).lock();
        if M::VOLATILE_CACHE && terrace_pool::Lock::may_be_unfenced(lock.load_word(region.medium())) {
            // PERSIST: a writer's stores to this bucket, before they are returned.
            region.persist(bucket);
        }
    }

    /// See [`PointIndex::trace`](crate::PointIndex::trace). Visits shard by shard under the shard's
    /// lock, and recounts the keys.
    pub(super) fn trace_all(
        &self,
        guard: &Guard<'_, M>,
        marker: &mut Marker<'_>,
        mut each: impl FnMut(&mut Marker<'_>, u64),
    ) {
        marker.mark(self.root.offset().raw(), size_of::<Root>());
        marker.mark(self.descriptors.offset().raw(), descriptor_bytes(self.shard_bits()));
        marker.mark(self.places.offset().raw(), place_bytes(self.shard_bits()));
        for shard in 0..self.shards() {
            let (lock, held) = self.lock_shard(guard, shard);
            if !held.place.is_none() {
                marker.mark(held.place.start(), held.place.bytes());
            }
            for index in 0..held.place.buckets() {
                K::for_each(guard, self.bucket(held.place, index), |_, entry| {
                    each(marker, entry.word);
                    ControlFlow::Continue(())
                });
            }
            self.count(held);
            lock.release();
        }
    }
}

#[cfg(test)]
#[path = "tests/scan.rs"]
mod tests;
