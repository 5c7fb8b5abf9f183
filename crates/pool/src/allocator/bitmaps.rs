//! The two bitmaps of a slab: which of its blocks are allocated, and which the collector found
//! live.

use crate::allocator::classes::Class;
use crate::allocator::units::Units;
use crate::allocator::zones::{UnitState, UnitUse};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terrace_medium::{MappedMedium, Word};

/// If its own class has no block, a request may be served from a class this far up: a block of at
/// most twice the size.
pub(crate) const LARGER_CLASSES: usize = 8;

/// How many blocks of a slab are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// None.
    Empty,
    /// Some, but not all.
    Partial,
    /// All.
    Full,
}

impl<M: MappedMedium> Units<M> {
    /// Whether a block of class `number` may serve a request of class `asked`.
    #[inline(always)]
    pub(crate) fn serves(&self, number: usize, asked: usize) -> bool {
        (asked..=asked + LARGER_CLASSES).contains(&number)
    }

    /// A word of the slab's first bitmap: a set bit is an allocated block.
    #[inline(always)]
    pub(crate) fn allocated_word(&self, unit: u64, word: u64) -> &Word {
        debug_assert!(word < 1 << (self.zones.slab_log2 - 3), "word {word} of a bitmap in its slab");
        self.base.word_at(self.zones.start_of(unit) + word * 8)
    }

    /// A word of the slab's second bitmap: a set bit is a block that the collector found live.
    #[inline(always)]
    pub(crate) fn mark_word(&self, unit: u64, class: &Class, word: u64) -> &Word {
        debug_assert!(word < u64::from(class.words), "word {word} of a bitmap of {}", class.words);
        self.allocated_word(unit, u64::from(class.words) + word)
    }

    /// Which blocks of a slab are allocated.
    pub(crate) fn fill(&self, unit: u64, class: &Class) -> Fill {
        let (mut any, mut all) = (false, true);
        for word in 0..u64::from(class.words) {
            // ORDER: SeqCst: see the module's doc.
            let taken = self.allocated_word(unit, word).load(self.medium().point("slab.fill"), SeqCst)
                & class.valid(word);
            any |= taken != 0;
            all &= taken == class.valid(word);
        }
        match (any, all) {
            (false, _) => Fill::Empty,
            (true, true) => Fill::Full,
            (true, false) => Fill::Partial,
        }
    }

    /// Blocks of a slab that are allocated, or in its owner's cache.
    pub(crate) fn count_blocks(&self, unit: u64, class: &Class) -> u64 {
        let word = |word| self.allocated_word(unit, word).load(self.medium(), Relaxed) & class.valid(word);
        (0..u64::from(class.words)).map(|at| u64::from(word(at).count_ones())).sum()
    }

    /// The class of the slab that contains `offset`.
    pub(crate) fn class_at(&self, offset: u64) -> Option<usize> {
        let (unit, entry) = self.entry_at(offset)?;
        self.revalidated(unit, entry).class()
    }

    /// Bytes of the block at `offset`, which was allocated for `bytes` bytes.
    pub(crate) fn size_of_block(&self, offset: u64, bytes: u64) -> u64 {
        let class = self.classes.of(bytes).and_then(|asked| {
            let found = self.class_at(offset).filter(|&found| self.serves(found, asked));
            self.classes.get(found.unwrap_or(asked))
        });
        class.map_or_else(|| self.classes.footprint(bytes), |class| u64::from(class.size))
    }

    /// Whether no block outside this word of the bitmap is allocated, or in the owner's cache. The
    /// caller has not freed its own block yet.
    #[cold]
    pub(crate) fn is_last(&self, unit: u64, class: &Class, of: u64) -> bool {
        let taken = |word| self.allocated_word(unit, word).load(self.medium(), Relaxed) & class.valid(word);
        (0..u64::from(class.words)).all(|word| word == of || taken(word) == 0)
    }

    /// Prefetches the memory that freeing the block at `offset` accesses. Accepts any offset.
    #[inline(always)]
    pub(crate) fn prefetch_block(&self, offset: u64, class: &Class) {
        let Some((unit, entry)) = self.entry_at(offset) else { return };
        let start = self.zones.start_of(unit);
        self.base.region.prefetch(self.base.region.offset_of(entry).raw());
        self.base.region.prefetch(start + class.block_at(offset - start).unwrap_or(0) / 64 * 8);
    }

    /// Marks the block around `offset` as live, if it is in a slab that will be swept.
    pub(crate) fn mark_block(&self, unit: u64, offset: u64) {
        self.mark_block_in(unit, self.revalidate(unit), offset);
    }

    /// As `mark_block`, for a unit in `state`.
    pub(crate) fn mark_block_in(&self, unit: u64, state: UnitState, offset: u64) {
        let Some(class) = state.class().and_then(|class| self.classes.get(class)) else { return };
        if (state.usage() == UnitUse::Unclean || self.base.round() != 0)
            && let Some(block) = class.block_around(offset - self.zones.start_of(unit))
        {
            let (word, bit) = (self.mark_word(unit, class, block / 64), 1 << (block % 64));
            if word.load(self.medium(), Relaxed) & bit == 0 {
                word.fetch_or(self.medium(), bit, Relaxed);
            }
        }
    }

    /// Prefetches the word that contains the mark of the block around `offset`.
    pub(crate) fn prefetch_mark(&self, unit: u64, class: &Class, offset: u64) {
        let start = self.zones.start_of(unit);
        let block = class.block_around(offset - start).unwrap_or(0);
        self.base.region.prefetch(start + (u64::from(class.words) + block / 64) * 8);
    }

    /// Makes all blocks of a slab of an earlier open allocated and unmarked: any of them may be
    /// live.
    pub(crate) fn assume_all_live(&self, unit: u64, class: &Class) {
        for word in 0..u64::from(class.words) {
            self.allocated_word(unit, word).store(self.medium(), class.valid(word), Relaxed);
            self.mark_word(unit, class, word).store(self.medium(), 0, Relaxed);
        }
    }

    pub(crate) fn clear_bitmap(&self, unit: u64, class: &Class) {
        for word in 0..u64::from(class.words) {
            self.allocated_word(unit, word).store(self.medium(), 0, Relaxed);
        }
    }

    /// The class of a slab in `state`, if its blocks may serve a request of class `asked`.
    pub(crate) fn class_serving(&self, state: UnitState, asked: usize) -> Option<&Class> {
        self.classes.get(state.class().filter(|&found| self.serves(found, asked))?)
    }
}
