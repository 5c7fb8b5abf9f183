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

use super::bucket::*;
use super::ops::Rewo;
use super::place::Place;
use super::shape::BucketShape;
use super::stripes::LockedStripes;
use super::together::CopyBatch;
use super::view::*;
use super::write::Blocked;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_medium::{MappedMedium, Offset};
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

impl<M: MappedMedium, K: BucketShape> Rewo<M, K> {
    /// Moves or clears some buckets, unless another thread does. Returns whether it did.
    #[inline(never)]
    pub(super) fn help_resize(&self, guard: &Guard<'_, M>) -> bool {
        let Some(_lock) = self.resize_lock().try_acquire(guard) else { return false };
        self.help_locked(guard);
        true
    }

    /// Moves some buckets, after another thread if one does so now. Every insert calls this. So
    /// inserts cannot fill the new table before the moving keys are there, even if the mover is
    /// descheduled.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_and_help(&self, guard: &Guard<'_, M>) {
        let _lock = self.resize_lock().acquire(guard);
        self.help_locked(guard);
    }

    /// Moves or clears some buckets. The resizes' lock is held.
    fn help_locked(&self, guard: &Guard<'_, M>) {
        let view = self.view();
        self.persist_view(view.offset);
        match view.is_moving() {
            // If the new table has no room, the key stays where it is.
            true => _ = self.advance(guard, view, HELP),
            false => self.clear_piece(guard, view),
        }
    }

    /// Makes room in a table that could not take a key, or advances a resize.
    #[cold]
    #[inline(never)]
    pub(super) fn make_place(
        &self,
        guard: &Guard<'_, M>,
        view: View<'_, M>,
        place: Place,
    ) -> Result<(), PoolFull> {
        let _lock = self.resize_lock().acquire(guard);
        self.persist_view(self.view_offset());
        if self.view_offset() != view.offset {
            return Ok(());
        }
        if view.is_moving() {
            return self.advance(guard, view, HELP_WAITING).map_err(|_| self.table_full(place));
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
            Some(spare) => self.begin(guard, view, spare, growth),
            None => self.take_spare(guard, view, growth.log2),
        }
    }

    /// Whether at least `percent` of a table's slots have keys, by a sample of its buckets.
    pub(super) fn is_filled(&self, place: Place, sample: u64, percent: u64) -> bool {
        let sampled = place.buckets().min(sample);
        let step = place.buckets() / sampled;
        let keys = |index| meta(self.pool.medium(), self.bucket(place, index * step)).keys::<K>();
        (0..sampled).map(keys).map(u64::from).sum::<u64>() * 100 >= sampled * K::SLOTS as u64 * percent
    }

    fn table_full(&self, place: Place) -> PoolFull {
        let wanted = 2 * place.bytes() as u64;
        PoolFull { wanted, size: self.pool.size(), longest: None, waiting_bytes: 0, collecting: false }
    }

    /// Begins to move the required cells to the spare, which is entirely cleared; or all cells, if
    /// it has room for them. The resizes' lock is held.
    pub(super) fn begin(
        &self,
        guard: &Guard<'_, M>,
        before: View<'_, M>,
        spare: Place,
        growth: Growth,
    ) -> Result<(), PoolFull> {
        let directory = before.directory();
        let moving = if directory.is_for_all(spare) { ALL_CELLS } else { growth.moving };
        let in_cell = |cell: usize| if moving >> cell & 1 == 1 { spare } else { directory.cells[cell] };
        let after = new_view(guard, &Directory::resting(std::array::from_fn(in_cell)))?;
        let view = Directory { moving, to: Some(spare), after: after.offset(), ..directory };
        let view = new_view(guard, &view)?;
        // PERSIST: both views, before any of them can be reached.
        self.pool.region().fence();
        // Durable before any key moves or is added to the new table.
        self.publish_view(view.offset());
        for block in [after, view] {
            let _ = block.fenced_later().into_offset();
        }
        guard.retire(before.offset.raw(), size_of::<ViewBlock>());
        Ok(())
    }

    /// Publishes another view in the root, durably. The resizes' lock is held.
    pub(super) fn publish_view(&self, view: u64) {
        let medium = self.pool.medium();
        // ORDER: Relaxed: stays before the view by the Release of that store. With 0 every thread
        // fences.
        self.root[2].0[DURABLE_VIEW].store(medium, 0, Relaxed);
        self.root[1].0[VIEW].store(medium.point("rewo.view"), view, Release);
        // Durable before anything depends on it, and before the replaced view is retired. A thread
        // that sees it earlier does the same.
        self.persist_view(view_at(view));
    }

    /// Moves up to `most` buckets, and ends the resize after the last. The resizes' lock is held.
    /// Fails if a key finds no room in the new table.
    fn advance(&self, guard: &Guard<'_, M>, view: View<'_, M>, most: u64) -> Result<(), Blocked> {
        let directory = view.directory();
        let mut left = most;
        let mut before = 0;
        for (place, _) in directory.tables(directory.moving) {
            while left > 0 && view.count() < before + place.buckets() {
                let index = view.count().saturating_sub(before);
                self.move_bucket(guard, view, &directory, place, index)?;
                view.set_count(before + index + 1);
                if (before + index + 1).is_multiple_of(COUNT_EVERY) {
                    // PERSIST: any later fence is enough. It is stored after the bucket is durable,
                    // so whatever a crash leaves is true.
                    self.pool.region().write_back(&view.block[3]);
                }
                left -= 1;
            }
            before += place.buckets();
        }
        if view.count() >= before {
            self.end(guard, view, &directory);
        }
        Ok(())
    }

    /// Moves the keys of a bucket that leave the table. Waits for other threads.
    fn move_bucket(
        &self,
        guard: &Guard<'_, M>,
        view: View<'_, M>,
        directory: &Directory,
        place: Place,
        index: u64,
    ) -> Result<(), Blocked> {
        loop {
            match self.try_move_bucket(guard, view, directory, place, index) {
                Err(Blocked::Busy(stripe)) => self.wait_for(guard, stripe),
                other => return other,
            }
        }
    }

    fn try_move_bucket(
        &self,
        guard: &Guard<'_, M>,
        view: View<'_, M>,
        directory: &Directory,
        place: Place,
        index: u64,
    ) -> Result<(), Blocked> {
        let bucket = self.bucket(place, index);
        let mut held = self.lock_buckets(guard, &[place.bucket(index)]);
        if meta(self.pool.medium(), bucket).slot_lock::<K>() != SlotLock::None {
            self.resolve(guard, &mut held, view, place, index).map_err(Blocked::Busy)?;
        }
        let leaving = |slot: &usize| {
            K::read(guard, bucket, *slot).is_some_and(|entry| self.leaves(directory, place, entry))
        };
        if !(0..K::SLOTS).any(|slot| leaving(&slot)) {
            return Ok(());
        }
        self.lock_slots(place, index, SlotLock::Moving);
        let (base, mut gone, mut outcome) = (held.len(), 0, Ok(()));
        let mut copies = CopyBatch::default();
        for slot in (0..K::SLOTS).filter(leaving) {
            outcome = self.move_key(guard, (&mut held, base), view, (place, index), slot, &mut copies);
            if outcome.is_err() {
                break;
            }
            gone |= 1 << slot;
        }
        self.publish_copies(&mut copies);
        held.release_after(base);
        self.clear(place, index, gone);
        outcome
    }

    /// Copies the key of a slot to the new table: together with the others that are being copied,
    /// or, if that is not possible, behind them. Locks after the first `base` are those of copies,
    /// and are released once these are durable.
    fn move_key<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        (held, base): (&mut LockedStripes<'g, M>, usize),
        view: View<'_, M>,
        (place, index): (Place, u64),
        slot: usize,
        copies: &mut CopyBatch,
    ) -> Result<(), Blocked> {
        let (Some(to), Some(entry)) = (view.directory().to, K::read(guard, self.bucket(place, index), slot))
        else {
            return Ok(());
        };
        if K::is_damaged(entry) {
            self.record_damage(entry.word, "a slot of the index is damaged");
        }
        let home = self.home_in(guard, to, (place, index), entry);
        if self.add_copy(guard, held, (to, home), entry, copies) {
            return Ok(());
        }
        self.publish_copies(copies);
        held.release_after(base);
        if self.add_copy(guard, held, (to, home), entry, copies) {
            return Ok(());
        }
        for index in [home, to.second(home, entry.tag)] {
            if !self.try_lock_bucket(guard, held, to.bucket(index)) {
                return Err(Blocked::Busy(self.stripe_of(to.bucket(index))));
            }
        }
        let at = self.vacancy(guard, held, view, to, (home, entry.tag))?;
        self.set_overflow_bit(home, at, entry.tag);
        self.install(guard, at, K::placed(entry, at.index != home));
        held.release_after(base);
        Ok(())
    }

    /// Ends a resize whose keys have all moved: publishes the view that follows. The resizes' lock
    /// is held.
    fn end(&self, guard: &Guard<'_, M>, view: View<'_, M>, directory: &Directory) {
        // Durable before the old view's tables are retired, or the next resize begins.
        self.publish_view(directory.after);
        self.root[2].0[RESIZES].fetch_add(self.pool.medium().point("rewo.resized"), 1, Relaxed);
        let now = self.view().directory();
        for (place, _) in directory.tables(u64::MAX).filter(|(place, _)| !now.cells.contains(place)) {
            guard.retire(place.start(), place.bytes());
        }
        guard.retire(view.offset.raw(), size_of::<ViewBlock>());
    }

    /// Begins to shrink if few keys are left for this many buckets, and the pool has room for that.
    #[cold]
    pub(super) fn shrink_if_sparse(&self, guard: &Guard<'_, M>) {
        let view = self.view();
        if self.shrunk_log2(view).is_none() {
            return;
        }
        let Some(_lock) = self.resize_lock().try_acquire(guard) else { return };
        self.persist_view(self.view_offset());
        if self.view_offset() == view.offset {
            self.shrink(guard, view);
        }
    }

    /// The number of buckets, as a binary logarithm, that is enough, if few keys are left.
    fn shrunk_log2(&self, view: View<'_, M>) -> Option<u32> {
        let (keys, buckets) = (self.count_keys(), view.directory().buckets());
        if view.is_moving() || keys * 8 > buckets * K::SLOTS as u64 {
            return None;
        }
        // Half full then, with room for keys that are added meanwhile.
        let wanted = (keys * 2 + buckets / 4).div_ceil(K::SLOTS as u64).max(1).next_power_of_two();
        (wanted * 2 <= buckets).then_some(wanted.ilog2())
    }

    /// Shrinks if there are few keys: allocates a spare for all of them, or begins once that is
    /// cleared. A full pool leaves the table as it is. The resizes' lock is held.
    pub(super) fn shrink(&self, guard: &Guard<'_, M>, view: View<'_, M>) {
        let Some(log2) = self.shrunk_log2(view) else { return };
        let directory = view.directory();
        let serves = |spare: &Place| spare.log2() >= log2 && spare.buckets() * 2 <= directory.buckets();
        let _ = match directory.spare().filter(serves) {
            Some(spare) if self.is_clear(view, spare) => {
                self.begin(guard, view, spare, Growth { moving: ALL_CELLS, log2 })
            }
            Some(_) => Ok(()),
            None => self.take_spare(guard, view, log2),
        };
    }

    /// Does one piece of a resize, while no thread writes. Returns whether more is left.
    pub(super) fn background_step(&self, guard: &Guard<'_, M>) -> bool {
        match self.view().wants_help() {
            true => _ = self.help_resize(guard),
            false => self.shrink_if_sparse(guard),
        }
        self.view().wants_help()
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

/// The typed offset of a view.
pub(super) fn view_at(offset: u64) -> Offset<ViewBlock> {
    Offset::new(offset)
}

#[cfg(test)]
#[path = "tests/resize.rs"]
mod tests;
