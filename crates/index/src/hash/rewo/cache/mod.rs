//! The Cached Table (3.3, 3.5, 3.8): keys and their words in DRAM, above the table in the pool, so that most searches read no line of it.
//!
//! One bucket of 128 bytes may have a key: seven pairs, of which the one that was used longest ago gives way. For a byte string the pair is its hash and its record's offset; the record, which has the key,
//! decides. All of it is this process's memory, gone with the handle; a pool that others share has none, for they would not tell it what they change.
//!
//! # The order of things
//! A key is changed like this, under the locks of its buckets in the table: (1) its *mark* says that it is in SYNC; (2) its slot becomes unsettled, or is taken for it in a complete bucket; (3) the change is made, and
//! (4) durable; (5) the slot gets the new word, or goes; (6) the mark counts on. A reader that misses notes the mark, searches the table, makes durable what it found, and puts it into the cache, if then, under the
//! bucket's lock, the mark is as it was, with nobody in SYNC.
//! 1. A settled slot has the word that the table has, durable: from (2) on there is none until (5), and who fills one before (5) has either seen the mark of (1), or had the lock before (2), and then (2) finds it.
//! 2. A complete bucket has a slot for each of its keys in the table, from before they can be seen there. So it may say that another one is absent.
//! 3. A change that is fenced later leaves its slot unsettled. Whoever reads it from the table makes it durable, and may fill the slot.
//! 4. Nothing else concerns the cache: an eviction or a resize of the table moves words and changes none.
//!
//! Marks are apart from the buckets, a fixed row of them, since the cache is replaced when its size changes, by an empty and incomplete one: whoever is at it then goes on with the old one. A reader that has taken that before
//! answers with what was so when it took it. One that fills the new one has noted a mark that every later change raises.
//!
//! # What differs from the paper
//! * One bucket a key and not two: what finds no room is in the table. So a bucket, and not the whole cache, is complete (`cache_overflow` a bucket).
//! * A reader does not wait for a slot in SYNC; it asks the table, which makes durable what it answers.
//! * **No back-end threads.** What a writer would hand over is two short steps in one bucket; and it would have to wait for the answer before it returns, since a later reader asks the cache first: a line that goes to
//!   another core and comes back. So the writer does it itself.
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

/// Marks: 8 KiB.
const MARKS: usize = 1024;
/// Of a mark: changes that are in SYNC in the low bits, changes that were above.
const IN_SYNC_ONE: u64 = 1;
const IN_SYNC: u64 = VERSION_ONE - 1;
const VERSION_ONE: u64 = 1 << 16;
/// Once in so many searches of a seat somebody looks whether the size is right.
const LOOK_EVERY: u64 = 256;
/// A cache that is still filling after so many looks is judged all the same.
const PATIENCE: u32 = 8;

pub(super) struct Cache {
    table: ArcSwap<Table>,
    marks: Box<[AtomicU64]>,
    tally: Tally,
    history: Mutex<History>,
    /// Binary logarithms of the fewest and the most buckets.
    bounds: (u32, u32),
}

/// What was seen when the size was last judged.
#[derive(Default)]
struct History {
    counted: Counted,
    put_off: u32,
    grown: u64,
    shrunk: u64,
}

/// A key as the cache knows it.
#[derive(Clone, Copy)]
pub(super) struct CacheKey {
    pub(super) hash: u64,
    /// What it is told from others by.
    pub(super) word: u64,
}

/// A search that the cache leaves to the table: what it knows of the key's changes until now.
pub(super) struct Ticket {
    mark: u64,
}

/// What the cache answers.
pub(super) enum Look {
    Word(u64),
    Absent,
    Unknown(Ticket),
}

impl Cache {
    /// One within these bounds, if they leave any. Of an index that has no key yet it knows all.
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

    /// Looks a key up. Whether a word that it has is this key's is for `is_its` to say.
    #[inline(always)]
    pub(super) fn look(&self, seat: u64, key: CacheKey, is_its: impl FnOnce(u64) -> bool) -> Look {
        let table = self.table.load();
        let seen = match table.bucket(key.hash) {
            Some(bucket) => bucket.find(key.word),
            None if table.is_complete() => Seen::Absent,
            None => Seen::Unknown,
        };
        match seen {
            Seen::Word { word, is_old } if is_its(word) => {
                if is_old {
                    self.tally.add(seat, Event::OldHit, 1);
                }
                self.count(seat, Event::Hit);
                Look::Word(word)
            }
            Seen::Absent => {
                self.count(seat, Event::Hit);
                Look::Absent
            }
            _ => {
                self.count(seat, Event::Miss);
                // ORDER: Acquire: the table is searched behind it. Whoever sees the mark that a change has left sees the change.
                Look::Unknown(Ticket { mark: self.mark(key).load(Acquire) })
            }
        }
    }

