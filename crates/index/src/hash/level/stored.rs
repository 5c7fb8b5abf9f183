//! Creating and opening a table.

use super::bucket::BUCKET;
use super::ops::Level;
use super::resize::recover;
use super::root::*;
use super::shape::BucketShape;
use super::units::Units;
use crate::count::STRIPES;
use crate::{Damage, PointIndex, StoreError, Stored};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Finding, Fresh, Guard, Pool, PoolFull};

impl<M: MappedMedium, K: BucketShape> Stored for Level<M, K> {
    type Medium = M;

    fn create(pool: &Pool<M>, name: &str, capacity: u64) -> Result<Self, StoreError> {
        let guard = pool.pin();
        let top = top_for::<K>(capacity);
        let (high, high_block) = new_tier(&guard, top)?;
        let (mid, mid_block) = new_tier(&guard, top - 1)?;
        let stripes = guard.alloc(STRIPES as usize * 64)?;
        stripes.stream_lines(0, &[[0; 8]; STRIPES as usize]);
        let root = guard.alloc(size_of::<Root>())?;
        let mut lines = [[0; 8]; 3];
        lines[0][STATE] = State::new(top, Phase::Two, 0).0;
        for tier in [high, mid] {
            lines[0][TIERS + (tier.log2() & 3) as usize] = tier.0;
        }
        lines[1][ROOT_KIND] = K::KIND;
        lines[1][ROOT_SEED] = pool.hash_seed();
        lines[1][ROOT_STRIPES] = stripes.offset();
        lines[1][ROOT_CHECK] = root_check(&lines[1][..ROOT_CHECK]);
        root.stream_lines(0, &lines);
        // PERSIST: tiers, counters and root block before the root directory names them. A crash
        // before that leaves blocks that the collector reclaims.
        let fence = guard.fence();
        for block in [high_block, mid_block, stripes] {
            let _ = block.fenced(&fence).into_offset();
        }
        let root = root.fenced(&fence).into_offset();
        pool.set_root(name, Self::NAME, root)?;
        drop(guard);
        Self::open(pool, Offset::new(root))
    }

    fn recover(pool: &Pool<M>, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(root) = pool.root(name, Self::NAME)? else { return Ok(None) };
        let index = Self::open(pool, Offset::new(root))?;
        if !pool.is_read_only() && !pool.is_initialized() {
            recover(&index.units);
        }
        Ok(Some(index))
    }

    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.units.findings(guard)
    }
}

impl<M: MappedMedium, K: BucketShape> Level<M, K> {
    fn open(pool: &Pool<M>, root: Offset<Root>) -> Result<Self, StoreError> {
        let damaged = |what| StoreError::Damaged(Damage { offset: root.raw(), what });
        let fixed = pool.fix(root).ok_or(damaged("the root lies outside the pool"))?;
        let words: [u64; 4] = std::array::from_fn(|index| fixed[1].0[index].load(pool.medium(), Acquire));
        if words[ROOT_KIND] != K::KIND {
            return Err(damaged("the root is not of a hash table for this kind of keys"));
        }
        if words[ROOT_CHECK] != root_check(&words[..ROOT_CHECK]) {
            return Err(damaged("the root of the hash table does not fit its check"));
        }
        let stripes = pool.fix(Offset::new(words[ROOT_STRIPES]));
        let stripes = stripes.ok_or(damaged("the counters lie outside the pool"))?;
        if !has_sound_tiers(pool, &fixed) {
            return Err(damaged("the root names no levels of the pool"));
        }
        let (pool, seed, damage) = (pool.clone(), words[ROOT_SEED], OnceLock::new());
        Ok(Self { units: Units { pool, root: fixed, stripes, seed, damage, kind: PhantomData } })
    }
}

/// Whether the state and the tiers that it names are possible. If another process resizes the table
/// meanwhile, they are checked again.
fn has_sound_tiers<M: MappedMedium>(pool: &Pool<M>, root: &Root) -> bool {
    let medium = pool.medium();
    loop {
        let before = state(medium, root);
        let tier = |log2: u32| Tier(tier_word(root, log2).load(medium, Acquire));
        let fits = |log2: u32| tier(log2).is_sound(log2, pool.region().refreshed_len());
        let is_sound = before.is_sound() && before.tiers().all(fits);
        if is_sound || state(medium, root) == before {
            return is_sound;
        }
    }
}

/// The smallest top level, as a binary logarithm, of a table in which `capacity` keys take at most
/// four fifths of the slots.
fn top_for<K: BucketShape>(capacity: u64) -> u32 {
    let slots = u128::from(capacity) * 5 / 4;
    (LOG2_MIN..LOG2_MAX).find(|&top| (3 * K::SLOTS as u128) << (top - 1) >= slots).unwrap_or(LOG2_MAX)
}

/// A tier of empty buckets. Durable at the next fence.
fn new_tier<'g, M: MappedMedium>(
    guard: &'g Guard<'_, M>,
    log2: u32,
) -> Result<(Tier, Fresh<'g, M>), PoolFull> {
    let fresh = guard.alloc(BUCKET << log2)?;
    (0..1usize << log2).for_each(|index| fresh.stream_lines(index * BUCKET, &[[0; 8]; 2]));
    Ok((Tier::new(fresh.offset(), log2), fresh))
}

#[cfg(test)]
#[path = "tests/stored.rs"]
mod tests;
