//! Keys as rows of bits: nine for each byte, the first of which says that the key has the byte.
//!
//! So a key that ends differs from one that goes on, at a bit like any other, and comes before it.
//! Bit 9n of a key says that it has byte n; the bits 9n + 1 to 9n + 8 are that byte's, the highest
//! first. Behind the key's end all bits are 0.

/// Bits of a byte.
pub(super) const BITS: u32 = 9;

/// A key's bit.
#[inline(always)]
pub(super) fn bit(key: &[u8], position: u32) -> bool {
    let (place, nth) = ((position / BITS) as usize, position % BITS);
    match key.get(place) {
        None => false,
        Some(_) if nth == 0 => true,
        Some(byte) => byte >> (8 - nth) & 1 == 1,
    }
}

/// The first bit in which two keys differ; `None` if they are equal.
pub(super) fn first_difference(one: &[u8], other: &[u8]) -> Option<u32> {
    let least = one.len().min(other.len());
    let same = same_front(&one[..least], &other[..least]);
    match (one.get(same), other.get(same)) {
        (None, None) => None,
        (Some(byte), Some(there)) => Some(same as u32 * BITS + 1 + (byte ^ there).leading_zeros()),
        _ => Some(same as u32 * BITS),
    }
}

/// How many of the first bytes of two strings of the same length are the same.
fn same_front(one: &[u8], other: &[u8]) -> usize {
    const STEP: usize = 8;
    let mut at = 0;
    for (one, other) in one.chunks_exact(STEP).zip(other.chunks_exact(STEP)) {
        if one != other {
            break;
        }
        at += STEP;
    }
    at + one[at..].iter().zip(&other[at..]).take_while(|(one, other)| one == other).count()
}

/// The eight bytes of a key from `first` on, the first at the top; zeros behind its end.
#[inline(always)]
pub(super) fn window(key: &[u8], first: usize) -> u64 {
    let rest = key.get(first..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

#[cfg(test)]
#[path = "tests/bits.rs"]
mod tests;
