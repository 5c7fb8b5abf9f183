//! Blocks that are set aside, so that a change of a present key finds room in a full pool.
//!
//! ```text
//!   0: none | 63 used | 62:55 lines | 54:44 check | 43:6 offset of the block | 5:0 epoch, if used
//! ```
//! A thread that takes a spare marks its word, makes the mark durable, and clears the word once the
//! block is linked or given back. Until then the collector's walk names the block by that word, as
//! no page names it yet. A crash may leave a mark: the first open after it clears all marks, and
//! the collector reclaims a block that is not a page.
//!
//! A thread that takes a block while memory is left fills the free places; if there is little, with
//! smaller blocks. The block that a page had is free once no thread can see it, so that the next
//! page finds room without a spare. The last spares are for what gives back more than it takes: so
//! a pool that is full of empty pages comes to have room again.
//!
//! A thread is pinned while it uses a spare. So the collector's walk clears the marks of threads
//! that have died, by their epochs.

use super::super::keys::OrderedKind;
use super::build::{Block, Need};
use super::entry::{GRACE, SLOTS_MAX};
use super::slots::before_body;
use super::table::SPARES;
use super::tree::Tree;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use terrace_medium::{LINE, MappedMedium, Word};
use terrace_pool::{Fresh, Guard};

const USED: u64 = 1 << 63;
const PLACE: u64 = (1 << 44) - LINE as u64;
const EPOCH: u64 = LINE as u64 - 1;
const LINES_AT: u32 = 55;
const LINES_MAX: usize = 0xff;

/// Bytes of a spare's keys at its ends: those of usual byte strings.
const FENCES: usize = 4 * LINE;

/// Spares that a merge needs: for the page above, and for the united page.
const KEPT: usize = 2;

/// A word of a spare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spare(pub(super) u64);

impl Spare {
    fn check(word: u64) -> u64 {
        let (offset, lines) = (word & PLACE, word >> LINES_AT & LINES_MAX as u64);
        ((offset >> 33 ^ offset >> 22 ^ offset >> 11 ^ offset ^ lines ^ 0x2b5) & 0x7ff) << 44
    }

    pub(super) fn free(block: Block) -> Self {
        let bits = ((block.bytes / LINE) as u64) << LINES_AT | block.offset;
        Self(bits | Self::check(bits))
    }

    pub(super) fn used(self, epoch: u64) -> Self {
        Self(self.0 | USED | epoch & EPOCH)
    }

    /// Its block; `None` if there is none.
    pub(super) fn block(self) -> Option<Block> {
        let (offset, lines) = (self.0 & PLACE, self.0 >> LINES_AT & LINES_MAX as u64);
        let is_sound = offset != 0 && self.0 & 0x7ff << 44 == Self::check(self.0);
        is_sound.then_some(Block { offset, bytes: lines as usize * LINE })
    }

    /// Whether the thread that uses it has died: no thread is pinned since that epoch.
    pub(super) fn is_left(self, epoch: u64) -> bool {
        self.is_used() && epoch.wrapping_sub(self.0) & EPOCH > GRACE
    }

    /// Whether a thread uses it.
    pub(super) fn is_used(self) -> bool {
        self.0 & USED != 0
    }
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// Bytes of a spare: room for a page whose keys at its ends are not long, however full.
    pub(super) fn spare_bytes(&self) -> usize {
        let entries = self.shape.most + SLOTS_MAX + self.shape.most / 2;
        let bytes = (before_body(self.shape.slots) + FENCES + 16 * entries).next_multiple_of(LINE);
        bytes.min(LINES_MAX * LINE)
    }

    /// Bytes of an empty page whose keys at its ends are not long.
    fn least_bytes(&self) -> usize {
        before_body(self.shape.slots) + 2 * LINE
    }

    pub(super) fn spare_words(&self) -> impl Iterator<Item = &Word> {
        (SPARES..SPARES + self.shape.spares).map(|nth| self.directory_word(nth))
    }