    /// What a search of the table has found, and made durable, after so many buckets.
    #[inline(always)]
    pub(super) fn fill(&self, seat: u64, key: CacheKey, ticket: &Ticket, found: Option<u64>, buckets: u64) {
        self.tally.add(seat, Event::Bucket, buckets);
        let Some(word) = found else { return };
        if ticket.mark & IN_SYNC != 0 {
            return;
        }
        let table = self.table.load();
        let filled = table.bucket_made(key.hash).fill(key.word, word, || {
            // ORDER: SeqCst, both: whoever fills a table that replaced another, and does not see the mark of a change, is seen by that change to have had this table.
            fence(SeqCst);
            self.mark(key).load(Acquire) == ticket.mark
        });
        match filled {
            Filled::Free => _ = self.tally.add(seat, Event::Filling, 1),
            Filled::Evicting { is_ghost: true } => _ = self.tally.add(seat, Event::GhostMiss, 1),
            Filled::Evicting { .. } | Filled::Not => {}
        }
    }

    /// A change of a key begins. Called under its locks, before anything of it can be seen.
    #[inline(always)]
    pub(super) fn begin(&self, seat: u64, key: CacheKey, is_insert: bool) -> Shadow<'_> {
        self.tally.add(seat, Event::Change, 1);
        self.enter(key, is_insert);
        Shadow(Some((self, key)))
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

    /// The change is over, as seen from the table's locks: it is durable (`Some`: what the key has now), or will be.
    #[inline(always)]
    fn leave(&self, key: CacheKey, becomes: Option<Option<u64>>) {
        if let Some(word) = becomes {
            self.table.load().bucket_made(key.hash).end(key.word, word);
        }
        // ORDER: Release: who notes this mark reads the table behind the change.
        self.mark(key).fetch_add(VERSION_ONE - IN_SYNC_ONE, Release);
    }

    #[inline(always)]
    fn count(&self, seat: u64, event: Event) {
        if self.tally.add(seat, event, 1).is_multiple_of(LOOK_EVERY) {
            self.judge();
        }
    }

    /// Gives the cache another size, if what it was seen to do asks for it.
    #[cold]
    #[inline(never)]
    fn judge(&self) {
        // Somebody else is at it.
        let Ok(mut history) = self.history.try_lock() else { return };
        let (now, table) = (self.tally.sum(), self.table.load());
        let seen = now.since(history.counted);
        if !seen.is_enough_for(table.slots()) {
            return;
        }
        history.counted = now;
        if seen.is_filling() && history.put_off < PATIENCE {
            history.put_off += 1;
            return;
        }
        history.put_off = 0;
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

    /// Another table instead of this one. Whoever is at that goes on with it; the last one frees it.
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

/// A key that is being changed, in SYNC. Without a cache it is nothing.
#[must_use = "a key that stays in SYNC is not cached any more"]
pub(super) struct Shadow<'c>(Option<(&'c Cache, CacheKey)>);

