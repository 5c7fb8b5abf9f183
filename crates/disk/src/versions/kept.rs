//! What a compaction keeps.
//!
//! A version of a key is visible to a snapshot if it is the newest that is not later, and to the
//! present if it is the newest of all. A compaction keeps what is visible to one of them.
//!
//! A tombstone that is visible hides what is older. Where nothing older exists below, it hides only
//! older versions that the compaction keeps for a snapshot; without such a version it is dropped.

use crate::DiskError;
use crate::item::{Content, Item};
use crate::source::Source;

/// What a compaction has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Versions of keys.
    pub items: u64,
    /// Bytes of their keys and values, and of values that became tombstones.
    pub bytes: u64,
}

/// The items of a source that a compaction keeps, forward.
pub struct Kept<S> {
    source: S,
    /// In order.
    snapshots: Vec<u64>,
    is_last: bool,
    now_ms: u64,
    place: Place,
    /// The key of the last item, and the number of the first snapshot to which it is visible. The
    /// present has the number behind all snapshots.
    key: Vec<u8>,
    seen_by: Option<usize>,
    /// Sequence numbers of tombstones of the key, which are kept if an older version is.
    held: Vec<u64>,
    dropped: Dropped,
}

#[derive(Clone, Copy)]
enum Place {
    End,
    /// The source is at the item.
    AtSource,
    /// A tombstone with this sequence number, in the place of the source's item.
    Tombstone(u64),
    /// The held tombstone with this number. The source is at the item that needs it.
    Held(usize),
}

impl<S: Source> Kept<S> {
    /// What a compaction of `source` keeps. `snapshots` are the sequence numbers that readers use,
    /// in ascending order; `is_last` says that nothing older exists below; what expires at `now_ms`
    /// or before has expired. It is at an end.
    ///
    /// An expired entry counts as a tombstone, also for a snapshot: readers compare its time with
    /// the clock.
    ///
    /// # Panics
    /// If the snapshots are not in order.
    pub fn new(source: S, snapshots: Vec<u64>, is_last: bool, now_ms: u64) -> Self {
        assert!(snapshots.is_sorted(), "snapshots that are not in order");
        Self {
            source,
            snapshots,
            is_last,
            now_ms,
            place: Place::End,
            key: Vec::new(),
            seen_by: None,
            held: Vec::new(),
            dropped: Dropped::default(),
        }
    }

    /// The item here; `None` at the end.
    pub fn item(&self) -> Option<Item<'_>> {
        match self.place {
            Place::End => None,
            Place::AtSource => self.source.item(),
            Place::Tombstone(seq) => Some(Item::tombstone(&self.key, seq)),
            Place::Held(nth) => Some(Item::tombstone(&self.key, self.held[nth])),
        }
    }

    /// What was dropped so far.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Goes to the first item.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    pub fn seek_first(&mut self) -> Result<(), DiskError> {
        (self.place, self.seen_by, self.dropped) = (Place::End, None, Dropped::default());
        self.held.clear();
        self.source.seek_first()?;
        self.find()
    }

    /// Goes to the next item.
    ///
    /// # Errors
    /// As [`Kept::seek_first`].
    #[allow(clippy::should_implement_trait, reason = "it lends its items")]
    pub fn next(&mut self) -> Result<(), DiskError> {
        match std::mem::replace(&mut self.place, Place::End) {
            Place::End => Ok(()),
            Place::Held(nth) if nth + 1 < self.held.len() => {
                self.place = Place::Held(nth + 1);
                Ok(())
            }
            Place::Held(_) => {
                self.held.clear();
                self.place = Place::AtSource;
                Ok(())
            }
            Place::AtSource | Place::Tombstone(_) => {
                self.source.next()?;
                self.find()
            }
        }
    }

    /// Goes to the first item that is kept, from the source's item on.
    fn find(&mut self) -> Result<(), DiskError> {
        while let Some(item) = self.source.item() {
            let is_newest = self.seen_by.is_none() || item.key != self.key;
            let seen_by = self.snapshots.partition_point(|&snapshot| snapshot < item.seq);
            if !is_newest && self.seen_by == Some(seen_by) {
                // A newer version hides it from all of them.
                self.dropped.count(&item);
                self.source.next()?;
                continue;
            }
            if is_newest {
                self.dropped.count_tombstones(self.held.drain(..).len(), self.key.len());
                self.key.clear();
                self.key.extend_from_slice(item.key);
            }
            self.seen_by = Some(seen_by);
            if !self.is_expired(&item) && item.content != Content::Tombstone {
                self.place = if self.held.is_empty() { Place::AtSource } else { Place::Held(0) };
                return Ok(());
            }
            self.dropped.bytes += value_len(&item);
            if !self.is_last {
                self.place = Place::Tombstone(item.seq);
                return Ok(());
            }
            self.held.push(item.seq);
            self.source.next()?;
        }
        self.dropped.count_tombstones(self.held.drain(..).len(), self.key.len());
        Ok(())
    }

    fn is_expired(&self, item: &Item<'_>) -> bool {
        matches!(item.content, Content::Put { expires_at: Some(at), .. } if at <= self.now_ms)
    }
}

impl Dropped {
    fn count(&mut self, item: &Item<'_>) {
        self.items += 1;
        self.bytes += item.key.len() as u64 + value_len(item);
    }

    fn count_tombstones(&mut self, count: usize, key_len: usize) {
        self.items += count as u64;
        self.bytes += (count * key_len) as u64;
    }
}

fn value_len(item: &Item<'_>) -> u64 {
    item.value().map_or(0, |value| value.len() as u64)
}
