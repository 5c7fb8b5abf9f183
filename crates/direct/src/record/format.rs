//! The record: a key, its value, and the checksums that prove them.
//!
//! ```text
//!   word 0   shape: [16:0] key length  [46:17] value length  [50:47] flags
//!            [63:51] check of the other 51 bits
//!   word 1   [63:32] checksum  [31:0] stamp
//!   [word]   batch: if BATCH; 0 once the batch is finalized (see `batch`)
//!   [word]   use: if USED; when it was last used (see `upkeep::evict`)
//!   -------- body: the checksum covers it, the shape and the stamp
//!   [word]   expires at, unix milliseconds: if EXPIRES
//!   [2 words] extent that holds the value, XXH3 of the value: if the value is longer than
//!            INLINE_MAX
//!   key, then the value unless it lies in an extent
//! ```
//!
//! A store that evicts by use records the use of each key, in 24 bits. Where key and value are
//! short, these bits lie in word 0, which has room for them: neither is the record longer, nor does
//! a reader load or store another line.
//!
//! ```text
//!   word 0   shape: [9:0] key length  [22:10] value length  [46:23] use  [50:47] flags
//! ```
//!
//! A key of 16 bytes and a value of 64 make a record of 96 bytes.
//!
//! # Invariants
//! 1. A record never changes while it is reachable, except for its batch word and its use. Its
//!    checksum covers neither: it covers the shape as if the use were 0. A record that gets its
//!    use later changes its shape for that; its checksum still covers the shape without a use.
//! 2. The shape checks itself, so a record's size is known from 16 bytes of it: a put that replaces
//!    a record reads no more to free it. Any change within one byte of the shape is detected.
//! 3. The stamp distinguishes two records that lay at the same offset one after the other.

use xxhash_rust::xxh3::xxh3_64;

use terrace_engine::{KEY_MAX, VALUE_MAX};

/// Longest value that lies in the record itself. A longer one has an extent of its own, so a change
/// of its expiry copies only the head.
pub(crate) const INLINE_MAX: usize = 4096;

/// Bytes of words 0 and 1.
pub(crate) const HEADER: usize = 16;

const KEY_BITS: u32 = 17;
const VALUE_BITS: u32 = 30;
const FLAGS_AT: u32 = KEY_BITS + VALUE_BITS;
const FLAG_BITS: u32 = 4;
const CHECK_AT: u32 = FLAGS_AT + FLAG_BITS;
const CHECK_BITS: u32 = 64 - CHECK_AT;
const CHECKED: u64 = (1 << CHECK_AT) - 1;

const _: () = assert!(KEY_MAX < 1 << KEY_BITS && VALUE_MAX < 1 << VALUE_BITS && CHECK_BITS == 13);

/// It has an expiry.
const EXPIRES: u8 = 1;
/// It was written by a batch and has a batch word.
const BATCH: u8 = 2;
/// Its batch removes the key.
const TOMBSTONE: u8 = 4;
/// Its batch leaves the key as it is and only keeps other writers from changing it.
const KEEP: u8 = 8;

/// Flags of a record, besides EXPIRES, that no other one has: its use lies in the shape.
const USE_IN_SHAPE: u8 = KEEP;
/// The same: its use lies in a word. A record that no batch wrote, and one of a batch.
const USE_IN_WORD: [u8; 2] = [TOMBSTONE, BATCH | TOMBSTONE | KEEP];

/// Bits of a use.
const USE_BITS: u32 = 24;
const SHORT_KEY_BITS: u32 = 10;
const SHORT_VALUE_BITS: u32 = 13;
/// A use as a number.
pub(crate) const USE_MASK: u32 = (1 << USE_BITS) - 1;
const USE_AT: u32 = SHORT_KEY_BITS + SHORT_VALUE_BITS;

const _: () = assert!(USE_AT + USE_BITS == FLAGS_AT && INLINE_MAX < 1 << SHORT_VALUE_BITS);

/// Where a record keeps its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UseIn {
    /// Nowhere: its store did not evict by use when it was written.
    Nothing,
    /// In word 0: its key and its value are short, and no batch wrote it.
    Shape,
    /// In a word of its own.
    Word,
}

/// The role of a record in the batch that wrote it, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A record that no batch wrote.
    Single,
    /// The key's new record.
    Put,
    /// The key is removed.
    Tombstone,
    /// The key stays as it is.
    Keep,
    /// No value, under a key longer than [`KEY_MAX`]. Early builds of 0.1.0 wrote such a record
    /// where a commit expected the key to be absent. They are not written any more, and may be
    /// removed.
    Stray,
}

