//! Reading the records of a file, and what lies behind the last one.

use super::record::{ALIGNMENT, Chain, Found, HEADER, Header, Owner};
use crate::DiskError;
use crate::codec::checksum;
use std::io::ErrorKind;
use std::path::Path;
use terrace_medium::files::StoredFile;

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;

/// Reads a file in pieces.
struct Window<'f> {
    file: &'f dyn StoredFile,
    path: &'f Path,
    length: u64,
    /// The bytes that were read last, and where they lie.
    bytes: Vec<u8>,
    at: u64,
}

impl Window<'_> {
    /// The bytes from `offset` on: `len`, or those up to the end of the file.
    fn get(&mut self, offset: u64, len: u64) -> Result<&[u8], DiskError> {
        let len = len.min(self.length.saturating_sub(offset));
        if len == 0 {
            return Ok(&[]);
        }
        let held = self.at..self.at + self.bytes.len() as u64;
        if offset < held.start || offset + len > held.end {
            let piece = len.max(PIECE).min(self.length - offset);
            self.bytes.resize(piece as usize, 0);
            self.at = offset;
            let read = self.file.read_exact_at(&mut self.bytes, offset);
            read.map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => {
                    DiskError::corrupt(self.path, offset, "the file has become shorter while it was read")
                }
                _ => DiskError::io("read", self.path)(error),
            })?;
        }
        let from = (offset - self.at) as usize;
        Ok(&self.bytes[from..from + len as usize])
    }
}

/// The records of a file, in order.
pub(crate) struct Records<'f> {
    window: Window<'f>,
    owner: Owner,
    offset: u64,
    chain: Chain,
}

/// What lies behind the last valid record of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    /// The offset behind the last byte that is not zero; 0 if there is none.
    pub(crate) used: u64,
    /// The highest position that a valid header there says was durable.
    pub(crate) durable: u64,
    /// Records with a valid header, but for one that begins here.
    pub(crate) records: u64,
}

impl<'f> Records<'f> {
    /// The records of `file` from `offset` on, which follow `chain`.
    pub(crate) fn new(
        file: &'f dyn StoredFile,
        path: &'f Path,
        owner: Owner,
        offset: u64,
        chain: Chain,
    ) -> Result<Self, DiskError> {
        let length = file.length().map_err(DiskError::io("read the length of", path))?;
        let window = Window { file, path, length, bytes: Vec::new(), at: 0 };
        Ok(Self { window, owner, offset, chain })
    }

    /// The offset behind the last record.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The chain behind the last record.
    pub(crate) fn chain(&self) -> Chain {
        self.chain
    }

    /// The next record; `None` if there is no valid one.
    pub(crate) fn next(&mut self) -> Result<Option<(Header, &[u8])>, DiskError> {
        let (at, length) = ((self.owner, self.offset), self.window.length);
        let Some(found) = Found::read(self.window.get(self.offset, HEADER)?, at, length) else {
            return Ok(None);
        };
        let header = found.header;
        let payload = if header.is_end() { 0 } else { u64::from(header.bytes) };
        let record = self.window.get(self.offset, HEADER + payload)?;
        let payload = &record[HEADER as usize..];
        if !found.fits(self.owner.store, payload, self.chain.sum) {
            return Ok(None);
        }
        self.offset += header.size();
        self.chain = Chain { end: self.chain.end + header.size(), sum: found.sum };
        Ok(Some((header, payload)))
    }

    /// Goes on to where a record can be proved again: to the next header that is valid by itself if
    /// the damaged one in front of it proves it, or else behind it. `false` if there is none.
    pub(crate) fn pass_damage(&mut self) -> Result<bool, DiskError> {
        let (owner, length) = (self.owner, self.window.length);
        let damaged = sums_of(self.window.get(self.offset, HEADER)?, (owner, self.offset));
        while self.offset + HEADER <= length {
            let bytes = self.window.get(self.offset, PIECE)?;
            let starts = bytes.len() - HEADER as usize + 1;
            let mut places = (0..starts).step_by(ALIGNMENT as usize);
            let found = places.find_map(|at| {
                let place = (owner, self.offset + at as u64);
                Found::read(&bytes[at..], place, length).map(|found| (at as u64, found))
            });
            match found {
                Some((at, found)) => {
                    self.offset += at;
                    if let Some(sum) = self.sum_before(&found, &damaged)? {
                        self.chain = Chain { end: 0, sum };
                        return Ok(true);
                    }
                    self.offset += found.header.size();
                    self.chain = Chain { end: 0, sum: found.sum };
                    return Ok(true);
                }
                None => self.offset += (starts as u64).next_multiple_of(ALIGNMENT),
            }
        }
        Ok(false)
    }

    /// The sum, of these, of the record in front of the one at the offset.
    fn sum_before(&mut self, found: &Found, sums: &[u64]) -> Result<Option<u64>, DiskError> {
        if found.header.is_end() {
            return Ok(None);
        }
        let record = self.window.get(self.offset, HEADER + u64::from(found.header.bytes))?;
        let payload = &record[HEADER as usize..];
        Ok(sums.iter().copied().find(|&sum| found.fits(self.owner.store, payload, sum)))
    }

    /// Looks at everything from the offset on. The work is bounded by the file's length: headers
    /// have sums of their own, so payloads need not be read.
    pub(crate) fn rest(&mut self) -> Result<Rest, DiskError> {
        let (mut rest, mut offset) = (Rest::default(), self.offset);
        let (owner, length) = (self.owner, self.window.length);
        while offset < length {
            // Headers that begin in this piece may end in the next one.
            let bytes = self.window.get(offset, PIECE)?;
            let is_last = offset + bytes.len() as u64 == length;
            let starts = if is_last { bytes.len() } else { bytes.len() - HEADER as usize };
            for (nth, word) in bytes[..starts].chunks(ALIGNMENT as usize).enumerate() {
                let Some(last) = word.iter().rposition(|&byte| byte != 0) else { continue };
                let at = nth * ALIGNMENT as usize;
                rest.used = offset + (at + last + 1) as u64;
                if let Some(found) = Found::read(&bytes[at..], (owner, offset + at as u64), length) {
                    rest.durable = rest.durable.max(found.header.durable);
                    let is_behind = offset + at as u64 > self.offset;
                    rest.records += u64::from(is_behind && !found.header.is_end());
                }
            }
            offset += starts as u64;
        }
        Ok(rest)
    }
}

/// The sums that a damaged header at the beginning of `bytes` may have had: the one that it has,
/// and the one that the rest of it has.
fn sums_of(bytes: &[u8], (owner, offset): (Owner, u64)) -> Vec<u64> {
    let Some(header) = bytes.first_chunk::<{ HEADER as usize }>() else { return Vec::new() };
    let (sum, rest) = header.split_first_chunk().expect("a header begins with its sum");
    vec![u64::from_le_bytes(*sum), checksum(rest, owner.seed(offset))]
}

/// Writes the bytes from `from` to `to` anew, and syncs them. A process that was killed may not
/// have synced them; and if a sync has failed, another one alone keeps nothing.
pub(crate) fn renew(file: &dyn StoredFile, path: &Path, from: u64, to: u64) -> Result<(), DiskError> {
    let (mut at, mut bytes) = (from, Vec::new());
    while at < to {
        bytes.resize(PIECE.min(to - at) as usize, 0);
        file.read_exact_at(&mut bytes, at).map_err(DiskError::io("read", path))?;
        file.write_all_at(&bytes, at).map_err(DiskError::room("write", path))?;
        at += bytes.len() as u64;
    }
    file.sync().map_err(DiskError::io("sync", path))
}
