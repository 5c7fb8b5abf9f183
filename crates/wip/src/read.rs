//! Reads of single keys.

use crate::memtable::MemItem;
use crate::state::store::Store;
use crate::state::{Bucket, State};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_disk::{Content, Found};
use terrace_engine::Live;
use terrace_engine::{ReadError, Value, Version};

/// A version of a key.
pub(crate) enum Hit {
    Memory(MemItem),
    Table(Found),
}

impl Hit {
    pub(crate) fn seq(&self) -> u64 {
        match self {
            Self::Memory(item) => item.seq,
            Self::Table(found) => found.item().seq,
        }
    }

    /// When it expires; `None` for a tombstone, `Some(None)` for never.
    fn expiry(&self) -> Option<Option<u64>> {
        match self {
            Self::Memory(item) => item.entry.as_ref().map(|(_, expires_at)| *expires_at),
            Self::Table(found) => match found.item().content {
                Content::Put { expires_at, .. } => Some(expires_at),
                Content::Tombstone => None,
            },
        }
    }

    pub(crate) fn into_live(self) -> Option<Live> {
        match self {
            Self::Memory(MemItem { seq, entry }) => {
                entry.map(|(value, expires_at)| Live { seq, value, expires_at })
            }
            Self::Table(found) => {
                let item = found.item();
                match item.content {
                    Content::Put { value, expires_at } => {
                        Some(Live { seq: item.seq, value: value.to_vec(), expires_at })
                    }
                    Content::Tombstone => None,
                }
            }
        }
    }
}

impl Store {
    /// The newest version of `key` up to the sequence number `seq`.
    pub(crate) fn find(&self, state: &State, key: &[u8], seq: u64) -> Result<Option<Hit>, ReadError> {
        self.standing.check_process()?;
        let bucket = state.bucket(key);
        match self.find_in(bucket, key, seq)? {
            // A tombstone is an answer, too: what the parent has is older.
            None => bucket.parent.as_deref().map_or(Ok(None), |parent| self.find_in(parent, key, seq)),
            found => Ok(found),
        }
    }

    fn find_in(&self, bucket: &Bucket, key: &[u8], seq: u64) -> Result<Option<Hit>, ReadError> {
        if let Some(item) = bucket.memtables().find_map(|memtable| memtable.get(key, seq)) {
            return Ok(Some(Hit::Memory(item)));
        }
        for level in &bucket.levels {
            let mut is_counted = false;
            for table in level.tables.iter().rev() {
                if !table.has_room_for(key) {
                    continue;
                }
                if !is_counted {
                    is_counted = true;
                    level.reads.fetch_add(1, Relaxed);
                }
                if let Some(found) = table.reader().get(key, seq)? {
                    return Ok(Some(Hit::Table(found)));
                }
            }
        }
        Ok(None)
    }

    /// The newest version of `key`.
    pub(crate) fn newest(&self, key: &[u8]) -> Result<Option<Hit>, ReadError> {
        // The state first: a compaction whose result it has kept what is visible at that time. A
        // number from before might need more.
        let state = self.state.load();
        // ORDER: Acquire: what has this number or a lower one is seen.
        let seq = self.visible.load(Acquire);
        self.find(&state, key, seq)
    }

    /// Whether an entry with this expiry is gone.
    pub(crate) fn has_expired(&self, expires_at: Option<u64>) -> bool {
        expires_at.is_some_and(|at| self.settings.clock.has_come(at))
    }

    /// The present entry of `key`.
    pub(crate) fn find_live(&self, key: &[u8]) -> Result<Option<Live>, ReadError> {
        let mut expired = None;
        loop {
            let Some(live) = self.newest(key)?.and_then(Hit::into_live) else { return Ok(None) };
            if !self.has_expired(live.expires_at) {
                return Ok(Some(live));
            }
            // Another version may have come after the search and before the clock was read.
            if expired.replace(live.seq) == Some(live.seq) {
                return Ok(None);
            }
        }
    }

    pub(crate) fn get_value(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        Ok(self.find_live(key)?.map(Live::into_value))
    }

    /// The state of a key. `removals` is the count from before it was looked up.
    pub(crate) fn version_of(&self, removals: u64, hit: Option<&Hit>) -> Version {
        let present = hit.and_then(|hit| Some((hit.seq().into(), self.has_expired(hit.expiry()?))));
        Version::seen(removals, present)
    }

    pub(crate) fn present_version(&self, key: &[u8]) -> Result<Version, ReadError> {
        let removals = self.removals.of(key);
        let hit = self.newest(key)?;
        Ok(self.version_of(removals, hit.as_ref()))
    }
}
