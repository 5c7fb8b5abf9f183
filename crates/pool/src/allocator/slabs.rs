//! Slabs: units that hold blocks of one size.
//!
//! A slab begins with two bitmaps, a bit for each block: one says whether the block is allocated,
//! the other is for the collector's marks. The most frequent uses of a slab:
//!
//! ```text
//!              no free block left                      a block is freed
//!   Owned  ----------------------->  Full  ------------------------------------>  Listed
//!     ^                                                                             |
//!     +------------------------------ popped from the list of its class ------------+
//! ```
//! * Only the owning thread slot sets bits, and it takes all free bits of a bitmap word into its
//!   cache at once. Any thread clears them.
//! * A thread that frees a block and then finds the slab Full lists it. A thread that disowns a
//!   slab as Full then looks at the bitmap again. Both are sequentially consistent, so at least one
//!   sees the other, and the compare-and-swap from Full to Listed lets only one push. So a slab
//!   with a free block is always owned or listed.
//! * Listed slabs are popped, never unlinked from the middle. So a scan of the list returns empty
//!   ones to the units: when memory is short, and in the background once enough slabs have lost
//!   their last block.

use crate::allocator::bitmaps::Fill;
use crate::allocator::classes::Class;
use crate::allocator::heap::Heap;
use crate::allocator::zones::{Unit, UnitState, UnitUse};
use crate::format::slot::ThreadSlot;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use terrace_medium::{LINE, MappedMedium};

/// The head of a list: `| 63:32 changes | 31:0 unit + 1, 0 for none |`. The count of changes
/// prevents ABA: a head that returns differs from one that stayed.
const UNIT_BITS: u32 = 32;
/// A list is scanned for empty slabs once more than one in this many may be empty: a scan then
/// inspects at most eight slabs for each that it releases.
const SCAN_COST_RATIO: u64 = 8;

impl<M: MappedMedium> Heap<M> {
    /// Takes a block for `slot` and returns its offset. `None` if neither a slab nor a unit has
    /// room.
    #[inline(always)]
    pub(crate) fn take_block(&self, slot: &ThreadSlot, number: usize, class: &Class) -> Option<u64> {
        let cache = &slot.caches[number];
        let mut free = cache.free.load(self.medium(), Relaxed);
        if free == 0 {
            free = self.refill(slot, number, class)?;
        }
        let rest = free & (free - 1);
        cache.free.store(self.medium(), rest, Relaxed);
        let place = cache.place.load(self.medium(), Relaxed);
        let mask = (1 << self.units().classes.slab_log2) - 1;
        let at = |free: u64| {
            (place & !mask) + class.position((place & mask) * 64 + u64::from(free.trailing_zeros()))
        };
        if rest != 0 {
            // A block that was freed long ago is in no CPU cache, and a locked instruction waits
            // until earlier stores have their lines. So the next block's lines are prefetched now.
            let next = at(rest);
            self.base().region.prefetch_to_write(next);
            self.base().region.prefetch_to_write(next + LINE as u64);
        }
        Some(at(free))
    }

    /// Finds free blocks for the slot's empty cache. Returns them as bits of the bitmap word that
    /// the cache now names.
    #[cold]
    fn refill(&self, slot: &ThreadSlot, number: usize, class: &Class) -> Option<u64> {
        self.refill_from(slot, number, class, || self.granules.take_unit(number, class, UnitUse::Owned))
    }

    /// As `take_block`, from existing slabs only.
    pub(crate) fn take_block_listed(&self, slot: &ThreadSlot, number: usize, class: &Class) -> Option<u64> {
        if slot.caches[number].free.load(self.medium(), Relaxed) == 0 {
            self.refill_from(slot, number, class, || None)?;
        }
        self.take_block(slot, number, class)
    }

