//! Cacheline-conscious extendible hashing (CCEH): a directory of segments of 16 KiB; a full one is
//! split in two.
//!
//! Nam et al.: *Write-Optimized Dynamic Hashing for Persistent Memory*, FAST 2019, as measured in
//! the thesis on TurboHash (section 3.5): buckets of a line and linear probing of four buckets. The
//! top bits of the hash choose the segment, the lowest bits the bucket. Deletion is lazy: a split
//! leaves the pairs that it has copied, and a pair that no longer belongs to a segment is an empty
//! slot.
//!
//! ```text
//!   root word --> directory of 2^G words, by the top G bits of the hash:
//!                 | segment | its depth L |     2^(G-L) words name one segment
//!                     |
//!                     v
//!   segment: 256 buckets of one line, each of four pairs
//!                 | value, !key | value, !key | value, !key | value, !key |
//! ```
//!
//! # What was repaired
//! * **The directory is one word** with place and depth. Pointer, width and global depth were three
//!   words. After a crash between them, inserts or the recovery looped for ever (RECIPE, section
//!   3.2 of that thesis, found by its authors).
//! * **A segment's depth is in the directory's word**, not in the segment: no operation reads a
//!   segment's head, which is one line less.
//! * **Locks are in the process's memory**, and readers take none. Both in persistent memory cost
//!   writes to it (TurboHash thesis, section 3.5, on inserts and on reads). A reader checks key and
//!   directory a second time.
//! * **An insert first looks for its key** in all four buckets: the published one adds it again.
//! * **Empty memory is an empty slot** (keys are stored inverted), so a new segment need not be
//!   filled with marks first. The key of all ones cannot be stored.

mod spot;

pub use spot::SpotCceh;

use super::{Baseline, Space, SpaceFull, hashes, held};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_medium::{LINE, Line, Medium, Offset};

const BUCKETS: u64 = 256;
const SEGMENT: u64 = BUCKETS * LINE as u64;
const PAIRS: usize = 4;
const PROBES: u64 = 4;
const LOCKS: usize = 1024;
/// Mask of a word's depth; the other bits are the offset.
const DEPTH: u64 = 63;
/// A deeper directory has keys that collide on purpose.
const DEPTH_MAX: u64 = 40;

/// Extendible hashing.
pub struct Cceh<M> {
    space: Arc<Space<M>>,
    root: u64,
    locks: Box<[Mutex<()>]>,
    /// Held by a thread that stores to the directory.
    growing: Mutex<()>,
    keys: AtomicU64,
    segments: AtomicU64,
}

/// A word of the directory: a segment, and the number of hash bits that all its keys share.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(u64);

impl Entry {
    fn segment(self) -> u64 {
        self.0 & !DEPTH
    }
    fn depth(self) -> u64 {
        self.0 & DEPTH
    }
}

/// The first `bits` bits.
fn top(hash: u64, bits: u64) -> u64 {
    if bits == 0 { 0 } else { hash >> (64 - bits) }
}

fn hash(key: u64) -> u64 {
    hashes(key)[0]
}

/// Where a key is, or where it could be put.
struct Search {
    found: Option<(u64, usize)>,
    free: Option<(u64, usize)>,
}

impl<M: Medium> Cceh<M> {
    /// An empty table of the first power of two of segments with at least `slots` slots.
    pub fn create(space: Arc<Space<M>>, slots: u64) -> Result<Self, SpaceFull> {
        let depth = slots.div_ceil(BUCKETS * PAIRS as u64).max(1).next_power_of_two().ilog2();
        let directory = space.alloc(8 << depth)?;
        for nth in 0..1 << depth {
            let entry = space.alloc(SEGMENT)? | u64::from(depth);
            space.word(directory + 8 * nth).store(space.medium(), entry, Relaxed);
        }
        let root = space.alloc(8)?;
        // PERSIST: the directory before the word that names it.
        space.region().write_back_bytes(directory, 8 << depth);
        space.region().fence();
        let word = space.word(root);
        word.store(space.medium(), directory | u64::from(depth), Release);
        // PERSIST: the table, before any thread uses it.
        space.region().persist(word);
        let locks = (0..LOCKS).map(|_| Mutex::new(())).collect();
        let (keys, segments) = (AtomicU64::new(0), AtomicU64::new(1 << depth));
        Ok(Self { space, root, locks, growing: Mutex::new(()), keys, segments })
    }

    #[inline(always)]
    fn bucket(&self, segment: u64, hash: u64, probe: u64) -> u64 {
        segment + (hash.wrapping_add(probe) % BUCKETS) * LINE as u64
    }

