//! Creating and opening a table.

use super::directory::*;
use super::ops::{Turbo, descriptor_bytes, place_bytes};
use super::shape::BucketShape;
use crate::{Damage, PointIndex, StoreError, Stored};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{BLOCK, MappedMedium, Offset};
use terrace_pool::{Finding, Fresh, Guard, Pool, PoolFull};

impl<M: MappedMedium, K: BucketShape> Stored for Turbo<M, K> {
    type Medium = M;

    fn create(pool: &Pool<M>, name: &str, capacity: u64) -> Result<Self, StoreError> {
        Self::with_shards(pool, name, shards_log2(capacity, pool.size()), capacity)
    }

    fn recover(pool: &Pool<M>, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(root) = pool.root(name, Self::NAME)? else { return Ok(None) };
        let index = Self::open(pool, Offset::new(root))?;
        if !pool.is_initialized() {
            // After a crash the file's places are any mixture. A pool that is opened for reading is
            // mapped so that this does not change its file.
            (0..index.shards()).for_each(|shard| {
                index.publish(shard, index.descriptor(shard).place(pool.medium()));
            });
        }
        Ok(Some(index))
    }

    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.findings(guard)
    }
}

impl<M: MappedMedium, K: BucketShape> Turbo<M, K> {
    /// As [`Stored::create`], with 2^`shards_log2` shards, at most 2^20, which together have room
    /// for `capacity` keys.
    pub fn with_shards(
        pool: &Pool<M>,
        name: &str,
        shards_log2: u32,
        capacity: u64,
    ) -> Result<Self, StoreError> {
        assert!(shards_log2 <= SHARDS_LOG2_MAX, "2^{shards_log2} shards are too many");
        let guard = pool.pin();
        let mut blocks = Vec::new();
        let descriptors = guard.alloc(descriptor_bytes(shards_log2))?;
        let places = guard.alloc(place_bytes(shards_log2))?;
        let log2 = buckets_log2::<K>(capacity >> shards_log2, capacity != 0);
        for group in 0..places.len() / 64 {
            let mut words = [0; 8];
            let in_group = words.iter_mut().zip(group * 8..1 << shards_log2);
            for (word, shard) in in_group {
                let place = match log2 {
                    Some(log2) => new_shard(&guard, log2, &mut blocks)?,
                    None => Place::NONE,
                };
                *word = place.word();
                descriptors.stream_lines(64 * shard, &[[0, 0, place.word(), 0, 0, 0, ONE_PROBE, 0]]);
            }
            places.stream_lines(64 * group, &[words]);
        }
        let root = guard.alloc(size_of::<Root>())?;
        let words =
            [K::KIND, pool.hash_seed(), u64::from(shards_log2), descriptors.offset(), places.offset()];
        let [kind, seed, shards, descriptors_at, places_at] = words;
        let line = [kind, seed, shards, descriptors_at, places_at, root_check(&words), 0, 0];
        root.stream_lines(0, &[line, [0; 8]]);
        // PERSIST: shards, directory and root block before the root directory names them. A crash
        // before that leaves blocks that the collector reclaims.
        let fence = guard.fence();
        for block in blocks.into_iter().chain([descriptors, places]) {
            let _ = block.fenced(&fence).into_offset();
        }
        let root = root.fenced(&fence).into_offset();
        pool.set_root(name, Self::NAME, root)?;
        drop(guard);
        Self::open(pool, Offset::new(root))
    }

    fn open(pool: &Pool<M>, root: Offset<Root>) -> Result<Self, StoreError> {
        let damaged = |what| StoreError::Damaged(Damage { offset: root.raw(), what });
        let fixed = pool.fix(root).ok_or(damaged("the root lies outside the pool"))?;
        let words: [u64; 6] = std::array::from_fn(|index| fixed[0].0[index].load(pool.medium(), Acquire));
        if words[ROOT_KIND] != K::KIND {
            return Err(damaged("the root is not of a hash table for this kind of keys"));
        }
        if words[ROOT_CHECK] != root_check(&words[..ROOT_CHECK]) {
            return Err(damaged("the root of the hash table does not fit its check"));
        }
        let shard_bits = words[ROOT_SHARDS] as u32;
        if words[ROOT_SHARDS] > u64::from(SHARDS_LOG2_MAX) {
            return Err(damaged("the root has an impossible number of shards"));
        }
        let lost = || damaged("the directory of shards lies outside the pool");
        let descriptors = pool.fix_row(Offset::new(words[ROOT_DESCRIPTORS]), 1 << shard_bits);
        let places = pool.fix_row(Offset::new(words[ROOT_PLACES]), 1 << shard_bits);
        let index = Self {
            pool: pool.clone(),
            root: fixed,
            descriptors: descriptors.ok_or_else(lost)?,
            places: places.ok_or_else(lost)?,
            seed: words[ROOT_SEED],
            shards: 1 << shard_bits,
            damage: OnceLock::new(),
            kind: PhantomData,
        };
        match (0..index.shards()).find(|&shard| !index.descriptor(shard).is_sound(pool.region())) {
            Some(_) => Err(damaged("a descriptor names no shard of the pool")),
            None => Ok(index),
        }
    }
}

/// The smallest shard of which `keys` keys take four fifths of the slots, if any keys are expected.
fn buckets_log2<K: BucketShape>(keys: u64, is_presized: bool) -> Option<u32> {
    let buckets = keys.saturating_mul(5).div_ceil(4 * K::SLOTS as u64).max(1);
    let log2 = buckets.checked_next_power_of_two().map_or(BUCKETS_LOG2_MAX, u64::ilog2);
    is_presized.then_some(log2.min(BUCKETS_LOG2_MAX))
}

/// An empty shard. Durable at the next fence.
fn new_shard<'g, M: MappedMedium>(
    guard: &'g Guard<'_, M>,
    log2: u32,
    blocks: &mut Vec<Fresh<'g, M>>,
) -> Result<Place, PoolFull> {
    let fresh = guard.alloc(BLOCK << log2)?;
    (0..1usize << log2).for_each(|index| fresh.stream_lines(index * BLOCK, &[[0; 8]; BLOCK / 64]));
    let place = Place::new(fresh.offset(), log2);
    blocks.push(fresh);
    Ok(place)
}

#[cfg(test)]
#[path = "tests/stored.rs"]
mod tests;
