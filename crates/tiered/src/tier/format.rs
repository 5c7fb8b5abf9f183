//! The format of a block on the tier: a file, written once.
//!
//! ```text
//!   | pages of 4 KiB: records, each behind | offset u32 | words u32 |, then zeros |
//!   | fences: of each page, the offset of its first record u32 |
//!   | entries, sorted by hash: | hash u64 | second hash u64 | seq << 1 | tombstone u64 |
//!                              | offset u32 | words u32 | |
//!   | numbers of the files of large values u64 |
//!   | foot |
//! ```
//! An *offset* is that of the record's address: it stays the same however often the block is
//! rewritten without its dead records. (The paper finds survivors of a rewritten block by a
//! coalesced hash table as large as they are, section 5.2. Fences in DRAM, four bytes a page, find
//! them with one read, too, and keep them in order.) A record that fits into a page lies in one; a
//! longer one begins a page, and the pages that it goes on in have its fence.
//!
//! An open reads the entries, not the records. Each record has its own checksum; fences and entries
//! have one together, and so has the foot, which is written last.

use crate::space::record::{Kind, Record, second_hash};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_disk::DiskError;
use terrace_disk::codec::Reader;
use terrace_medium::files::{Files, Purpose};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const MAGIC: u64 = u64::from_le_bytes(*b"terrblok");
const FORMAT: u64 = 1;
/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Bytes before a record.
pub(crate) const PLACE: usize = 8;
/// Bytes of an entry.
pub(super) const ENTRY: usize = 32;
pub(super) const FOOT: usize = 8 * 18;
/// Bytes that are written or read at a time.
pub(super) const PIECE: usize = 1 << 20;

/// What a record of a block is, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mention {
    pub(crate) hash: u64,
    pub(crate) second: u64,
    pub(crate) seq: u64,
    pub(crate) is_tombstone: bool,
    pub(crate) offset: u32,
    pub(crate) words: u32,
}

impl Mention {
    pub(crate) fn of(record: &Record<'_>, offset: u32) -> Self {
        let is_tombstone = record.shape.kind == Kind::Tombstone;
        let (hash, second, seq) = (record.hash(), second_hash(record.key()), record.seq);
        Self { hash, second, seq, is_tombstone, offset, words: (record.shape.size() / 8) as u32 }
    }

    pub(super) fn to_bytes(self) -> [u8; ENTRY] {
        debug_assert!(self.seq >> 63 == 0, "a number leaves room for a flag");
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.second.to_le_bytes());
        bytes[16..24].copy_from_slice(&(self.seq << 1 | u64::from(self.is_tombstone)).to_le_bytes());
        bytes[24..28].copy_from_slice(&self.offset.to_le_bytes());
        bytes[28..].copy_from_slice(&self.words.to_le_bytes());
        bytes
    }
}

/// What the foot of a block tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Foot {
    pub(crate) store: u64,
    pub(crate) number: u64,
    pub(crate) generation: u64,
    pub(super) data_bytes: u64,
    pub(crate) records: u64,
    pub(crate) tombstones: u64,
    /// The lowest and the highest sequence number.
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    /// All versions of keys that had a later one with a lower number than this are gone from it.
    pub(crate) clean_seq: u64,
    /// Records that expire, when the first one does, and when the last one does.
    pub(crate) expiring: u64,
    pub(crate) first_expiry: u64,
    pub(crate) last_expiry: u64,
    /// Bytes of records.
    pub(crate) bytes: u64,
    /// Large values.
    pub(super) large: u64,
    pub(super) sum: u64,
}

impl Foot {
    fn words(&self) -> [u64; 17] {
        [
            MAGIC,
            FORMAT,
            self.store,
            self.number,
            self.generation,
            self.data_bytes,
            self.records,
            self.tombstones,
            self.first_seq,
            self.last_seq,
            self.clean_seq,
            self.expiring,
            self.first_expiry,
            self.last_expiry,
            self.bytes,
            self.large,
            self.sum,
        ]
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        let sum = xxh3_64_with_seed(&bytes, FORMAT);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8], path: &Path, offset: u64) -> Result<Self, DiskError> {
        let corrupt = |what| DiskError::corrupt(path, offset, what);
        let mut reader = Reader(bytes);
        let mut word = || reader.u64().ok_or_else(|| corrupt("the foot of a block is too short"));
        let (magic, format) = (word()?, word()?);
        if magic != MAGIC || xxh3_64_with_seed(&bytes[..FOOT - 8], FORMAT).to_le_bytes() != bytes[FOOT - 8..]
        {
            return Err(corrupt("the file does not end as a block does"));
        }
        if format > FORMAT {
            let known = FORMAT as u32;
            return Err(DiskError::Newer { path: path.into(), format: format as u32, known });
        }
        Ok(Self {
            store: word()?,
            number: word()?,
            generation: word()?,
            data_bytes: word()?,
            records: word()?,
            tombstones: word()?,
            first_seq: word()?,
            last_seq: word()?,
            clean_seq: word()?,
            expiring: word()?,
            first_expiry: word()?,
            last_expiry: word()?,
            bytes: word()?,
            large: word()?,
            sum: word()?,
        })
    }

    /// Bytes of the pages of records.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Where entries begin.
    pub(super) fn entries_at(&self) -> u64 {
        self.data_bytes + self.data_bytes / PAGE as u64 * 4
    }

    pub(super) fn large_at(&self) -> u64 {
        self.entries_at() + self.records * ENTRY as u64
    }

    /// Bytes of the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.large_at() + self.large * 8 + FOOT as u64
    }
}

/// The path of a block.
pub(crate) fn path_of(directory: &Path, number: u64, generation: u64) -> PathBuf {
    directory.join(format!("{number:08}.{generation:06}.block"))
}

/// The foot of the block at `path`, if it is sound.
pub(crate) fn foot_of(files: &Arc<dyn Files>, path: &Path) -> Option<Foot> {
    let file = files.open(path, Purpose::Read).ok()?;
    let at = file.length().ok()?.checked_sub(FOOT as u64)?;
    let mut bytes = vec![0; FOOT];
    file.read_exact_at(&mut bytes, at).ok()?;
    Foot::read(&bytes, path, at).ok()
}

/// The number and the generation of the block that a file with this name has.
pub(crate) fn numbers_of(name: &str) -> Option<(u64, u64)> {
    let (number, generation) = name.strip_suffix(".block")?.split_once('.')?;
    let numbers = (number.parse().ok()?, generation.parse().ok()?);
    let is_name = |(number, generation): (u64, u64)| format!("{number:08}.{generation:06}.block") == name;
    is_name(numbers).then_some(numbers)
}

/// The offset and the words of the record at the beginning of `bytes`, and what is behind that.
pub(super) fn place_in(bytes: &[u8]) -> Option<(u32, u32, &[u8])> {
    let mut reader = Reader(bytes);
    let (offset, words) = (reader.u32()?, reader.u32()?);
    (words > 0).then_some((offset, words, reader.0))
}

/// The record that these bytes are, if it is a sound one and has all of them.
pub(super) fn record_of(bytes: &[u8]) -> Option<Record<'_>> {
    Record::read(bytes).filter(|record| record.shape.size() == bytes.len())
}

pub(super) fn mention_in(bytes: &[u8]) -> Option<Mention> {
    let mut reader = Reader(bytes);
    let (hash, second, seq) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (offset, words) = (reader.u32()?, reader.u32()?);
    Some(Mention { hash, second, seq: seq >> 1, is_tombstone: seq & 1 != 0, offset, words })
}
