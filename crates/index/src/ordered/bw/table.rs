//! The mapping table: from the number of a page to its entry.
//!
//! ```text
//!   directory | a word for each of 24 segments | hint | lock | 6 words of 0 | 16 words of spares |
//!   segment n | 2^n times as many entries as the first |
//!   word      | 63:56 check | 55 dirty | 54:0 offset |
//! ```
//! Segments are added, and never moved. The number of a page that has left the tree is given to
//! another page once no thread can know it: its entry is a tombstone until then. A number is taken
//! by a compare-and-swap of its entry, so there is no list of free ones. A page that a thread had
//! numbered but not linked, when it died, is found by the collector's walk (see `trace`).

use super::super::check::folded;
use super::super::keys::OrderedKind;
use super::build::{INNER, LEAVES, no_memory};
use super::entry::Entry;
use super::page::Pid;
use super::tree::Tree;
use crate::ChangeError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use terrace_medium::{LINE, Line, MappedMedium, Offset, Word};
use terrace_pool::Guard;

/// Segments of the mapping table at most.
pub(super) const SEGMENTS: usize = 24;
const HINT: usize = 24;
/// The lock of changes in place.
pub(super) const LOCK: usize = 25;
pub(super) const SPARES: usize = 32;
/// Spares at most.
pub(super) const SPARES_MAX: usize = 16;

/// The block that names the segments and the spares.
pub(super) type Directory = [Line; 6];

const _: () = assert!(size_of::<Directory>() == 8 * (SPARES + SPARES_MAX));

/// Entries that a search for a free number looks at before it asks for another segment.
const LOOKS: u64 = 64;

const CHECK_AT: u32 = 56;
const DIRTY: u64 = 1 << 55;
const PLACE: u64 = DIRTY - 1;

/// A word of the directory that names this offset, durable or not.
pub(super) fn named(offset: u64) -> u64 {
    // That of no offset is 0. So no changed byte makes an unused word name something.
    offset | folded(offset) << CHECK_AT
}

/// The offset that a word of the directory names; `None` if it names nothing sound.
pub(super) fn offset_in(word: u64) -> Option<u64> {
    let offset = word & PLACE;
    (offset != 0 && named(offset) == word & !DIRTY).then_some(offset)
}

