//! What a store consists of at one moment: buckets, and in each a MemTable and levels of tables.
//!
//! A state never changes. A change of the structure (a MemTable that is frozen, a table that comes
//! or goes, a bucket that is split) publishes another one, which shares all parts that stay. A
//! reader holds the state that it began with. Writers add to the active MemTables of the present
//! one, under the writer's lock (see `write`).
//!
//! Beside it, from below: `table`, `garbage`, `edit`, `snapshots`, `bell`; `store` owns them, and
//! `structure` changes its state durably.

pub(crate) mod bell;
pub(crate) mod edit;
pub(crate) mod garbage;
pub(crate) mod snapshots;
pub(crate) mod store;
pub(crate) mod structure;
pub(crate) mod table;

use crate::memtable::MemTable;
use crate::state::garbage::Content;
use crate::state::table::{LEVELS, Table};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// A level: tables whose keys overlap, the oldest first. Everything in it is newer than everything
/// in the next level.
#[derive(Clone, Default)]
pub(crate) struct Level {
    pub(crate) tables: Vec<Arc<Table>>,
    /// Gets that read a table of this level since its last compaction (thesis 2.3.7).
    pub(crate) reads: Arc<AtomicU64>,
}

impl Level {
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes()).sum()
    }
}

/// A bucket: the keys from `low` up to the next bucket's.
pub(crate) struct Bucket {
    pub(crate) id: u64,
    pub(crate) low: Arc<[u8]>,
    pub(crate) active: Arc<MemTable>,
    /// Bytes at which the active MemTable is frozen. Drawn for each, so that not all are at once.
    pub(crate) freeze_at: u64,
    /// All items below this sequence number lie in tables.
    pub(crate) flushed: u64,
    /// The highest sequence number that has left its MemTables since the store was opened. A flush
    /// or a merge may have dropped the item, so tables do not tell.
    pub(crate) passed: u64,
    /// The oldest first.
    pub(crate) frozen: Vec<Arc<MemTable>>,
    pub(crate) levels: [Level; LEVELS],
    /// The bucket that was split into this one and its siblings, until its items have been divided.
    /// Everything in it is older.
    pub(crate) parent: Option<Arc<Bucket>>,
    /// Computed when it is asked for.
    content: OnceLock<Content>,
}

impl Clone for Bucket {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            low: Arc::clone(&self.low),
            active: Arc::clone(&self.active),
            freeze_at: self.freeze_at,
            flushed: self.flushed,
            passed: self.passed,
            frozen: self.frozen.clone(),
            levels: self.levels.clone(),
            parent: self.parent.clone(),
            // The clone is for a change.
            content: OnceLock::new(),
        }
    }
}

impl Bucket {
    /// An empty bucket, with a MemTable and the bytes at which it is frozen. It has no items below
    /// `flushed`.
    pub(crate) fn new(id: u64, low: &[u8], (active, freeze_at): (MemTable, u64), flushed: u64) -> Self {
        Self {
            id,
            low: low.into(),
            active: Arc::new(active),
            freeze_at,
            flushed,
            passed: 0,
            frozen: Vec::new(),
            levels: Default::default(),
            parent: None,
            content: OnceLock::new(),
        }
    }

    /// All MemTables, the newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        std::iter::once(&self.active).chain(self.frozen.iter().rev())
    }

    /// Whether `key` may have a version behind the number `since`, whatever has become of it. May
    /// say yes for a key that has none.
    pub(crate) fn may_have_changed(&self, key: &[u8], since: u64) -> bool {
        match self.memtables().find_map(|memtable| memtable.newest(key)) {
            Some(seq) => seq > since,
            // What has left its MemTables is newer than all of the parent, also if that is still in
            // memory.
            None => {
                self.passed > since
                    || self.parent.as_ref().is_some_and(|parent| parent.may_have_changed(key, since))
            }
        }
    }

    /// All tables, the newest first, with their levels.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Arc<Table>)> {
        let levels = self.levels.iter().enumerate();
        levels.flat_map(|(nth, level)| level.tables.iter().rev().map(move |table| (nth, table)))
    }

    /// What its tables have, about.
    pub(crate) fn content(&self) -> Content {
        *self.content.get_or_init(|| Content::of(self.tables().map(|(_, table)| &**table)))
    }

    /// About how many items of its tables have expired at this time.
    pub(crate) fn expired(&self, now_ms: u64) -> f64 {
        self.tables().map(|(_, table)| table.properties().expiring.expired(now_ms)).sum()
    }

    /// Bytes of all tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.levels.iter().map(Level::bytes).sum()
    }
}

