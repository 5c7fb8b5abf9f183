//! Partitions: where the blocks of a part of a table lie, and which keys they may have; and the
//! top, which says that of the partitions.
//!
//! ```text
//!   | number of children | offset of the first | for each: shared, rest, seq, bytes, rest of key |
//!   | filter |
//! ```
//! Numbers are varints. A child's key and seq are not before its last item, and before the next
//! child's first. The top is written in the same way, and has no filter.

use super::filter::Filter;
use super::piece::Place;
use crate::codec::{Reader, put_varint, shared};
use crate::item::order;
use std::cmp::Ordering;

/// The children of a part of a table.
#[derive(Default)]
pub(super) struct Children {
    /// All keys, one behind the other.
    keys: Vec<u8>,
    /// Where each key ends, its seq, and where the child lies.
    ends: Vec<(u32, u64, Place)>,
}

impl Children {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn place(&self, nth: usize) -> Option<Place> {
        self.ends.get(nth).map(|(_, _, place)| *place)
    }

    pub(super) fn key(&self, nth: usize) -> (&[u8], u64) {
        let start = nth.checked_sub(1).map_or(0, |before| self.ends[before].0);
        let (end, seq, _) = self.ends[nth];
        (&self.keys[start as usize..end as usize], seq)
    }

    /// The key and seq of the last child.
    pub(super) fn last(&self) -> Option<(&[u8], u64)> {
        self.len().checked_sub(1).map(|last| self.key(last))
    }

    /// Adds a child behind all others.
    pub(super) fn add(&mut self, key: &[u8], seq: u64, place: Place) {
        self.keys.extend_from_slice(key);
        self.ends.push((self.keys.len() as u32, seq, place));
    }

    /// The first child that may have items that are not before this version of a key.
    pub(super) fn find(&self, key: &[u8], seq: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match order(self.key(middle), (key, seq)) {
                Ordering::Less => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        let mut last: &[u8] = &[];
        for (nth, (_, _, place)) in self.ends.iter().enumerate() {
            let (key, seq) = self.key(nth);
            let shared = shared(last, key);
            [shared as u64, (key.len() - shared) as u64, seq, place.offset, u64::from(place.bytes)]
                .iter()
                .for_each(|&number| put_varint(out, number));
            out.extend_from_slice(&key[shared..]);
            last = key;
        }
    }

    /// Reads children, and leaves what is behind them in `reader`.
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut children = Self::default();
        let mut key = Vec::new();
        for _ in 0..reader.varint()? {
            let (shared, rest, seq) = (reader.size()?, reader.size()?, reader.varint()?);
            let (offset, bytes) = (reader.varint()?, u32::try_from(reader.varint()?).ok()?);
            if shared > key.len() {
                return None;
            }
            key.truncate(shared);
            key.extend_from_slice(reader.take(rest)?);
            u32::try_from(children.keys.len() + key.len()).ok()?;
            children.add(&key, seq, Place { offset, bytes });
        }
        Some(children)
    }

    pub(super) fn size(&self) -> usize {
        self.keys.len() + size_of_val(&self.ends[..])
    }
}

/// A partition in memory.
pub(super) struct Partition {
    pub(super) blocks: Children,
    /// `None` if the partition was written without one.
    filter: Option<Filter>,
}

impl Partition {
    pub(super) fn write(blocks: &Children, filter: Option<&Filter>) -> Vec<u8> {
        let mut out = Vec::new();
        blocks.write(&mut out);
        filter.inspect(|filter| filter.write(&mut out));
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let blocks = Children::read(&mut reader)?;
        let filter = if reader.is_empty() { None } else { Some(Filter::read(reader.0)?) };
        Some(Self { blocks, filter })
    }

    /// Whether a key with this hash may be in it.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_have(hash))
    }

    pub(super) fn size(&self) -> usize {
        self.blocks.size() + self.filter.as_ref().map_or(0, Filter::size) + size_of::<Self>()
    }
}

/// A version of a key that is not before `last` and before the first item of the next child, which
/// has the key `next`: behind all versions of the last key, or this one if the next child has more
/// of them.
pub(super) fn separator<'k>(last: (&'k [u8], u64), next: Option<&[u8]>) -> (&'k [u8], u64) {
    match next {
        Some(next) if next == last.0 => last,
        _ => (last.0, 0),
    }
}

#[cfg(test)]
#[path = "tests/partition.rs"]
mod tests;
