//! The spare: the target table of the next resize, allocated and cleared before it is due, so that
//! no thread has to clear all of it at once.
//!
//! If the root names a view in which nothing moves but which has a target table, that is the spare.
//! The view's `count` is the number of its cleared buckets. Each write first clears a piece of it.
//! Nothing is ever in a spare, and no thread searches it. Cleared buckets are fenced before `count`
//! says so; `count` itself need not be durable. So a crash finds the old view, and the collector
//! reclaims the spare's block; or the view with the spare, of which some or all is cleared once
//! more; or the view of the resize, and the whole table is clear.
//!
//! A spare is due once a table is nine tenths full. An insert that has evicted a key checks that.
//! Then more inserts are to come than there are pieces to clear, four times as many for the
//! largest, T0 of 16 tables. If the spare is cleared, the resize begins with the first insert that
//! has to evict two keys. That is some hundredth before an insert finds no room: only one table is
//! left at a time, and all are full at nearly the same time. A thread that finds no room all the
//! same clears or moves larger pieces until there is some; the others continue. A spare for another
//! resize than the one that is due is retired.

use super::ops::Rewo;
use super::place::Place;
use super::resize::new_view;
use super::shape::BucketShape;
use super::view::*;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{BLOCK, MappedMedium};
use terrace_pool::{Fresh, Guard, PoolFull};

/// Buckets that a writer clears before its own work: 4 KiB of the table.
const PIECE: u64 = 16;
/// Buckets in the sample that decides whether a spare is due, and the load at which it is.
const SAMPLE: u64 = 64;
const DUE_PERCENT: u64 = 90;

impl<M: MappedMedium, K: BucketShape> Rewo<M, K> {
    /// Called after an insert that has evicted some keys, with no bucket locked. Allocates a spare,
    /// or begins the resize, if it is time for that, unless another thread is resizing.
    #[cold]
    #[inline(never)]
    pub(super) fn prepare_resize(&self, guard: &Guard<'_, M>, place: Place, evictions: u32) {
        let Some(_lock) = self.resize_lock().try_acquire(guard) else { return };
        self.persist_view(self.view_offset());
        let view = self.view();
        let directory = view.directory();
        let Some(growth) = directory.growth(place).filter(|_| !view.is_moving()) else { return };
        // Keys that collide evict others in a table that is not full, too.
        let is_due = || self.is_filled(place, SAMPLE, DUE_PERCENT);
        // In a full pool, an insert that finds no room reports that. This does not search for
        // memory each time, which takes long if there is none.
        let _ = match directory.spare().filter(|&spare| directory.serves(spare, growth)) {
            None if self.refused.load(Relaxed) == view.offset.raw() => Ok(()),
            None if is_due() => {
                let taken = self.take_spare(guard, view, growth.log2);
                taken.inspect_err(|_| self.refused.store(view.offset.raw(), Relaxed))
            }
            Some(spare) if evictions > 1 && self.is_clear(view, spare) && is_due() => {
                self.begin(guard, view, spare, growth)
            }
            _ => Ok(()),
        };
    }

    /// Makes a table of 2^`log2` buckets the spare, and retires the present one. The resizes' lock
    /// is held, and nothing moves.
    pub(super) fn take_spare(
        &self,
        guard: &Guard<'_, M>,
        view: View<'_, M>,
        log2: u32,
    ) -> Result<(), PoolFull> {
        let directory = view.directory();
        let table = guard.alloc(BLOCK << log2)?;
        let spare = Place::new(table.offset(), log2);
        let with_spare = new_view(guard, &Directory { to: Some(spare), ..directory })?;
        // PERSIST: the view, before the root names it. The table's content does not matter yet.
        self.pool.region().fence();
        self.publish_view(with_spare.offset());
        for block in [table, with_spare] {
            let _ = block.fenced_later().into_offset();
        }
        if let Some(before) = directory.spare() {
            guard.retire(before.start(), before.bytes());
        }
        guard.retire(view.offset.raw(), size_of::<ViewBlock>());
        Ok(())
    }

    /// Clears up to `buckets` buckets of the spare, but at most half of it, so that a small one
    /// takes two pieces, too. Returns whether all of it is cleared. The resizes' lock is held.
    pub(super) fn clear_some(&self, view: View<'_, M>, buckets: u64) -> bool {
        let (Some(spare), region) = (view.directory().spare(), self.pool.region()) else { return false };
        let start = view.count();
        let end = (start + buckets.min(spare.buckets().div_ceil(2))).min(spare.buckets());
        if start < end {
            // A bucket whose first line is zero is empty.
            (start..end).for_each(|index| region.stream_lines(spare.bucket(index).raw(), &[[0; 8]]));
            // PERSIST: these buckets, before the count says so, and so before any key comes into
            // one. The count is not written back: after a crash that leaves an older count, some
            // empty buckets are cleared again.
            region.fence();
            view.set_count(end);
        }
        self.is_clear(view, spare)
    }

