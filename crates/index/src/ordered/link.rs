//! The link of a tree to a node or a leaf: one word, which publishes what it leads to.
//!
//! ```text
//!   | 63:56 byte | 55:48 check | 47 dirty | 46:44 skip | 43:41 kind | 40:0 offset / 8 |
//! ```
//! `byte` is the key's byte by which the parent chooses the link. `kind` says what lies at the
//! offset, and `skip` how far below the parent it branches, so a reader knows which line of a node
//! it needs before it reads the node. The check covers all other bits but the dirty one. Word 0 is
//! no link.
//!
//! # Link and persist
//! On a medium with a volatile cache, a writer stores a link with its dirty bit, writes it back,
//! fences, and clears the bit. A thread that finds the bit persists the link itself before it
//! returns what the link says or builds upon it. So no answer and no change depends on a link that
//! a crash may take back. A removed link leaves a dirty word of kind 0 until its removal is
//! durable. (RECIPE calls this the flush after certain loads, Condition #2.) Where a place must
//! never look as if it had not been used, such a word stays, clean: a *vacated* link.
//!
//! A thread clears the bit of the very word that it has persisted. No dirty word comes back to a
//! place while a thread that saw it there is pinned: it holds the offset of a block that was linked
//! or unlinked there once. The exceptions are *held*, and only the holder of the node's lock clears
//! their bits: a leaf whose word changes in place, and a link that comes back to a place where it
//! may have been. A held link to a node tells no skip, as one with a large skip.

use super::check::folded;

/// What a link leads to. 0 is nothing; 1 is a leaf; the others are nodes, as the tree defines them.
pub(super) type KindBits = u64;

pub(super) const EMPTY: KindBits = 0;
pub(super) const LEAF: KindBits = 1;

const BYTE_AT: u32 = 56;
const CHECK_AT: u32 = 48;
const CHECK: u64 = 0xff << CHECK_AT;
const DIRTY: u64 = 1 << 47;
const SKIP_AT: u32 = 44;
const KIND_AT: u32 = 41;
const OFFSET: u64 = (1 << KIND_AT) - 1;

/// The largest skip that a link tells; a node says a larger one itself.
pub(super) const SKIP_MAX: usize = 6;
const SKIP_IN_NODE: u64 = 7;
/// A leaf has no skip; there the lowest bit says that the link is held.
const HELD: u64 = 1 << SKIP_AT;
/// Nothing has no skip either; there the lowest bit says that the word stays.
const VACATED: u64 = 1 << SKIP_AT;

/// A link. See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link(pub(super) u64);

/// All bytes of a word but the check's, folded into one. So a changed byte always changes it.
#[inline(always)]
fn check(word: u64) -> u64 {
    folded(word & !(CHECK | DIRTY)) << CHECK_AT
}

impl Link {
    pub(super) const NONE: Self = Self(0);

    /// A link to a node that branches `skip` bytes below the parent's next one.
    #[inline(always)]
    pub(super) fn to_node(byte: u8, kind: KindBits, skip: usize, offset: u64) -> Self {
        debug_assert!(kind > LEAF && offset != 0 && offset & 7 == 0 && offset >> 3 <= OFFSET);
        let skip = if skip > SKIP_MAX { SKIP_IN_NODE } else { skip as u64 };
        Self::sealed(u64::from(byte) << BYTE_AT | skip << SKIP_AT | kind << KIND_AT | offset >> 3)
    }

    #[inline(always)]
    pub(super) fn to_leaf(byte: u8, offset: u64) -> Self {
        debug_assert!(offset != 0 && offset & 7 == 0 && offset >> 3 <= OFFSET);
        Self::sealed(u64::from(byte) << BYTE_AT | LEAF << KIND_AT | offset >> 3)
    }

    #[inline(always)]
    fn sealed(bits: u64) -> Self {
        Self(bits | check(bits))
    }

    /// The same link, chosen by another byte.
    #[inline(always)]
    pub(super) fn with_byte(self, byte: u8) -> Self {
        let bits = self.0 & !(CHECK | DIRTY | 0xff << BYTE_AT);
        Self::sealed(bits | u64::from(byte) << BYTE_AT)
    }

    /// The same link with its dirty bit.
    #[inline(always)]
    pub(super) fn dirty(self) -> Self {
        Self(self.0 | DIRTY)
    }

    /// What is left of this link while its removal is not durable.
    #[inline(always)]
    pub(super) fn removed(self) -> Self {
        Self::sealed(self.0 & (0xff << BYTE_AT | OFFSET)).dirty()
    }

    /// What is left of this link for good, in a place that must not look as if it were new; dirty.
    #[inline(always)]
    pub(super) fn vacated(self) -> Self {
        Self::sealed(self.0 & (0xff << BYTE_AT | OFFSET) | VACATED).dirty()
    }

    /// This link, dirty, if only the holder of the lock may clear it.
    #[inline(always)]
    pub(super) fn held(self) -> Self {
        let held = if self.kind() == LEAF { HELD } else { SKIP_IN_NODE << SKIP_AT };
        Self::sealed(self.0 & !(CHECK | DIRTY) | held).dirty()
    }

    /// Whether only the holder of the lock may clear the dirty bit.
    #[inline(always)]
    pub(super) fn is_held(self) -> bool {
        match self.kind() {
            EMPTY => false,
            LEAF => self.0 & HELD != 0,
            _ => self.skip().is_none(),
        }
    }

    /// This link once it is durable.
    #[inline(always)]
    pub(super) fn clean(self) -> Self {
        match self.kind() {
            EMPTY if self.0 & VACATED == 0 => Self::NONE,
            LEAF if self.is_held() => Self::sealed(self.0 & !(CHECK | DIRTY | HELD)),
            _ => Self(self.0 & !DIRTY),
        }
    }

    #[inline(always)]
    pub(super) fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    #[inline(always)]
    pub(super) fn kind(self) -> KindBits {
        self.0 >> KIND_AT & 7
    }

    #[inline(always)]
    pub(super) fn is_empty(self) -> bool {
        self.kind() == EMPTY
    }

    /// Whether this leads to a node.
    #[inline(always)]
    pub(super) fn is_node(self) -> bool {
        self.kind() > LEAF
    }

    #[inline(always)]
    pub(super) fn byte(self) -> u8 {
        (self.0 >> BYTE_AT) as u8
    }

    /// How many bytes below the parent's next one the node branches; `None` if the node says it.
    #[inline(always)]
    pub(super) fn skip(self) -> Option<usize> {
        let skip = self.0 >> SKIP_AT & 7;
        (skip != SKIP_IN_NODE).then_some(skip as usize)
    }

    #[inline(always)]
    pub(super) fn offset(self) -> u64 {
        (self.0 & OFFSET) << 3
    }

    /// Whether the check fits. A word without an offset needs none: it leads nowhere.
    #[inline(always)]
    pub(super) fn is_sound(self) -> bool {
        self.0 & CHECK == check(self.0)
    }

    /// Whether this is a whole link, no link, or what is left of one.
    #[inline(always)]
    pub(super) fn is_whole(self) -> bool {
        if !self.is_empty() {
            return self.is_sound();
        }
        self.0 == 0 || self == self.removed() || self.dirty() == self.vacated()
    }
}

/// Whether an offset can be a leaf's.
#[inline(always)]
pub(super) fn is_offset(word: u64) -> bool {
    word != 0 && word & 7 == 0 && word >> 3 <= OFFSET
}

#[cfg(test)]
#[path = "tests/link.rs"]
mod tests;
