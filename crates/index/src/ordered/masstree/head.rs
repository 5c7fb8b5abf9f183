//! The words of a node's first line that say what it is and how it stands.
//!
//! ```text
//!   shape | 63:48 counted | 47:32 0 | 31:16 depth in slices | 15:8 level | 7:0 check |
//!   state | 63:56 check | 55:48 and 47:40 checks of the permutation | 39:25 used once | 24 frozen
//!         | 23 splitting | 22:0 counter |
//! ```
//! A shape never changes but for `counted`, the number of the last recount that has passed the
//! node. The check of a state covers the other bits. A permutation has the check that its state
//! gives it. While it changes, and after a crash meanwhile, it may have the one that it had before.

use super::super::check::folded;
use super::permutation::Permutation;

const CHECK: u64 = 0xff;
const LEVEL_AT: u32 = 8;
const DEPTH_AT: u32 = 16;
const COUNTED_AT: u32 = 48;

/// Levels of a layer at most.
pub(super) const LEVELS: usize = 32;

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape(pub(super) u64);

impl Shape {
    pub(super) fn new(level: usize, depth: usize, counted: u16) -> Self {
        assert!(level < LEVELS && depth < 1 << 16, "level {level} at depth {depth}");
        let fixed = (level as u64) << LEVEL_AT | (depth as u64) << DEPTH_AT;
        // Never 0: a line of zeros is no node.
        Self(u64::from(counted) << COUNTED_AT | fixed | folded(fixed) ^ CHECK)
    }

    /// 0 for a leaf.
    #[inline(always)]
    pub(super) fn level(self) -> usize {
        (self.0 >> LEVEL_AT & 0xff) as usize
    }

    /// Slices of a key above this layer.
    #[inline(always)]
    pub(super) fn depth(self) -> usize {
        (self.0 >> DEPTH_AT & 0xffff) as usize
    }

    #[inline(always)]
    pub(super) fn is_sound(self) -> bool {
        let fixed = self.0 & 0xffff_ffff_ffff & !CHECK;
        self.0 & CHECK == folded(fixed) ^ CHECK && fixed >> 32 == 0 && self.level() < LEVELS
    }

    pub(super) fn counted(self) -> u16 {
        (self.0 >> COUNTED_AT) as u16
    }

    pub(super) fn with_counted(self, counted: u16) -> Self {
        Self(self.0 & !(0xffff << COUNTED_AT) | u64::from(counted) << COUNTED_AT)
    }
}

const STATE_CHECK_AT: u32 = 56;
const NEW_AT: u32 = 48;
const OLD_AT: u32 = 40;
const USED_AT: u32 = 25;
const FROZEN: u64 = 1 << 24;
const SPLITTING: u64 = 1 << 23;
const COUNTER: u64 = SPLITTING - 1;

/// How a node stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State(pub(super) u64);

impl State {
    /// Of a node whose first so many slots are used.
    pub(super) fn new(permutation: Permutation) -> Self {
        let used = ((1u64 << permutation.len()) - 1) << USED_AT;
        Self(used).changing(permutation, permutation)
    }

    #[inline(always)]
    fn sealed(bits: u64) -> Self {
        let bits = bits & !(0xff << STATE_CHECK_AT);
        Self(bits | (folded(bits) ^ CHECK) << STATE_CHECK_AT)
    }

    #[inline(always)]
    pub(super) fn is_sound(self) -> bool {
        self == Self::sealed(self.0)
    }

    /// How often a slot was filled that had been in use before, which a reader may still see, or
    /// got another child, or a split has begun. The same number before and after a read says that
    /// what was read is of one time: no slot has changed its key, and the node ends where it did.
    #[inline(always)]
    pub(super) fn counter(self) -> u64 {
        self.0 & COUNTER
    }

    /// The node is empty for good, and its range belongs to the next one.
    #[inline(always)]
    pub(super) fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// A split has begun.
    #[inline(always)]
    pub(super) fn is_splitting(self) -> bool {
        self.0 & SPLITTING != 0
    }

    pub(super) fn frozen(self) -> Self {
        Self::sealed(self.0 | FROZEN)
    }

    pub(super) fn with_splitting(self, is_splitting: bool) -> Self {
        Self::sealed(if is_splitting { self.0 | SPLITTING } else { self.0 & !SPLITTING })
    }

    /// When a split begins. It counts: a split that moves only the new entry leaves the permutation
    /// as it is, and one that is undone leaves all as it is. A reader in between has to see that.
    pub(super) fn splitting(self) -> Self {
        self.counting().with_splitting(true)
    }

    /// Before a change that a reader has to see which has read something else of the node.
    pub(super) fn counting(self) -> Self {
        Self::sealed(self.0 & !COUNTER | (self.counter() + 1) & COUNTER)
    }

    /// Before the permutation changes from `old` to `new`.
    #[inline(always)]
    pub(super) fn changing(self, old: Permutation, new: Permutation) -> Self {
        let checks = u64::from(new.check()) << NEW_AT | u64::from(old.check()) << OLD_AT;
        Self::sealed(self.0 & !(0xffff << OLD_AT) | checks)
    }

    /// Before a slot is filled.
    #[inline(always)]
    pub(super) fn filling(self, slot: usize) -> Self {
        let used = 1 << (USED_AT + slot as u32);
        let counted = if self.0 & used != 0 { self.counting() } else { self };
        Self::sealed(counted.0 | used)
    }

    /// Whether this may be the node's permutation.
    pub(super) fn admits(self, permutation: Permutation) -> bool {
        let check = permutation.check();
        (self.0 >> NEW_AT) as u8 == check || (self.0 >> OLD_AT) as u8 == check
    }
}

#[cfg(test)]
#[path = "tests/head.rs"]
mod tests;
