//! Growing and shrinking in place, by all writers, a unit at a time.
//!
//! A resize has three tiers of 4m, 2m and m buckets. Over each bucket of the lowest tier lies a
//! *unit* of two in the middle tier and four in the highest. A unit uses either the two *lower*
//! tiers as its levels, or the two *upper* ones: a bit in the meta word of the lowest bucket says
//! which. A search looks where each of the key's two units says, so it never has more than four
//! buckets to search.
//!
//! * **Expanding** makes every unit use the upper tiers. The highest tier is new. The content of
//!   the lowest bucket (a third of the table) is put into images of the four new ones and streamed
//!   there; fence. Then one store of the lowest bucket's meta word sets the bit and clears all
//!   tokens; write back, fence. Before that store no thread reads the new buckets, after it no
//!   thread reads the old one. So no key is ever in two slots, and moving a unit can start over at
//!   any point.
//! * **Shrinking** makes every unit use the lower tiers. The lowest tier is new; it was cleared
//!   first (*clearing*), a piece at a time, so that it says that all units use the upper tiers. The
//!   content of the four highest buckets (two thirds of the table's slots, but few keys) goes into
//!   the lowest bucket. If that is too much, some keys first move into the middle buckets, each by
//!   an ordinary movement. Write back, fence; then one store of the lowest bucket's meta word sets
//!   its tokens and clears the bit.
//! * A shrink that fails, because keys crowd in some unit or because the table fills again, turns
//!   around: *unshrinking* is expanding with a highest tier that was in use before. A reader that
//!   is still in that tier finds the state changed.
//!
//! Writers help: each moves up to two units, in order, before its own work. An insert that finds no
//! place moves the units of its own key. No thread waits for a whole resize. When all units have
//! moved, one store of the root's state leaves two levels, and the third tier is retired.
//!
//! **Locks.** The lock of a unit that uses the lower tiers is in its lowest bucket. A unit that
//! uses the upper ones has two, in its middle buckets, which become units of their own after the
//! resize. A thread that moves a unit holds all three, locked from below.
//!
//! Cost of expanding: 8 lines streamed, 1 write-back and 2 fences for each bucket of the old bottom
//! level.

use super::bucket::*;
use super::root::*;
use super::shape::{BucketShape, Entry, Probe};
use super::units::Units;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Lock, PoolFull};

/// Units that a writer moves before its own work. A table with m units has moved after m / 2
/// writes, long before the next resize is due.
const HELP: usize = 2;
/// Moved units that one call skips at most.
const SKIP: u64 = 64;
/// Units after the cursor among which a writer looks for one that no other thread is moving.
const WINDOW: u64 = 8;
/// Buckets that one call clears: 4 KiB.
const PIECE: u64 = 32;
/// Bits of the cursor that count units. The bits above have the state's version, so that a late
/// store counts for nothing.
const CURSOR_BITS: u32 = 40;
/// Number of buckets in a sample of a table's load.
const SAMPLE: u64 = 96;

/// The result of trying to move a unit.
#[derive(PartialEq, Eq)]
pub(super) enum Step {
    Moved,
    Already,
    Busy,
    /// Its keys do not fit into fewer buckets.
    Stuck,
}

/// Growing and shrinking by one thread. It borrows the units below it, and the thread's guard.
pub(super) struct Resize<'t, M: MappedMedium, K> {
    pub(super) units: &'t Units<M, K>,
    pub(super) guard: &'t Guard<'t, M>,
}

impl<M: MappedMedium, K> Clone for Resize<'_, M, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: MappedMedium, K> Copy for Resize<'_, M, K> {}