/// Word 0: the parts of a record and their lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
    pub(crate) expires: bool,
    pub(crate) role: Role,
    pub(crate) use_in: UseIn,
}

impl Shape {
    /// The encoded word, with a use of 0.
    #[inline(always)]
    pub(crate) fn encode(self) -> u64 {
        self.encode_with(0)
    }

    /// The encoded word. A use counts only if the word is its place.
    #[inline(always)]
    pub(crate) fn encode_with(self, used: u32) -> u64 {
        let role = match (self.role, self.use_in) {
            (_, UseIn::Shape) => USE_IN_SHAPE,
            (Role::Single, UseIn::Word) => USE_IN_WORD[0],
            (_, UseIn::Word) => USE_IN_WORD[1],
            (Role::Single, UseIn::Nothing) => 0,
            (Role::Put, _) => BATCH,
            (Role::Tombstone, _) => BATCH | TOMBSTONE,
            (Role::Keep | Role::Stray, _) => BATCH | KEEP,
        };
        let flags = u64::from(role | if self.expires { EXPIRES } else { 0 }) << FLAGS_AT;
        let bits = flags
            | match self.use_in {
                UseIn::Shape => {
                    self.key_len as u64
                        | (self.value_len as u64) << SHORT_KEY_BITS
                        | u64::from(used & USE_MASK) << USE_AT
                }
                _ => self.key_len as u64 | (self.value_len as u64) << KEY_BITS,
            };
        bits | check(bits) << CHECK_AT
    }

    /// The use in an encoded word whose shape is [`UseIn::Shape`].
    pub(crate) fn used(word: u64) -> u32 {
        (word >> USE_AT) as u32 & USE_MASK
    }

    /// The shape that `word` encodes, or `None` if it is invalid.
    #[inline(always)]
    pub(crate) fn decode(word: u64) -> Option<Self> {
        if word >> CHECK_AT != check(word & CHECKED) {
            return None;
        }
        let flags = (word >> FLAGS_AT) as u8 & ((1 << FLAG_BITS) - 1);
        let role = match flags & !EXPIRES {
            0 => Role::Single,
            BATCH => Role::Put,
            flags if flags == BATCH | TOMBSTONE => Role::Tombstone,
            flags if flags == BATCH | KEEP => Role::Keep,
            flags => return Self::decode_used(word, flags),
        };
        let shape = Self {
            key_len: word as usize & ((1 << KEY_BITS) - 1),
            value_len: (word >> KEY_BITS) as usize & ((1 << VALUE_BITS) - 1),
            expires: flags & EXPIRES != 0,
            role,
            use_in: UseIn::Nothing,
        };
        if shape.is_possible() { Some(shape) } else { shape.stray() }
    }

    /// The shape that `word` encodes, whose check is right, if it has a use.
    #[inline(always)]
    fn decode_used(word: u64, flags: u8) -> Option<Self> {
        let expires = word >> FLAGS_AT & u64::from(EXPIRES) != 0;
        if flags == USE_IN_SHAPE {
            return Some(Self {
                key_len: word as usize & ((1 << SHORT_KEY_BITS) - 1),
                value_len: (word >> SHORT_KEY_BITS) as usize & ((1 << SHORT_VALUE_BITS) - 1),
                expires,
                role: Role::Single,
                use_in: UseIn::Shape,
            })
            .filter(|shape| shape.value_len <= INLINE_MAX);
        }
        let role = match USE_IN_WORD.iter().position(|known| *known == flags)? {
            0 => Role::Single,
            _ => Role::Put,
        };
        let key_len = word as usize & ((1 << KEY_BITS) - 1);
        let value_len = (word >> KEY_BITS) as usize & ((1 << VALUE_BITS) - 1);
        Some(Self { key_len, value_len, expires, role, use_in: UseIn::Word })
            .filter(|shape| shape.is_possible())
    }

    /// Where a record with this key and this value keeps its use. Only one that holds a value has
    /// one.
    pub(crate) fn place_of_use(role: Role, key_len: usize, value_len: usize) -> UseIn {
        match role {
            Role::Single if key_len < 1 << SHORT_KEY_BITS && value_len <= INLINE_MAX => UseIn::Shape,
            Role::Single | Role::Put => UseIn::Word,
            Role::Tombstone | Role::Keep | Role::Stray => UseIn::Nothing,
        }
    }

