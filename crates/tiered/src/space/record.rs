//! The record: a version of a key, in DRAM and on the tier alike.
//!
//! ```text
//!   word 0   shape: [16:0] key length  [46:17] value length  [50:47] flags
//!   word 1   [63:16] sequence number  [15:0] version: odd while the record is being written
//!   word 2   [63:32] words of the record  [31:0] checksum of all but the version and these words
//!   [word]   expires at, unix milliseconds: if EXPIRES
//!   word     hash of the key
//!   key, padded; value, padded: or, of a large value, where it lies
//! ```
//!
//! Records begin at multiples of eight. A record is found by the hash and the key together, the
//! *probe*: so an index can be filled from hashes alone, and a record is compared with one slice.
//! The words of a record may be more than its value needs: the value has become shorter.
//!
//! # Invariants
//! 1. Its probe, and whether it has an expiry, never change while it is reachable.
//! 2. Anything else changes only under the lock of the key's stripe, in a page that is open to
//!    changes, with an odd version from before the first change until after the last.

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// Bytes before the expiry.
pub(crate) const HEADER: usize = 24;
/// Bytes that tell where a large value lies: the number of its file, and its checksum.
pub(crate) const LARGE: usize = 16;
const KEY_BITS: u32 = 17;
const VALUE_BITS: u32 = 30;
const FLAGS_AT: u32 = KEY_BITS + VALUE_BITS;
const EXPIRES: u64 = 1;
const IS_LARGE: u64 = 2;
const TOMBSTONE: u64 = 4;
/// Bits of word 1 that are no sequence number.
pub(crate) const VERSION_BITS: u32 = 16;

/// What a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A value.
    Value,
    /// A value that lies in a file of its own.
    Large,
    /// Nothing: the key was removed.
    Tombstone,
}

/// Word 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
    pub(crate) expires: bool,
    pub(crate) kind: Kind,
}

impl Shape {
    #[inline(always)]
    pub(crate) fn encode(self) -> u64 {
        debug_assert!(self.key_len >> KEY_BITS == 0 && self.value_len >> VALUE_BITS == 0, "lengths fit");
        let kind = match self.kind {
            Kind::Value => 0,
            Kind::Large => IS_LARGE,
            Kind::Tombstone => TOMBSTONE,
        };
        let flags = kind | if self.expires { EXPIRES } else { 0 };
        self.key_len as u64 | (self.value_len as u64) << KEY_BITS | flags << FLAGS_AT
    }

    #[inline(always)]
    pub(crate) fn decode(word: u64) -> Option<Self> {
        let flags = word >> FLAGS_AT;
        let kind = match flags & !EXPIRES {
            0 => Kind::Value,
            IS_LARGE => Kind::Large,
            TOMBSTONE => Kind::Tombstone,
            _ => return None,
        };
        Some(Self {
            key_len: word as usize & ((1 << KEY_BITS) - 1),
            value_len: (word >> KEY_BITS) as usize & ((1 << VALUE_BITS) - 1),
            expires: flags & EXPIRES != 0,
            kind,
        })
    }

    /// Where the hash lies.
    #[inline(always)]
    pub(crate) fn probe_at(self) -> usize {
        HEADER + 8 * usize::from(self.expires)
    }

    /// Where the value lies, or what stands for it.
    #[inline(always)]
    pub(crate) fn value_at(self) -> usize {
        self.probe_at() + 8 + self.key_len.next_multiple_of(8)
    }

    /// Bytes of the value, or of what stands for it.
    #[inline(always)]
    pub(crate) fn inline_len(self) -> usize {
        if self.kind == Kind::Large { LARGE } else { self.value_len }
    }

    /// Bytes of the record, without words that it does not need.
    #[inline(always)]
    pub(crate) fn size(self) -> usize {
        self.value_at() + self.inline_len().next_multiple_of(8)
    }
}

/// Where a large value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LargeValue {
    /// The number of its file.
    pub(crate) number: u64,
    /// The checksum of its bytes.
    pub(crate) sum: u64,
}

impl LargeValue {
    pub(crate) fn to_bytes(self) -> [u8; LARGE] {
        let mut bytes = [0; LARGE];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sum.to_le_bytes());
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (number, sum) = bytes.split_first_chunk()?;
        Some(Self { number: u64::from_le_bytes(*number), sum: u64::from_le_bytes(sum.try_into().ok()?) })
    }
}

/// A record's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'b> {
    pub(crate) shape: Shape,
    pub(crate) seq: u64,
    pub(crate) expires_at: Option<u64>,
    /// The hash and the key.
    pub(crate) probe: &'b [u8],
    /// The value, or what stands for it.
    pub(crate) inline: &'b [u8],
}

