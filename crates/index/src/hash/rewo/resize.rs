//! Resizing: a new data table takes half of one table's keys or, as T0, all keys of all tables.
//!
//! The root names a *view*, which is written once: the table of each cell of the directory and,
//! during a resize, the cells whose keys move, and their target. So a resize begins and ends with
//! one store, and after a crash in between there is the one view or the other:
//! 1. Write the view of the resize, and the view after it; fence; publish the view of the resize in
//!    the root; write back, fence. The new table is the *spare*, which was cleared before, a piece
//!    with each write (`spare.rs`).
//! 2. Bucket by bucket, in order, under the bucket's lock: lock the slots whose keys move; copy
//!    them as inserts would, as many at a time as can share their fences (`together.rs`);
//!    invalidate all of them in one store. `count` is the number of finished buckets. Every write
//!    moves some buckets, and an insert does so before it adds its key.
//! 3. Publish the view that follows; write back, fence; retire the tables that no cell uses any
//!    more.
//!
//! Meanwhile a key that moves is in its old table or in the new one, and is added to the new one
//! only. Writers lock its buckets in both. `count` may be too low after a crash; finished buckets
//! are then checked again.
//!
//! A table that cannot take a key gives half of its cells to a new one of its own size. If it has
//! only one cell, a table twice as large as all others together takes all keys. Shrinking is the
//! same with a smaller one.

use super::base::Base;
use super::bucket::*;
use super::place::Place;
use super::shape::BucketShape;
use super::stripes::LockedStripes;
use super::tables::{Blocked, DataTables};
use super::together::CopyBatch;
use super::view::*;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;
use terrace_pool::{Fresh, Guard, PoolFull};

/// Buckets that a writer moves before its own work; and those that a thread moves or clears while
/// it waits for room.
const HELP: u64 = 8;
const HELP_WAITING: u64 = 64;
/// Buckets in a sample of a table's load, and the load at which it may grow.
const SAMPLE: u64 = 1024;
const CROWDED_PERCENT: u64 = 50;
/// `count` is written back once in this many buckets.
const COUNT_EVERY: u64 = 64;

/// Resizing by one thread. It borrows the data tables below it, and the thread's guard. Its other
/// half is in `spare.rs`.
pub(super) struct Resize<'t, M: MappedMedium, K> {
    pub(super) tables: &'t DataTables<M, K>,
    pub(super) guard: &'t Guard<'t, M>,
}

impl<M: MappedMedium, K> Clone for Resize<'_, M, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: MappedMedium, K> Copy for Resize<'_, M, K> {}

