//! The superblock: what identifies a pool, in two copies.
//!
//! ```text
//! word  0      magic "TerrPool"
//!       1      version (32) | bits of a word (16) | byte order mark 0x1234 (16)
//!       2      sequence: increased by each update
//!       3, 4   uuid
//!       5      generation (32) | open sequence (32)
//!       6      flags: 1 clean, 2 durability power, 4 persistence assumed by the creator,
//!              8 clean, but a collection is pending
//!       7      bytes of the pool
//!       8      thread slots (32) | participants (32)
//!       9      roots (32) | slab_log2 (8) | first_zone_log2 (8) | zone_log2 (16)
//!      10, 11  boot id of the machine that last opened it
//!      12      seed of the key hashes
//!      13      created, unix ms
//!      14..22  label, UTF-8, padded with zeros
//!      22      XXH3 of the allocator's words, as written by a clean close
//!      23..63  zero
//!      63      XXH3 of words 0 to 62
//! ```
//!
//! Invariants: an update writes both copies, the second only once the first is durable, and a
//! damaged or older copy first. So at every instant at least one copy is intact, and nothing
//! depends on an update before both copies have it. If both are intact, the one with the higher
//! sequence is valid.

use crate::error::{Durability, Problem};
use crate::format::layout::{Geometry, Layout, MAX_POOL, PAGE, SUPERBLOCK_STEP};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Line, MapError, MappedMedium, Offset, Region};
use xxhash_rust::xxh3::xxh3_64;

/// The newest format version that this program reads.
pub(crate) const VERSION: u32 = 5;
/// The version that it writes, unless [`Pool::raise_format`](crate::Pool::raise_format) was called.
pub(crate) const FIRST_VERSION: u32 = 3;
/// Bytes of a copy.
pub(crate) const SUPERBLOCK_BYTES: usize = 512;
/// Bytes up to the end of the second copy.
pub(crate) const HEAD_BYTES: usize = SUPERBLOCK_STEP as usize + SUPERBLOCK_BYTES;
/// Longest label.
pub(crate) const LABEL_BYTES: usize = 63;

const MAGIC: u64 = u64::from_le_bytes(*b"TerrPool");
const MACHINE: u64 = (u64::BITS as u64) << 32 | 0x1234 << 48;
const WORDS: usize = SUPERBLOCK_BYTES / 8;

const CLEAN: u64 = 1;
const POWER: u64 = 2;
const ASSUMED: u64 = 4;
const COLLECTION_PENDING: u64 = 8;

/// A copy as words.
pub(crate) type Words = [u64; WORDS];
/// A copy as it lies in the pool.
type Lines = [Line; SUPERBLOCK_BYTES / 64];

/// The content of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) version: u32,
    pub(crate) sequence: u64,
    pub(crate) uuid: u128,
    pub(crate) generation: u32,
    pub(crate) open_seq: u32,
    /// Closed cleanly: everything is as durable as the pool's durability requires.
    pub(crate) clean: bool,
    /// Closed cleanly, but a pending collection has not completed.
    pub(crate) collection_pending: bool,
    pub(crate) durability: Durability,
    pub(crate) assumed_persistent: bool,
    pub(crate) size: u64,
    pub(crate) geometry: Geometry,
    pub(crate) boot: u128,
    pub(crate) hash_seed: u64,
    pub(crate) created_ms: u64,
    pub(crate) label: String,
    /// Checksum of the allocator's words after a clean close, for the next open.
    pub(crate) allocator_sum: u64,
}

/// The valid copy, and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) superblock: Superblock,
    pub(crate) copy: usize,
}

