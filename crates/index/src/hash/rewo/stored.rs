//! Creating and opening a table.

use super::base::Base;
use super::ops::Rewo;
use super::place::{BUCKETS_LOG2_MAX, Place};
use super::resize::new_view;
use super::shape::BucketShape;
use super::spare::new_table;
use super::stripes::{STRIPE_BYTES, STRIPES_LOG2_MAX};
use super::tables::DataTables;
use super::view::*;
use crate::{Damage, PointIndex, StoreError, Stored};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Finding, Guard, Pool};

/// How full a presized table is with the expected keys.
const FILLED_PERCENT: u64 = 90;
/// Bytes of the pool for each bucket of a table that is not presized, and the most of those
/// buckets, 16 KiB.
const POOL_PER_BUCKET: u64 = 1 << 16;
const FIRST_BUCKETS_MAX: u64 = 64;
/// Stripes: 2^10, in 32 KiB, or one for each 64 KiB of a smaller pool.
const STRIPES_LOG2: u32 = 10;

impl<M: MappedMedium, K: BucketShape> Stored for Rewo<M, K> {
    type Medium = M;

    fn create(pool: &Pool<M>, name: &str, capacity: u64) -> Result<Self, StoreError> {
        let buckets = match capacity {
            0 => (pool.size() / POOL_PER_BUCKET).clamp(1, FIRST_BUCKETS_MAX),
            _ => capacity.saturating_mul(100).div_ceil(FILLED_PERCENT * K::SLOTS as u64),
        };
        let stripes_log2 = (pool.size() / POOL_PER_BUCKET).max(2).ilog2().min(STRIPES_LOG2);
        let log2 = buckets.checked_next_power_of_two().map_or(BUCKETS_LOG2_MAX, u64::ilog2);
        Self::with_shape(pool, name, stripes_log2, log2.min(BUCKETS_LOG2_MAX))
    }

    fn recover(pool: &Pool<M>, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(root) = pool.root(name, Self::NAME)? else { return Ok(None) };
        let index = Self::open(pool, Offset::new(root))?;
        if !pool.is_initialized() {
            // The content of the file is durable; but a later view may have the place of one that
            // was known to be durable before.
            index.base().root[2].0[DURABLE_VIEW].store(pool.medium(), 0, Release);
        }
        Ok(Some(index))
    }

    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.tables.findings(guard)
    }
}

impl<M: MappedMedium, K: BucketShape> Rewo<M, K> {
    /// As [`Stored::create`], with 2^`stripes_log2` stripes of locks (1 to 16), and a table of
    /// 2^`buckets_log2` buckets.
    pub fn with_shape(
        pool: &Pool<M>,
        name: &str,
        stripes_log2: u32,
        buckets_log2: u32,
    ) -> Result<Self, StoreError> {
        assert!((1..=STRIPES_LOG2_MAX).contains(&stripes_log2), "2^{stripes_log2} stripes");
        let guard = pool.pin();
        let stripes = guard.alloc(STRIPE_BYTES << stripes_log2)?;
        for line in 0..stripes.len() / 64 {
            stripes.stream_lines(line * 64, &[[0; 8]]);
        }
        let table = new_table(&guard, buckets_log2)?;
        let place = Place::new(table.offset(), buckets_log2);
        let view = new_view(&guard, &Directory::resting([place; CELLS]))?;
        let root = guard.alloc(size_of::<Root>())?;
        let words = [K::KIND, pool.hash_seed(), u64::from(stripes_log2), stripes.offset()];
        let [kind, seed, log2, stripes_at] = words;
        let fixed = [kind, seed, log2, stripes_at, check_of(&words), 0, 0, 0];
        let changing = [0, view.offset(), 0, 0, 0, 0, 0, 0];
        root.stream_lines(0, &[fixed, changing, [0; 8], [0; 8]]);
        // PERSIST: table, view, stripes and root block before the root directory names them. A
        // crash before that leaves blocks that the collector reclaims.
        let fence = guard.fence();
        for block in [stripes, table, view] {
            let _ = block.fenced(&fence).into_offset();
        }
        let root = root.fenced(&fence).into_offset();
        pool.set_root(name, Self::NAME, root)?;
        drop(guard);
        let index = Self::open(pool, Offset::new(root))?;
        Ok(Self { is_new: true, ..index })
    }

    fn open(pool: &Pool<M>, root: Offset<Root>) -> Result<Self, StoreError> {
        let damaged = |what| StoreError::Damaged(Damage { offset: root.raw(), what });
        let fixed = pool.fix(root).ok_or(damaged("the root lies outside the pool"))?;
        let words: [u64; 5] = std::array::from_fn(|index| fixed[0].0[index].load(pool.medium(), Acquire));
        if words[ROOT_KIND] != K::KIND {
            return Err(damaged("the root is not of a hash table for this kind of keys"));
        }
        if words[ROOT_CHECK] != check_of(&words[..ROOT_CHECK]) {
            return Err(damaged("the root of the hash table does not fit its check"));
        }
        if !(1..=u64::from(STRIPES_LOG2_MAX)).contains(&words[ROOT_STRIPES_LOG2]) {
            return Err(damaged("the root has an impossible number of stripes"));
        }
        let lines = (1 << words[ROOT_STRIPES_LOG2]) * STRIPE_BYTES / 64;
        let stripes = pool.fix_row(Offset::new(words[ROOT_STRIPES]), lines);
        let stripe_lines = stripes.ok_or_else(|| damaged("the stripes lie outside the pool"))?;
        let tables = DataTables {
            base: Base { pool: pool.clone(), root: fixed, stripe_lines },
            seed: words[ROOT_SEED],
            damage: OnceLock::new(),
            refused: AtomicU64::new(0),
            kind: PhantomData,
        };
        let index = Self { tables, cache: None, is_new: false };
        match index.base().has_sound_views() {
            true => Ok(index),
            false => Err(damaged("the root names no tables of the pool")),
        }
    }
}

#[cfg(test)]
#[path = "tests/stored.rs"]
mod tests;
