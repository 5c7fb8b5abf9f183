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
mod tests {
    use super::*;
    use crate::codec::{checksum, hash};
    use proptest::prelude::*;

    fn hashes(from: u64, count: u64) -> Vec<u64> {
        (from..from + count).map(|n| hash(&n.to_le_bytes())).collect()
    }

    #[test]
    fn filter_has_its_keys_and_few_others() {
        for (count, kind, most) in [1, 2, 3, 10, 1000, 50_000]
            .into_iter()
            .flat_map(|count| [(count, FilterKind::Bits8, 1000), (count, FilterKind::Bits16, 20)])
        {
            let mut keys = hashes(0, count);
            let filter = Filter::new(&mut keys, kind).expect("a filter");
            let mut bytes = Vec::new();
            filter.write(&mut bytes);
            let filter = Filter::read(&bytes).expect("a filter");
            assert!(keys.iter().all(|&key| filter.may_have(key)));
            let passed = hashes(1 << 40, 200_000).into_iter().filter(|&key| filter.may_have(key)).count();
            assert!(passed < most, "{passed} of 200,000 pass among {count}");
            assert!((0..bytes.len()).step_by(7).all(|cut| {
                // Whatever is read, a search stays inside.
                Filter::read(&bytes[..cut]).is_none_or(|filter| filter.may_have(7) | true)
            }));
        }
    }

    /// Tables of any age hold such filters.
    #[test]
    fn filters_never_change() {
        let golden = [FilterKind::Bits8, FilterKind::Bits16].map(|kind| {
            let mut bytes = Vec::new();
            Filter::new(&mut hashes(0, 100), kind).unwrap().write(&mut bytes);
            // The bits of a fingerprint first.
            (bytes.len(), bytes[0], checksum(&bytes[1..], 0))
        });
        assert_eq!(golden[1], (405, 16, 7_273_923_060_815_784_091));
        assert_eq!(golden[0], (213, 8, 1_648_382_227_883_841_958));
    }

    proptest! {
        #[test]
        fn filter_of_any_bytes_searches_inside(
            bits in prop_oneof![Just(8u8), Just(16), any::<u8>()],
            lengths in prop::array::uniform3(0..40u32),
            is_fitting in any::<bool>(),
            prints in prop::collection::vec(any::<u8>(), 0..200),
            hashes in prop::collection::vec(any::<u64>(), 20),
        ) {
            let [length, mask, all] = lengths;
            let (length, mask) = if is_fitting { (1 << (length % 6), (1 << (length % 6)) - 1) } else { (length, mask) };
            let mut bytes = vec![bits];
            bytes.extend_from_slice(&7u64.to_le_bytes());
            [length, mask, all].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            bytes.extend_from_slice(&prints);
            if let Some(filter) = Filter::read(&bytes) {
                hashes.iter().for_each(|&hash| {
                    filter.may_have(hash);
                });
            }
        }
    }
}
