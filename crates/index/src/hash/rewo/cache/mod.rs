//! The Cached Table (3.3, 3.5, 3.8): keys and their words in DRAM, above the table in the pool, so
//! that most searches read no line of it.
//!
//! A key belongs to one bucket of 128 bytes: seven pairs, of which the least recently used is
//! replaced. For a byte string the pair is its hash and its record's offset; the record, which has
//! the key, decides. The cache is private memory of the process and is lost with the handle. A
//! shared pool has none, because other processes would not announce their changes.
//!
//! # The order of changes
//! A key is changed in these steps, under the locks of its buckets in the table:
//! - (1) its *mark* says that it is in SYNC;
//! - (2) its slot becomes pending, or is reserved for it in a complete bucket;
//! - (3) the change is made, and (4) durable;
//! - (5) the slot gets the new word, or is freed;
//! - (6) the mark advances.
//!
//! A reader that misses reads the mark, searches the table, and persists what it found. It stores
//! that in the cache if then, under the bucket's lock, the mark has not changed and nothing is in
//! SYNC.
//!
//! 1. A slot that is not pending has the table's word, durable. From (2) until (5) there is none. A
//!    thread that fills one before (5) has either seen the mark of (1), or had the lock before (2),
//!    and then (2) finds its slot.
//! 2. A complete bucket has a slot for each of its keys in the table, from before they are visible
//!    there. So it may answer that another key is absent.
//! 3. A deferred change leaves its slot pending. A thread that reads it from the table persists it,
//!    and may fill the slot.
//! 4. Nothing else concerns the cache: an eviction or a resize of the table moves words and changes
//!    none.
//!
//! Marks are separate from the buckets, in an array of fixed size, because the cache is replaced by
//! an empty and incomplete one when its size changes. A thread that uses the old cache continues
//! with it. A reader that loaded the old cache before that returns what was true when it loaded it.
//! A reader that fills the new one has read a mark that every later change increases.
//!
//! # What differs from the paper
//! * One bucket for a key and not two: a key that finds no room is in the table. So a bucket, and
//!   not the whole cache, is complete (`cache_overflow` for each bucket).
//! * A reader does not wait for a slot in SYNC; it searches the table, which persists what it
//!   returns.
//! * **No back-end threads.** A writer would hand over two short steps in one bucket. It would also
//!   have to wait for the result before it returns, because a later reader asks the cache first: a
//!   line that travels to another core and back. So the writer does it itself.
//! * **Sequence instead of HTM**, as in the table.
//! * **Adaptive size** (left open in 3.8): see `size.rs`.

mod bucket;
mod size;
mod table;

pub use size::{CacheBounds, CacheStats};

use arc_swap::ArcSwap;
use bucket::{Filled, Seen};
use size::{Advice, Counted, Event, Tally};
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, Mutex};
use table::Table;

/// Number of marks: 8 KiB.
const MARKS: usize = 1024;
/// A mark: in the low bits the changes that are in SYNC, above them the changes that are complete.
const IN_SYNC_ONE: u64 = 1;
const IN_SYNC: u64 = VERSION_ONE - 1;
const VERSION_ONE: u64 = 1 << 16;
/// Once in this many searches of a thread slot, the size is judged.
const JUDGE_EVERY: u64 = 256;
/// A cache that is still filling after this many postponements is judged all the same.
const PATIENCE: u32 = 8;

pub(super) struct Cache {
    table: ArcSwap<Table>,
    marks: Box<[AtomicU64]>,
    tally: Tally,
    history: Mutex<History>,
    /// The fewest and the most buckets, as binary logarithms.
    bounds: (u32, u32),
}

/// The counters when the size was last judged.
#[derive(Default)]
struct History {
    counted: Counted,
    /// Judgements postponed in a row because the cache was still filling.
    postponed: u32,
    grown: u64,
    shrunk: u64,
}

/// A key as the cache identifies it.
#[derive(Clone, Copy)]
pub(super) struct CacheKey {
    pub(super) hash: u64,
    /// The word by which it is distinguished from others.
    pub(super) word: u64,
}

/// A search that the cache leaves to the table: the key's mark at the start of the search.
pub(super) struct Ticket {
    mark: u64,
}

/// The cache's answer.
pub(super) enum Look {
    Word(u64),
    Absent,
    Unknown(Ticket),
}

impl Cache {
    /// A cache within these bounds; `None` if they allow none. If the index has no key yet, the
    /// cache is complete.
    pub(super) fn new(bounds: CacheBounds, is_empty: bool) -> Option<Box<Self>> {
        let bounds = bounds.logs()?;
        Some(Box::new(Self {
            table: ArcSwap::from_pointee(Table::new(bounds.0, is_empty)),
            marks: (0..MARKS).map(|_| AtomicU64::new(0)).collect(),
            tally: Tally::default(),
            history: Mutex::default(),
            bounds,
        }))
    }

    #[inline(always)]
    fn mark(&self, key: CacheKey) -> &AtomicU64 {
        &self.marks[(key.hash >> 8) as usize % MARKS]
    }

    /// Looks a key up. `is_its` decides whether a cached word is this key's.
    #[inline(always)]
    pub(super) fn look(&self, thread_slot: u64, key: CacheKey, is_its: impl FnOnce(u64) -> bool) -> Look {
        let table = self.table.load();
        let seen = match table.bucket(key.hash) {
            Some(bucket) => bucket.find(key.word),
            None if table.is_complete() => Seen::Absent,
            None => Seen::Unknown,
        };
        match seen {
            Seen::Word { word, is_old } if is_its(word) => {
                if is_old {
                    self.tally.add(thread_slot, Event::OldHit, 1);
                }
                self.count(thread_slot, Event::Hit);
                Look::Word(word)
            }
            Seen::Absent => {
                self.count(thread_slot, Event::Hit);
                Look::Absent
            }
            _ => {
                self.count(thread_slot, Event::Miss);
                // ORDER: Acquire: the table is searched behind it. A reader that sees the mark
                // after a change sees the change.
                Look::Unknown(Ticket { mark: self.mark(key).load(Acquire) })
            }
        }
    }

