//! The check that words of trees have: a byte that changes if one of their bytes does.

/// All bytes of a word, folded into one.
#[inline(always)]
pub(super) fn folded(bits: u64) -> u64 {
    let halves = bits ^ bits >> 32;
    let quarters = halves ^ halves >> 16;
    (quarters ^ quarters >> 8) & 0xff
}