    /// As `refill`; where no slab with a free block is left, one comes from `new_slab`.
    fn refill_from(
        &self,
        slot: &ThreadSlot,
        number: usize,
        class: &Class,
        new_slab: impl Fn() -> Option<u64>,
    ) -> Option<u64> {
        let cache = &slot.caches[number];
        loop {
            let place = cache.place.load(self.medium(), Relaxed);
            if place != 0 {
                let unit = self.units().zones.unit_of(place);
                let from = place - self.units().zones.start_of(unit) + 1;
                if let Some((word, free)) = self.grab(unit, class, from) {
                    cache.place.store(self.medium(), self.units().zones.start_of(unit) + word, Relaxed);
                    cache.free.store(self.medium(), free, Relaxed);
                    return Some(free);
                }
                cache.place.store(self.medium(), 0, Relaxed);
                self.disown(unit, number, class);
            }
            let unit = self.pop(number).or_else(&new_slab)?;
            // The last word, so that the search begins at the first.
            let place = self.units().zones.start_of(unit) + u64::from(class.words) - 1;
            cache.place.store(self.medium(), place, Relaxed);
        }
    }

    /// Takes all free blocks of the first word that has any, searching from word `from` on, and
    /// around.
    fn grab(&self, unit: u64, class: &Class, from: u64) -> Option<(u64, u64)> {
        debug_assert!(from <= u64::from(class.words), "a search from word {from} of {}", class.words);
        let words = u64::from(class.words);
        (from..from + words).map(|word| if word < words { word } else { word - words }).find_map(|word| {
            let taken = self.units().allocated_word(unit, word);
            let free = !taken.load(self.medium(), Relaxed) & class.valid(word);
            if free != 0 {
                if self.base().round() != 0 {
                    // ORDER: before the bits are set with Release: a sweep that sees the blocks
                    // allocated sees them marked.
                    self.units().mark_word(unit, class, word).fetch_or(self.medium(), free, Relaxed);
                }
                // ORDER: Acquire: pairs with the Release of the thread that freed them: their last
                // use is over. Release: publishes the marks; and a recount that finds these bits
                // set finds this thread pinned (see `snapshot_if_quiet`).
                taken.fetch_or(self.medium().point("slab.take"), free, AcqRel);
            }
            (free != 0).then_some((word, free))
        })
    }

    /// Gives up the ownership of a slab: it becomes Full, in no list, or Listed.
    pub(crate) fn disown(&self, unit: u64, number: usize, class: &Class) {
        let full = UnitState::slab(self.base().open_seq, number, UnitUse::Full);
        // ORDER: SeqCst: see the module's doc. It also releases what the owner did to the slab.
        self.units().unit(unit).state.swap(self.medium(), full.0, SeqCst);
        if self.units().fill(unit, class) != Fill::Full {
            self.list_if_unlisted(unit, full);
        }
    }

    /// Lists a slab that has a free block, unless another thread has listed it or owns it.
    #[inline(always)]
    pub(crate) fn list_if_unlisted(&self, unit: u64, full: UnitState) {
        debug_assert!(full.usage() == UnitUse::Full, "only a slab in no list is listed");
        let entry = self.units().unit(unit);
        let listed = full.with(UnitUse::Listed);
        // ORDER: Acquire: since the state was seen Full, other threads may have listed, owned and
        // disowned the slab; the new link comes after theirs. (The last owner's stores reach the
        // next owner through the state, see `pop`.)
        if entry
            .state
            .compare_exchange(self.medium().point("slab.list"), full.0, listed.0, Acquire, Relaxed)
            .is_ok()
        {
            self.push(unit, entry, listed);
        }
    }

