//! The logs of a session, and the queue of those that have something to merge.

use super::segments::{Found, Segment};
use crate::arbiter::Incarnation;
use crate::log::Cursor;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The logs of a session.
pub(crate) struct Logs {
    /// The session.
    pub(crate) session: Incarnation,
    /// One a shard.
    pub(crate) shards: Vec<Shard>,
    /// Whether they are merged up to their ends: nothing can arrive any more.
    pub(crate) to_the_end: AtomicBool,
    /// Whether a log lacks an entry that its writer told as durable.
    pub(crate) is_broken: AtomicBool,
}

/// A shard's log.
pub(crate) struct Shard {
    /// What the thread that merges has.
    pub(crate) reading: Mutex<Reading>,
    /// Segments that were granted, and that the reader has not seen yet.
    granted: Mutex<Vec<Segment>>,
    /// Segments that are not read to their end.
    pub(crate) unread: AtomicUsize,
    /// How many were granted.
    pub(crate) order: AtomicUsize,
    /// The last entry that has arrived, as its writer says.
    pub(crate) durable: AtomicU64,
    /// The last entry that is merged, durably.
    pub(crate) merged: AtomicU64,
    /// Whether its end is reached.
    pub(crate) is_ended: AtomicBool,
    place: AtomicU8,
}

/// Where a log is read.
pub(crate) struct Reading {
    /// Where it goes on.
    pub(crate) cursor: Cursor,
    /// The rows of the segments, by their numbers.
    pub(crate) rows: BTreeMap<u64, u64>,
    /// Up to here, the entries were merged before the memory node started.
    pub(crate) merged_before: u64,
}

impl Reading {
    /// The last entry that is merged.
    pub(crate) fn known(&self) -> u64 {
        self.cursor.last().max(self.merged_before)
    }
}

// The values of `Shard::place`, which changes while the queue is locked.
const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const WORKED_ON: u8 = 2;
const WORKED_ON_AND_WANTED: u8 = 3;

impl Shard {
    fn new(cursor: Cursor, rows: BTreeMap<u64, u64>, merged: u64) -> Self {
        let unread = AtomicUsize::new(rows.len());
        let order = AtomicUsize::new(rows.len());
        let reading = Mutex::new(Reading { cursor, rows, merged_before: merged });
        let (durable, merged) = (AtomicU64::new(merged), AtomicU64::new(merged));
        let (granted, is_ended, place) = (Mutex::default(), AtomicBool::new(false), AtomicU8::new(IDLE));
        Self { reading, granted, unread, order, durable, merged, is_ended, place }
    }

    /// Adds a segment behind the others.
    pub(crate) fn grant(&self, segment: Segment) {
        self.order.fetch_add(1, Relaxed);
        self.unread.fetch_add(1, Relaxed);
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_later = granted.last().is_none_or(|last| last.number < segment.number);
        assert!(is_later, "segments are numbered in the order of their grants");
        granted.push(segment);
    }

    /// The reader, with all segments that were granted.
    pub(crate) fn read(&self) -> MutexGuard<'_, Reading> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        for segment in self.granted.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            reading.cursor.grant(segment.number);
            reading.rows.insert(segment.number, segment.row);
        }
        reading
    }

    /// Notes what has arrived.
    pub(crate) fn arrived(&self, entry: u64) -> bool {
        // ORDER: Release: what the connection has written is there; pairs with the reader's load.
        self.durable.fetch_max(entry, Release) < entry
    }

    /// Whether all up to this entry is merged.
    pub(crate) fn has_merged(&self, entry: u64) -> bool {
        self.merged.load(Acquire) >= entry
    }
}

impl Logs {
    /// Logs that begin.
    pub(crate) fn new(session: Incarnation, shards: u16) -> Arc<Self> {
        let shard = |_| Shard::new(Cursor::new(1, []), BTreeMap::new(), 0);
        Self::of(session, (0..shards).map(shard).collect())
    }