    /// Stores what a search of `buckets` buckets of the table has found and persisted.
    #[inline(always)]
    pub(super) fn fill(
        &self,
        thread_slot: u64,
        key: CacheKey,
        ticket: &Ticket,
        found: Option<u64>,
        buckets: u64,
    ) {
        self.tally.add(thread_slot, Event::Bucket, buckets);
        let Some(word) = found else { return };
        if ticket.mark & IN_SYNC != 0 {
            return;
        }
        let table = self.table.load();
        let filled = table.bucket_made(key.hash).fill(key.word, word, || {
            // ORDER: SeqCst, both: if a thread fills a table that replaced another and does not see
            // the mark of a change, that change sees this table.
            fence(SeqCst);
            self.mark(key).load(Acquire) == ticket.mark
        });
        match filled {
            Filled::Free => _ = self.tally.add(thread_slot, Event::Filling, 1),
            Filled::Evicting { is_ghost: true } => _ = self.tally.add(thread_slot, Event::GhostMiss, 1),
            Filled::Evicting { .. } | Filled::Not => {}
        }
    }

    /// Begins a change of a key. Called under its locks, before any part of the change is visible.
    #[inline(always)]
    pub(super) fn begin(&self, seat: u64, key: CacheKey, is_insert: bool) -> CacheChange<'_> {
        self.tally.add(seat, Event::Change, 1);
        self.enter(key, is_insert);
        CacheChange(Some((self, key)))
    }

    #[inline(always)]
    fn enter(&self, key: CacheKey, is_insert: bool) {
        self.mark(key).fetch_add(IN_SYNC_ONE, SeqCst);
        // ORDER: SeqCst: as in `fill`.
        fence(SeqCst);
        let table = self.table.load();
        if is_insert && table.is_complete() {
            table.bucket_made(key.hash).begin(key.word, true);
        } else if let Some(bucket) = table.bucket(key.hash) {
            bucket.begin(key.word, is_insert);
        }
    }

    /// Ends a change, as far as the table's locks are concerned: it is durable (`Some`: the key's
    /// new state), or will be.
    #[inline(always)]
    fn leave(&self, key: CacheKey, becomes: Option<Option<u64>>) {
        if let Some(word) = becomes {
            self.table.load().bucket_made(key.hash).end(key.word, word);
        }
        // ORDER: Release: a reader of this mark searches the table behind the change.
        self.mark(key).fetch_add(VERSION_ONE - IN_SYNC_ONE, Release);
    }

    #[inline(always)]
    fn count(&self, thread_slot: u64, event: Event) {
        if self.tally.add(thread_slot, event, 1).is_multiple_of(JUDGE_EVERY) {
            self.judge();
        }
    }

    /// Gives the cache another size, if its counters suggest that.
    #[cold]
    #[inline(never)]
    fn judge(&self) {
        // Another thread does this.
        let Ok(mut history) = self.history.try_lock() else { return };
        let (now, table) = (self.tally.sum(), self.table.load());
        let seen = now.since(history.counted);
        if !seen.is_enough_for(table.slots()) {
            return;
        }
        history.counted = now;
        if seen.is_filling() && history.postponed < PATIENCE {
            history.postponed += 1;
            return;
        }
        history.postponed = 0;
        let (log2, (least, most)) = (table.log2(), self.bounds);
        drop(table);
        match seen.advice() {
            Advice::Double if log2 < most => {
                history.grown += 1;
                self.replace(log2 + 1);
            }
            Advice::Halve if log2 > least => {
                history.shrunk += 1;
                self.replace(log2 - 1);
            }
            _ => {}
        }
    }

    /// Replaces the table. Threads that use the old one continue with it; the last one frees it.
    fn replace(&self, log2: u32) {
        self.table.store(Arc::new(Table::new(log2, false)));
    }

    /// See [`Rewo::resize_cache`](super::Rewo::resize_cache).
    pub(super) fn resize(&self, bytes: u64) {
        let _history = self.history.lock();
        self.replace((bytes / table::BUCKET_BYTES).max(1).ilog2());
    }

    pub(super) fn stats(&self) -> CacheStats {
        let (table, counted) = (self.table.load(), self.tally.sum());
        let (grown, shrunk) = self.history.lock().map_or((0, 0), |history| (history.grown, history.shrunk));
        CacheStats {
            bytes: table.bytes(),
            slots: table.slots(),
            hits: counted.of(Event::Hit),
            misses: counted.of(Event::Miss),
            grown,
            shrunk,
        }
    }
}

/// A key that is being changed, in SYNC. Without a cache it is empty.
#[must_use = "a key that stays in SYNC is not cached any more"]
pub(super) struct CacheChange<'c>(Option<(&'c Cache, CacheKey)>);

impl CacheChange<'_> {
    pub(super) const NONE: Self = Self(None);

    /// The change is durable, and the key has this word, or is removed. Called under the locks of
    /// the change.
    #[inline(always)]
    pub(super) fn done(self, word: Option<u64>) {
        if let Some((cache, key)) = self.0 {
            cache.leave(key, Some(word));
        }
    }

    /// The change is visible, and will be persisted later.
    #[inline(always)]
    pub(super) fn left(self) {
        if let Some((cache, key)) = self.0 {
            cache.leave(key, None);
        }
    }
}

#[cfg(test)]
mod tests;
