//! A block of a table: a few items in order, about 4 KiB.
//!
//! ```text
//!   items     | shared | rest | seq | flags | expiry if flagged | value length
//!             | rest of key | value |
//!   restarts  u32 each: offsets of the items whose keys are written whole
//!   buckets   u8 each: hash of a key -> the number of its restart, or NONE, or SEVERAL
//!   ends      u32 number of restarts, u32 number of buckets
//! ```
//! An item's key shares its first `shared` bytes with the key before it. Every sixteenth item is a
//! *restart*: it shares none. A search goes to the last restart before the key by bisection, or by
//! the bucket of the key's hash, and reads on from there. Numbers in items are varints.

use crate::codec::{Reader, put_varint};
use crate::item::{Content, Item, order};
use std::cmp::Ordering;

/// Items from one restart to the next.
const RESTART_EVERY: usize = 16;
/// A bucket that no key has.
const NONE: u8 = 255;
/// A bucket whose keys lie behind several restarts.
const SEVERAL: u8 = 254;
/// Restarts above this cannot be named by a bucket: the block has no buckets then.
const RESTARTS_MAX: usize = 253;
const ENDS: usize = 8;

const TOMBSTONE: u8 = 1;
const EXPIRES: u8 = 2;

/// The bucket of a key's hash among this many.
fn bucket_of(hash: u64, buckets: usize) -> usize {
    ((u128::from(hash) * buckets as u128) >> 64) as usize
}

/// Collects the items of a block, in order.
#[derive(Default)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: usize,
    /// The key of the last item, which may be in an earlier block.
    last_key: Vec<u8>,
    /// Each different key's hash, and the restarts before its first and its last version.
    keys: Vec<(u64, usize, usize)>,
}

impl BlockBuilder {
    /// Bytes that the block has so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + self.keys.len() * 4 / 3 + ENDS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Adds an item, which comes after all others. Its key has this hash, and shares its first
    /// bytes with the last key.
    pub(crate) fn add(&mut self, item: &Item<'_>, hash: u64, shared: usize) {
        let is_same = !self.is_empty() && shared == item.key.len() && shared == self.last_key.len();
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&item.key[shared..]);
        let is_restart = self.since_restart == RESTART_EVERY || self.is_empty();
        if is_restart {
            self.restarts.push(self.bytes.len() as u32);
            self.since_restart = 0;
        }
        let shared = if is_restart { 0 } else { shared };
        self.since_restart += 1;
        let (flags, expiry, value) = match item.content {
            Content::Tombstone => (TOMBSTONE, None, &[][..]),
            Content::Put { value, expires_at: None } => (0, None, value),
            Content::Put { value, expires_at } => (EXPIRES, expires_at, value),
        };
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, (item.key.len() - shared) as u64);
        put_varint(&mut self.bytes, item.seq);
        self.bytes.push(flags);
        expiry.into_iter().for_each(|at| put_varint(&mut self.bytes, at));
        put_varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(&item.key[shared..]);
        self.bytes.extend_from_slice(value);
        let restart = self.restarts.len() - 1;
        match self.keys.last_mut() {
            Some((_, _, last)) if is_same => *last = restart,
            _ => self.keys.push((hash, restart, restart)),
        }
    }

    /// The block's bytes. A caller that has used them empties the builder.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let bytes = &mut self.bytes;
        self.restarts.iter().for_each(|restart| bytes.extend_from_slice(&restart.to_le_bytes()));
        let buckets_at = bytes.len();
        if self.restarts.len() <= RESTARTS_MAX {
            bytes.resize(buckets_at + ((self.keys.len() * 4 / 3) | 1), NONE);
        }
        let buckets = &mut bytes[buckets_at..];
        let count = buckets.len();
        if count > 0 {
            for &(hash, first, last) in &self.keys {
                let bucket = &mut buckets[bucket_of(hash, count)];
                let fits = first == last && (*bucket == NONE || *bucket == first as u8);
                *bucket = if fits { first as u8 } else { SEVERAL };
            }
        }
        bytes.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(count as u32).to_le_bytes());
        bytes
    }

    /// Begins another block, behind this one.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.keys.clear();
        self.since_restart = 0;
    }
}

/// A block in memory.
pub(crate) struct Block {
    bytes: Box<[u8]>,
    /// Where the items end and the restarts begin.
    restarts_at: usize,
    restarts: usize,
    buckets: usize,
}

/// An item of a block: where its parts lie.
#[derive(Clone, Copy, Debug)]
struct Parts {
    shared: usize,
    rest: (usize, usize),
    seq: u64,
    flags: u8,
    expires_at: u64,
    value: (usize, usize),
    next: usize,
}

impl Block {
    /// The block of these bytes, whose checksum was compared; `None` if they are no block.
    pub(crate) fn new(bytes: Box<[u8]>) -> Option<Self> {
        let ends_at = bytes.len().checked_sub(ENDS)?;
        let mut ends = Reader(&bytes[ends_at..]);
        let (restarts, buckets) = (ends.u32()? as usize, ends.u32()? as usize);
        let restarts_at = ends_at.checked_sub(buckets)?.checked_sub(restarts.checked_mul(4)?)?;
        (restarts > 0 || restarts_at == 0).then_some(Self { bytes, restarts_at, restarts, buckets })
    }

    /// Bytes of memory that it takes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }

    fn restart(&self, nth: usize) -> Option<usize> {
        let mut reader = Reader(self.bytes.get(self.restarts_at + 4 * nth..)?);
        reader.u32().map(|at| at as usize)
    }