/// A row of entries in the mapping table.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) first: u64,
    pub(super) len: u64,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    pub(super) fn directory_word(&self, nth: usize) -> &Word {
        &self.directory[nth / (LINE / 8)].0[nth % (LINE / 8)]
    }

    /// The numbers of the pages in a segment.
    pub(super) fn segment(&self, nth: usize) -> Segment {
        let len = 1 << (self.shape.first_log2 as usize + nth);
        Segment { first: len - (1 << self.shape.first_log2), len }
    }

    /// The place of a page's entry; `None` if there is none.
    #[inline(always)]
    pub(super) fn entry_word(&self, pid: Pid) -> Option<&Word> {
        let numbered = (u64::from(pid) >> self.shape.first_log2) + 1;
        let nth = 63 - numbered.leading_zeros() as usize;
        let segment = self.segment(nth);
        let start = self.segment_at(nth)?;
        self.pool.region().get(Offset::new(start + 8 * (u64::from(pid) - segment.first)))
    }

    /// The offset of a segment.
    #[inline(always)]
    pub(super) fn segment_at(&self, nth: usize) -> Option<u64> {
        if nth >= SEGMENTS {
            return None;
        }
        // ORDER: Acquire: pairs with the AcqRel in `add_segment`: its entries are 0 at first.
        let word = self.directory_word(nth).load(self.pool.medium(), Acquire);
        if let Some(offset) = offset_in(word) {
            return Some(offset);
        }
        if word != 0 {
            let at = self.directory.offset().raw() + 8 * nth as u64;
            self.record_damage(at, "the name of a segment does not fit its check");
        }
        None
    }

    /// Number of entries of the mapping table.
    pub(super) fn numbers(&self) -> u64 {
        let segments = (0..SEGMENTS).take_while(|&nth| self.segment_at(nth).is_some()).count();
        self.segment(segments).first
    }

    /// The number of a page that no thread knows. It is free, unless another thread takes it first.
    pub(super) fn find_number(&self, guard: &Guard<'_, M>) -> Result<Pid, ChangeError> {
        let hint = self.directory_word(HINT);
        loop {
            let (medium, numbers) = (self.pool.medium(), self.numbers());
            let first = hint.load(medium, Relaxed);
            let near = self.free_number(first, numbers, LOOKS);
            let free = match near.or_else(|| self.free_number_far(first, numbers)) {
                Some(free) => free,
                None => match self.add_segment(guard) {
                    Ok(()) => {
                        // All in the new one are free.
                        hint.store(medium, numbers, Relaxed);
                        continue;
                    }
                    // All the others, before the pool counts as full.
                    Err(error) => self.free_number(first, numbers, numbers).ok_or(error)?,
                },
            };
            hint.store(medium, free + 1, Relaxed);
            self.persist_segment(free as Pid);
            return Ok(free as Pid);
        }
    }

    /// A free number anywhere in the table, if a quarter of it is free. So the table grows only as
    /// the tree does, and a search in vain is rare.
    #[cold]
    fn free_number_far(&self, first: u64, numbers: u64) -> Option<u64> {
        let used = self.count().figure(LEAVES).saturating_add(self.count().figure(INNER));
        (used < numbers - numbers / 4).then(|| self.free_number(first, numbers, numbers))?
    }

    /// The first free number of `looks` ones from `first` on.
    fn free_number(&self, first: u64, numbers: u64, looks: u64) -> Option<u64> {
        let (epoch, generation) = (self.pool.epoch(), self.pool.generation());
        let is_free = |number: &u64| {
            let word = self.entry_word(*number as Pid);
            let load = |word: &Word| Entry(word.load(self.pool.medium(), Acquire));
            word.is_some_and(|word| load(word).is_reusable(epoch, generation))
        };
        let first = first % numbers.max(1);
        (first..first + looks.min(numbers)).map(|number| number % numbers.max(1)).find(is_free)
    }

    /// Gives a free number to a page, and writes its entry back. Returns false if another thread
    /// has taken the number.
    pub(super) fn take_number(&self, pid: Pid, entry: Entry) -> bool {
        let Some(word) = self.entry_word(pid) else { return false };
        let found = Entry(word.load(self.pool.medium(), Acquire));
        let (epoch, generation) = (self.pool.epoch(), self.pool.generation());
        // PERSIST: the caller has fenced the page, and fences before a link to it. A crash in
        // between leaves a page to which nothing leads, which the collector's walk ends.
        found.is_reusable(epoch, generation) && self.swap_exactly(word, found, entry)
    }

    /// As [`Tree::bury`], for a page that nothing leads to.
    pub(super) fn return_number(&self, pid: Pid, entry: Entry) -> bool {
        let Some(word) = self.entry_word(pid) else { return false };
        loop {
            // The collector's walk may change its column meanwhile.
            let found = Entry(word.load(self.pool.medium(), Acquire));
            if !found.is_page() || found.offset() != entry.offset() {
                return false;
            }
            if self.bury(pid, found) {
                return true;
            }
        }
    }

    /// Puts a tombstone in the place of a page that is not in the tree. Durable on return. Returns
    /// whether this thread did it: then it retires the page's block.
    pub(super) fn bury(&self, pid: Pid, entry: Entry) -> bool {
        let tombstone = Entry::tombstone(self.pool.epoch(), self.pool.generation());
        let Some(word) = self.entry_word(pid) else { return false };
        if !self.swap_exactly(word, entry, tombstone) {
            self.heal(word, entry);
            return false;
        }
        // PERSIST: the tombstone, before the block is retired, whose memory others will use.
        self.pool.region().fence();
        true
    }

    /// As [`Tree::swap_entry`], also for entries that are not those of pages, and without a fence.
    /// `old` is as it was found. No other thread relies on the new one before its caller fences.
    fn swap_exactly(&self, word: &Word, old: Entry, new: Entry) -> bool {
        let medium = self.pool.medium().point("bw.number");
        // ORDER: AcqRel: as in `swap_entry`.
        let swapped = word.compare_exchange(medium, old.0, new.clean().0, AcqRel, Relaxed).is_ok();
        if swapped {
            // PERSIST: see the callers.
            self.pool.region().write_back(word);
        }
        swapped
    }

    /// Adds the next segment.
    fn add_segment(&self, guard: &Guard<'_, M>) -> Result<(), ChangeError> {
        let nth = (0..SEGMENTS).take_while(|&nth| self.segment_at(nth).is_some()).count();
        if nth == SEGMENTS {
            // No pool has room for so many pages.
            return Err(no_memory(guard).into());
        }
        let bytes = self.segment_bytes(nth);
        let fresh = guard.alloc(bytes)?;
        (0..bytes / LINE).for_each(|line| fresh.stream_lines(line * LINE, &[[0; LINE / 8]]));
        // PERSIST: the free entries, before the directory names them. A crash in between leaves a
        // block that the collector reclaims.
        let durable = fresh.fenced(&guard.fence());
        if nth > 0 {
            // The segments behind one that a crash took back would be lost.
            self.persist_named(self.directory_word(nth - 1));
        }
        let (word, name) = (self.directory_word(nth), named(durable.offset()));
        let medium = self.pool.medium().point("bw.segment");
        // ORDER: AcqRel: pairs with `segment_at`. After a failure another thread has added one.
        if word.compare_exchange(medium, 0, name | DIRTY, AcqRel, Relaxed).is_ok() {
            let _ = durable.into_offset();
            self.persist_named(word);
        } else if self.segment_at(nth).is_none() {
            let at = self.directory.offset().raw() + 8 * nth as u64;
            return Err(self.record_damage(at, "the name of a segment does not fit its check").into());
        }
        Ok(())
    }

    /// Bytes of a segment's block.
    pub(super) fn segment_bytes(&self, nth: usize) -> usize {
        (self.segment(nth).len as usize * 8).next_multiple_of(LINE)
    }

    /// Makes the name of a number's segment durable, before a link to the number is.
    fn persist_segment(&self, pid: Pid) {
        let numbered = (u64::from(pid) >> self.shape.first_log2) + 1;
        self.persist_named(self.directory_word(63 - numbered.leading_zeros() as usize));
    }

    fn persist_named(&self, word: &Word) {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        // ORDER: Acquire: as in `segment_at`.
        let found = word.load(medium, Acquire);
        if found & DIRTY == 0 {
            return;
        }
        // PERSIST: the name, before anything relies on it.
        region.persist(word);
        // ORDER: AcqRel: a thread that finds it clean finds it durable.
        let _ = word.compare_exchange(medium, found, found & !DIRTY, AcqRel, Relaxed);
    }
}

#[cfg(test)]
#[path = "tests/table.rs"]
mod tests;