impl<M: MappedMedium, K: BucketShape> Resize<'_, M, K> {
    /// Makes room for an insert that found no place, or says why there is none. The caller then
    /// tries again.
    #[cold]
    #[inline(never)]
    pub(super) fn make_place(self, view: &View, probe: &Probe<'_, K>) -> Result<(), PoolFull> {
        self.units.write_back_state();
        match view.state.phase() {
            Phase::Shrink => self.turn_around(view),
            Phase::Expand | Phase::Unshrink => {
                let coarse =
                    probe.positions.into_iter().filter(|&position| !self.units.uses_upper(view, position));
                let units: Vec<u64> = coarse.map(|position| view.low.index(position)).collect();
                // Both use the upper tiers and are full: another resize is due, and this one has to
                // end first.
                if units.is_empty() {
                    self.check_load(view)?;
                    self.help_resize(view);
                }
                units.into_iter().for_each(|unit| _ = self.move_unit(view, unit, true));
            }
            Phase::Clearing => self.abandon_clearing(view),
            Phase::Two => {
                self.check_load(view)?;
                self.start_expanding(view)?;
            }
        }
        Ok(())
    }

    /// Returns an error if a larger table would not help: keys find no place although most slots
    /// are free, so they collide more often than by chance.
    fn check_load(self, view: &View) -> Result<(), PoolFull> {
        let is_full_grown = view.state.top() == LOG2_MAX;
        let would_help = !is_full_grown && self.load_permille(view) >= 250;
        // Other threads may have resized it meanwhile, and emptied these tiers: then the load says
        // nothing.
        if would_help || self.units.state() != view.state {
            return Ok(());
        }
        Err(PoolFull {
            wanted: 2 * view.high.bytes() as u64,
            size: self.units.pool.size(),
            longest: None,
            waiting_bytes: 0,
            collecting: false,
        })
    }

    /// The load of the two levels, by a sample: after a crash the counter may have any value.
    fn load_permille(self, view: &View) -> u64 {
        let (mut slots, mut tokens) = (0, 0);
        for tier in [view.high, view.mid] {
            let step = (tier.buckets() / SAMPLE).max(1);
            for index in (0..tier.buckets()).step_by(step as usize) {
                let position = tier.first_position(index);
                let side = self.units.side(view, position);
                slots += K::SLOTS as u64;
                if side.upper == tier || side.lower == tier {
                    let bucket = self.units.bucket(tier.bucket(index));
                    tokens += u64::from(meta(self.units.pool.medium(), bucket).load::<K>());
                }
            }
        }
        tokens * 1000 / slots
    }

    /// Called after a removal. Shrinks the table if it is nearly empty. Checks once in 256
    /// removals, by the hash.
    #[inline(always)]
    pub(super) fn shrink_if_needed(self, view: &View, hash: u64) {
        if hash & 0xff == 0 && view.state.is_resting() {
            self.shrink_if_sparse(view);
        }
    }

    /// Starts a shrink if at most an eighth of the slots is used: half of the table then has a load
    /// of a quarter, far from growing again. After a failed shrink, only with less than half of its
    /// keys.
    #[cold]
    fn shrink_if_sparse(self, view: &View) {
        let slots = 3 * view.mid.buckets() * K::SLOTS as u64;
        let keys = self.units.count().len();
        let stuck = self.units.root[2].0[STUCK].load(self.units.pool.medium(), Relaxed);
        let is_sparse = keys * 8 <= slots && (stuck == 0 || keys * 2 < stuck);
        if view.state.top() > LOG2_MIN && is_sparse && self.load_permille(view) < 190 {
            // A full pool leaves it as it is.
            let _ = self.start_clearing(view);
        }
    }

    /// Changes the state, if it is still `view`'s. Calls `prepare` before that, under the root's
    /// lock.
    fn turn(
        self,
        view: &View,
        (top, phase): (u32, Phase),
        prepare: impl FnOnce() -> Result<(), PoolFull>,
    ) -> Result<bool, PoolFull> {
        let (region, medium) = (self.units.pool.region(), self.units.pool.medium());
        // A thread that died here may have stored a state without persisting it. That lies in the
        // same line, before what is stored now. The tiers of the state before it are retired by the
        // thread that persists the next state, or by a collection. That persists the state that it
        // saw. So a crash that loses it loses everything that depends on it.
        let lock = Lock::of(&self.units.root[0].0[ROOT_LOCK]).acquire(self.guard);
        if self.units.state() != view.state {
            lock.release_unchanged();
            return Ok(false);
        }
        if let Err(full) = prepare() {
            lock.release_unchanged();
            return Err(full);
        }
        let next = view.state.next(top, phase);
        self.units.root[0].0[CURSOR].store(medium, cursor_word(next, 0), Relaxed);
        store_state(medium, &self.units.root, next);
        // PERSIST: before any unit moves. The word of a new tier lies in the same line and was
        // stored before: a crash that keeps the state keeps it.
        region.persist(&self.units.root[0]);
        lock.release();
        Ok(true)
    }

    /// Allocates a tier of 2^`log2` buckets and stores it where it does not count yet.
    fn new_tier(self, log2: u32) -> Result<(), PoolFull> {
        let fresh = self.guard.alloc(BUCKET << log2)?;
        let tier = Tier::new(fresh.offset(), log2);
        // PERSIST: that the block is taken, before the state names it. A crash before that leaves a
        // block that the collector reclaims.
        let _ = fresh.fenced(&self.guard.fence()).into_offset();
        tier_word(&self.units.root, log2).store(
            self.units.pool.medium().point("level.name-tier"),
            tier.0,
            Release,
        );
        Ok(())
    }

    fn start_expanding(self, view: &View) -> Result<(), PoolFull> {
        let top = view.state.top() + 1;
        // More keys will lie below for a while.
        let balance = &self.units.root[0].0[BALANCE];
        self.turn(view, (top, Phase::Expand), || self.new_tier(top))?;
        balance.store(self.units.pool.medium().point("level.balance"), -1i64 as u64, Relaxed);
        self.units.root[2].0[STUCK].store(self.units.pool.medium(), 0, Relaxed);
        Ok(())
    }

    fn start_clearing(self, view: &View) -> Result<bool, PoolFull> {
        let top = view.state.top();
        self.turn(view, (top, Phase::Clearing), || self.new_tier(top - 2))
    }

    fn abandon_clearing(self, view: &View) {
        if let Ok(true) = self.turn(view, (view.state.top(), Phase::Two), || Ok(())) {
            self.guard.retire(view.low.start(), view.low.bytes());
        }
    }

    fn turn_around(self, view: &View) {
        let _ = self.turn(view, (view.state.top(), Phase::Unshrink), || Ok(()));
    }

    /// Ends a resize whose units have all moved: two tiers remain.
    fn finish_resize(self, view: &View) {
        let (top, gone) = match view.state.phase() {
            Phase::Shrink => (view.state.top() - 1, view.high),
            _ => (view.state.top(), view.low),
        };
        if let Ok(true) = self.turn(view, (top, Phase::Two), || Ok(())) {
            self.units.root[2].0[RESIZES].fetch_add(self.units.pool.medium(), 1, Relaxed);
            self.guard.retire(gone.start(), gone.bytes());
            let is_smaller = view.state.phase() == Phase::Shrink;
            let view = self.units.view();
            if is_smaller && view.state.is_resting() {
                self.shrink_if_sparse(&view);
            }
        }
    }

    /// Does one piece of a resize, while no thread writes; or begins a shrink that no removal has
    /// begun. Returns whether more is left.
    pub(super) fn resize_step(self) -> bool {
        let view = self.units.view();
        match view.state.is_resting() {
            true => self.shrink_if_sparse(&view),
            false => self.help_resize(&view),
        }
        !self.units.state().is_resting()
    }

    /// Does a bounded piece of the current resize.
    #[cold]
    #[inline(never)]
    pub(super) fn help_resize(self, view: &View) {
        self.units.write_back_state();
        if view.state.phase() == Phase::Clearing {
            return self.clear_some(view);
        }
        let cursor = self.advance_cursor(view);
        if cursor == view.low.buckets() {
            return self.finish_resize(view);
        }
        let mut moved = 0;
        for unit in cursor..(cursor + WINDOW).min(view.low.buckets()) {
            match self.move_unit(view, unit, false) {
                Step::Moved => moved += 1,
                Step::Already | Step::Busy => {}
                Step::Stuck => {
                    let keys = self.units.count().len();
                    self.units.root[2].0[STUCK].store(self.units.pool.medium(), keys + 1, Relaxed);
                    return self.turn_around(view);
                }
            }
            if moved == HELP {
                return;
            }
        }
    }

    /// Advances the cursor over moved units and returns it. It is a hint and may start over at any
    /// time.
    fn advance_cursor(self, view: &View) -> u64 {
        let (medium, word) = (self.units.pool.medium(), &self.units.root[0].0[CURSOR]);
        let before = word.load(medium.point("level.cursor"), Acquire);
        let start = cursor_in(before, view.state).unwrap_or(0).min(view.low.buckets());
        let end = (start + SKIP).min(view.low.buckets());
        let is_there = |&unit: &u64| !self.has_moved_durably(view, unit);
        let cursor = (start..end).find(is_there).unwrap_or(end);
        if cursor > start && cursor_in(before, view.state).is_some() {
            let after = cursor_word(view.state, cursor);
            // ORDER: Release: as for the units themselves. A failure means that another thread has
            // advanced it.
            let _ =
                word.compare_exchange(medium.point("level.advance-cursor"), before, after, Release, Relaxed);
        }
        cursor
    }

    /// Whether a unit has moved durably, so that it no longer keeps the resize from ending. A
    /// thread may have died between the store that moved it and its fence.
    fn has_moved_durably(self, view: &View, unit: u64) -> bool {
        let (region, medium) = (self.units.pool.region(), self.units.pool.medium());
        let bucket = self.units.bucket(view.low.bucket(unit));
        let has_moved = meta(medium, bucket).uses_upper::<K>() == (view.state.phase() != Phase::Shrink);
        // ORDER: Relaxed: as in `write_back_state`, for the meta word and the unit's lock.
        if M::VOLATILE_CACHE && has_moved && Lock::may_be_unfenced(lock_word(bucket).load(medium, Relaxed)) {
            // PERSIST: see `expand` and `merge`.
            region.persist(&bucket[0]);
        }
        has_moved
    }

    /// Clears some buckets of the tier that a shrink is going to fill.
    fn clear_some(self, view: &View) {
        let (region, medium, word) =
            (self.units.pool.region(), self.units.pool.medium(), &self.units.root[0].0[CURSOR]);
        let Some(lock) = Lock::of(&self.units.root[0].0[ROOT_LOCK]).try_acquire(self.guard) else { return };
        if self.units.state() != view.state {
            return lock.release_unchanged();
        }
        let start = cursor_in(word.load(medium, Relaxed), view.state).unwrap_or(0).min(view.low.buckets());
        let end = (start + PIECE).min(view.low.buckets());
        let mut empty = [[0; 8]; 2];
        empty[0][META] = Meta(0).with_upper::<K>().0;
        (start..end).for_each(|index| region.stream_lines(view.low.bucket(index).raw(), &empty));
        // PERSIST: these buckets, before the cursor says so; the last ones before the state does.
        region.fence();
        word.store(medium.point("level.cleared"), cursor_word(view.state, end), Relaxed);
        lock.release();
        if end == view.low.buckets() {
            let _ = self.turn(view, (view.state.top(), Phase::Shrink), || Ok(()));
        }
    }

    /// Moves one unit, if it has not moved yet.
    fn move_unit(self, view: &View, unit: u64, wait: bool) -> Step {
        let medium = self.units.pool.medium();
        let bucket = self.units.bucket(view.low.bucket(unit));
        let is_expanding = view.state.phase() != Phase::Shrink;
        let lock = Lock::of(lock_word(bucket));
        let lock = if wait { Some(lock.acquire(self.guard)) } else { lock.try_acquire(self.guard) };
        let Some(lock) = lock else { return Step::Busy };
        if self.units.state() != view.state || meta(medium, bucket).uses_upper::<K>() == is_expanding {
            // The mover may have died before the mark was durable.
            lock.release_unchanged();
            return Step::Already;
        }
        let middle = [2 * unit, 2 * unit + 1].map(|index| self.units.bucket(view.mid.bucket(index)));
        let locks = middle.map(|bucket| Lock::of(lock_word(bucket)).acquire(self.guard));
        let mut locks = [Some(lock)].into_iter().chain(locks.map(Some)).flatten().collect::<Vec<_>>();
        if M::VOLATILE_CACHE && locks.iter().any(|lock| lock.was_unfenced()) {
            self.units.persist_unit(view, view.low.first_position(unit));
        }
        let step = match is_expanding {
            true => self.expand(view, unit),
            false => self.merge(view, unit),
        };
        // Unlocks from above.
        while let Some(lock) = locks.pop() {
            lock.release();
        }
        step
    }

    /// Moves the keys of a unit's lowest bucket into its four highest.
    fn expand(self, view: &View, unit: u64) -> Step {
        let (region, medium) = (self.units.pool.region(), self.units.pool.medium());
        let low = self.units.bucket(view.low.bucket(unit));
        let (images, tokens) = self.draw(view, unit);
        let mut lines = [[0; 8]; 8];
        lines.as_chunks_mut::<2>().0.iter_mut().zip(images).for_each(|(lines, image)| *lines = image);
        for (nth, (tokens, marks)) in tokens.iter().enumerate() {
            lines[2 * nth][META] = Meta(0).becoming::<K>(*tokens, *marks).0;
        }
        region.stream_lines(view.high.bucket(4 * unit).raw(), &lines);
        // PERSIST: the new buckets before the unit uses them. They were streamed, so there is no
        // write-back.
        region.fence();
        store_meta(medium, low, meta(medium, low).with_upper::<K>());
        // PERSIST: this one store moves the unit. Durable before its locks are free, so before any
        // thread writes to the new buckets. A crash before it finds the unit unmoved and complete.
        region.persist(&low[0]);
        Step::Moved
    }

    /// Images of the four buckets above a unit's lowest one, and their tokens and marks.
    fn draw(self, view: &View, unit: u64) -> ([Image; 4], [(u64, u64); 4]) {
        let (mut images, mut tokens) = ([[[0; 8]; 2]; 4], [(0u64, 0u64); 4]);
        let low = self.units.bucket(view.low.bucket(unit));
        let before = meta(self.units.pool.medium(), low);
        let entries = || (0..K::SLOTS).filter_map(|slot| Some((slot, K::read(self.guard, low, slot)?)));
        entries().for_each(|(_, entry)| K::prefetch_record(self.guard, entry));
        for (slot, entry) in entries() {
            let position = self.units.position_in(self.guard, view.low, unit, entry);
            let target = (view.high.index(position) - 4 * unit) as usize;
            let (taken, marks) = &mut tokens[target];
            let free = taken.trailing_ones() as usize;
            K::put_in_image(&mut images[target], free, entry);
            *taken |= 1 << free;
            *marks |= u64::from(before.is_marked::<K>(slot)) << free;
        }
        (images, tokens)
    }

    /// Moves the keys of a unit's four highest buckets into its lowest; keys that do not fit first
    /// move into the middle buckets.
    fn merge(self, view: &View, unit: u64) -> Step {
        let (region, medium) = (self.units.pool.region(), self.units.pool.medium());
        let low = self.units.bucket(view.low.bucket(unit));
        let mut entries = self.entries_above(view, unit);
        while entries.len() > K::SLOTS {
            let fits = entries.iter().position(|above| self.move_down(view, above));
            let Some(fits) = fits else { return Step::Stuck };
            entries.swap_remove(fits);
        }
        let (mut tokens, mut marks) = (0, 0);
        for (slot, above) in entries.iter().enumerate() {
            K::write(self.guard, low, slot, above.entry);
            tokens |= 1 << slot;
            marks |= u64::from(above.is_marked) << slot;
        }
        // PERSIST: the slots before their tokens.
        region.persist(low);
        store_meta(medium, low, meta(medium, low).becoming::<K>(tokens, marks));
        // PERSIST: this one store moves the unit. Durable before its locks are free. A crash before
        // it finds the unit unmoved and complete.
        region.persist(&low[0]);
        Step::Moved
    }

    /// The entries of a unit's four highest buckets, each key once.
    fn entries_above(self, view: &View, unit: u64) -> Vec<Above> {
        let mut entries: Vec<Above> = Vec::with_capacity(4 * K::SLOTS);
        for index in 4 * unit..4 * unit + 4 {
            let bucket = self.units.bucket(view.high.bucket(index));
            for slot in 0..K::SLOTS {
                let Some(entry) = K::read(self.guard, bucket, slot) else { continue };
                let is_marked = meta(self.units.pool.medium(), bucket).is_marked::<K>(slot);
                // Two copies of a key must not come into one bucket.
                let is_there =
                    is_marked && entries.iter().any(|other| K::same_key(self.guard, other.entry, entry));
                if !is_there {
                    entries.push(Above { index, slot, entry, is_marked });
                }
            }
        }
        entries
    }

    /// Moves an entry into the middle bucket below it, if that has room.
    fn move_down(self, view: &View, above: &Above) -> bool {
        let to = self.units.bucket(view.mid.bucket(above.index / 2));
        let Some(free) = meta(self.units.pool.medium(), to).vacancy::<K>().filter(|_| !above.is_marked)
        else {
            return false;
        };
        let from = self.units.bucket(view.high.bucket(above.index));
        self.units.relocate(self.guard, (from, above.slot), (to, free), above.entry);
        true
    }
}