impl<'t, M: MappedMedium, K: BucketShape> Resize<'t, M, K> {
    #[inline(always)]
    pub(super) fn base(self) -> &'t Base<M> {
        &self.tables.base
    }

    /// Moves or clears some buckets, unless another thread does. Returns whether it did.
    #[inline(never)]
    pub(super) fn help_resize(self) -> bool {
        let Some(_lock) = self.base().resize_lock().try_acquire(self.guard) else { return false };
        self.help_locked();
        true
    }

    /// Moves some buckets, after another thread if one does so now. Every insert calls this. So
    /// inserts cannot fill the new table before the moving keys are there, even if the mover is
    /// descheduled.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_and_help(self) {
        let _lock = self.base().resize_lock().acquire(self.guard);
        self.help_locked();
    }

    /// Moves or clears some buckets. The resizes' lock is held.
    fn help_locked(self) {
        let view = self.base().view();
        self.base().persist_view(view.offset);
        match view.is_moving() {
            // If the new table has no room, the key stays where it is.
            true => _ = self.advance(view, HELP),
            false => self.clear_piece(view),
        }
    }

    /// Makes room in a table that could not take a key, or advances a resize.
    #[cold]
    #[inline(never)]
    pub(super) fn make_place(self, view: View<'_, M>, place: Place) -> Result<(), PoolFull> {
        let _lock = self.base().resize_lock().acquire(self.guard);
        self.base().persist_view(self.base().view_offset());
        if self.base().view_offset() != view.offset {
            return Ok(());
        }
        if view.is_moving() {
            return self.advance(view, HELP_WAITING).map_err(|_| self.table_full(place));
        }
        let directory = view.directory();
        let growth = directory.growth(place).ok_or_else(|| self.table_full(place))?;
        let spare = directory.spare().filter(|&spare| directory.serves(spare, growth));
        if spare.is_some() && !self.clear_some(view, HELP_WAITING) {
            return Ok(());
        }
        if !self.is_filled(place, SAMPLE, CROWDED_PERCENT) {
            // Keys collide more often than by chance: a larger table would not help.
            return Err(self.table_full(place));
        }
        match spare {
            Some(spare) => self.begin(view, spare, growth),
            None => self.take_spare(view, growth.log2),
        }
    }

    /// Whether at least `percent` of a table's slots have keys, by a sample of its buckets.
    pub(super) fn is_filled(self, place: Place, sample: u64, percent: u64) -> bool {
        let sampled = place.buckets().min(sample);
        let step = place.buckets() / sampled;
        let keys =
            |index| meta(self.base().pool.medium(), self.base().bucket(place, index * step)).keys::<K>();
        (0..sampled).map(keys).map(u64::from).sum::<u64>() * 100 >= sampled * K::SLOTS as u64 * percent
    }

    fn table_full(self, place: Place) -> PoolFull {
        let wanted = 2 * place.bytes() as u64;
        PoolFull { wanted, size: self.base().pool.size(), longest: None, waiting_bytes: 0, collecting: false }
    }

    /// Begins to move the required cells to the spare, which is entirely cleared; or all cells, if
    /// it has room for them. The resizes' lock is held.
    pub(super) fn begin(self, before: View<'_, M>, spare: Place, growth: Growth) -> Result<(), PoolFull> {
        let directory = before.directory();
        let moving = if directory.is_for_all(spare) { ALL_CELLS } else { growth.moving };
        let in_cell = |cell: usize| if moving >> cell & 1 == 1 { spare } else { directory.cells[cell] };
        let after = new_view(self.guard, &Directory::resting(std::array::from_fn(in_cell)))?;
        let view = Directory { moving, to: Some(spare), after: after.offset(), ..directory };
        let view = new_view(self.guard, &view)?;
        // PERSIST: both views, before any of them can be reached.
        self.base().pool.region().fence();
        // Durable before any key moves or is added to the new table.
        self.base().publish_view(view.offset());
        for block in [after, view] {
            let _ = block.fenced_later().into_offset();
        }
        self.guard.retire(before.offset.raw(), size_of::<ViewBlock>());
        Ok(())
    }

    /// Moves up to `most` buckets, and ends the resize after the last. The resizes' lock is held.
    /// Fails if a key finds no room in the new table.
    fn advance(self, view: View<'_, M>, most: u64) -> Result<(), Blocked> {
        let directory = view.directory();
        let mut left = most;
        let mut before = 0;
        for (place, _) in directory.tables(directory.moving) {
            while left > 0 && view.count() < before + place.buckets() {
                let index = view.count().saturating_sub(before);
                self.move_bucket(view, &directory, place, index)?;
                view.set_count(before + index + 1);
                if (before + index + 1).is_multiple_of(COUNT_EVERY) {
                    // PERSIST: any later fence is enough. It is stored after the bucket is durable,
                    // so whatever a crash leaves is true.
                    self.base().pool.region().write_back(&view.block[3]);
                }
                left -= 1;
            }
            before += place.buckets();
        }
        if view.count() >= before {
            self.end(view, &directory);
        }
        Ok(())
    }

    /// Moves the keys of a bucket that leave the table. Waits for other threads.
    fn move_bucket(
        self,
        view: View<'_, M>,
        directory: &Directory,
        place: Place,
        index: u64,
    ) -> Result<(), Blocked> {
        loop {
            match self.try_move_bucket(view, directory, place, index) {
                Err(Blocked::Busy(stripe)) => self.base().wait_for(self.guard, stripe),
                other => return other,
            }
        }
    }

    fn try_move_bucket(
        self,
        view: View<'_, M>,
        directory: &Directory,
        place: Place,
        index: u64,
    ) -> Result<(), Blocked> {
        let bucket = self.base().bucket(place, index);
        let mut held = self.base().lock_buckets(self.guard, &[place.bucket(index)]);
        if meta(self.base().pool.medium(), bucket).slot_lock::<K>() != SlotLock::None {
            self.tables.resolve(self.guard, &mut held, view, place, index).map_err(Blocked::Busy)?;
        }
        let leaving = |slot: &usize| {
            K::read(self.guard, bucket, *slot)
                .is_some_and(|entry| self.tables.leaves(directory, place, entry))
        };
        if !(0..K::SLOTS).any(|slot| leaving(&slot)) {
            return Ok(());
        }
        self.tables.lock_slots(place, index, SlotLock::Moving);
        let (base, mut gone, mut outcome) = (held.len(), 0, Ok(()));
        let mut copies = CopyBatch::default();
        for slot in (0..K::SLOTS).filter(leaving) {
            outcome = self.move_key((&mut held, base), view, (place, index), slot, &mut copies);
            if outcome.is_err() {
                break;
            }
            gone |= 1 << slot;
        }
        self.tables.publish_copies(&mut copies);
        held.release_after(base);
        self.tables.clear(place, index, gone);
        outcome
    }

    /// Copies the key of a slot to the new table: together with the others that are being copied,
    /// or, if that is not possible, behind them. Locks after the first `base` are those of copies,
    /// and are released once these are durable.
    fn move_key(
        self,
        (held, base): (&mut LockedStripes<'t, M>, usize),
        view: View<'_, M>,
        (place, index): (Place, u64),
        slot: usize,
        copies: &mut CopyBatch,
    ) -> Result<(), Blocked> {
        let (Some(to), Some(entry)) =
            (view.directory().to, K::read(self.guard, self.base().bucket(place, index), slot))
        else {
            return Ok(());
        };
        if K::is_damaged(entry) {
            self.tables.record_damage(entry.word, "a slot of the index is damaged");
        }
        let home = self.tables.home_in(self.guard, to, (place, index), entry);
        if self.tables.add_copy(self.guard, held, (to, home), entry, copies) {
            return Ok(());
        }
        self.tables.publish_copies(copies);
        held.release_after(base);
        if self.tables.add_copy(self.guard, held, (to, home), entry, copies) {
            return Ok(());
        }
        for index in [home, to.second(home, entry.tag)] {
            if !self.base().try_lock_bucket(self.guard, held, to.bucket(index)) {
                return Err(Blocked::Busy(self.base().stripe_of(to.bucket(index))));
            }
        }
        let at = self.tables.vacancy(self.guard, held, view, to, (home, entry.tag))?;
        self.tables.set_overflow_bit(home, at, entry.tag);
        self.tables.install(self.guard, at, K::placed(entry, at.index != home));
        held.release_after(base);
        Ok(())
    }

    /// Ends a resize whose keys have all moved: publishes the view that follows. The resizes' lock
    /// is held.
    fn end(self, view: View<'_, M>, directory: &Directory) {
        // Durable before the old view's tables are retired, or the next resize begins.
        self.base().publish_view(directory.after);
        self.base().root[2].0[RESIZES].fetch_add(self.base().pool.medium().point("rewo.resized"), 1, Relaxed);
        let now = self.base().view().directory();
        for (place, _) in directory.tables(u64::MAX).filter(|(place, _)| !now.cells.contains(place)) {
            self.guard.retire(place.start(), place.bytes());
        }
        self.guard.retire(view.offset.raw(), size_of::<ViewBlock>());
    }

    /// Begins to shrink if few keys are left for this many buckets, and the pool has room for that.
    #[cold]
    pub(super) fn shrink_if_sparse(self) {
        let view = self.base().view();
        if self.shrunk_log2(view).is_none() {
            return;
        }
        let Some(_lock) = self.base().resize_lock().try_acquire(self.guard) else { return };
        self.base().persist_view(self.base().view_offset());
        if self.base().view_offset() == view.offset {
            self.shrink(view);
        }
    }

    /// The number of buckets, as a binary logarithm, that is enough, if few keys are left.
    fn shrunk_log2(self, view: View<'_, M>) -> Option<u32> {
        let (keys, buckets) = (self.base().count_keys(), view.directory().buckets());
        if view.is_moving() || keys * 8 > buckets * K::SLOTS as u64 {
            return None;
        }
        // Half full then, with room for keys that are added meanwhile.
        let wanted = (keys * 2 + buckets / 4).div_ceil(K::SLOTS as u64).max(1).next_power_of_two();
        (wanted * 2 <= buckets).then_some(wanted.ilog2())
    }

    /// Shrinks if there are few keys: allocates a spare for all of them, or begins once that is
    /// cleared. A full pool leaves the table as it is. The resizes' lock is held.
    pub(super) fn shrink(self, view: View<'_, M>) {
        let Some(log2) = self.shrunk_log2(view) else { return };
        let directory = view.directory();
        let serves = |spare: &Place| spare.log2() >= log2 && spare.buckets() * 2 <= directory.buckets();
        let _ = match directory.spare().filter(serves) {
            Some(spare) if self.is_clear(view, spare) => {
                self.begin(view, spare, Growth { moving: ALL_CELLS, log2 })
            }
            Some(_) => Ok(()),
            None => self.take_spare(view, log2),
        };
    }

    /// Does one piece of a resize, while no thread writes. Returns whether more is left.
    pub(super) fn background_step(self) -> bool {
        match self.base().view().wants_help() {
            true => _ = self.help_resize(),
            false => self.shrink_if_sparse(),
        }
        self.base().view().wants_help()
    }
}

/// An unpublished view. Durable at the next fence.
pub(super) fn new_view<'g, M: MappedMedium>(
    guard: &'g Guard<'_, M>,
    directory: &Directory,
) -> Result<Fresh<'g, M>, PoolFull> {
    let fresh = guard.alloc(size_of::<ViewBlock>())?;
    fresh.stream_lines(0, &directory.lines());
    Ok(fresh)
}

#[cfg(test)]
#[path = "tests/resize.rs"]
mod tests;
