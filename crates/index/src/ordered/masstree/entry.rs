//! The word of an entry, and slices of keys.
//!
//! ```text
//!   | 63:56 check | 55:52 tag | 51:41 0 | 40:0 offset / 8 |
//! ```
//! The check covers the word and the slice beside it. Leaves of integers have the key's word
//! instead, which may be any.

use super::super::check::folded;

/// Bytes of a slice.
pub(super) const SLICE: usize = 8;

/// The tag of a key that goes on behind its slice. Smaller ones are the bytes that the key has in
/// its last slice.
pub(super) const LONGER: u8 = 9;
/// A layer: of keys that go on.
const LAYER: u8 = 10;
/// A leaf node, and an interior one.
const LEAF: u8 = 11;
const INTERIOR: u8 = 12;

const CHECK_AT: u32 = 56;
const TAG_AT: u32 = 52;
const OFFSET: u64 = (1 << 41) - 1;

/// Eight bytes of a key, and how far the key goes there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Piece {
    pub(super) slice: u64,
    /// The number of bytes if the key ends here, or [`LONGER`].
    pub(super) tag: u8,
}

impl Piece {
    /// The piece of a key at a depth, in slices; `None` if the key ends above it.
    #[inline(always)]
    pub(super) fn of(key: &[u8], depth: usize) -> Option<Self> {
        let rest = key.get(depth * SLICE..)?;
        if let Some(bytes) = rest.first_chunk() {
            let tag = if rest.len() > SLICE { LONGER } else { SLICE as u8 };
            return Some(Self { slice: u64::from_be_bytes(*bytes), tag });
        }
        let mut bytes = [0; SLICE];
        bytes[..rest.len()].copy_from_slice(rest);
        Some(Self { slice: u64::from_be_bytes(bytes), tag: rest.len() as u8 })
    }
}

/// What an entry's word leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry(pub(super) u64);

/// The bytes of both words, folded into one.
#[inline(always)]
fn check(bits: u64, slice: u64) -> u64 {
    folded(bits ^ slice.rotate_left(4)) << CHECK_AT
}

impl Entry {
    /// Leads nowhere.
    pub(super) const NONE: Self = Self(0);

    #[inline(always)]
    fn new(slice: u64, tag: u8, offset: u64) -> Self {
        debug_assert!(offset != 0 && offset & 7 == 0 && offset >> 3 <= OFFSET, "{offset:#x} is no offset");
        let bits = u64::from(tag) << TAG_AT | offset >> 3;
        Self(bits | check(bits, slice))
    }

    /// The record of a key with this piece.
    #[inline(always)]
    pub(super) fn record(piece: Piece, offset: u64) -> Self {
        debug_assert!(piece.tag <= LONGER, "{piece:?}");
        Self::new(piece.slice, piece.tag, offset)
    }

    pub(super) fn layer(slice: u64, root: u64) -> Self {
        Self::new(slice, LAYER, root)
    }

    /// A node below an interior one, beside a node, or below the root.
    pub(super) fn node(slice: u64, level: usize, offset: u64) -> Self {
        Self::new(slice, if level == 0 { LEAF } else { INTERIOR }, offset)
    }

    #[inline(always)]
    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    #[inline(always)]
    fn tag(self) -> u8 {
        (self.0 >> TAG_AT) as u8 & 15
    }

    /// The tag of the keys that it is for.
    #[inline(always)]
    pub(super) fn key_tag(self) -> u8 {
        self.tag().min(LONGER)
    }

    #[inline(always)]
    pub(super) fn is_layer(self) -> bool {
        self.tag() == LAYER
    }

    pub(super) fn is_record(self) -> bool {
        self.tag() <= LONGER
    }

    /// Whether this leads to a node of this level.
    #[inline(always)]
    pub(super) fn is_node(self, level: usize) -> bool {
        self.tag() == if level == 0 { LEAF } else { INTERIOR }
    }

    #[inline(always)]
    pub(super) fn offset(self) -> u64 {
        (self.0 & OFFSET) << 3
    }

    /// Whether the check fits, beside this slice.
    #[inline(always)]
    pub(super) fn is_sound(self, slice: u64) -> bool {
        const USED: u64 = 15 << TAG_AT | OFFSET;
        let bits = self.0 & USED;
        self.0 == bits | check(bits, slice) && self.tag() <= INTERIOR && bits & OFFSET != 0
    }
}

#[cfg(test)]
#[path = "tests/entry.rs"]
mod tests;
