//! Edits of the manifest: what changes in the structure of a store, each whole or not at all.
//!
//! ```text
//!   | kind u8 | fields: varints, byte strings behind their lengths |
//! ```

use crate::state::table::{LEVELS, Table};
use terrace_disk::codec::{Reader, put_bytes, put_varint};

/// A table that comes into a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) bucket: u64,
    pub(crate) level: usize,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// Whether it is older than everything in its level, and not newer.
    pub(crate) is_oldest: bool,
}

impl Added {
    /// The table as one that comes into a level of a bucket.
    pub(crate) fn of(bucket: u64, level: usize, table: &Table, is_oldest: bool) -> Self {
        assert!(level < LEVELS, "a level of a bucket");
        Self { bucket, level, number: table.number, bytes: table.bytes(), is_oldest }
    }
}

/// A bucket that comes into being.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewBucket {
    pub(crate) id: u64,
    pub(crate) low: Vec<u8>,
    /// The bucket that is being split into this one; its tables are the parent's.
    pub(crate) parent: Option<u64>,
}

/// An edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    /// Everything with a lower sequence number is gone: the store was cleared, or has just been
    /// created. Buckets and tables of before are gone, too.
    pub(crate) cleared: Option<u64>,
    pub(crate) buckets: Vec<NewBucket>,
    /// Buckets that are no more: they were split, and their items divided.
    pub(crate) ended: Vec<u64>,
    pub(crate) added: Vec<Added>,
    /// Numbers of tables.
    pub(crate) removed: Vec<u64>,
    /// Of a bucket: all items of it below this sequence number lie in tables.
    pub(crate) flushed: Vec<(u64, u64)>,
    /// Bytes that were written to tables since the store was created.
    pub(crate) written: u64,
}

impl Edit {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // 0 for none, and otherwise one more.
        put_varint(&mut out, self.cleared.map_or(0, |seq| seq + 1));
        put_varint(&mut out, self.buckets.len() as u64);
        for bucket in &self.buckets {
            put_varint(&mut out, bucket.id);
            put_bytes(&mut out, &bucket.low);
            put_varint(&mut out, bucket.parent.map_or(0, |id| id + 1));
        }
        put_varint(&mut out, self.ended.len() as u64);
        self.ended.iter().for_each(|&id| put_varint(&mut out, id));
        put_varint(&mut out, self.added.len() as u64);
        for table in &self.added {
            let place = table.level as u64 * 2 + u64::from(table.is_oldest);
            [table.bucket, place, table.number, table.bytes].iter().for_each(|&n| put_varint(&mut out, n));
        }
        put_varint(&mut out, self.removed.len() as u64);
        self.removed.iter().for_each(|&number| put_varint(&mut out, number));
        put_varint(&mut out, self.flushed.len() as u64);
        for (bucket, seq) in &self.flushed {
            put_varint(&mut out, *bucket);
            put_varint(&mut out, *seq);
        }
        put_varint(&mut out, self.written);
        out
    }

    /// The edit of these bytes; `None` if they are none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let cleared = reader.varint()?.checked_sub(1);
        let buckets = list(&mut reader, |reader| {
            let (id, low) = (reader.varint()?, reader.bytes()?.to_vec());
            Some(NewBucket { id, low, parent: reader.varint()?.checked_sub(1) })
        })?;
        let ended = list(&mut reader, Reader::varint)?;
        let added = list(&mut reader, |reader| {
            let (bucket, place) = (reader.varint()?, reader.varint()?);
            let (level, is_oldest) = ((place / 2) as usize, place % 2 == 1);
            let (number, bytes) = (reader.varint()?, reader.varint()?);
            (level < LEVELS).then_some(Added { bucket, level, number, bytes, is_oldest })
        })?;
        let removed = list(&mut reader, Reader::varint)?;
        let flushed = list(&mut reader, |reader| Some((reader.varint()?, reader.varint()?)))?;
        let written = reader.varint()?;
        let edit = Self { cleared, buckets, ended, added, removed, flushed, written };
        reader.is_empty().then_some(edit)
    }
}

/// Reads a number and so many elements.
fn list<'b, T>(
    reader: &mut Reader<'b>,
    mut each: impl FnMut(&mut Reader<'b>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = reader.varint()?;
    (0..count).map(|_| each(reader)).collect()
}

#[cfg(test)]
#[path = "tests/edit.rs"]
mod tests;
