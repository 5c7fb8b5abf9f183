//! Numbers and byte strings in files.
//!
//! Numbers of fixed size are little-endian. A varint has seven bits a byte, the lowest first; the
//! top bit says that another byte follows.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Appends a varint of at most ten bytes.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a byte string behind its length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The checksum of a piece of a file. The seed names the piece, so that one piece in the place of
/// another does not pass.
pub(crate) fn checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// The hash of a key in filters and blocks.
pub(crate) fn hash(key: &[u8]) -> u64 {
    checksum(key, 0xf117e5)
}

/// How many bytes two keys have in common at their beginning.
#[inline]
pub(crate) fn shared(one: &[u8], other: &[u8]) -> usize {
    let most = one.len().min(other.len());
    let mut at = 0;
    while let (Some(word), Some(of_other)) = (one[at..most].first_chunk(), other[at..most].first_chunk()) {
        let differing = u64::from_le_bytes(*word) ^ u64::from_le_bytes(*of_other);
        if differing != 0 {
            return at + differing.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + one[at..most].iter().zip(&other[at..most]).take_while(|(one, other)| one == other).count()
}

/// Reads from the beginning of a byte string. Every method returns `None` where the bytes end too
/// early or are no such value.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'b>(pub &'b [u8]);

impl<'b> Reader<'b> {
    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// A byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
    }

    /// A number of eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
    }

    /// A varint.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (nth, &byte) in self.0.iter().take(10).enumerate() {
            // The tenth byte has the last bit.
            if nth == 9 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * nth);
            if byte < 0x80 {
                self.0 = &self.0[nth + 1..];
                return Some(value);
            }
        }
        None
    }

    /// A varint that is a length or an offset.
    #[inline]
    pub fn size(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }

    /// A byte string behind its length.
    pub fn bytes(&mut self) -> Option<&'b [u8]> {
        let len = self.size()?;
        self.take(len)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
#[path = "tests/codec.rs"]
mod tests;
