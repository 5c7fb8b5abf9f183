//! The entries of all blocks, in parts of bounded memory: which versions of keys are the newest.
//!
//! Entries of a block lie in the order of their hashes. So all blocks are read side by side, each
//! from front to back and once, and a part has the keys whose hashes lie within some bounds. (The
//! paper's table of all keys may take more memory than there is.)

use super::format::Mention;
use super::read::{EntryReader, Held};
use std::collections::BTreeMap;
use terrace_disk::DiskError;

/// Bytes of memory for an entry, about, while the newest are found.
const FOUND_BYTES: u64 = 64;
/// Bounds of what is read of a block at a time, in bytes.
const PIECE: (u64, u64) = (16 << 10, 1 << 20);

/// Bounds of hashes, with both ends, of which each has as many records as `memory` has room for.
pub(crate) fn hash_parts(records: u64, memory: u64) -> impl ExactSizeIterator<Item = (u64, u64)> {
    let parts = (records * FOUND_BYTES).div_ceil(memory).max(1).next_power_of_two().min(1 << 20);
    let width = (u64::MAX / parts).max(1);
    (0..parts as u32).map(move |part| {
        let from = u64::from(part) * width;
        (from, if u64::from(part) + 1 == parts { u64::MAX } else { from + width - 1 })
    })
}

/// A version of a key in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Found {
    pub(crate) hash: u64,
    pub(crate) second: u64,
    pub(crate) seq: u64,
    pub(crate) block: u32,
    pub(crate) offset: u32,
    /// Bytes of the record, in words.
    words: u32,
    pub(crate) is_tombstone: bool,
}

impl Found {
    fn of(block: u64, mention: Mention) -> Self {
        let Mention { hash, second, seq, is_tombstone, offset, words } = mention;
        let block = u32::try_from(block).expect("a block's number has less than 32 bits");
        Self { hash, second, seq, block, offset, words, is_tombstone }
    }

    /// Bytes of the record.
    pub(crate) fn bytes(&self) -> u64 {
        8 * u64::from(self.words)
    }

    fn is_of_key_of(&self, other: &Self) -> bool {
        (self.hash, self.second) == (other.hash, other.second)
    }
}

/// The entries of all blocks.
pub(crate) struct Entries {
    readers: Vec<EntryReader>,
    parts: Box<dyn ExactSizeIterator<Item = (u64, u64)>>,
    /// A part that was read ahead.
    first: Option<Vec<Found>>,
    /// All that is older is gone.
    cleared_at: u64,
    /// Bytes of older versions, by block.
    pub(crate) dead: BTreeMap<u64, u64>,
}

impl Entries {
    /// The entries of these blocks, whose parts take `memory` bytes, about.
    pub(crate) fn of(blocks: &[Held], cleared_at: u64, memory: u64) -> Self {
        let records = blocks.iter().map(|block| block.foot.records).sum();
        let piece = (memory / 2 / (blocks.len() as u64).max(1)).clamp(PIECE.0, PIECE.1);
        let reader = |block: &Held| EntryReader::new(block.clone(), piece);
        let (readers, dead) = (blocks.iter().map(reader).collect(), BTreeMap::new());
        Self { readers, parts: Box::new(hash_parts(records, memory)), first: None, cleared_at, dead }
    }

    /// How many keys are there, about: as many times as there are parts as the first part has.
    pub(crate) fn count_keys(&mut self) -> Result<u64, DiskError> {
        let parts = self.parts.len() as u64;
        self.first = self.next_part()?;
        let of_first = self.first.iter().flatten().filter(|found| !found.is_tombstone).count() as u64;
        Ok(parts * of_first)
    }

    /// The newest versions of the keys of the next part, in the order of their hashes.
    pub(crate) fn next_part(&mut self) -> Result<Option<Vec<Found>>, DiskError> {
        if self.first.is_some() {
            return Ok(self.first.take());
        }
        let Some((_, to)) = self.parts.next() else { return Ok(None) };
        let mut all = Vec::new();
        for reader in &mut self.readers {
            let number = reader.block().foot.number;
            reader.up_to(to, &mut |mention| {
                if mention.seq >= self.cleared_at {
                    all.push(Found::of(number, mention));
                }
            })?;
        }
        // Those of each block are in order already.
        all.sort();
        let mut newest: Vec<Found> = Vec::with_capacity(all.len());
        for found in all {
            match newest.last_mut().filter(|last| last.is_of_key_of(&found)) {
                Some(last) => {
                    *self.dead.entry(last.block.into()).or_default() += last.bytes();
                    *last = found;
                }
                None => newest.push(found),
            }
        }
        Ok(Some(newest))
    }

    /// The numbers of the files of large values that records name.
    ///
    /// # Errors
    /// The entries of a block do not match their checksum.
    pub(crate) fn finish(self) -> Result<Vec<u64>, DiskError> {
        let mut large = Vec::new();
        for reader in self.readers {
            large.extend(reader.finish()?);
        }
        Ok(large)
    }
}