    /// Takes a spare, if one has so many bytes.
    #[cold]
    pub(super) fn take_spare(&self, bytes: usize, need: Need) -> Option<Block> {
        let medium = self.pool.medium();
        let kept = match need {
            Need::Room => return None,
            Need::Present => KEPT,
            Need::Less => 0,
        };
        let load = |word: &Word| Spare(word.load(medium, Acquire));
        let is_free = |word: &&Word| load(word).block().is_some() && !load(word).is_used();
        if self.spare_words().filter(is_free).count() <= kept {
            return None;
        }
        self.spare_words().find_map(|word| {
            let found = load(word);
            let block = found.block().filter(|block| !found.is_used() && block.bytes >= bytes)?;
            let used = found.used(self.pool.epoch()).0;
            // ORDER: AcqRel: one thread takes it.
            word.compare_exchange(medium.point("bw.spare"), found.0, used, AcqRel, Relaxed).ok()?;
            // PERSIST: that it is used, before it is linked. Otherwise a crash could leave a page
            // that is a spare, too.
            self.pool.region().persist(word);
            Some(block)
        })
    }

    /// Clears the word of a spare that was linked or given back. Most blocks are none. Returns
    /// whether it was one.
    pub(super) fn forget_spare(&self, block: Block) -> bool {
        let (medium, mut was_spare) = (self.pool.medium(), false);
        for word in self.spare_words() {
            let found = Spare(word.load(medium, Acquire));
            if found.is_used() && found.block().is_some_and(|used| used.offset == block.offset) {
                // ORDER: Release: the block was linked before. It need not be durable: a mark that
                // a crash keeps means nothing.
                word.store(medium, 0, Release);
                was_spare = true;
            }
        }
        was_spare
    }

    /// Fills the free places for spares, and those that have a smaller one.
    pub(super) fn fill_spares(&self, guard: &Guard<'_, M>) {
        let (medium, most) = (self.pool.medium(), self.spare_bytes());
        for word in self.spare_words() {
            let found = Spare(word.load(medium, Acquire));
            let old = found.block();
            if found.is_used() || old.is_some_and(|block| block.bytes >= most) {
                continue;
            }
            // Without memory, this does not search for some each time, which takes long.
            if self.refused.load(Relaxed) == self.pool.epoch() {
                return;
            }
            let sizes =
                [most, most / 2, most / 4, self.least_bytes()].map(|size| size.next_multiple_of(LINE));
            let sizes = &sizes[..if old.is_some() { 1 } else { sizes.len() }];
            let Some(fresh) = sizes.iter().find_map(|&size| guard.alloc(size).ok()) else {
                return self.refused.store(self.pool.epoch(), Relaxed);
            };
            self.fill_spare(guard, word, found, fresh);
        }
    }

    /// Puts a block into a word of a spare, and frees the one that was there.
    #[cold]
    fn fill_spare(&self, guard: &Guard<'_, M>, word: &Word, old: Spare, fresh: Fresh<'_, M>) {
        // PERSIST: that the block is taken, before the word names it. A crash in between leaves a
        // block that the collector reclaims.
        let bytes = fresh.len();
        let fresh = fresh.fenced(&guard.fence());
        let spare = Spare::free(Block { offset: fresh.offset(), bytes }).0;
        // ORDER: AcqRel: as in `take_spare`.
        if word.compare_exchange(self.pool.medium(), old.0, spare, AcqRel, Relaxed).is_ok() {
            let _ = fresh.into_offset();
            // PERSIST: the word, before the old block is another's. A crash before leaves the old
            // one, and the new one to the collector.
            self.pool.region().persist(word);
            // The collector's walk may have read it.
            old.block().inspect(|block| guard.retire(block.offset, block.bytes));
        }
    }
}

#[cfg(test)]
#[path = "tests/spare.rs"]
mod tests;