    fn line(&self, at: u64) -> &Line {
        self.space.region().at(Offset::new(at))
    }

    #[inline(always)]
    fn entry(&self, hash: u64) -> Entry {
        let root = Entry(self.space.load(self.root));
        Entry(self.space.load(root.segment() + 8 * top(hash, root.depth())))
    }

    fn lock(&self, entry: Entry) -> MutexGuard<'_, ()> {
        held(&self.locks[(entry.segment() / SEGMENT) as usize % LOCKS])
    }

    /// The segment of a hash, locked.
    fn locked(&self, hash: u64) -> (Entry, MutexGuard<'_, ()>) {
        loop {
            let entry = self.entry(hash);
            let lock = self.lock(entry);
            if self.entry(hash) == entry {
                return (entry, lock);
            }
        }
    }

    /// Whether a stored pair belongs to a segment: it exists, and no split has copied it elsewhere.
    fn belongs(entry: Entry, hash_of_segment: u64, stored: u64) -> bool {
        stored != 0 && top(hash(!stored), entry.depth()) == top(hash_of_segment, entry.depth())
    }

    /// Searches the four buckets of a key whose segment is locked.
    fn look(&self, entry: Entry, hash: u64, key: u64) -> Search {
        let mut free = None;
        for probe in 0..PROBES {
            let at = self.bucket(entry.segment(), hash, probe);
            let line = self.line(at);
            for pair in 0..PAIRS {
                let stored = line.0[2 * pair + 1].load(self.space.medium(), Acquire);
                if stored == !key {
                    return Search { found: Some((at, pair)), free };
                }
                if free.is_none() && !Self::belongs(entry, hash, stored) {
                    free = Some((at, pair));
                }
            }
        }
        Search { found: None, free }
    }

    /// The value of `key`.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        let (hash, medium) = (hash(key), self.space.medium());
        'again: loop {
            let entry = self.entry(hash);
            for probe in 0..PROBES {
                let line = self.line(self.bucket(entry.segment(), hash, probe));
                for pair in 0..PAIRS {
                    let stored = &line.0[2 * pair + 1];
                    if stored.load(medium, Acquire) == !key {
                        // ORDER: Acquire: the second loads stay behind the value's. A slot is
                        // reused only after the directory has changed or the key is removed.
                        let value = line.0[2 * pair].load(medium, Acquire);
                        if stored.load(medium, Acquire) == !key && self.entry(hash) == entry {
                            return Some(value);
                        }
                        continue 'again;
                    }
                }
            }
            if self.entry(hash) == entry {
                return None;
            }
        }
    }

    /// Adds `key` if it is absent. Returns whether it was.
    pub fn insert(&self, key: u64, value: u64) -> Result<bool, SpaceFull> {
        assert_ne!(key, u64::MAX, "CCEH cannot hold the key of all ones");
        let (hash, medium) = (hash(key), self.space.medium());
        loop {
            let (entry, lock) = self.locked(hash);
            let looked = self.look(entry, hash, key);
            if looked.found.is_some() {
                return Ok(false);
            }
            let Some((at, pair)) = looked.free else {
                self.split(entry, hash)?;
                drop(lock);
                continue;
            };
            let line = self.line(at);
            line.0[2 * pair].store(medium, value, Release);
            line.0[2 * pair + 1].store(medium, !key, Release);
            // PERSIST: the pair, before the caller returns; the key behind its value, in one line.
            self.space.region().persist(line);
            self.keys.fetch_add(1, Relaxed);
            return Ok(true);
        }
    }

    /// Replaces the value of `key`, if it is present.
    pub fn update(&self, key: u64, value: u64) -> bool {
        let hash = hash(key);
        let (entry, _lock) = self.locked(hash);
        let Some((at, pair)) = self.look(entry, hash, key).found else { return false };
        let word = &self.line(at).0[2 * pair];
        word.store(self.space.medium(), value, Release);
        // PERSIST: the new value, before the caller returns.
        self.space.region().persist(word);
        true
    }

    /// Removes `key` and returns its value.
    pub fn remove(&self, key: u64) -> Option<u64> {
        let hash = hash(key);
        let (entry, _lock) = self.locked(hash);
        let (at, pair) = self.look(entry, hash, key).found?;
        let line = self.line(at);
        let value = line.0[2 * pair].load(self.space.medium(), Acquire);
        line.0[2 * pair + 1].store(self.space.medium(), 0, Release);
        // PERSIST: the removal, before the caller returns.
        self.space.region().persist(line);
        self.keys.fetch_sub(1, Relaxed);
        Some(value)
    }

    /// Copies the keys of a locked segment whose next bit is set to a new one, and adds that to the
    /// directory.
    fn split(&self, entry: Entry, hash_of_segment: u64) -> Result<(), SpaceFull> {
        let (region, medium) = (self.space.region(), self.space.medium());
        if entry.depth() >= DEPTH_MAX {
            return Err(SpaceFull);
        }
        let sibling = self.space.alloc(SEGMENT)?;
        for bucket in (0..SEGMENT).step_by(LINE) {
            let (from, to) = (self.line(entry.segment() + bucket), self.line(sibling + bucket));
            for pair in 0..PAIRS {
                let stored = from.0[2 * pair + 1].load(medium, Acquire);
                let moves = hash(!stored) << entry.depth() >> 63 == 1;
                if moves && Self::belongs(entry, hash_of_segment, stored) {
                    // Into the same bucket as before, so not further from its own.
                    to.0[2 * pair].store(medium, from.0[2 * pair].load(medium, Acquire), Relaxed);
                    to.0[2 * pair + 1].store(medium, stored, Release);
                }
            }
            region.write_back(to);
        }
        // PERSIST: the copies before the directory names them.
        region.fence();
        let _growing = held(&self.growing);
        let mut root = Entry(self.space.load(self.root));
        if root.depth() == entry.depth() {
            root = self.double(root)?;
        }
        self.name(root, entry, hash_of_segment, [entry.segment(), sibling]);
        self.segments.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Stores both halves of a segment to the directory: first the words of the upper one, a new
    /// segment, then those of the lower one, which may be the old segment with a greater depth. A
    /// crash in between leaves words of one segment with two depths; opening the table continues
    /// the split from there.
    fn name(&self, root: Entry, entry: Entry, hash_of_segment: u64, [low, high]: [u64; 2]) {
        let (words, depth) = (1u64 << (root.depth() - entry.depth()), entry.depth() + 1);
        let (first, half) = (words * top(hash_of_segment, entry.depth()), words / 2);
        for (from, named) in [(first + half, high), (first, low)] {
            self.point(root, from..from + half, Entry(named | depth));
        }
    }

    /// Stores an entry to these words of the directory.
    fn point(&self, root: Entry, words: Range<u64>, entry: Entry) {
        let (at, bytes) = (root.segment() + 8 * words.start, 8 * (words.end - words.start) as usize);
        words.for_each(|nth| {
            self.space.word(root.segment() + 8 * nth).store(self.space.medium(), entry.0, Release)
        });
        self.space.region().write_back_bytes(at, bytes);
        // PERSIST: a new segment is named before the old one's slots can be reused.
        self.space.region().fence();
    }

    /// Doubles the directory.
    fn double(&self, root: Entry) -> Result<Entry, SpaceFull> {
        let (region, medium, words) = (self.space.region(), self.space.medium(), 1u64 << root.depth());
        let directory = self.space.alloc(16 * words)?;
        for nth in 0..words {
            let entry = self.space.load(root.segment() + 8 * nth);
            for half in [0, 8] {
                self.space.word(directory + 16 * nth + half).store(medium, entry, Relaxed);
            }
        }
        region.write_back_bytes(directory, 16 * words as usize);
        // PERSIST: the new directory before the root names it.
        region.fence();
        let doubled = Entry(directory | (root.depth() + 1));
        self.space.word(self.root).store(medium, doubled.0, Release);
        // PERSIST: the new directory is current before any thread stores to it.
        region.persist(self.space.word(self.root));
        Ok(doubled)
    }
}

impl<M: Medium> Baseline<M> for Cceh<M> {
    const NAME: &'static str = "CCEH";

    /// The first power of two of segments. The table grows.
    fn create(space: Arc<Space<M>>, slots: u64) -> Result<Self, SpaceFull> {
        Self::create(space, slots)
    }

    fn slots(&self) -> u64 {
        self.segments.load(Relaxed) * BUCKETS * PAIRS as u64
    }

    fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
    }

    /// Without directories that it no longer uses.
    fn bytes(&self) -> u64 {
        self.segments.load(Relaxed) * SEGMENT + (8 << Entry(self.space.load(self.root)).depth())
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.get(key)
    }

    /// It searches for the key all the same: the search for a free slot passes the same slots.
    fn add(&mut self, key: u64, value: u64) -> Result<(), SpaceFull> {
        Cceh::insert(self, key, value).map(|_| ())
    }

    fn insert(&mut self, key: u64, value: u64) -> Result<bool, SpaceFull> {
        Cceh::insert(self, key, value)
    }

    fn update(&mut self, key: u64, value: u64) -> bool {
        Cceh::update(self, key, value)
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        Cceh::remove(self, key)
    }
}
