//! Movements: one key moves to another of its four places, so that a new key finds room or a unit
//! can shrink.
//!
//! The order of the tokens makes a log unnecessary. Under the locks of both units:
//! 1. copy the pair into the free slot; *mark* the slot where it lies; write both back, fence;
//! 2. set the new slot's token, marked; write back, fence;
//! 3. clear the old slot's token and mark; write back, fence;
//! 4. clear the new slot's mark. This need not be durable.
//!
//! A crash between 2 and 3 leaves the key in two slots with the same word. Both are marked, so a
//! thread that changes the key notices: it removes one copy, durably, before it changes the other
//! (`marks.rs`). A mark without a second copy, which any other crash may leave, costs one search.
//!
//! **Readers** take no lock. A key that moves is always in one slot or both. But a reader may look
//! at the new one before 2 and at the old one after 3. So a reader that has not found a key loads
//! the meta words of its buckets again: they have a sequence, and 2 changed it.
//!
//! **Scans** visit units in the order of positions, each unit in one look that is repeated until it
//! is consistent. A key that moves from a unit ahead of a scan to one behind it would be missed. So
//! keys move *forward* only: to another unit only if that comes later. To make that possible often
//! enough, a new key goes to the bucket that comes first even if that has one key more than the
//! other. (A table of 2^20 top buckets then grows at a load factor of 0.92. With movements in both
//! directions it would be 0.95; forward and without the preference 0.90.)

use super::bucket::*;

use super::root::*;
use super::shape::{BucketShape, Entry, between, positions};
use super::units::{LockedUnits, SlotRef, Units};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Lock, Locked};

/// One of a table's two levels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Top,
    Bottom,
}
use Which::{Bottom, Top};

/// Source and target of movements, in the order in which they are tried. The third keeps the load
/// factor high if the bottom level was a top level before the last expansion. The fourth is its
/// counterpart, for keys of the top level that can only go to their other side.
const MOVEMENTS: [(Which, Which); 4] = [(Top, Top), (Bottom, Bottom), (Bottom, Top), (Top, Bottom)];