    /// Logs that were found.
    pub(crate) fn found(session: Incarnation, mut found: BTreeMap<u16, Found>) -> Arc<Self> {
        let shards = found.keys().next_back().map_or(0, |last| last + 1);
        let shard = |nth| match found.remove(&nth) {
            None => Shard::new(Cursor::new(1, []), BTreeMap::new(), 0),
            Some(Found { segments, first, merged }) => {
                let cursor = Cursor::new(first, segments.iter().map(|segment| segment.number));
                let rows = segments.iter().map(|segment| (segment.number, segment.row)).collect();
                Shard::new(cursor, rows, merged)
            }
        };
        Self::of(session, (0..shards).map(shard).collect())
    }

    fn of(session: Incarnation, shards: Vec<Shard>) -> Arc<Self> {
        let (to_the_end, is_broken) = Default::default();
        Arc::new(Self { session, shards, to_the_end, is_broken })
    }

    /// Whether these entries of each shard are merged. Shards that are not named need nothing.
    pub(crate) fn have_merged(&self, entries: &[u64]) -> bool {
        self.shards.iter().zip(entries).all(|(shard, entry)| shard.has_merged(*entry))
    }

    /// Whether all logs are merged to their ends.
    pub(crate) fn are_ended(&self) -> bool {
        self.shards.iter().all(|shard| shard.is_ended.load(Acquire))
    }

    /// The last entry of each shard that is merged.
    pub(crate) fn merged(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.merged.load(Acquire)).collect()
    }

    /// All segments that the session has.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        let of = |shard: &Shard| -> Vec<Segment> {
            shard.read().rows.iter().map(|(number, row)| Segment { row: *row, number: *number }).collect()
        };
        self.shards.iter().flat_map(of).collect()
    }
}

/// Logs with something to merge. One thread at a time has a shard.
#[derive(Default)]
pub(crate) struct Queue {
    shards: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    shards: VecDeque<(Arc<Logs>, usize)>,
    ends: bool,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a shard.
    pub(crate) fn add(&self, logs: &Arc<Logs>, shard: usize) {
        let mut waiting = self.waiting();
        let place = &logs.shards[shard].place;
        match place.load(Relaxed) {
            IDLE => {
                place.store(QUEUED, Relaxed);
                waiting.shards.push_back((logs.clone(), shard));
                self.changed.notify_one();
            }
            WORKED_ON => place.store(WORKED_ON_AND_WANTED, Relaxed),
            _ => {}
        }
    }

    /// The next shard; `None` at the end.
    pub(crate) fn next(&self) -> Option<(Arc<Logs>, usize)> {
        let waits = |waiting: &mut Waiting| !waiting.ends && waiting.shards.is_empty();
        let waited = self.changed.wait_while(self.waiting(), waits);
        let mut waiting = waited.unwrap_or_else(PoisonError::into_inner);
        if waiting.ends {
            return None;
        }
        let (logs, shard) = waiting.shards.pop_front()?;
        let before = logs.shards[shard].place.swap(WORKED_ON, Relaxed);
        assert!(before == QUEUED, "a shard is in the queue once, and has one thread");
        Some((logs, shard))
    }

    /// Gives a shard back. `more`: there is more to do.
    pub(crate) fn done(&self, logs: &Arc<Logs>, shard: usize, more: bool) {
        let mut waiting = self.waiting();
        let place = &logs.shards[shard].place;
        assert!(place.load(Relaxed) >= WORKED_ON, "the thread that has a shard gives it back");
        if more || place.load(Relaxed) == WORKED_ON_AND_WANTED {
            place.store(QUEUED, Relaxed);
            waiting.shards.push_back((logs.clone(), shard));
            self.changed.notify_one();
        } else {
            place.store(IDLE, Relaxed);
        }
    }

    /// Ends the threads.
    pub(crate) fn end(&self) {
        self.waiting().ends = true;
        self.changed.notify_all();
    }
}
