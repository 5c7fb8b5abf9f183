//! A reader that fills the cached table while a writer changes the key and the table is replaced: `index/src/hash/rewo/cache/mod.rs` (`fill`, `enter`, `leave`, `replace`) and `bucket.rs`.

use crate::check::{breaks, holds};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
use loom::thread;

const OLD: u64 = 1;
const NEW: u64 = 2;
const NONE: u64 = 0;
const IN_SYNC: u64 = 0xffff;
const VERSION_ONE: u64 = 1 << 16;

#[derive(Clone, Copy)]
struct Steps {
    /// Whether the reader looks at the mark again under the bucket's lock.
    checks: bool,
    /// Whether the writer is in SYNC before its change can be seen.
    marks_first: bool,
    /// Whether both have their fences.
    fences: bool,
}

const PRODUCT: Steps = Steps { checks: true, marks_first: true, fences: true };

/// One bucket of each of two tables, for one key.
#[derive(Default)]
struct Bucket {
    lock: AtomicBool,
    word: AtomicU64,
}

impl Bucket {
    fn try_lock(&self) -> bool {
        self.lock.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    fn set(&self, word: u64) {
        while !self.try_lock() {
            thread::yield_now();
        }
        self.word.store(word, Relaxed);
        self.lock.store(false, Release);
    }
}

struct Cache {
    buckets: [Bucket; 2],
    current: AtomicUsize,
    mark: AtomicU64,
    /// The word in the pool.
    table: AtomicU64,
}

impl Cache {
    fn fence(steps: Steps) {
        if steps.fences {
            fence(SeqCst);
        }
    }

    fn current(&self) -> &Bucket {
        &self.buckets[self.current.load(Acquire)]
    }

    fn enter(&self, steps: Steps) {
        self.mark.fetch_add(1, AcqRel);
        Self::fence(steps);
        self.current().set(NONE);
    }

    fn write(&self, steps: Steps) {
        if steps.marks_first {
            self.enter(steps);
        }
        self.table.store(NEW, Release);
        if !steps.marks_first {
            self.enter(steps);
        }
        self.current().set(NEW);
        self.mark.fetch_add(VERSION_ONE - 1, Release);
    }

    fn read(&self, steps: Steps) {
        let mark = self.mark.load(Acquire);
        let word = self.table.load(Acquire);
        if mark & IN_SYNC != 0 {
            return;
        }
        let bucket = self.current();
        if bucket.try_lock() {
            Self::fence(steps);
            if !steps.checks || self.mark.load(Acquire) == mark {
                bucket.word.store(word, Relaxed);
            }
            bucket.lock.store(false, Release);
        }
    }
}

/// Once the writer is done, the cache that counts has the new word or none, whichever table the reader has filled.
fn model(steps: Steps) {
    let cache = Arc::new(Cache {
        buckets: Default::default(),
        current: AtomicUsize::new(0),
        mark: AtomicU64::new(0),
        table: AtomicU64::new(OLD),
    });
    let [writer, reader] = [true, false].map(|writes| {
        let cache = cache.clone();
        thread::spawn(move || if writes { cache.write(steps) } else { cache.read(steps) })
    });
    cache.current.store(1, Release);
    writer.join().unwrap();
    reader.join().unwrap();
    let word = cache.current().word.load(Relaxed);
    assert!(word != OLD, "the cache has the old word for ever");
}

/// What others have read must not be taken back: the new word is there to be seen, and the cache has the old one.
fn early_model(steps: Steps) {
    let cache = Arc::new(Cache {
        buckets: Default::default(),
        current: AtomicUsize::new(0),
        mark: AtomicU64::new(0),
        table: AtomicU64::new(OLD),
    });
    cache.buckets[0].set(OLD);
    let writer = {
        let cache = cache.clone();
        thread::spawn(move || cache.write(steps))
    };
    if cache.table.load(Acquire) == NEW {
        assert!(cache.current().word.load(Relaxed) != OLD, "the new word was read, and then the old one");
    }
    writer.join().unwrap();
}

#[test]
fn a_fill_never_outlives_the_change() {
    holds(PRODUCT, 3, model);
    holds(PRODUCT, 3, early_model);
}

#[test]
fn and_would_without_any_of_its_steps() {
    breaks("no look at the mark", Steps { checks: false, ..PRODUCT }, 3, model);
    breaks("no fences", Steps { fences: false, ..PRODUCT }, 3, model);
    breaks("SYNC after the change", Steps { marks_first: false, ..PRODUCT }, 3, early_model);
}
