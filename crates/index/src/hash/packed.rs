//! The slot of a byte-string key: one word with bits of the key's hash beside the offset of its
//! record.

pub(super) const HASH_BITS: u32 = 15;
const CHECK_BITS: u32 = 8;
pub(super) const HASH_AT: u32 = 64 - HASH_BITS;
const CHECK_AT: u32 = HASH_AT - CHECK_BITS;
pub(super) const CHECK: u64 = ((1 << CHECK_BITS) - 1) << CHECK_AT;
pub(super) const OFFSET: u64 = (1 << CHECK_AT) - 1;
/// Set in the word of a damaged slot, which then is no record's offset.
pub(super) const DAMAGED: u64 = 1;

/// The check of a slot's other bits, at its place in the word. For any changed byte, its covered
/// bits and its bits of the check fall on different bits of the check (hence the rotation). So they
/// cannot cancel out.
#[inline(always)]
pub(super) fn check(slot: u64) -> u64 {
    let bits = slot & !CHECK;
    let halves = bits ^ bits >> 32;
    let quarters = halves ^ halves >> 16;
    let byte = (quarters ^ quarters >> 8) as u8;
    u64::from(byte.rotate_right(1)) << CHECK_AT
}

/// The offset of the record.
#[inline(always)]
pub(super) fn offset_in(slot: u64) -> u64 {
    (slot & OFFSET) << 3
}

/// Whether a word is a record's offset.
#[inline(always)]
pub(super) fn is_word(word: u64) -> bool {
    word != 0 && word & 7 == 0 && word >> 3 <= OFFSET
}

#[cfg(test)]
#[path = "tests/packed.rs"]
mod tests;
