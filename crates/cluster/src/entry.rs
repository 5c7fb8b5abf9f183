//! Entries: what a serving node writes into the memory node's log segments.
//!
//! ```text
//!   word 0   [31:0] bytes of the entry, a multiple of 8  [39:32] kind  [63:40] 0
//!   word 1   LSN: the number of the entry in its shard's log
//!   word 2   XXH3 of words 0 and 1 and of the body, seeded with the segment's number
//!   body     CHANGES: changes, each
//!              word     [31:0] bytes of the key  [62:32] bytes of the value  [63] is a put
//!              [word]   expires at, unix milliseconds; 0 for never: if it is a put
//!              key, then the value, then zeros up to a whole word
//!            CLEAR: ranges of slots, a word each: [15:0] the first  [31:16] the last
//!            END: nothing; the log goes on in the next segment
//! ```
//! All changes of an entry happen at one instant. An entry proves itself: the bytes of a segment
//! arrive in any order, so what is torn, stale or of another segment is not taken for one (DINOMO,
//! section 4.4, has a seal byte in its place).

use crate::slot::SlotRange;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes before the body.
pub const HEADER: usize = 24;
/// Bytes of the longest entry.
pub const ENTRY_MAX: usize = 4 << 20;

const CHANGES: u8 = 1;
const CLEAR: u8 = 2;
const END: u8 = 3;
const PUT: u64 = 1 << 63;

/// What happens to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// It gets an entry.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// Unix milliseconds at which it expires, if it does.
        expires_at: Option<u64>,
    },
    /// It is removed.
    Remove {
        /// The key.
        key: &'a [u8],
    },
}

impl<'a> Change<'a> {
    /// The key.
    pub fn key(&self) -> &'a [u8] {
        match self {
            Self::Put { key, .. } | Self::Remove { key } => key,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => 16 + (key.len() + value.len()).next_multiple_of(8),
            Self::Remove { key } => 8 + key.len().next_multiple_of(8),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let key_len = self.key().len() as u64;
        match self {
            Self::Put { key, value, expires_at } => {
                out.extend((key_len | (value.len() as u64) << 32 | PUT).to_le_bytes());
                out.extend(expires_at.unwrap_or(0).to_le_bytes());
                out.extend_from_slice(key);
                out.extend_from_slice(value);
            }
            Self::Remove { key } => {
                out.extend(key_len.to_le_bytes());
                out.extend_from_slice(key);
            }
        }
        out.resize(out.len().next_multiple_of(8), 0);
    }

    /// Takes a change off the front of `body`.
    fn take(body: &mut &'a [u8]) -> Option<Self> {
        let head = take_word(body)?;
        let (key_len, value_len) = (head as u32 as usize, (head & !PUT) >> 32);
        let is_put = head & PUT != 0;
        let expires_at = if is_put { Some(take_word(body)?).filter(|at| *at != 0) } else { None };
        let len = key_len.checked_add(usize::try_from(value_len).ok()?)?;
        let (bytes, rest) = body.split_at_checked(len.checked_next_multiple_of(8)?)?;
        *body = rest;
        let (key, value) = bytes[..len].split_at(key_len);
        match is_put {
            true => Some(Self::Put { key, value, expires_at }),
            false if value.is_empty() => Some(Self::Remove { key }),
            false => None,
        }
    }
}

fn take_word(bytes: &mut &[u8]) -> Option<u64> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*word))
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// These changes, at one instant. No key comes twice.
    Changes(Vec<Change<'a>>),
    /// Everything in these slots is removed.
    Clear(Vec<SlotRange>),
    /// The log goes on in the next segment.
    End,
}

impl<'a> Entry<'a> {
    /// Bytes of the entry.
    pub fn size(&self) -> usize {
        HEADER
            + match self {
                Self::Changes(changes) => changes.iter().map(Change::size).sum(),
                Self::Clear(ranges) => 8 * ranges.len(),
                Self::End => 0,
            }
    }

    /// Appends the entry with this number, for the segment with that one.
    ///
    /// # Panics
    /// If it is longer than [`ENTRY_MAX`].
    pub fn put(&self, lsn: u64, segment: u64, out: &mut Vec<u8>) {
        let (start, size) = (out.len(), self.size());
        assert!(size <= ENTRY_MAX, "an entry of {size} bytes, at most {ENTRY_MAX}");
        let kind = match self {
            Self::Changes(_) => CHANGES,
            Self::Clear(_) => CLEAR,
            Self::End => END,
        };
        out.extend((size as u64 | u64::from(kind) << 32).to_le_bytes());
        out.extend(lsn.to_le_bytes());
        out.extend([0; 8]);
        match self {
            Self::Changes(changes) => changes.iter().for_each(|change| change.put(out)),
            Self::Clear(ranges) => ranges.iter().for_each(|range| {
                out.extend((u64::from(range.first) | u64::from(range.last) << 16).to_le_bytes());
            }),
            Self::End => {}
        }
        assert!(out.len() - start == size, "an entry has as many bytes as it says");
        let sum = sum_of(&out[start..], segment);
        out[start + 16..start + HEADER].copy_from_slice(&sum.to_le_bytes());
    }

    /// The entry at the front of `bytes`, if it is the one with this number of that segment, and
    /// its size.
    pub fn read(bytes: &'a [u8], lsn: u64, segment: u64) -> Option<(Self, usize)> {
        let mut rest = bytes;
        let (head, number, sum) = (take_word(&mut rest)?, take_word(&mut rest)?, take_word(&mut rest)?);
        let (size, kind) = (head as u32 as usize, head >> 32);
        if number != lsn || size < HEADER || !size.is_multiple_of(8) || size > ENTRY_MAX {
            return None;
        }
        let whole = bytes.get(..size)?;
        if sum != sum_of(whole, segment) {
            return None;
        }
        let mut body = &whole[HEADER..];
        let entry = match u8::try_from(kind).ok()? {
            CHANGES => {
                let mut changes = Vec::new();
                while !body.is_empty() {
                    changes.push(Change::take(&mut body)?);
                }
                Self::Changes(changes)
            }
            CLEAR => {
                let mut ranges = Vec::new();
                while !body.is_empty() {
                    let word = take_word(&mut body)?;
                    ranges.push(SlotRange::new(word as u16, (word >> 16) as u16)?);
                }
                Self::Clear(ranges)
            }
            END if body.is_empty() => Self::End,
            _ => return None,
        };
        Some((entry, size))
    }
}

/// The checksum of an entry: of all but its own word.
fn sum_of(entry: &[u8], segment: u64) -> u64 {
    let head = xxh3_64_with_seed(&entry[..16], segment);
    xxh3_64_with_seed(&entry[HEADER..], head)
}