impl<'b> Record<'b> {
    pub(crate) fn key(&self) -> &'b [u8] {
        &self.probe[8..]
    }

    pub(crate) fn hash(&self) -> u64 {
        hash_in(self.probe)
    }

    /// Appends the record, with an even version.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let (start, shape) = (out.len(), self.shape);
        debug_assert!(self.seq >> (64 - VERSION_BITS) == 0, "a number leaves room for the version");
        debug_assert_eq!((self.probe.len() - 8, self.inline.len()), (shape.key_len, shape.inline_len()));
        out.extend_from_slice(&shape.encode().to_le_bytes());
        out.extend_from_slice(&(self.seq << VERSION_BITS).to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        if let Some(at) = self.expires_at {
            out.extend_from_slice(&at.to_le_bytes());
        }
        out.extend_from_slice(self.probe);
        out.resize(start + shape.value_at(), 0);
        out.extend_from_slice(self.inline);
        out.resize(start + shape.size(), 0);
        let words = (out.len() - start) as u64 / 8;
        let sum = checksum(shape.encode(), self.seq, &out[start + HEADER..]);
        out[start + 16..start + HEADER].copy_from_slice(&word_2(words, sum).to_le_bytes());
    }

    /// The record at the beginning of `bytes`, if there is a sound one.
    pub(crate) fn read(bytes: &'b [u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let (shape, seq) = (Shape::decode(word(0)?)?, word(8)? >> VERSION_BITS);
        let body = bytes.get(HEADER..shape.size())?;
        if checksum(word(0)?, seq, body) != word(16)? as u32 {
            return None;
        }
        let at = |from: usize, len: usize| &bytes[from..from + len];
        Some(Self {
            shape,
            seq,
            expires_at: if shape.expires { Some(word(HEADER)?) } else { None },
            probe: at(shape.probe_at(), 8 + shape.key_len),
            inline: at(shape.value_at(), shape.inline_len()),
        })
    }
}

/// A record that was copied, without its key.
#[derive(Clone, Debug)]
pub(crate) struct Copied {
    pub(crate) shape: Shape,
    pub(crate) seq: u64,
    pub(crate) expires_at: Option<u64>,
    /// The value, or what stands for it.
    pub(crate) inline: Vec<u8>,
}

impl Copied {
    pub(crate) fn of(record: &Record<'_>) -> Self {
        let Record { shape, seq, expires_at, inline, .. } = *record;
        Self { shape, seq, expires_at, inline: inline.to_vec() }
    }
}

/// The large value of a version, and the number of its write.
pub(crate) fn large_of(copied: &Copied) -> Option<(LargeValue, u64)> {
    let is_large = copied.shape.kind == Kind::Large;
    is_large.then(|| LargeValue::read(&copied.inline)).flatten().map(|large| (large, copied.seq))
}

/// Word 2.
#[inline(always)]
pub(crate) fn word_2(words: u64, sum: u32) -> u64 {
    words << 32 | u64::from(sum)
}

/// The checksum of a record: everything behind its header, its shape and its sequence number.
#[inline(always)]
pub(crate) fn checksum(shape: u64, seq: u64, body: &[u8]) -> u32 {
    let sum = xxh3_64_with_seed(body, shape ^ seq.rotate_left(40));
    (sum ^ sum >> 32) as u32
}

/// The hash in a probe.
#[inline(always)]
pub(crate) fn hash_in(probe: &[u8]) -> u64 {
    u64::from_le_bytes(*probe.first_chunk().expect("a probe begins with a hash"))
}

/// A second hash of a key: together they tell any two keys apart.
pub(crate) fn second_hash(key: &[u8]) -> u64 {
    (xxh3_128(key) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(key: &[u8], value_len: usize, expires_at: Option<u64>, kind: Kind) -> Shape {
        Shape { key_len: key.len(), value_len, expires: expires_at.is_some(), kind }
    }

    /// Stores outlive the program: these numbers are part of the format.
    #[test]
    fn record_matches_the_format() {
        let mut bytes = Vec::new();
        let probe = [&7u64.to_le_bytes()[..], b"key"].concat();
        let expires_at = Some(0x1234);
        let shape = shape(b"key", 5, expires_at, Kind::Value);
        Record { shape, seq: 9, expires_at, probe: &probe, inline: b"value" }.put(&mut bytes);
        assert_eq!(bytes.len(), 56);
        let words: Vec<u64> =
            bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        let text = |text: &[u8; 8]| u64::from_le_bytes(*text);
        assert_eq!(words[..2], [3 | 5 << 17 | 1 << 47, 9 << 16]);
        assert_eq!((words[2] >> 32, words[3], words[4]), (7, 0x1234, 7));
        assert_eq!(words[5..], [text(b"key\0\0\0\0\0"), text(b"value\0\0\0")]);
    }

    proptest! {
        #[test]
        fn record_round_trips_and_any_changed_byte_is_detected(
            key in prop::collection::vec(any::<u8>(), 0..40),
            value in prop::collection::vec(any::<u8>(), 0..100),
            expires_at in any::<Option<u64>>(),
            seq in 0..1u64 << 48,
            kind in prop_oneof![Just(Kind::Value), Just(Kind::Tombstone)],
            at in any::<prop::sample::Index>(),
            flip in 1..=255u8,
        ) {
            let value = if kind == Kind::Tombstone { Vec::new() } else { value };
            let probe = [&xxhash_rust::xxh3::xxh3_64(&key).to_le_bytes()[..], &key].concat();
            let shape = shape(&key, value.len(), expires_at, kind);
            let record = Record { shape, seq, expires_at, probe: &probe, inline: &value };
            let mut bytes = Vec::new();
            record.put(&mut bytes);
            prop_assert_eq!(bytes.len(), shape.size());
            prop_assert_eq!(Record::read(&bytes), Some(record));
            let at = at.index(bytes.len());
            // The version and the number of words are not covered: they are not used on the tier.
            prop_assume!(!(8..10).contains(&at) && !(20..24).contains(&at));
            bytes[at] ^= flip;
            prop_assert_ne!(Record::read(&bytes), Some(record));
        }
    }
}