    pub(crate) fn push(&self, unit: u64, entry: &Unit, listed: UnitState) {
        debug_assert!(listed.usage() == UnitUse::Listed, "a slab is pushed once its state says so");
        let Some(list) = listed.class().and_then(|class| self.base().shared().lists.get(class)) else {
            return;
        };
        let mut head = list.head.load(self.medium(), Relaxed);
        let round = self.base().round();
        loop {
            // ORDER: Release: a walk that follows this link sees any change of the head before it
            // (see `orphans`).
            entry.link.store(self.medium().point("slab.push"), head & low(UNIT_BITS) | round, Release);
            // ORDER: Release: pairs with the Acquire of `pop`: the link is visible.
            match list.head.compare_exchange(self.medium(), head, head_word(head, unit + 1), Release, Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Pops a slab from the list of `class`; the caller owns it.
    pub(crate) fn pop(&self, class: usize) -> Option<u64> {
        let list = &self.base().shared().lists[class];
        let mut head = list.head.load(self.medium(), Acquire);
        loop {
            let unit = (head & low(UNIT_BITS)).checked_sub(1)?;
            if self.units().unit_at(self.units().zones.start_of(unit)).is_none() {
                return self.cut_list(class, head);
            }
            match self.units().revalidate(unit).usage() {
                UnitUse::Quarantined => return self.cut_list(class, head),
                // The thread that was revalidating it died: the collector finishes the job.
                UnitUse::Revalidating => return None,
                _ => {}
            }
            // May be another slab's link by now. Then the head has changed and the exchange fails.
            let next = self.units().unit(unit).link.load(self.medium(), Relaxed) & low(UNIT_BITS);
            // ORDER: Acquire: pairs with the Release of `push`.
            match list.head.compare_exchange(self.medium(), head, head_word(head, next), Acquire, Acquire) {
                Ok(_) if self.take_ownership(unit, class) => return Some(unit),
                Ok(_) => return self.cut_list(class, head_word(head, next)),
                Err(now) => head = now,
            }
        }
    }

    /// Turns a popped slab into an owned one. Returns whether it was a listed slab of its class.
    pub(crate) fn take_ownership(&self, unit: u64, class: usize) -> bool {
        let (round, link) = (self.base().round(), &self.units().unit(unit).link);
        if round != 0 {
            // ORDER: Release: as in `push`: a thread that reads this link sees that the slab has
            // left the list.
            let next = link.load(self.medium(), Relaxed) & low(UNIT_BITS);
            link.store(self.medium().point("slab.own"), next | round, Release);
        }
        let listed = UnitState::slab(self.base().open_seq, class, UnitUse::Listed);
        let owned = listed.with(UnitUse::Owned);
        // ORDER: Release: a thread that sees it owned sees that it has left its list (see
        // `orphans`). The last owner's stores came with the list's head, or the state.
        self.units()
            .unit(unit)
            .state
            .compare_exchange(self.medium(), listed.0, owned.0, Release, Relaxed)
            .is_ok()
    }

    /// Empties a list that leads to something else than a listed slab of its class: it is damaged,
    /// and no thread must follow it further. Its slabs leak until the next open, which has all
    /// memory collected.
    #[cold]
    fn cut_list(&self, class: usize, head: u64) -> Option<u64> {
        let list = &self.base().shared().lists[class];
        self.base().count_fault();
        self.base().leak(1 << self.units().classes.slab_log2);
        let _ = list.head.compare_exchange(self.medium(), head, head_word(head, 0), Relaxed, Relaxed);
        None
    }

    /// Frees a block. Returns whether it was allocated.
    #[inline(always)]
    pub(crate) fn free_block(&self, offset: u64, number: usize, class: &Class) -> bool {
        let Some((unit, entry)) = self.units().entry_at(offset) else { return false };
        let Some(block) = class.block_at(offset - self.units().zones.start_of(unit)) else { return false };
        if self.units().revalidated(unit, entry).class() != Some(number) {
            return false;
        }
        let (word, bit) = (self.units().allocated_word(unit, block / 64), 1 << (block % 64));
        // Asked first: without this block, the slab may be released and become anything.
        let is_last =
            word.load(self.medium(), Relaxed) == bit && self.units().is_last(unit, class, block / 64);
        // ORDER: SeqCst: see the module's doc. It releases the block to the next owner of its bit.
        let before = word.fetch_and(self.medium(), !bit, SeqCst);
        let state = UnitState(entry.state.load(self.medium().point("slab.free-state"), SeqCst));
        if state.usage() == UnitUse::Full && state.open_seq() == self.base().open_seq {
            self.list_if_unlisted(unit, state);
        }
        if is_last && state.usage() == UnitUse::Listed {
            // ORDER: Relaxed: a hint.
            self.base().shared().lists[number].emptied.fetch_add(self.medium(), 1, Relaxed);
        }
        before & bit != 0
    }

    /// Frees the unmarked blocks of an unclean slab, and makes the slab usable again. Returns how
    /// many blocks were freed.
    pub(crate) fn sweep_slab(&self, unit: u64, number: usize, class: &Class) -> u64 {
        let mut freed = 0;
        for word in 0..u64::from(class.words) {
            let marked = self.units().mark_word(unit, class, word).load(self.medium(), Relaxed);
            // ORDER: SeqCst: as in `free_block`; other blocks are freed meanwhile.
            let before = self.units().allocated_word(unit, word).fetch_and(self.medium(), marked, SeqCst);
            freed += u64::from((before & class.valid(word) & !marked).count_ones());
        }
        self.disown_or_release(unit, number, class);
        freed
    }

    /// Returns an owned slab to the units if no block of it is allocated. Returns whether it did.
    #[must_use = "a slab that stays must be disowned"]
    pub(crate) fn release_if_empty(&self, unit: u64, number: usize, class: &Class) -> bool {
        self.units().fill(unit, class) == Fill::Empty && self.granules.release_unit(unit, number)
    }

    /// Gives up the ownership of a slab, and returns it to the units if no block of it is
    /// allocated. Returns whether it did that.
    pub(crate) fn disown_or_release(&self, unit: u64, number: usize, class: &Class) -> bool {
        let is_released = self.release_if_empty(unit, number, class);
        if !is_released {
            self.disown(unit, number, class);
        }
        is_released
    }

    /// Empties the caches of a slot: blocks that it had not handed out are free again. The caller
    /// is pinned, or has the pool to itself. If it dies at any point, the slot can be used or
    /// drained again; a block or a slab may leak.
    pub(crate) fn drain_caches(&self, slot: &ThreadSlot) {
        for (number, cache) in slot.caches.iter().enumerate().take(self.units().classes.len()) {
            let [place, free] = [&cache.place, &cache.free].map(|word| word.load(self.medium(), Relaxed));
            if free != 0 {
                cache.free.store(self.medium(), 0, Relaxed);
            }
            let Some(class) = self.units().classes.get(number).filter(|_| place != 0) else { continue };
            let unit = self.units().zones.unit_of(place);
            let word = place - self.units().zones.start_of(unit);
            // ORDER: Release: a recount that finds these bits clear finds the cache empty (see
            // `snapshot_if_quiet`).
            self.units().allocated_word(unit, word).fetch_and(self.medium(), !free, Release);
            cache.place.store(self.medium(), 0, Relaxed);
            self.disown_or_release(unit, number, class);
        }
    }

    /// Returns empty slabs to the units. Returns how many.
    pub(crate) fn release_empty_slabs(&self) -> u64 {
        (0..self.units().classes.len()).map(|number| self.release_empty_slabs_of(number)).sum()
    }

    /// As [`Heap::release_empty_slabs`], for lists in which more than one slab in
    /// [`SCAN_COST_RATIO`] may be empty.
    pub(crate) fn release_likely_empty_slabs(&self) -> u64 {
        let is_worth_it = |&number: &usize| {
            let list = &self.base().shared().lists[number];
            let [emptied, kept] = [&list.emptied, &list.kept].map(|word| word.load(self.medium(), Relaxed));
            emptied > kept / SCAN_COST_RATIO
        };
        let lists = (0..self.units().classes.len()).filter(is_worth_it);
        lists.map(|number| self.release_empty_slabs_of(number)).sum()
    }

    fn release_empty_slabs_of(&self, number: usize) -> u64 {
        let Some(class) = self.units().classes.get(number) else { return 0 };
        let (list, scans) = (&self.base().shared().lists[number], &self.base().shared().scans);
        // ORDER: Relaxed, both: a hint for threads that find no memory. Slabs that they have
        // emptied may be in no list meanwhile.
        scans.fetch_add(self.medium(), 1, Relaxed);
        // Before the first slab is inspected: one that loses its last block later is counted anew.
        list.emptied.store(self.medium(), 0, Relaxed);
        let (mut released, mut kept) = (0, Vec::new());
        // A bound, so that a list that other threads fill cannot hold this thread up.
        let units = self.units().zones.units(self.base().size());
        while let Some(unit) = if (kept.len() as u64) < units { self.pop(number) } else { None } {
            if self.release_if_empty(unit, number, class) {
                released += 1;
            } else {
                kept.push(unit);
            }
        }
        list.kept.store(self.medium(), kept.len() as u64, Relaxed);
        for unit in kept.into_iter().rev() {
            // It may have lost its last block by now.
            released += u64::from(self.disown_or_release(unit, number, class));
        }
        scans.fetch_sub(self.medium(), 1, Relaxed);
        released
    }

    /// Whether the reserve of class `number` is still at `offset`.
    pub(crate) fn is_reserve(&self, offset: u64, number: usize) -> bool {
        let unit = self.units().unit_at(offset).filter(|&unit| self.units().zones.start_of(unit) == offset);
        unit.is_some_and(|unit| {
            self.units().revalidate(unit) == UnitState::slab(self.base().open_seq, number, UnitUse::Reserve)
        })
    }

    /// Takes one block of the reserve for a limbo chunk. Several threads may do so at once.
    pub(crate) fn take_from_reserve(&self, class: &Class) -> Option<u64> {
        let offset = self.base().shared().reserve.load(self.medium().point("reserve.read"), Acquire);
        if offset == 0 {
            return None;
        }
        let unit = self.units().zones.unit_of(offset);
        for word in 0..u64::from(class.words) {
            let taken = self.units().allocated_word(unit, word);
            loop {
                let free = !taken.load(self.medium().point("reserve.taken"), Relaxed) & class.valid(word);
                let bit = free & free.wrapping_neg();
                if bit == 0 {
                    break;
                }
                if self.base().round() != 0 {
                    // ORDER: as in `grab`.
                    self.units().mark_word(unit, class, word).fetch_or(self.medium(), bit, Relaxed);
                }
                // ORDER: Acquire: pairs with the Release of the thread that freed it. Release: as
                // in `grab`.
                if taken.fetch_or(self.medium().point("reserve.take"), bit, AcqRel) & bit == 0 {
                    let block = word * 64 + u64::from(bit.trailing_zeros());
                    return Some(self.units().zones.start_of(unit) + class.position(block));
                }
            }
        }
        None
    }

    /// Sets a slab of blocks of class `number` aside, if there is no reserve yet and a unit is
    /// free.
    pub(crate) fn reserve_slab(&self, number: usize) {
        let reserve = &self.base().shared().reserve;
        if reserve.load(self.medium(), Relaxed) != 0 {
            return;
        }
        let Some(class) = self.units().classes.get(number) else { return };
        let Some(unit) = self.granules.take_unit(number, class, UnitUse::Reserve) else { return };
        let offset = self.units().zones.start_of(unit);
        // ORDER: Release: a thread that takes a block of it sees the bitmap.
        if reserve.compare_exchange(self.medium(), 0, offset, Release, Relaxed).is_err() {
            self.disown_or_release(unit, number, class);
            return;
        }
        // PERSIST: so that it is found after a crash, when no other memory may be left. A crash
        // before this thread's next fence leaves a slab to collect, as does one before the
        // write-back. Nothing durable depends on the reserve, so it needs no fence of its own.
        self.medium().point("reserve.write-back");
        self.base().region.write_back(reserve);
    }

    /// Takes over the reserve of an earlier open at `offset`. Returns whether it is one.
    pub(crate) fn restore_reserve_slab(&self, offset: u64, number: usize) -> bool {
        let Some(class) = self.units().classes.get(number) else { return false };
        let Some(unit) =
            self.units().unit_at(offset).filter(|&unit| self.units().zones.start_of(unit) == offset)
        else {
            return false;
        };
        let entry = self.units().unit(unit);
        let state = UnitState(entry.state.load(self.medium(), Relaxed));
        let is_reserve =
            state.is_sound() && state.usage() == UnitUse::Reserve && state.class() == Some(number);
        if !is_reserve || entry.taken.load(self.medium(), Relaxed) != !0 {
            return false;
        }
        self.units().clear_bitmap(unit, class);
        entry.old.store(self.medium(), 0, Relaxed);
        entry.state.store(
            self.medium(),
            UnitState::slab(self.base().open_seq, number, UnitUse::Reserve).0,
            Release,
        );
        self.base().shared().slab_units.fetch_add(self.medium(), 1, Relaxed);
        true
    }
}

#[inline(always)]
fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// The head that follows `head`, with `first` in front.
#[inline(always)]
fn head_word(head: u64, first: u64) -> u64 {
    debug_assert!(first <= low(UNIT_BITS), "unit {first} does not fit the head of a list");
    ((head >> UNIT_BITS).wrapping_add(1) << UNIT_BITS) | first
}

#[cfg(test)]
#[path = "tests/slabs.rs"]
mod tests;