impl Shadow<'_> {
    pub(super) const NONE: Self = Self(None);

    /// The change is durable, and the key has this word, or none. Called under the locks of the change.
    #[inline(always)]
    pub(super) fn done(self, word: Option<u64>) {
        if let Some((cache, key)) = self.0 {
            cache.leave(key, Some(word));
        }
    }

    /// The change can be seen, and others see to it that it is durable.
    #[inline(always)]
    pub(super) fn left(self) {
        if let Some((cache, key)) = self.0 {
            cache.leave(key, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::power::pool;
    use super::super::ops::Rewo;
    use super::*;
    use crate::{Bytes, KeyKind, PointIndex, RecordKeys};
    use std::collections::HashSet;
    use terrace_medium::{Dram, MappedMedium};
    use terrace_pool::Guard;

    const BOUNDS: CacheBounds = CacheBounds { min: 1 << 12, max: 1 << 16 };

    #[test]
    fn keys_have_marks_all_over_the_row() {
        let cache = Cache::new(BOUNDS, true).unwrap();
        let mark = |hash: u64| std::ptr::from_ref(cache.mark(CacheKey { hash, word: 0 }));
        let marks: HashSet<_> = (0..20_000u64).map(|n| mark(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        assert_eq!(marks.len(), MARKS);
    }

    #[test]
    fn a_cache_is_given_the_size_that_these_bytes_have_room_for() {
        let cache = Cache::new(BOUNDS, true).unwrap();
        for (bytes, made) in [(1 << 13, 1 << 13), ((1 << 13) - 1, 1 << 12), (1, 128)] {
            cache.resize(bytes);
            assert_eq!((cache.stats().bytes, cache.stats().slots), (made, made / 128 * 7));
        }
    }

    struct Records;
    impl RecordKeys for Records {
        fn key<'g, M: MappedMedium>(_: &'g Guard<'_, M>, word: u64) -> Option<&'g [u8]> {
            Some(if word == 64 { b"one" } else { b"other" })
        }
    }

    /// Nobody knows two byte strings of one hash, so the cache is told that one is there under another's.
    #[test]
    fn of_two_keys_of_one_hash_the_record_decides() {
        let pool = pool::<Dram>(1 << 20);
        let index =
            Rewo::<Dram, Bytes<Records>>::with_shape(&pool, "index", 1, 0).unwrap().with_cache(BOUNDS);
        let (guard, [one, other]) = (pool.pin(), [b"one".as_slice(), b"other"]);
        index.insert(&guard, one, 64).unwrap();
        let hash = Bytes::<Records>::hash(other, index.seed);
        let cache = index.cache.as_ref().unwrap();
        cache.begin(0, CacheKey { hash, word: hash }, true).done(Some(64));
        assert_eq!((index.get(&guard, one), index.get(&guard, other)), (Some(64), None));
        index.insert(&guard, other, 128).unwrap();
        assert_eq!((index.get(&guard, one), index.get(&guard, other)), (Some(64), Some(128)));
    }

    /// A cache of 2^0 to 2^2 buckets that looks for as many keys as it is told, one after the other, and caches them.
    fn searching(cache: &Cache, keys: u64, times: u64) {
        for n in (0..keys).cycle().take((keys * times) as usize) {
            // Other bits than those that choose the bucket.
            let key = CacheKey { hash: n << 20, word: n };
            if let Look::Unknown(ticket) = cache.look(0, key, |word| word == n) {
                cache.fill(0, key, &ticket, Some(n), 1);
            }
        }
    }

    fn sizes(cache: &Cache) -> (u64, u64, u64) {
        (cache.stats().bytes, cache.stats().grown, cache.stats().shrunk)
    }

    #[test]
    fn a_cache_grows_where_keys_come_back_soon_and_shrinks_where_few_are_asked_for_within_its_bounds() {
        let bounds = CacheBounds { min: 128, max: 512 };
        let cache = Cache::new(bounds, false).unwrap();
        assert_eq!(sizes(&cache), (128, 0, 0));
        // Ten of a bucket's seven: each comes back when it has just gone.
        searching(&cache, 10, 3000);
        assert_eq!(sizes(&cache), (512, 2, 0));
        searching(&cache, 2, 30_000);
        assert_eq!(sizes(&cache), (128, 2, 2));
        let hits = cache.stats().hits;
        searching(&cache, 2, 100);
        assert_eq!(cache.stats().hits - hits, 200);
    }

    #[test]
    fn a_cache_without_room_to_grow_or_to_shrink_keeps_its_size() {
        let cache = Cache::new(CacheBounds { min: 256, max: 256 }, false).unwrap();
        searching(&cache, 10, 3000);
        searching(&cache, 2, 30_000);
        assert_eq!(sizes(&cache), (256, 0, 0));
    }

    #[test]
    fn what_an_empty_index_was_never_asked_for_is_known_to_be_absent() {
        let key = CacheKey { hash: 1 << 20, word: 1 };
        for is_empty in [true, false] {
            let cache = Cache::new(BOUNDS, is_empty).unwrap();
            let is_absent = matches!(cache.look(0, key, |_| true), Look::Absent);
            assert_eq!((is_absent, cache.stats().hits), (is_empty, u64::from(is_empty)));
        }
    }

    #[test]
    fn a_cache_that_is_still_filling_is_judged_at_the_ninth_look() {
        let cache = Cache::new(CacheBounds { min: 128, max: 512 }, false).unwrap();
        cache.resize(512);
        // A search and a change are two operations, and there is a look after 3,584 of them, once in 256 searches.
        let key = CacheKey { hash: 1 << 20, word: 1 };
        let mut keys = 0..;
        let shrunk_after = |searches: u64| {
            for _ in keys.by_ref().take_while(|&done| done < searches) {
                let Look::Unknown(ticket) = cache.look(0, key, |_| true) else { panic!("it was removed") };
                cache.fill(0, key, &ticket, Some(1), 1);
                cache.begin(0, key, false).done(None);
            }
            sizes(&cache).2
        };
        assert_eq!([16_300, 16_400, 32_500, 32_520].map(shrunk_after), [0, 1, 1, 2]);
    }

    #[test]
    fn what_is_read_of_a_key_while_it_changes_is_not_cached() {
        let cache = Cache::new(BOUNDS, false).unwrap();
        let key = CacheKey { hash: 1 << 20, word: 1 };
        let look = || match cache.look(0, key, |_| true) {
            Look::Word(word) => Ok(word),
            Look::Absent => panic!("nobody knows that"),
            Look::Unknown(ticket) => Err(ticket),
        };
        let before = look().expect_err("it is not cached");
        let shadow = cache.begin(0, key, false);
        let during = look().expect_err("it is not cached");
        for ticket in [&before, &during] {
            cache.fill(0, key, ticket, Some(1), 1);
            assert!(look().is_err());
        }
        shadow.done(Some(2));
        for ticket in [&before, &during] {
            cache.fill(0, key, ticket, Some(1), 1);
            assert_eq!(look().ok(), Some(2));
        }
    }
}
