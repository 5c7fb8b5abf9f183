//! What a table has, in numbers and samples: for decisions that do not read it.

use super::sketch::{self, Sketch};
use crate::codec::{Reader, put_bytes, put_varint};
use crate::item::{Content, Item};

/// Samples of keys that are kept at most, and their bytes together, unless one alone has more.
const SAMPLES_MAX: usize = 128;
const SAMPLES_BYTES_MAX: usize = 32 << 10;

/// What a table has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Versions of keys.
    pub items: u64,
    /// Of these, versions that say that a key is absent.
    pub tombstones: u64,
    /// Bytes of keys and values.
    pub data_bytes: u64,
    /// The lowest and the highest sequence number; 0 and 0 of an empty table.
    pub seqs: (u64, u64),
    /// The lowest key.
    pub first_key: Vec<u8>,
    /// The highest key.
    pub last_key: Vec<u8>,
    /// The items that expire.
    pub expiring: Expiring,
    /// Blocks whose items are mostly tombstones: reading them finds little.
    pub sparse_blocks: u64,
    /// Beginnings of some of the keys, in order, at about even distances of bytes: of each as much
    /// as it takes to tell it from the key before it.
    pub samples: Vec<Vec<u8>>,
    /// Bytes from one sample to the next.
    pub sample_bytes: u64,
    /// The keys, to tell how many of them other tables have, too.
    pub keys: Sketch,
}

/// The items of a table that expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiring {
    /// How many there are.
    pub items: u64,
    /// The earliest expiry, in unix milliseconds; 0 without any.
    pub earliest: u64,
    /// The latest one.
    pub latest: u64,
}

impl Expiring {
    fn add(&mut self, at: u64) {
        self.earliest = if self.items == 0 { at } else { self.earliest.min(at) };
        self.latest = self.latest.max(at);
        self.items += 1;
    }

    /// About how many have expired at this time, as if their times were spread evenly.
    pub fn expired(&self, now_ms: u64) -> f64 {
        if self.items == 0 || now_ms < self.earliest {
            return 0.0;
        }
        let (passed, all) = (now_ms - self.earliest + 1, self.latest - self.earliest + 1);
        self.items as f64 * (passed as f64 / all as f64).min(1.0)
    }
}

impl Properties {
    /// Adds an item, which comes after all others. Its key has this hash, and shares so many bytes
    /// with the key before it. The last key is for the caller to enter.
    pub(super) fn add(&mut self, item: &Item<'_>, hash: u64, shared: usize) {
        self.keys.add(hash);
        let bytes = match item.content {
            Content::Tombstone => {
                self.tombstones += 1;
                item.key.len()
            }
            Content::Put { value, expires_at } => {
                expires_at.inspect(|at| self.expiring.add(*at));
                item.key.len() + value.len()
            }
        };
        if self.items == 0 {
            self.first_key = item.key.to_vec();
            self.seqs = (item.seq, item.seq);
            self.sample_bytes = 1 << 10;
        }
        let seqs = (self.seqs.0.min(item.seq), self.seqs.1.max(item.seq));
        (self.seqs, self.items, self.data_bytes) = (seqs, self.items + 1, self.data_bytes + bytes as u64);
        if self.data_bytes / self.sample_bytes > self.samples.len() as u64 {
            self.samples.push(item.key[..item.key.len().min(shared + 1)].to_vec());
            self.thin_out();
        }
    }

    /// Where there are too many samples, removes every other one. The next ones are twice as far
    /// apart.
    fn thin_out(&mut self) {
        let bytes = |samples: &[Vec<u8>]| samples.iter().map(Vec::len).sum::<usize>();
        while self.samples.len() >= SAMPLES_MAX
            || self.samples.len() > 1 && bytes(&self.samples) > SAMPLES_BYTES_MAX
        {
            let mut nth = 0;
            self.samples.retain(|_| {
                nth += 1;
                nth % 2 == 0
            });
            self.sample_bytes *= 2;
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let numbers = [
            self.items,
            self.tombstones,
            self.data_bytes,
            self.seqs.0,
            self.seqs.1,
            self.expiring.items,
            self.expiring.earliest,
            self.expiring.latest,
            self.sparse_blocks,
            self.sample_bytes,
            self.samples.len() as u64,
        ];
        numbers.iter().for_each(|&number| put_varint(out, number));
        [&self.first_key, &self.last_key]
            .into_iter()
            .chain(&self.samples)
            .for_each(|key| put_bytes(out, key));
        out.extend_from_slice(self.keys.bytes());
    }

    /// The properties of these bytes; `None` if they are none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (items, tombstones, data_bytes) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let seqs = (reader.varint()?, reader.varint()?);
        let (expiring, earliest, latest) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let expiring = Expiring { items: expiring, earliest, latest };
        let (sparse_blocks, sample_bytes, count) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let mut key = || reader.bytes().map(<[u8]>::to_vec);
        let (first_key, last_key) = (key()?, key()?);
        let samples = (0..count).map(|_| key()).collect::<Option<Vec<_>>>()?;
        let keys = Sketch::read(reader.take(sketch::BYTES)?)?;
        let mut properties = Self {
            items,
            tombstones,
            data_bytes,
            seqs,
            first_key,
            last_key,
            expiring,
            sparse_blocks,
            samples,
            sample_bytes,
            keys,
        };
        // A table may be of a time in which samples were whole keys.
        properties.thin_out();
        Some(properties)
    }
}

#[cfg(test)]
#[path = "tests/properties.rs"]
mod tests;