    /// Where the word of its use lies, if it has one.
    #[inline(always)]
    pub(crate) fn use_word_at(self) -> Option<usize> {
        (self.use_in == UseIn::Word).then(|| self.body_at() - 8)
    }

    /// Whether a record of this shape may be written.
    #[inline(always)]
    pub(crate) fn is_possible(self) -> bool {
        let holds_value = matches!(self.role, Role::Single | Role::Put);
        self.key_len <= KEY_MAX
            && self.value_len <= VALUE_MAX
            && (holds_value || (self.value_len == 0 && !self.expires))
            && self.role != Role::Stray
    }

    /// The shape of a [`Role::Stray`] record. The length of its key has overflowed into the bits of
    /// the length of its value, which is 0.
    #[cold]
    fn stray(self) -> Option<Self> {
        let key_len = self.key_len | self.value_len << KEY_BITS;
        let is_one = self.role == Role::Keep && !self.expires && key_len > KEY_MAX;
        is_one.then_some(Self { key_len, value_len: 0, role: Role::Stray, ..self })
    }

    /// Whether the value lies in an extent of its own.
    #[inline(always)]
    pub(crate) fn has_external_value(self) -> bool {
        self.value_len > INLINE_MAX
    }

    /// Where the body starts.
    #[inline(always)]
    pub(crate) fn body_at(self) -> usize {
        HEADER
            + if self.role == Role::Single { 0 } else { 8 }
            + if self.use_in == UseIn::Word { 8 } else { 0 }
    }

    /// Where the key starts.
    #[inline(always)]
    pub(crate) fn key_at(self) -> usize {
        self.body_at() + if self.expires { 8 } else { 0 } + if self.has_external_value() { 16 } else { 0 }
    }

    /// Bytes of the record's block.
    #[inline(always)]
    pub(crate) fn size(self) -> usize {
        self.key_at() + self.key_len + if self.has_external_value() { 0 } else { self.value_len }
    }
}

/// Folds 51 bits to 13, so that no two bits of one byte of the word coincide.
#[inline(always)]
fn check(bits: u64) -> u64 {
    let folded = bits ^ bits >> CHECK_BITS ^ bits >> (2 * CHECK_BITS) ^ bits >> (3 * CHECK_BITS);
    (folded ^ 0x0a5a) & ((1 << CHECK_BITS) - 1)
}

/// The checksum of a record: its shape, its stamp and its body.
#[inline(always)]
pub(crate) fn checksum(shape: u64, stamp: u32, body: &[u8]) -> u32 {
    checksum_of(shape, stamp, xxh3_64(body))
}

/// As [`checksum`], for a body with this XXH3.
#[inline(always)]
pub(crate) fn checksum_of(shape: u64, stamp: u32, body: u64) -> u32 {
    let head = fold(shape ^ 0x9e37_79b9_7f4a_7c15, u64::from(stamp) ^ 0xd6e8_feb8_6659_fd93);
    (fold(body ^ head, 0xa076_1d64_78bd_642f) >> 32) as u32
}

/// The checksum of a value in an extent.
pub(crate) fn value_checksum(value: &[u8]) -> u64 {
    xxh3_64(value)
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Word 1.
#[inline(always)]
pub(crate) fn seal(checksum: u32, stamp: u32) -> u64 {
    u64::from(checksum) << 32 | u64::from(stamp)
}

/// The place of a value in an extent of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExternalValue {
    /// Its offset.
    pub(crate) extent: u64,
    /// XXH3 of its bytes.
    pub(crate) checksum: u64,
}

/// The parts of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body<'b> {
    pub(crate) expires_at: Option<u64>,
    pub(crate) external: Option<ExternalValue>,
    pub(crate) key: &'b [u8],
    /// Empty if the value lies in an extent.
    pub(crate) inline: &'b [u8],
}

impl<'b> Body<'b> {
    /// Parses the body of a record of this shape; `None` if it is too short.
    #[inline(always)]
    pub(crate) fn parse(shape: Shape, bytes: &'b [u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut word = || -> Option<u64> {
            let (word, behind) = rest.split_first_chunk()?;
            rest = behind;
            Some(u64::from_le_bytes(*word))
        };
        let expires_at = if shape.expires { Some(word()?) } else { None };
        let external = if shape.has_external_value() {
            Some(ExternalValue { extent: word()?, checksum: word()? })
        } else {
            None
        };
        let (key, inline) = rest.split_at_checked(shape.key_len)?;
        Some(Self { expires_at, external, key, inline })
    }
}

#[cfg(test)]
#[path = "tests/format.rs"]
mod tests;