/// After a crash: restarts the cursor, which no fence covered, and a tier that was being
/// cleared.
pub(super) fn recover<M: MappedMedium, K: BucketShape>(units: &Units<M, K>) {
    units.count().recover();
    let (medium, root) = (units.pool.medium(), &units.root[0]);
    root.0[CURSOR].store(medium, cursor_word(units.state(), 0), Relaxed);
    root.0[BALANCE].store(medium, 0, Relaxed);
    units.root[2].0[STUCK].store(medium, 0, Relaxed);
}

/// An entry in a bucket of the highest tier.
struct Above {
    index: u64,
    slot: usize,
    entry: Entry,
    is_marked: bool,
}

fn cursor_word(state: State, unit: u64) -> u64 {
    u64::from(state.version()) << CURSOR_BITS | unit
}

/// The unit that a cursor is at, if the cursor belongs to this state.
fn cursor_in(word: u64, state: State) -> Option<u64> {
    let unit = word & ((1 << CURSOR_BITS) - 1);
    (cursor_word(state, unit) == word).then_some(unit)
}

#[cfg(test)]
#[path = "tests/losses.rs"]
mod test_losses;
#[cfg(test)]
#[path = "tests/steps.rs"]
mod test_steps;

#[cfg(test)]
#[path = "tests/resize.rs"]
mod tests;