impl Superblock {
    /// The copy's words.
    pub(crate) fn encode(&self) -> Words {
        debug_assert!(self.label.len() <= LABEL_BYTES, "a label that was refused");
        debug_assert!(self.size.is_multiple_of(PAGE), "a pool consists of whole pages");
        debug_assert!(self.generation != 0, "a lock of generation 0 is free in every pool");
        let geometry = &self.geometry;
        let mut words = [0; WORDS];
        words[0] = MAGIC;
        words[1] = u64::from(self.version) | MACHINE;
        words[2] = self.sequence;
        (words[3], words[4]) = halves(self.uuid);
        words[5] = u64::from(self.generation) | u64::from(self.open_seq) << 32;
        words[6] = self.flags();
        words[7] = self.size;
        words[8] = u64::from(geometry.thread_slots) | u64::from(geometry.participants) << 32;
        words[9] = u64::from(geometry.roots)
            | u64::from(geometry.slab_log2) << 32
            | u64::from(geometry.first_zone_log2) << 40
            | u64::from(geometry.zone_log2) << 48;
        (words[10], words[11]) = halves(self.boot);
        words[12] = self.hash_seed;
        words[13] = self.created_ms;
        let mut label = [0; 64];
        label[..self.label.len()].copy_from_slice(self.label.as_bytes());
        for (word, piece) in words[14..22].iter_mut().zip(label.as_chunks().0) {
            *word = u64::from_le_bytes(*piece);
        }
        words[22] = self.allocator_sum;
        words[WORDS - 1] = checksum(&words);
        words
    }

    fn flags(&self) -> u64 {
        let power = if self.durability == Durability::Power { POWER } else { 0 };
        let assumed = if self.assumed_persistent { ASSUMED } else { 0 };
        let collection_pending = if self.collection_pending { COLLECTION_PENDING } else { 0 };
        power | assumed | collection_pending | if self.clean { CLEAN } else { 0 }
    }

    /// Decodes the words, and checks that every field is in its range.
    pub(crate) fn decode(words: &Words) -> Result<Self, Problem> {
        match words[0] {
            MAGIC => {}
            magic if magic == MAGIC.swap_bytes() => return Err(Problem::OtherMachine),
            _ => return Err(Problem::NotAPool),
        }
        if words[WORDS - 1] != checksum(words) {
            return Err(Problem::Damaged("its superblock does not match its checksum"));
        }
        let (version, machine) = (words[1] as u32, words[1] & !u64::from(u32::MAX));
        if machine != MACHINE {
            return Err(Problem::OtherMachine);
        }
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            return Err(Problem::Version { found: version, known: VERSION });
        }
        Self::decode_fields(words)
    }

    fn decode_fields(words: &Words) -> Result<Self, Problem> {
        let geometry = Geometry {
            thread_slots: words[8] as u32,
            participants: (words[8] >> 32) as u32,
            roots: words[9] as u32,
            slab_log2: u32::from((words[9] >> 32) as u8),
            first_zone_log2: u32::from((words[9] >> 40) as u8),
            zone_log2: (words[9] >> 48) as u32,
        };
        let layout = Layout::new(geometry).map_err(Problem::Damaged)?;
        if !(layout.smallest()..=MAX_POOL).contains(&words[7]) || !words[7].is_multiple_of(PAGE) {
            return Err(Problem::Damaged("its superblock gives an impossible size"));
        }
        if words[6] & !(CLEAN | POWER | ASSUMED | COLLECTION_PENDING) != 0 {
            return Err(Problem::Damaged("its superblock has unknown flags"));
        }
        Ok(Self {
            version: words[1] as u32,
            sequence: words[2],
            uuid: whole(words[3], words[4]),
            generation: words[5] as u32,
            open_seq: (words[5] >> 32) as u32,
            clean: words[6] & CLEAN != 0,
            collection_pending: words[6] & COLLECTION_PENDING != 0,
            durability: if words[6] & POWER != 0 { Durability::Power } else { Durability::Process },
            assumed_persistent: words[6] & ASSUMED != 0,
            size: words[7],
            geometry,
            boot: whole(words[10], words[11]),
            hash_seed: words[12],
            created_ms: words[13],
            label: label(&words[14..22])?,
            allocator_sum: words[22],
        })
    }

    /// Makes this the pool's superblock: stores both copies, `first` first. Durable on return.
    pub(crate) fn store<M: MappedMedium>(&self, region: &Region<M>, first: usize) -> Result<(), MapError> {
        let words = self.encode();
        // PERSIST: the other copy, before the first is touched. A killed process may have stored it
        // without writing it back; a power failure must not leave both of them torn.
        region.persist(copy_in(region, 1 - first));
        for copy in [first, 1 - first] {
            let at = copy as u64 * SUPERBLOCK_STEP;
            let lines = copy_in(region, copy);
            for (word, &value) in lines.iter().flat_map(|line| &line.0).zip(&words) {
                word.store(region.medium().point("superblock.word"), value, Relaxed);
            }
            // PERSIST: this copy before the other is touched, so that a crash in between leaves one
            // of them intact: this one, or the other as it was before.
            region.persist(lines);
            region.medium().mapping().sync(at as usize, PAGE as usize)?;
        }
        Ok(())
    }
}

