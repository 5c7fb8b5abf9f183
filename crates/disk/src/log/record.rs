//! Records: how the log and the manifest frame bytes in a file.
//!
//! ```text
//!   | sum u64 | link u64 | first seq u64 | durable u64 | bytes u32 | count u32 |
//!   | payload, then zeros up to a multiple of eight |
//! ```
//! - `sum` covers the rest of the header. Its seed names the store, the file and the offset, so a
//!   header passes only where it was written. It needs no other record, so valid headers are found
//!   behind a damaged part, too.
//! - `link` is the checksum of the payload, exclusive-or the sum of the record before. So a record
//!   passes only behind the one that it was written behind, and headers chain all payloads.
//! - `durable` is a position up to which the writer knew the file to be synced. A valid header
//!   therefore proves that everything before that position was there once.
//! - `bytes` is the length of the payload, or [`END`]: then nothing follows in this file.

use crate::codec::{Reader, checksum};
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a header.
pub(crate) const HEADER: u64 = 40;
/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: u64 = 8;
/// The `bytes` of a record that ends a file. Its `count` is 1 if another file follows, or else 0.
pub(crate) const END: u32 = u32::MAX;
/// Bytes of the longest payload.
pub(crate) const PAYLOAD_MAX: usize = (END - 1) as usize;

/// A file that has records: the store, and the file's number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) store: u64,
    pub(crate) file: u64,
}

impl Owner {
    /// The seed of the sums of what lies at `offset`.
    pub(crate) fn seed(self, offset: u64) -> u64 {
        let file = self.store ^ self.file.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        file.wrapping_add(offset.wrapping_mul(0xbf58_476d_1ce4_e5b9))
    }
}

/// The end of a chain of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The position behind the last record.
    pub(crate) end: u64,
    /// The sum of the last record.
    pub(crate) sum: u64,
}

/// A header without its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) first_seq: u64,
    pub(crate) durable: u64,
    pub(crate) bytes: u32,
    pub(crate) count: u32,
}

impl Header {
    pub(crate) fn end(durable: u64, follows: bool) -> Self {
        Self { first_seq: 0, durable, bytes: END, count: follows.into() }
    }

    pub(crate) fn is_end(&self) -> bool {
        self.bytes == END
    }

    /// Bytes of the record in its file.
    pub(crate) fn size(&self) -> u64 {
        if self.is_end() { HEADER } else { size(self.bytes as usize) }
    }

    /// The highest seq of the record, if it has any.
    pub(crate) fn last_seq(&self) -> Option<u64> {
        let more = self.count.checked_sub(1).filter(|_| !self.is_end())?;
        Some(self.first_seq.saturating_add(more.into()))
    }

    /// Appends a record to `out`, which will lie at `offset`. `payload` is the checksum of its
    /// parts. Returns the record's sum.
    pub(crate) fn put(
        &self,
        out: &mut Vec<u8>,
        (owner, offset): (Owner, u64),
        (payload, previous): (u64, u64),
        parts: &[&[u8]],
    ) -> u64 {
        let mut fields = [0; HEADER as usize - 8];
        fields[..8].copy_from_slice(&(payload ^ previous).to_le_bytes());
        fields[8..16].copy_from_slice(&self.first_seq.to_le_bytes());
        fields[16..24].copy_from_slice(&self.durable.to_le_bytes());
        fields[24..28].copy_from_slice(&self.bytes.to_le_bytes());
        fields[28..].copy_from_slice(&self.count.to_le_bytes());
        let sum = checksum(&fields, owner.seed(offset));
        let end = out.len() + self.size() as usize;
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&fields);
        parts.iter().for_each(|part| out.extend_from_slice(part));
        out.resize(end, 0);
        sum
    }
}

/// A header that was found in a file, with its sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) header: Header,
    pub(crate) sum: u64,
    link: u64,
}

impl Found {
    /// The header at the beginning of `bytes`, if there is a valid one. They lie at `offset` of a
    /// file of `length` bytes.
    #[inline]
    pub(crate) fn read(bytes: &[u8], (owner, offset): (Owner, u64), length: u64) -> Option<Self> {
        let mut reader = Reader(bytes.get(..HEADER as usize)?);
        let (sum, link, first_seq, durable) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let header = Header { first_seq, durable, bytes: reader.u32()?, count: reader.u32()? };
        let fits = offset.checked_add(header.size())? <= length;
        let is_valid = fits && checksum(&bytes[8..HEADER as usize], owner.seed(offset)) == sum;
        is_valid.then_some(Self { header, sum, link })
    }

    /// Whether it has this payload, and follows the record with the sum `previous`.
    pub(crate) fn fits(&self, store: u64, payload: &[u8], previous: u64) -> bool {
        checksum(payload, store) ^ previous == self.link
    }
}

/// Bytes of a record with a payload of `bytes` bytes.
pub(crate) fn size(bytes: usize) -> u64 {
    (HEADER + bytes as u64).next_multiple_of(ALIGNMENT)
}

/// The checksum of a payload, given in parts.
pub(crate) fn payload_sum(store: u64, parts: &[&[u8]]) -> u64 {
    if let [part] = parts {
        return checksum(part, store);
    }
    let mut sum = Xxh3::with_seed(store);
    parts.iter().for_each(|part| sum.update(part));
    sum.digest()
}
