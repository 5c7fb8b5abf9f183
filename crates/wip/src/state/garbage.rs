//! Garbage: what tables keep although no reader sees it any more, and when it is removed.
//!
//! Each table has a sketch of its keys. The sketches of a bucket together tell about how many keys
//! it has, so the rest of its items are older versions, or tombstones and what they hide. The paper
//! removes them when levels fill up and buckets are split (thesis 2.3.5), so a bucket whose keys
//! are overwritten would grow to its full size. Here a bucket is merged whole when its garbage is
//! worth it: more than half of the live data, or more than a fifth once nobody writes. Entries that
//! have expired are garbage, too.
//!
//! Tombstones side by side are worse than their bytes: a range passes all of them, and all that
//! they hide, before it finds a key. So a bucket with many such is merged earlier.

use crate::state::table::Table;
use terrace_disk::{Properties, Sketch};

/// Where a sketch cannot tell a sum from a union: its error, twice and a little more.
const SURE: f64 = 0.88;

/// Blocks that consist of tombstones mostly, and may stay: a range passes them quickly.
const SPARSE_MAX: u64 = 4;

/// What a bucket's tables have, about.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Content {
    /// Versions of keys.
    pub(crate) items: f64,
    /// Keys that readers see.
    pub(crate) live: f64,
    /// Bytes of all tables, and of those but the oldest.
    bytes: u64,
    recent_bytes: u64,
    /// Tombstones of all tables but the oldest, and blocks that consist of them mostly.
    tombstones: f64,
    sparse_blocks: u64,
}

impl Content {
    /// The content of a bucket's tables, the newest first.
    pub(crate) fn of<'t>(tables: impl Iterator<Item = &'t Table>) -> Self {
        let mut keys = Sketch::default();
        let (mut items, mut tombstones, mut sparse_blocks) = (0, 0, 0);
        let (mut bytes, mut oldest) = (0, None);
        for table in tables {
            let properties = table.properties();
            keys.join(&properties.keys);
            items += properties.items;
            tombstones += properties.tombstones;
            sparse_blocks += properties.sparse_blocks;
            bytes += table.bytes();
            oldest = Some(table);
        }
        let (items, union) = (items as f64, keys.estimate());
        let distinct = if union > SURE * items { items } else { union };
        let of_oldest =
            |figure: fn(&Properties) -> u64| oldest.map_or(0, |table: &Table| figure(table.properties()));
        // A tombstone hides a version of its key in an older table, or is of no use any more.
        let hidden = if union > SURE * items { 2.0 } else { 1.0 } * tombstones as f64;
        Self {
            items,
            live: (distinct - hidden).max(0.0),
            bytes,
            recent_bytes: bytes - oldest.map_or(0, |table| table.bytes()),
            tombstones: (tombstones - of_oldest(|properties| properties.tombstones)) as f64,
            sparse_blocks: sparse_blocks - of_oldest(|properties| properties.sparse_blocks),
        }
    }

    /// The garbage a byte of live data, if so many live items have expired.
    fn ratio(&self, expired: f64) -> f64 {
        let live = (self.live - expired).max(0.0);
        (self.items - live) / live.max(1.0)
    }

    /// Whether to merge the bucket whole. A table that was written so may keep versions for a
    /// snapshot, so it is not merged again before enough has come.
    pub(crate) fn is_worth(&self, expired: f64, is_idle: bool) -> bool {
        let (garbage, recent) = if is_idle { (0.2, 16) } else { (0.5, 5) };
        // What has expired goes for certain.
        let is_new = self.recent_bytes > self.bytes / recent || expired > self.items * garbage / 2.0;
        self.ratio(expired) > garbage && is_new || self.is_sparse(is_idle)
    }

    /// Whether ranges pass many tombstones side by side, and a merge that removes them costs few
    /// items for each.
    fn is_sparse(&self, is_idle: bool) -> bool {
        let cost = if is_idle { 64.0 } else { 8.0 };
        self.sparse_blocks > SPARSE_MAX && self.items < cost * self.tombstones
    }

    /// Whether it cannot wait for other merges.
    pub(crate) fn is_urgent(&self, expired: f64) -> bool {
        self.ratio(expired) > 1.0 && self.is_worth(expired, false)
    }
}
