//! The words of a node that lead elsewhere: links, and the slots of byte strings.
//!
//! ```text
//!   link | 63:56 check | 55:41 0                      | 40:0 offset / 8 |
//!   slot | 63:56 check | 55:41 bits of the key's hash | 40:0 offset / 8 of its record |
//! ```
//! The check covers the other bits. The lower eight of the hash's bits are the slot's *tag*.

use super::super::check::folded;

const CHECK_AT: u32 = 56;
const HASH_AT: u32 = 41;
const HASH_BITS: u64 = (1 << (CHECK_AT - HASH_AT)) - 1;
const OFFSET: u64 = (1 << HASH_AT) - 1;

/// The bits of a key's hash that a slot has. The upper bits of a hash depend on all of the key.
#[inline(always)]
pub(super) fn hash_bits(hash: u64) -> u64 {
    hash >> (64 - 15)
}

/// The tag of a key with this hash.
#[inline(always)]
pub(super) fn tag_of(hash: u64) -> u8 {
    hash_bits(hash) as u8
}

/// A link, or the slot of a byte string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry(pub(super) u64);

impl Entry {
    /// A link to nothing.
    pub(super) const NONE: Self = Self(0);

    fn sealed(bits: u64) -> Self {
        // Inverted: so no word of zeros but `NONE` is sound.
        Self(bits | (folded(bits) ^ 0xff) << CHECK_AT)
    }

    /// A link to what lies at an offset, a multiple of 8.
    pub(super) fn link(offset: u64) -> Self {
        debug_assert!(offset.is_multiple_of(8) && offset / 8 <= OFFSET, "{offset:#x} is no offset");
        Self::sealed(offset / 8)
    }

    /// The slot of a record, with bits of its key's hash.
    #[inline(always)]
    pub(super) fn record(hash: u64, offset: u64) -> Self {
        debug_assert!(offset.is_multiple_of(8) && offset / 8 <= OFFSET, "{offset:#x} is no offset");
        Self::sealed((offset / 8) | (hash_bits(hash) << HASH_AT))
    }

    #[inline(always)]
    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Whether it fits its check. [`Entry::NONE`] does not.
    #[inline(always)]
    pub(super) fn is_sound(self) -> bool {
        self == Self::sealed(self.0 & ((1 << CHECK_AT) - 1))
    }

    #[inline(always)]
    pub(super) fn offset(self) -> u64 {
        (self.0 & OFFSET) * 8
    }

    /// The bits of the key's hash.
    #[inline(always)]
    pub(super) fn hash_bits(self) -> u64 {
        self.0 >> HASH_AT & HASH_BITS
    }
}

#[cfg(test)]
#[path = "tests/word.rs"]
mod tests;
