//! The permutation of a node: which of its slots are used, and in which order.
//!
//! ```text
//!   | 63:60 last free slot | ... | first free slot | ... | 7:4 first used slot | 3:0 used |
//! ```

use super::super::check::folded;

/// Slots of a node.
pub(super) const WIDTH: usize = 15;

/// One word: the number of used slots, and 15 slots, the used ones first, in the order of their
/// entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Permutation(pub(super) u64);

impl Permutation {
    /// Nothing is used, and the slots come in turn.
    pub(super) const EMPTY: Self = Self(0xedcb_a987_6543_2100);

    /// The first so many slots are used, in turn.
    pub(super) fn of(used: usize) -> Self {
        assert!(used <= WIDTH, "a node of {used} entries");
        Self(Self::EMPTY.0 | used as u64)
    }

    /// The number of used slots.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        (self.0 & 15) as usize
    }

    /// The slot of the entry at `position`, or, behind the last, a free one.
    #[inline(always)]
    pub(super) fn slot(self, position: usize) -> usize {
        (self.0 >> (4 * position + 4) & 15) as usize
    }

    /// The used slots, in order.
    pub(super) fn slots(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.len().min(WIDTH)).map(move |position| self.slot(position))
    }

    /// With the first free slot at `position`, which is also returned.
    pub(super) fn insert(self, position: usize) -> (Self, usize) {
        let len = self.len();
        assert!(position <= len && len < WIDTH, "position {position} of {len}");
        let slot = self.slot(len);
        (self.moved(len, position).with_len(len + 1), slot)
    }

    /// Without the entry at `position`, whose slot is the first free one then.
    pub(super) fn remove(self, position: usize) -> Self {
        let len = self.len();
        assert!(position < len, "position {position} of {len}");
        self.moved(position, len - 1).with_len(len - 1)
    }

    /// The first so many entries.
    pub(super) fn cut(self, len: usize) -> Self {
        debug_assert!(len <= self.len(), "{len} of {}", self.len());
        self.with_len(len)
    }

    fn with_len(self, len: usize) -> Self {
        Self(self.0 & !15 | len as u64)
    }

    /// With the slot at one position put at another; those between move up or down.
    fn moved(self, from: usize, to: usize) -> Self {
        let mut slots: [usize; WIDTH] = std::array::from_fn(|position| self.slot(position));
        if from > to {
            slots[to..=from].rotate_right(1);
        } else {
            slots[from..=to].rotate_left(1);
        }
        let bits = slots.iter().rev().fold(0, |bits, &slot| bits << 4 | slot as u64);
        Self(bits << 4 | self.0 & 15)
    }

    /// Whether each slot occurs once.
    pub(super) fn is_sound(self) -> bool {
        let seen = (0..WIDTH).fold(0u32, |seen, position| seen | 1 << self.slot(position));
        seen == (1 << WIDTH) - 1 && self.len() <= WIDTH
    }

    /// A byte that differs if a byte of the permutation does.
    #[inline(always)]
    pub(super) fn check(self) -> u8 {
        folded(self.0) as u8
    }
}

#[cfg(test)]
#[path = "tests/permutation.rs"]
mod tests;