fn copy_in<M: MappedMedium>(region: &Region<M>, copy: usize) -> &Lines {
    debug_assert!(copy < 2, "there are two copies");
    region.at(Offset::new(copy as u64 * SUPERBLOCK_STEP))
}

/// The superblock of the pool in `region`: the valid copy of the two.
pub(crate) fn load<M: MappedMedium>(region: &Region<M>) -> Result<Found, Problem> {
    choose(load_copy(region, 0), load_copy(region, 1))
}

/// One of the two copies.
pub(crate) fn load_copy<M: MappedMedium>(region: &Region<M>, copy: usize) -> Result<Superblock, Problem> {
    let at = Offset::<Lines>::new(copy as u64 * SUPERBLOCK_STEP);
    let lines = region.get(at).ok_or(Problem::NotAPool)?;
    let mut words = [0; WORDS];
    for (value, word) in words.iter_mut().zip(lines.iter().flat_map(|line| &line.0)) {
        *value = word.load(region.medium(), Relaxed);
    }
    Superblock::decode(&words)
}

/// As [`load`], from the first [`HEAD_BYTES`] of a file, or as many as it has.
pub(crate) fn parse(head: &[u8]) -> Result<Found, Problem> {
    let copy = |start: usize| {
        let bytes = head.get(start..start + SUPERBLOCK_BYTES).ok_or(Problem::NotAPool)?;
        let mut words = [0; WORDS];
        for (word, piece) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*piece);
        }
        Superblock::decode(&words)
    };
    choose(copy(0), copy(SUPERBLOCK_STEP as usize))
}

fn choose(a: Result<Superblock, Problem>, b: Result<Superblock, Problem>) -> Result<Found, Problem> {
    match (a, b) {
        (Ok(a), Ok(b)) if b.sequence > a.sequence => Ok(Found { superblock: b, copy: 1 }),
        (Ok(superblock), _) => Ok(Found { superblock, copy: 0 }),
        (_, Ok(superblock)) => Ok(Found { superblock, copy: 1 }),
        // Prefers the more helpful problem: an intact copy of another version says more than a
        // damaged one.
        (Err(Problem::NotAPool), Err(b)) => Err(b),
        (Err(Problem::Damaged(_)), Err(b)) if !matches!(b, Problem::NotAPool) => Err(b),
        (Err(a), Err(_)) => Err(a),
    }
}

fn checksum(words: &Words) -> u64 {
    let mut bytes = [0; SUPERBLOCK_BYTES - 8];
    for (piece, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *piece = word.to_le_bytes();
    }
    xxh3_64(&bytes)
}

fn label(words: &[u64]) -> Result<String, Problem> {
    let mut bytes = [0; LABEL_BYTES];
    for (piece, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *piece = word.to_le_bytes();
    }
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8(bytes[..end].to_vec()).map_err(|_| Problem::Damaged("its label is not UTF-8"))
}

fn halves(whole: u128) -> (u64, u64) {
    (whole as u64, (whole >> 64) as u64)
}

fn whole(low: u64, high: u64) -> u128 {
    u128::from(low) | u128::from(high) << 64
}

#[cfg(test)]
#[path = "tests/superblock.rs"]
mod tests;
