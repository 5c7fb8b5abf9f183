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

use super::place::Place;
use super::resize::{Resize, new_view};
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

impl<M: MappedMedium, K: BucketShape> Resize<'_, M, K> {
    /// Called after an insert that has evicted some keys, with no bucket locked. Allocates a spare,
    /// or begins the resize, if it is time for that, unless another thread is resizing.
    #[cold]
    #[inline(never)]
    pub(super) fn prepare_resize(self, place: Place, evictions: u32) {
        let Some(_lock) = self.base().resize_lock().try_acquire(self.guard) else { return };
        self.base().persist_view(self.base().view_offset());
        let view = self.base().view();
        let directory = view.directory();
        let Some(growth) = directory.growth(place).filter(|_| !view.is_moving()) else { return };
        // Keys that collide evict others in a table that is not full, too.
        let is_due = || self.is_filled(place, SAMPLE, DUE_PERCENT);
        // In a full pool, an insert that finds no room reports that. This does not search for
        // memory each time, which takes long if there is none.
        let _ = match directory.spare().filter(|&spare| directory.serves(spare, growth)) {
            None if self.tables.refused.load(Relaxed) == view.offset.raw() => Ok(()),
            None if is_due() => {
                let taken = self.take_spare(view, growth.log2);
                taken.inspect_err(|_| self.tables.refused.store(view.offset.raw(), Relaxed))
            }
            Some(spare) if evictions > 1 && self.is_clear(view, spare) && is_due() => {
                self.begin(view, spare, growth)
            }
            _ => Ok(()),
        };
    }

    /// Makes a table of 2^`log2` buckets the spare, and retires the present one. The resizes' lock
    /// is held, and nothing moves.
    pub(super) fn take_spare(self, view: View<'_, M>, log2: u32) -> Result<(), PoolFull> {
        let directory = view.directory();
        let table = self.guard.alloc(BLOCK << log2)?;
        let spare = Place::new(table.offset(), log2);
        let with_spare = new_view(self.guard, &Directory { to: Some(spare), ..directory })?;
        // PERSIST: the view, before the root names it. The table's content does not matter yet.
        self.base().pool.region().fence();
        self.base().publish_view(with_spare.offset());
        for block in [table, with_spare] {
            let _ = block.fenced_later().into_offset();
        }
        if let Some(before) = directory.spare() {
            self.guard.retire(before.start(), before.bytes());
        }
        self.guard.retire(view.offset.raw(), size_of::<ViewBlock>());
        Ok(())
    }

    /// Clears up to `buckets` buckets of the spare, but at most half of it, so that a small one
    /// takes two pieces, too. Returns whether all of it is cleared. The resizes' lock is held.
    pub(super) fn clear_some(self, view: View<'_, M>, buckets: u64) -> bool {
        let (Some(spare), region) = (view.directory().spare(), self.base().pool.region()) else {
            return false;
        };
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
    pub(super) fn is_clear(self, view: View<'_, M>, spare: Place) -> bool {
        view.count() >= spare.buckets()
    }

    /// Clears a piece of the spare; after the last piece, begins the resize if nothing else is
    /// needed. The resizes' lock is held.
    pub(super) fn clear_piece(self, view: View<'_, M>) {
        if self.clear_some(view, PIECE) {
            self.shrink(view);
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
#[path = "tests/spare.rs"]
mod tests;
