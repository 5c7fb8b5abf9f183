//! Rehashing: a shard is rebuilt in ordinary memory, larger, smaller or at its size, and streamed
//! out.
//!
//! Under the shard's lock:
//! 1. Build the new buckets. The old ones are read in order, and because both are in the order of
//!    the hashes, the new ones are written in order, too.
//! 2. Stream them into a new block, and store its place into the half of the descriptor that does
//!    not count; fence.
//! 3. Store the version: from here on the new place counts for writers and crashes. Write back,
//!    fence.
//! 4. Store the place for readers; retire the old block.
//!
//! A crash before 3 leaves an unreachable block, for the collector. A crash after 3 finds the shard
//! at its new place. If only the process dies and others continue, the next holder of the lock
//! first compares the place for readers with the descriptor (`lock_shard`). Until then both places
//! have the same content. Readers never wait: the old buckets do not change while they are read.
//!
//! Deleted slots are not copied, so a rehash at the same size collects the garbage.

use super::bucket::*;
use super::directory::*;
use super::ops::Turbo;
use super::shape::{BucketShape, Entry};
use super::write::LockedShard;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_medium::{BLOCK, MappedMedium};
use terrace_pool::{Guard, PoolFull};

/// How full a shard is at least when it grows.
const GROWS_PERCENT: u64 = 85;
/// Shards that one call of `maintain` examines.
const STEP: usize = 64;

impl<M: MappedMedium, K: BucketShape> Turbo<M, K> {
    /// Rehashes a shard if a path exceeds the scope or paths have become long, and if that helps.
    /// Returns whether it did.
    pub(super) fn rehash_if_useful(
        &self,
        guard: &Guard<'_, M>,
        held: &mut LockedShard<'_>,
    ) -> Result<bool, PoolFull> {
        let (keys, deleted) = self.count(*held);
        let slots = held.place.buckets() * K::SLOTS as u64;
        let (log2, percent) = (held.place.log2(), GROWS_PERCENT);
        let new = match () {
            () if held.place.is_none() => 0,
            () if keys * 100 >= slots * percent && log2 < BUCKETS_LOG2_MAX => log2 + 1,
            () if deleted * 8 >= slots => log2,
            () => {
                held.descriptor.forget_measure(self.pool.medium());
                return Ok(false);
            }
        };
        self.rehash(guard, held, new)?;
        Ok(true)
    }

    /// Halves a shard with few keys for its size, as often as needed, if the pool has room for
    /// that.
    #[inline(never)]
    pub(super) fn shrink(&self, guard: &Guard<'_, M>, mut held: LockedShard<'_>) {
        let (keys, _) = self.count(held);
        let is_enough = |&log2: &u32| keys * 2 <= (K::SLOTS as u64) << log2;
        if let Some(log2) = (0..held.place.log2()).find(is_enough) {
            // A full pool leaves it as it is.
            let _ = self.rehash(guard, &mut held, log2);
        }
    }

    /// Counts a shard's keys and deleted slots, and corrects the shard's own count, which a crash
    /// may have left wrong.
    pub(super) fn count(&self, held: LockedShard<'_>) -> (u64, u64) {
        let medium = self.pool.medium();
        let (mut keys, mut deleted) = (0, 0);
        for index in 0..held.place.buckets() {
            let meta = meta(medium, self.bucket(held.place, index));
            keys += u64::from(meta.live::<K>().count_ones());
            deleted += u64::from(meta.deleted::<K>().count_ones());
        }
        held.descriptor.set_keys(medium, keys);
        (keys, deleted)
    }

    /// Moves a shard into 2^log2 new buckets, which have room for its keys.
    pub(super) fn rehash(
        &self,
        guard: &Guard<'_, M>,
        held: &mut LockedShard<'_>,
        log2: u32,
    ) -> Result<(), PoolFull> {
        let fresh = guard.alloc(BLOCK << log2)?;
        let images = self.build(guard, held.place, log2);
        fresh.stream_lines(0, images.as_flattened());
        let to = Place::new(fresh.offset(), log2);
        self.switch(guard, held, to);
        // Linked by now, and fenced before.
        let _ = fresh.fenced_later().into_offset();
        Ok(())
    }