impl<M: MappedMedium, K: BucketShape> Units<M, K> {
    /// Makes a free slot in one of a key's four full buckets, by moving another key away if
    /// possible.
    #[cold]
    #[inline(never)]
    pub(super) fn evict<'t>(
        &'t self,
        guard: &Guard<'_, M>,
        held: &LockedUnits<'_, M>,
    ) -> Option<SlotRef<'t>> {
        // While units move, a new key's own units are moved instead, which also makes room.
        if held.view.state.is_moving() {
            return None;
        }
        MOVEMENTS.into_iter().find_map(|(from, to)| self.move_one(guard, held, from, to))
    }

    fn move_one<'t>(
        &'t self,
        guard: &Guard<'_, M>,
        held: &LockedUnits<'_, M>,
        from: Which,
        to: Which,
    ) -> Option<SlotRef<'t>> {
        let tier = |which| if which == Top { held.view.high } else { held.view.mid };
        let sources = held.sides.map(|side| tier(from).index(side.position));
        let slots = || (0..2).flat_map(|side| (0..K::SLOTS).map(move |slot| (side, slot)));
        let targets = |side: usize, slot: usize| {
            let bucket = self.bucket(tier(from).bucket(sources[side]));
            let is_marked = meta(self.pool.medium(), bucket).is_marked::<K>(slot);
            let entry = K::read(guard, bucket, slot).filter(|_| !is_marked);
            let source = (tier(from), sources[side]);
            entry.map(|entry| (entry, self.targets(guard, &held.view, entry, source, tier(to))))
        };
        // Prefetches all of them at once.
        for index in slots().filter_map(|(side, slot)| targets(side, slot)).flat_map(|(_, targets)| targets) {
            index.into_iter().for_each(|index| self.pool.region().prefetch(tier(to).bucket(index).raw()));
        }
        slots().find_map(|(side, slot)| {
            let (entry, targets) = targets(side, slot)?;
            let bucket = self.bucket(tier(from).bucket(sources[side]));
            let place = SlotRef { bucket, slot, side };
            let mut targets = targets.into_iter().flatten();
            targets.any(|index| self.move_to(guard, held, place, entry, (tier(to), index))).then_some(place)
        })
    }

    /// The buckets of tier `to` to which a key can move from bucket `index` of tier `from`.
    fn targets(
        &self,
        guard: &Guard<'_, M>,
        view: &View,
        entry: Entry,
        (from, index): (Tier, u64),
        to: Tier,
    ) -> [Option<u64>; 2] {
        // The number of a bottom bucket is that of its unit.
        let unit = |tier: Tier, index: u64| index >> (tier.log2() - view.mid.log2());
        let here = unit(from, index);
        if from.log2() < to.log2() {
            // Only the hash, not the tag, determines the place of a key of the bottom level in the
            // top level.
            let Some(hash) = K::hash_of(guard, entry, self.seed) else { return [None; 2] };
            return positions(hash)
                .map(|position| Some(to.index(position)).filter(|&target| unit(to, target) >= here));
        }
        let other = index ^ from.index(between(K::tag(entry, self.seed)));
        let there = unit(from, other);
        let target = if to == from { other } else { there };
        let is_forward = there > here || (there == here && other != index && to == from);
        [is_forward.then_some(target), None]
    }

    /// Moves an entry to a bucket, if there is room and the bucket's unit is not locked.
    fn move_to(
        &self,
        guard: &Guard<'_, M>,
        held: &LockedUnits<'_, M>,
        from: SlotRef<'_>,
        entry: Entry,
        (tier, index): (Tier, u64),
    ) -> bool {
        let (medium, view) = (self.pool.medium(), &held.view);
        let to = self.bucket(tier.bucket(index));
        if meta(medium, to).vacancy::<K>().is_none() {
            return false;
        }
        let position = tier.first_position(index);
        let target = Side { position, upper: view.high, lower: view.mid };
        let is_held = held.sides.iter().any(|side| side.lower_at() == target.lower_at());
        let lock = if is_held { None } else { self.try_lock_third(guard, view, &target) };
        if !is_held && lock.is_none() {
            return false;
        }
        let Some(slot) = meta(medium, to).vacancy::<K>() else { return false };
        self.relocate(guard, (from.bucket, from.slot), (to, slot), entry);
        let source = held.sides[from.side].first_position();
        if source != target.first_position() {
            self.count().add(guard.slot_index(), source, -1);
            self.count().add(guard.slot_index(), target.first_position(), 1);
        }
        true
    }

    /// The lock of a unit that is neither of the key's own. Taken only if it is free: its holder
    /// may be waiting for one of those.
    pub(super) fn try_lock_third<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        view: &View,
        side: &Side,
    ) -> Option<Locked<'g, M>> {
        let lock = Lock::of(lock_word(self.bucket(side.lower_at()))).try_acquire(guard)?;
        // While the locks of the key's own units are held, a resize may have begun and moved this
        // one.
        if !self.is_current(view, side) {
            lock.release_unchanged();
            return None;
        }
        if M::VOLATILE_CACHE && lock.was_unfenced() {
            self.persist_unit(view, side.position);
        }
        Some(lock)
    }

    /// Moves an entry to a free slot. Both units are locked.
    pub(super) fn relocate(
        &self,
        guard: &Guard<'_, M>,
        (from, slot): (&Bucket, usize),
        (to, free): (&Bucket, usize),
        entry: Entry,
    ) {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        K::write(guard, to, free, entry);
        store_meta(medium, from, meta(medium, from).with_marked::<K>(slot));
        // PERSIST: the copy before its token, and the mark of the original before there are two
        // copies. A crash before that finds one copy, and perhaps a meaningless mark.
        region.write_back(&to[K::line_of(free)]);
        region.write_back(&from[0]);
        region.fence();
        store_meta(medium, to, meta(medium, to).with_marked::<K>(free));
        // PERSIST: the copy counts before the original is removed. A crash in between finds the key
        // twice, both marked.
        region.persist(&to[0]);
        store_meta(medium, from, meta(medium, from).without::<K>(slot));
        // PERSIST: the original is removed before the locks are free and another thread changes the
        // copy. Otherwise a crash would bring back the key's old word.
        region.persist(&from[0]);
        store_meta(medium, to, meta(medium, to).unmarked::<K>(free));
    }
}

#[cfg(test)]
#[path = "tests/movement.rs"]
mod tests;
