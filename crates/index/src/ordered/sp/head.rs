//! The words of a node's first line that say how it stands.
//!
//! ```text
//!   state  | 63:56 check | 55 changing | 54 frozen | 53:38 counter | 37:0 partner / 64 |
//!   checks | 63:48 of the bitmap | 47:32 of the one before | 31:16 of the tags | 15:0 before |
//! ```
//! The state's check covers its other bits. The second word is stored before the bitmap changes, so
//! that it admits both, and after that, so that it admits the new one alone.

use super::super::check::folded;

const CHECK_AT: u32 = 56;
const CHANGING: u64 = 1 << 55;
const FROZEN: u64 = 1 << 54;
const COUNTER_AT: u32 = 38;
const COUNTER: u64 = 0xffff << COUNTER_AT;
const PARTNER: u64 = (1 << COUNTER_AT) - 1;

/// How a node stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State(pub(super) u64);

impl State {
    /// Of a new node.
    pub(super) fn new() -> Self {
        Self::sealed(0)
    }

    #[inline(always)]
    fn sealed(bits: u64) -> Self {
        let bits = bits & !(0xff << CHECK_AT);
        // Inverted: a word of zeros is no state.
        Self(bits | (folded(bits) ^ 0xff) << CHECK_AT)
    }

    #[inline(always)]
    pub(super) fn is_sound(self) -> bool {
        self == Self::sealed(self.0)
    }

    /// A split of the node, or its taking over of the next one, is under way or was cut off.
    #[inline(always)]
    pub(super) fn is_changing(self) -> bool {
        self.0 & CHANGING != 0
    }

    /// The node's keys and range go to its partner, the left neighbour, or have gone there.
    #[inline(always)]
    pub(super) fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// Neither of both.
    #[inline(always)]
    pub(super) fn is_settled(self) -> bool {
        self.0 & (CHANGING | FROZEN) == 0
    }

    /// The place of the other node that takes part in a change; 0 if there is none.
    pub(super) fn partner(self) -> u64 {
        (self.0 & PARTNER) * 64
    }

    /// How often the bitmap had another content, or a change of the structure had begun.
    #[inline(always)]
    pub(super) fn counter(self) -> u64 {
        self.0 & COUNTER
    }

    /// Before a change that a reader has to notice which has read something else of the node.
    pub(super) fn counting(self) -> Self {
        Self::sealed(self.0 & !COUNTER | self.0.wrapping_add(1 << COUNTER_AT) & COUNTER)
    }

    /// A change begins, with this partner or none.
    pub(super) fn changing(self, partner: u64) -> Self {
        Self::sealed(self.counting().0 & !PARTNER | CHANGING | (partner / 64))
    }

    /// The node is given to this partner.
    pub(super) fn frozen(self, partner: u64) -> Self {
        Self::sealed(self.0 & !PARTNER | FROZEN | (partner / 64))
    }

    /// A change has ended.
    pub(super) fn settled(self) -> Self {
        Self::sealed(self.0 & !(CHANGING | FROZEN | PARTNER))
    }
}

/// The tags of a node, eight a word.
pub(super) type Tags = [u64; 8];

/// A byte of ones for each bit.
#[inline(always)]
fn spread(bits: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // Byte `n` keeps bit `n` alone.
    let apart = (bits & 0xff).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    let tops = (((apart & LOW) + LOW) | apart) & !LOW;
    (tops >> 7) * 0xff
}

/// The checks of a bitmap, and of the tags of its slots: those of its content, and those of the
/// content before while it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Checks(pub(super) u64);

/// Where the checks of the content before are.
const OLD: u64 = 0xffff_0000_ffff_0000;

impl Checks {
    /// Of this content alone.
    #[inline]
    pub(super) fn of(bitmap: u64, tags: &Tags) -> Self {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        // Each step is one to one, so no change of one word is lost before the end.
        let sum = (0..).zip(tags).fold(ODD, |sum, (nth, &word)| {
            (sum ^ word & spread(bitmap >> (8 * nth))).wrapping_mul(ODD).rotate_left(29)
        });
        let both = folded_16(bitmap) << 32 | folded_16(sum);
        Self(both | both << 16)
    }

    /// Of this content, and of the one before.
    pub(super) fn after(self, old: Self) -> Self {
        Self(self.0 & !OLD | old.0 & OLD)
    }

    /// Whether they admit one content only.
    #[inline(always)]
    pub(super) fn is_single(self) -> bool {
        (self.0 ^ self.0 >> 16) & 0xffff_0000_ffff == 0
    }

    /// Whether this may be the bitmap.
    #[inline(always)]
    pub(super) fn admit(self, bitmap: u64) -> bool {
        let check = folded_16(bitmap);
        self.0 >> 48 == check || self.0 >> 32 & 0xffff == check
    }

    /// Whether these may be the bitmap and its slots' tags.
    #[inline(always)]
    pub(super) fn admit_all(self, bitmap: u64, tags: &Tags) -> bool {
        let check = Self::of(bitmap, tags).0 & 0xffff;
        self.admit(bitmap) && (self.0 >> 16 & 0xffff == check || self.0 & 0xffff == check)
    }
}

/// All bytes of a word, folded into two: a change of one always changes it.
#[inline(always)]
fn folded_16(bits: u64) -> u64 {
    let halves = bits ^ bits >> 32;
    // A word of zeros is no check of no slots.
    (halves ^ halves >> 16) & 0xffff ^ 0x5a5a
}

#[cfg(test)]
#[path = "tests/head.rs"]
mod tests;