/// All buckets, by their lowest keys.
pub(crate) struct State {
    pub(crate) buckets: Vec<Arc<Bucket>>,
    /// The first eight bytes of each bucket's lowest key, for a fast search.
    heads: Vec<u64>,
    /// Bytes of MemTables that are to be flushed.
    pub(crate) frozen_bytes: u64,
}

impl State {
    /// # Panics
    /// If there is no bucket, or they are not in order, or keys come before the first.
    pub(crate) fn new(buckets: Vec<Arc<Bucket>>) -> Self {
        assert!(
            buckets.first().is_some_and(|first| first.low.is_empty()),
            "the first bucket has the lowest keys"
        );
        assert!(buckets.is_sorted_by(|one, next| one.low < next.low), "buckets are in order");
        let heads = buckets.iter().map(|bucket| head(&bucket.low)).collect();
        Self::with_heads(buckets, heads)
    }

    fn with_heads(buckets: Vec<Arc<Bucket>>, heads: Vec<u64>) -> Self {
        debug_assert_eq!(buckets.len(), heads.len(), "a head for each bucket");
        let mut state = Self { buckets, heads, frozen_bytes: 0 };
        state.frozen_bytes = state.all().flat_map(|bucket| &bucket.frozen).map(|table| table.memory()).sum();
        state
    }

    /// The number of the bucket of `key`.
    #[inline]
    pub(crate) fn bucket_of(&self, key: &[u8]) -> usize {
        let head = head(key);
        // Buckets with the same head as the key are compared as a whole.
        let mut next = self.heads.partition_point(|&other| other < head);
        while next < self.buckets.len() && *self.buckets[next].low <= *key {
            next += 1;
        }
        next.max(1) - 1
    }

    /// The bucket of `key`.
    #[inline]
    pub(crate) fn bucket(&self, key: &[u8]) -> &Arc<Bucket> {
        &self.buckets[self.bucket_of(key)]
    }

    /// The first key of the next bucket; `None` for the last one.
    pub(crate) fn end_of(&self, nth: usize) -> Option<&Arc<[u8]>> {
        self.buckets.get(nth + 1).map(|next| &next.low)
    }

    /// The same with another bucket in the place of that with the same id.
    pub(crate) fn with(&self, bucket: Bucket) -> Self {
        let nth = self.position(bucket.id).expect("a bucket of this state");
        let mut buckets = self.buckets.clone();
        buckets[nth] = Arc::new(bucket);
        Self::with_heads(buckets, self.heads.clone())
    }

    /// The number of the bucket with this id.
    pub(crate) fn position(&self, id: u64) -> Option<usize> {
        self.buckets.iter().position(|bucket| bucket.id == id)
    }

    /// All buckets, and each parent once.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Bucket>> {
        let mut last = None;
        // Siblings lie side by side.
        let parents = self.parents().filter(move |parent| last.replace(parent.id) != Some(parent.id));
        self.buckets.iter().chain(parents)
    }

    /// The parents of buckets, each as often as it has children.
    pub(crate) fn parents(&self) -> impl Iterator<Item = &Arc<Bucket>> {
        self.buckets.iter().filter_map(|bucket| bucket.parent.as_ref())
    }

    /// The same with what `change` makes of the bucket, or of the parent, with this id.
    pub(crate) fn map(&self, id: u64, change: impl Fn(&Bucket) -> Arc<Bucket>) -> Self {
        let mut parent: Option<Arc<Bucket>> = None;
        let buckets = self.buckets.iter().map(|bucket| {
            if bucket.id == id {
                return change(bucket);
            }
            match &bucket.parent {
                Some(old) if old.id == id => {
                    let new = parent.get_or_insert_with(|| change(old));
                    Arc::new(Bucket { parent: Some(Arc::clone(new)), ..Bucket::clone(bucket) })
                }
                _ => Arc::clone(bucket),
            }
        });
        Self::with_heads(buckets.collect(), self.heads.clone())
    }

    /// All MemTables, those of parents once for each child.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        self.buckets.iter().flat_map(|bucket| {
            let parent = bucket.parent.iter().flat_map(|parent| parent.memtables());
            bucket.memtables().chain(parent)
        })
    }
}

/// The first eight bytes of a key, and zeros behind a shorter one. Not the same order as that of
/// the keys where these are equal.
#[inline]
fn head(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = key.len().min(8);
    head[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(head)
}

#[cfg(test)]
mod tests;