    /// Whether all of the spare is cleared.
    pub(super) fn is_clear(&self, view: View<'_, M>, spare: Place) -> bool {
        view.count() >= spare.buckets()
    }

    /// Clears a piece of the spare; after the last piece, begins the resize if nothing else is
    /// needed. The resizes' lock is held.
    pub(super) fn clear_piece(&self, guard: &Guard<'_, M>, view: View<'_, M>) {
        if self.clear_some(view, PIECE) {
            self.shrink(guard, view);
        }
    }
}

/// A table that is cleared at once.
pub(super) fn new_table<'g, M: MappedMedium>(
    guard: &'g Guard<'_, M>,
    log2: u32,
) -> Result<Fresh<'g, M>, PoolFull> {
    let fresh = guard.alloc(BLOCK << log2)?;
    (0..1usize << log2).for_each(|index| fresh.stream_lines(index * BLOCK, &[[0; 8]]));
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use super::super::super::test_pools::{Medium, Power};
    use super::*;
    use crate::{PointIndex, Stored, U64};
    use terrace_medium::{Dram, Pmem};
    use terrace_pool::Pool;
    use terrace_testkit::{TappedPmem, TappedShm};

    /// Fills a table of 64 buckets until it has a spare. Returns its number of keys.
    fn filled<M: MappedMedium>(pool: &Pool<M>) -> (Rewo<M, U64>, u64) {
        let map = Rewo::<M, U64>::with_shape(pool, "map", 1, 6).unwrap();
        let mut keys = 0;
        while map.view().directory().spare().is_none() {
            map.insert(&pool.pin(), &keys, keys).unwrap();
            keys += 1;
        }
        (map, keys)
    }

    /// Fills all free memory with bytes other than zero.
    fn soil<M: MappedMedium>(pool: &Pool<M>) {
        let guard = pool.pin();
        let blocks: Vec<_> = std::iter::from_fn(|| guard.alloc(BLOCK).ok()).collect();
        blocks.iter().for_each(|block| block.stream_lines(0, &[[!0; 8]; 4]));
        pool.region().fence();
    }

    #[test]
    fn spare_is_cleared_again_after_power_loss() {
        let power = Power::new();
        soil(&power.pool);
        let (map, keys) = filled(&power.pool);
        assert!(keys >= 64 * 14 * 85 / 100, "{keys} keys");
        let guard = power.pool.pin();
        let view = map.view();
        for cleared in [16, 32, 48] {
            assert!(!map.clear_some(view, PIECE));
            assert_eq!((view.count(), map.verify(&guard)), (cleared, vec![]));
        }
        let pool = power.after_power_loss();
        let after = Rewo::<Medium, U64>::recover(&pool, "map").unwrap().unwrap();
        assert_eq!(after.view().directory(), view.directory());
        assert_eq!(after.view().count(), 0, "nothing has made it durable");
        pool.request_collection();
        pool.collect(&mut |marker| after.trace(&pool.pin(), marker, |_, _| ()));
        soil(&pool);
        let guard = pool.pin();
        assert_eq!(after.verify(&guard), [], "it is nobody else's");
        for key in keys..3 * keys {
            assert_eq!(after.insert(&guard, &key, key), Ok(crate::Inserted::New));
        }
        assert!(after.stats(&guard).resizes >= 1);
        assert!((0..3 * keys).all(|key| after.get(&guard, &key) == Some(key)));
        assert_eq!(after.verify(&guard), []);
        drop(guard);
        drop(after);
        pool.abandon();
    }

    #[test]
    fn content_in_a_cleared_spare_is_reported() {
        let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
        let (map, _) = filled(&pool);
        let (guard, view) = (pool.pin(), map.view());
        assert!(!map.clear_some(view, PIECE));
        let spare = view.directory().spare().unwrap();
        for (index, is_told) in [(0, true), (view.count() - 1, true), (view.count(), false)] {
            let word = &map.bucket(spare, index)[0].0[7];
            word.store(pool.medium(), 1, Relaxed);
            let findings = map.verify(&guard);
            let places: Vec<u64> = findings.iter().map(|finding| finding.offset).collect();
            assert_eq!(
                places,
                is_told.then(|| spare.bucket(index).raw()).as_slice(),
                "{index}: {findings:?}"
            );
            word.store(pool.medium(), 0, Relaxed);
        }
    }

    #[test]
    fn spare_for_another_resize_is_retired() {
        let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
        let (map, _) = filled(&pool);
        let free_with = |log2s: &[u32]| {
            for &log2 in log2s {
                map.take_spare(&pool.pin(), map.view(), log2).unwrap();
            }
            pool.reclaim_blocking();
            pool.space().free
        };
        let free = free_with(&[8]);
        assert_eq!(free_with(&[10, 4, 8]), free);
        assert_eq!(map.verify(&pool.pin()), []);
    }

    #[test]
    fn resize_uses_a_spare_meant_for_another_table() {
        let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
        let (map, keys) = filled(&pool);
        let guard = pool.pin();
        let first = map.view().directory().spare();
        let mut keys = keys..;
        while !map.view().is_moving() {
            map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
        }
        assert_eq!(map.view().directory().to, first);
        while map.maintain(&guard) {}
        let directory = map.view().directory();
        let [one, other] = [0, CELLS - 1].map(|cell| directory.cells[cell]);
        map.prepare_resize(&guard, one, 2);
        assert_eq!(map.view().directory().spare(), None, "it is half empty");
        map.take_spare(&guard, map.view(), one.log2()).unwrap();
        let spare = map.view().directory().spare();
        // Only keys of the other table.
        let of_other =
            keys.filter(|key| map.view().route(<U64 as crate::KeyKind>::hash(key, map.seed)).from == other);
        for key in of_other {
            map.insert(&guard, &key, 1).unwrap();
            if map.view().is_moving() {
                break;
            }
            assert_eq!(map.view().directory().spare(), spare);
        }
        assert_eq!(map.view().directory().to, spare);
        assert!(
            map.view().directory().tables(map.view().directory().moving).all(|(place, _)| place == other)
        );
    }

    #[test]
    fn resize_begins_after_two_evictions() {
        let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
        let (map, _) = filled(&pool);
        let (guard, view) = (pool.pin(), map.view());
        let place = view.directory().cells[0];
        let begins = |evictions| {
            map.prepare_resize(&guard, place, evictions);
            map.view().is_moving()
        };
        assert!(!begins(2), "it is not cleared");
        while !map.clear_some(view, PIECE) {
            assert!(!begins(2));
        }
        assert!(!begins(1) && begins(2));
    }

    #[test]
    fn shrinking_uses_a_smaller_spare() {
        let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 6).unwrap();
        let guard = pool.pin();
        for (log2, shrunk) in [(6, 1), (1, 1), (5, 5)] {
            map.take_spare(&guard, map.view(), log2).unwrap();
            map.shrink(&guard, map.view());
            assert_eq!(map.view().directory().spare().map(Place::log2), Some(shrunk));
        }
        let smallest = Rewo::<_, U64>::with_shape(&pool, "smallest", 1, 1).unwrap();
        for (map, resizes) in [(map, 2), (smallest, 1)] {
            (0..3).for_each(|_| while map.maintain(&guard) {});
            assert_eq!((map.stats(&guard).buckets, map.stats(&guard).resizes), (1, resizes));
        }
    }

    #[test]
    fn cleared_spare_waits_until_the_resize_is_due() {
        let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 6).unwrap();
        let (guard, place) = (pool.pin(), map.view().directory().cells[0]);
        // 896 slots, of which 90% are 806.4.
        (0..500).for_each(|key| _ = map.insert(&guard, &key, key).unwrap());
        map.take_spare(&guard, map.view(), 6).unwrap();
        while !map.clear_some(map.view(), PIECE) {}
        map.prepare_resize(&guard, place, 2);
        assert!(!map.view().is_moving());
    }

    #[test]
    fn clearing_a_piece_costs_one_fence() {
        let pool = Pool::<TappedPmem>::anonymous(16 << 20).unwrap();
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 6).unwrap();
        map.take_spare(&pool.pin(), map.view(), 6).unwrap();
        let clear = |buckets| {
            let (counts, is_all) = pool.medium().during(|| map.clear_some(map.view(), buckets));
            (counts.fences, map.view().count(), is_all)
        };
        assert_eq!(clear(16), (1, 16, false));
        assert_eq!(clear(64), (1, 48, false), "half of it at most");
        assert_eq!(clear(64), (1, 64, true));
        assert_eq!(clear(64), (0, 64, true));
    }

    #[test]
    fn spare_is_not_allocated_twice_in_a_full_pool() {
        let pool = Pool::<TappedShm>::anonymous(1 << 20).unwrap();
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 1, 6).unwrap();
        let (guard, place) = (pool.pin(), map.view().directory().cells[0]);
        let blocks: Vec<_> = std::iter::from_fn(|| guard.alloc(BLOCK << 6).ok()).collect();
        let mut keys = 0..;
        while !map.is_filled(place, SAMPLE, DUE_PERCENT) {
            map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
        }
        map.refused.store(0, Relaxed);
        let prepare_resize = || pool.medium().during(|| map.prepare_resize(&guard, place, 1)).0.loads;
        let [first, second] = [prepare_resize(), prepare_resize()];
        assert!(first >= second + SAMPLE, "{first} loads, then {second}");
        drop(blocks);
        assert_eq!(prepare_resize(), second, "until there is another view");
        assert_eq!(map.view().directory().spare(), None);
    }
}