    /// Makes `to`, whose buckets were all streamed, the shard's place.
    fn switch(&self, guard: &Guard<'_, M>, held: &mut LockedShard<'_>, to: Place) {
        let (region, medium, descriptor) = (self.pool.region(), self.pool.medium(), held.descriptor);
        descriptor.prepare(medium, to);
        // PERSIST: the new buckets, which were streamed, before the version that makes them count.
        // The place lies in the version's line and was stored before it.
        region.fence();
        descriptor.switch(medium);
        // PERSIST: this one store moves the shard. Durable before any thread writes to the new
        // buckets. A crash before it finds the old ones.
        region.persist(descriptor.0);
        self.publish(held.shard, to);
        descriptor.forget_measure(medium);
        self.root[1].0[VOLATILE_RESIZES].fetch_add(medium, 1, Relaxed);
        let from = std::mem::replace(&mut held.place, to);
        if !from.is_none() {
            guard.retire(from.start(), from.bytes());
        }
    }

    /// Publishes the shard's place for readers. Called under its lock.
    #[cold]
    pub(super) fn publish(&self, shard: usize, place: Place) {
        // ORDER: Release: a reader that sees the place sees the buckets.
        self.places.as_slice()[shard].store(self.pool.medium(), place.word(), Release);
    }

    /// Builds the new buckets of a shard.
    fn build(&self, guard: &Guard<'_, M>, from: Place, log2: u32) -> Vec<Image> {
        let mut images: Vec<Image> = vec![[[0; 8]; 4]; 1 << log2];
        for index in 0..from.buckets() {
            K::for_each(guard, self.bucket(from, index), |_, entry| {
                if K::is_damaged(entry) {
                    // The slot is kept, although no key may lead to it, so that `check` and
                    // `salvage` can name its record.
                    self.record_damage(entry.word, "a slot of the index is damaged");
                }
                let home = K::inner(entry, self.seed, self.shard_bits()) >> 1 >> (63 - log2);
                put_entry::<K>(&mut images, home as usize, entry);
                ControlFlow::Continue(())
            });
        }
        for image in &mut images {
            image[0][0] = K::seal(image[0][0], 0);
        }
        images
    }

    /// Releases the buckets of some empty shards. Returns whether other shards remain to be
    /// examined.
    pub(super) fn release_empty(&self, guard: &Guard<'_, M>) -> bool {
        let (medium, cursor) = (self.pool.medium(), &self.root[1].0[VOLATILE_NEXT]);
        let from = (cursor.load(medium, Relaxed) as usize).min(self.shards());
        let to = (from + STEP).min(self.shards());
        for shard in from..to {
            if !self.place(shard).is_none() && self.descriptor(shard).keys(medium) == 0 {
                let (lock, mut held) = self.lock_shard(guard, shard);
                if !held.place.is_none() && self.count(held).0 == 0 {
                    self.switch(guard, &mut held, Place::NONE);
                }
                lock.release();
            }
        }
        let is_over = to == self.shards();
        cursor.store(medium, if is_over { 0 } else { to as u64 }, Relaxed);
        !is_over
    }
}

/// Puts an entry into the first bucket from its home on that is not full. Until all entries are
/// placed, a bucket's meta word consists of the live bits only.
fn put_entry<K: BucketShape>(images: &mut [Image], home: usize, entry: Entry) {
    let mut index = home;
    while images[index][0][0] == all_slots::<K>() {
        images[index][0][K::OVERFLOW] |= overflow_bit::<K>(entry.tag);
        index = (index + 1) % images.len();
    }
    let image = &mut images[index];
    let slot = choose::<K>(!image[0][0] & all_slots::<K>(), entry.tag);
    image[0][0] |= 1 << slot;
    K::put_in_image(image, slot, entry);
}

#[cfg(test)]
#[path = "tests/rehash.rs"]
mod tests;