    fn parts_at(&self, at: usize) -> Option<Parts> {
        let items = &self.bytes[..self.restarts_at];
        let mut reader = Reader(items.get(at..)?);
        let (shared, rest, seq, flags) = (reader.size()?, reader.size()?, reader.varint()?, reader.u8()?);
        let expires_at = if flags & EXPIRES != 0 { reader.varint()? } else { 0 };
        let value = reader.size()?;
        let start = items.len() - reader.0.len();
        reader.take(rest)?;
        reader.take(value)?;
        let (rest, value) = ((start, start + rest), (start + rest, start + rest + value));
        Some(Parts { shared, rest, seq, flags, expires_at, value, next: value.1 })
    }

    /// The key of a restart.
    fn restart_key(&self, nth: usize) -> Option<(&[u8], u64)> {
        let parts = self.parts_at(self.restart(nth)?)?;
        Some((self.bytes.get(parts.rest.0..parts.rest.1)?, parts.seq))
    }

    /// The last restart that is not behind this version of a key; 0 if all are.
    fn restart_before(&self, key: &[u8], seq: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.restarts);
        while high - low > 1 {
            let middle = (low + high) / 2;
            match order(self.restart_key(middle)?, (key, seq)) {
                Ordering::Greater => high = middle,
                _ => low = middle,
            }
        }
        Some(low)
    }

    /// Whether the buckets rule a key with this hash out, or the restart behind which it is.
    fn bucket(&self, hash: u64) -> Option<u8> {
        let at = self.restarts_at + 4 * self.restarts;
        let buckets = self.bytes.get(at..at + self.buckets).filter(|buckets| !buckets.is_empty())?;
        buckets.get(bucket_of(hash, buckets.len())).copied()
    }
}

/// A place in a block: at an item, or at an end.
pub(crate) struct BlockCursor<B> {
    block: B,
    key: Vec<u8>,
    at: Option<(usize, Parts)>,
    /// Whether the block has an item that cannot be read.
    is_damaged: bool,
}

impl<B: AsRef<Block>> BlockCursor<B> {
    pub(crate) fn new(block: B) -> Self {
        Self { block, key: Vec::new(), at: None, is_damaged: false }
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    pub(crate) fn is_at_item(&self) -> bool {
        self.at.is_some()
    }

    /// The item here; `None` at an end.
    pub(crate) fn item(&self) -> Option<Item<'_>> {
        let (_, parts) = self.at?;
        let value = &self.block.as_ref().bytes[parts.value.0..parts.value.1];
        let content = match parts.flags {
            flags if flags & TOMBSTONE != 0 => Content::Tombstone,
            flags => Content::Put { value, expires_at: (flags & EXPIRES != 0).then_some(parts.expires_at) },
        };
        Some(Item { key: &self.key, seq: parts.seq, content })
    }

    /// Goes to the item at `at`, whose predecessor's key is in `self.key`.
    fn load(&mut self, at: usize) {
        let block = self.block.as_ref();
        self.at = None;
        if at == block.restarts_at {
            return;
        }
        match block.parts_at(at).filter(|parts| parts.shared <= self.key.len()) {
            Some(parts) => {
                self.key.truncate(parts.shared);
                self.key.extend_from_slice(&block.bytes[parts.rest.0..parts.rest.1]);
                self.at = Some((at, parts));
            }
            None => self.is_damaged = true,
        }
    }

    fn load_restart(&mut self, nth: usize) {
        self.key.clear();
        let block = self.block.as_ref();
        let at = if nth < block.restarts { block.restart(nth) } else { None };
        match at {
            Some(at) => self.load(at),
            None => self.at = None,
        }
    }

    pub(crate) fn seek_first(&mut self) {
        self.load_restart(0);
    }

    pub(crate) fn seek_last(&mut self) {
        let restarts = self.block.as_ref().restarts;
        self.load_restart(restarts.wrapping_sub(1));
        while let Some((_, parts)) = self.at.filter(|(_, parts)| parts.next < self.block.as_ref().restarts_at)
        {
            self.load(parts.next);
        }
    }

    pub(crate) fn next(&mut self) {
        if let Some((_, parts)) = self.at {
            self.load(parts.next);
        }
    }

    /// Goes to the item before. Reads on from the restart before it.
    pub(crate) fn previous(&mut self) {
        let Some((here, _)) = self.at else { return };
        let block = self.block.as_ref();
        let (mut low, mut high) = (0, block.restarts);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if block.restart(middle).is_some_and(|at| at < here) { low = middle } else { high = middle }
        }
        if block.restart(low).is_none_or(|at| at >= here) {
            self.at = None;
            return;
        }
        self.load_restart(low);
        while let Some((_, parts)) = self.at.filter(|(_, parts)| parts.next < here) {
            self.load(parts.next);
        }
    }

    /// Goes to the first item that is not before this version of a key.
    pub(crate) fn seek(&mut self, key: &[u8], seq: u64) {
        match self.block.as_ref().restart_before(key, seq) {
            Some(restart) => self.seek_behind(restart, key, seq),
            None => (self.at, self.is_damaged) = (None, true),
        }
    }

    /// As [`BlockCursor::seek`], for a caller that wants the key only: may go anywhere if the block
    /// does not have it.
    pub(crate) fn seek_key(&mut self, key: &[u8], hash: u64, seq: u64) {
        match self.block.as_ref().bucket(hash) {
            Some(NONE) => self.at = None,
            Some(SEVERAL) | None => self.seek(key, seq),
            Some(restart) => self.seek_behind(usize::from(restart), key, seq),
        }
    }

    fn seek_behind(&mut self, restart: usize, key: &[u8], seq: u64) {
        self.load_restart(restart);
        while let Some((_, parts)) = self.at {
            if order((&self.key, parts.seq), (key, seq)) != Ordering::Less {
                return;
            }
            self.load(parts.next);
        }
    }
}

#[cfg(test)]
#[path = "tests/block.rs"]
mod tests;
