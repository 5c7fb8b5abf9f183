//! Which keys a part of a table may have: a binary fuse filter over their hashes.
//!
//! Graf, Lemire: *Binary Fuse Filters*, JEA 2022. With fingerprints of 8 bits it has 9 bits a key,
//! and one absent key in 256 passes; with 16 bits, 18 bits a key, and one in 65,536.
//!
//! ```text
//!   | bits of a fingerprint u8 | seed u64 | segment length u32 | its mask u32
//!   | length of all segments u32 | fingerprints |
//! ```

use crate::codec::Reader;

use xorf::{BinaryFuse8, BinaryFuse16, Descriptor, Filter as _};

/// The filters of a table. Any reader reads each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// None: a get of an absent key reads a block.
    None,
    /// 9 bits a key; one get in 256 of an absent key reads a block.
    Bits8,
    /// 18 bits a key; one get in 65,536 of an absent key reads a block.
    Bits16,
}

/// A filter in memory.
pub(crate) enum Filter {
    Bits8(BinaryFuse8),
    Bits16(BinaryFuse16),
}

impl Filter {
    /// A filter of these hashes, which are sorted and made unique; `None` if none is wanted, or if
    /// none was found, which does not happen with different hashes.
    pub(crate) fn new(hashes: &mut Vec<u64>, kind: FilterKind) -> Option<Self> {
        if kind != FilterKind::None {
            hashes.sort_unstable();
            hashes.dedup();
        }
        match kind {
            FilterKind::None => None,
            FilterKind::Bits8 => BinaryFuse8::try_from(&*hashes).ok().map(Self::Bits8),
            FilterKind::Bits16 => BinaryFuse16::try_from(&*hashes).ok().map(Self::Bits16),
        }
    }

    pub(crate) fn may_have(&self, hash: u64) -> bool {
        match self {
            Self::Bits8(filter) => filter.contains(&hash),
            Self::Bits16(filter) => filter.contains(&hash),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let (bits, descriptor) = match self {
            Self::Bits8(filter) => (8, &filter.descriptor),
            Self::Bits16(filter) => (16, &filter.descriptor),
        };
        let &Descriptor { seed, segment_length, segment_length_mask, segment_count_length } = descriptor;
        out.push(bits);
        out.extend_from_slice(&seed.to_le_bytes());
        let lengths = [segment_length, segment_length_mask, segment_count_length];
        lengths.iter().for_each(|length| out.extend_from_slice(&length.to_le_bytes()));
        match self {
            Self::Bits8(filter) => out.extend_from_slice(&filter.fingerprints),
            Self::Bits16(filter) => {
                filter.fingerprints.iter().for_each(|print| out.extend_from_slice(&print.to_le_bytes()));
            }
        }
    }

    /// The filter of these bytes; `None` if they are none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (bits, seed) = (reader.u8()?, reader.u64()?);
        let (segment_length, segment_length_mask, segment_count_length) =
            (reader.u32()?, reader.u32()?, reader.u32()?);
        let (prints, rest) = reader.0.as_chunks::<2>();
        let count = match bits {
            8 => reader.0.len(),
            16 if rest.is_empty() => prints.len(),
            _ => return None,
        };
        // A search reads a fingerprint of one segment and of the two behind it.
        let needed = u64::from(segment_count_length) + 2 * u64::from(segment_length);
        let is_sound = segment_length.is_power_of_two()
            && segment_length_mask == segment_length - 1
            && segment_count_length >= segment_length
            && segment_count_length % segment_length == 0
            && needed <= count as u64;
        let descriptor = Descriptor { seed, segment_length, segment_length_mask, segment_count_length };
        is_sound.then(|| match bits {
            8 => Self::Bits8(BinaryFuse8 { descriptor, fingerprints: reader.0.into() }),
            _ => {
                let fingerprints = prints.iter().map(|print| u16::from_le_bytes(*print)).collect();
                Self::Bits16(BinaryFuse16 { descriptor, fingerprints })
            }
        })
    }

    pub(crate) fn size(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Bits8(filter) => size_of_val(&filter.fingerprints[..]),
                Self::Bits16(filter) => size_of_val(&filter.fingerprints[..]),
            }
    }
}

#[cfg(test)]
#[path = "tests/filter.rs"]
mod tests;
