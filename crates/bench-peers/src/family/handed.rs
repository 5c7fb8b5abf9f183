//! What a writer of a cached table would gain if another thread did the second half of its work:
//! the paper's back-end threads, beside our form.
//!
//! This models both, because the cached table implements only ours. A write marks the key SYNC in
//! the cache's bucket, stores a word of the pool, and writes its line back and fences; then the
//! bucket gets the new word. The writer does that last step itself, or queues it for one back-end
//! thread, a batch at a time; if the queue is full, it waits. Only the writer can do the first
//! step: a reader must not see the old word once the new one is durable.

use super::{NAME, Outcome, wants};
use crate::plan::Plan;
use std::hint::spin_loop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;
use terrace_bench::{Measure, Random, Row, Section, median, run_on};
use terrace_medium::{Line, MappedMedium, Mapping, Offset, Pmem, Region};

/// Buckets of the cache: 16 MiB. The pool has as many lines.
const BUCKETS: u64 = 1 << 17;
/// Steps that are queued together, and the queue's capacity.
const QUEUE_BATCH: u64 = 16;
const QUEUE_CAPACITY: usize = 1024;
/// Writes whose mean is one figure.
const BATCH: u64 = 1000;

/// Two lines, as in the cache: a lock with the number of changes, and pairs.
#[repr(align(128))]
#[derive(Default)]
struct Bucket {
    meta: AtomicU64,
    pairs: [[AtomicU64; 2]; 7],
}

impl Bucket {
    fn locked(&self, work: impl FnOnce()) {
        while self.meta.fetch_or(1, Acquire) & 1 == 1 {
            spin_loop();
        }
        work();
        self.meta.store(self.meta.load(Relaxed).wrapping_add(1), Release);
    }

    /// Marks the slot SYNC.
    fn begin(&self, slot: usize, key: u64) {
        self.locked(|| self.pairs[slot][0].store(!key, Release));
    }

    /// Stores the new word.
    fn end(&self, slot: usize, key: u64, word: u64) {
        self.locked(|| {
            self.pairs[slot][1].store(word, Release);
            self.pairs[slot][0].store(key, Release);
        });
    }
}

/// The change of the cache that follows once a write is durable.
#[derive(Clone, Copy)]
struct Step {
    key: u64,
    word: u64,
}

/// A ring buffer from one thread to another.
struct Queue {
    steps: Box<[[AtomicU64; 2]]>,
    put: AtomicU64,
    taken: AtomicU64,
    is_over: AtomicBool,
}

impl Queue {
    fn new() -> Self {
        let steps = (0..QUEUE_CAPACITY).map(|_| Default::default()).collect();
        Self { steps, put: AtomicU64::new(0), taken: AtomicU64::new(0), is_over: AtomicBool::new(false) }
    }

    /// Queues a batch; waits for room.
    fn put(&self, batch: &mut Vec<Step>) {
        let put = self.put.load(Relaxed);
        while put + batch.len() as u64 - self.taken.load(Acquire) > QUEUE_CAPACITY as u64 {
            spin_loop();
        }
        for (step, at) in batch.iter().zip(put..) {
            let [key, word] = &self.steps[at as usize % QUEUE_CAPACITY];
            key.store(step.key, Relaxed);
            word.store(step.word, Relaxed);
        }
        self.put.store(put + batch.len() as u64, Release);
        batch.clear();
    }

    /// The work of the back-end thread.
    fn serve(&self, cache: &[Bucket]) {
        let mut taken = 0;
        while !self.is_over.load(Acquire) || taken < self.put.load(Acquire) {
            let put = self.put.load(Acquire);
            for at in taken..put {
                let [key, word] = &self.steps[at as usize % QUEUE_CAPACITY];
                let (key, word) = (key.load(Relaxed), word.load(Relaxed));
                let (bucket, slot) = place(key);
                cache[bucket].end(slot, key, word);
            }
            taken = put;
            self.taken.store(taken, Release);
            spin_loop();
        }
    }
}

/// The bucket and the slot of a key.
fn place(key: u64) -> (usize, usize) {
    ((key % BUCKETS) as usize, (key / BUCKETS % 7) as usize)
}

struct Writer<'t> {
    region: &'t Region<Pmem>,
    cache: &'t [Bucket],
    random: Random,
}

impl Writer<'_> {
    /// Nanoseconds a write: the median of batches. `finish` does or queues the last step.
    fn writes(&mut self, writes: u64, mut finish: impl FnMut(Step)) -> f64 {
        let batch = |_| {
            let began = Instant::now();
            (0..BATCH).for_each(|_| self.write(&mut finish));
            began.elapsed().as_nanos() as f64 / BATCH as f64
        };
        median(&(0..(writes / BATCH).max(1)).map(batch).collect::<Vec<_>>())
    }

    fn write(&mut self, finish: &mut impl FnMut(Step)) {
        let key = self.random.below(7 * BUCKETS);
        let (bucket, slot) = place(key);
        self.cache[bucket].begin(slot, key);
        let line = self.region.at(Offset::<Line>::new(64 * (key % BUCKETS)));
        line.0[slot].store(self.region.medium(), key, Release);
        // PERSIST: the write before the change of the cache; this wait is measured.
        self.region.persist(line);
        finish(Step { key, word: key });
    }
}

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let title = "A write to a cached table and to Pmem, by a model of the two forms: the writer brings the cache up to date itself, or hands that to a back-end thread, 16 steps at a time. One writer; with the \
                 back-end thread two processors are busy";
    let columns = ["handed over", "two writers, each inline"];
    let mut section = Section::new(title, "ns a write", &columns).ours_named("inline");
    let name = "handed: cache synchronisation";
    if !(plan.wants(NAME, name) && wants(plan, name)) {
        return Ok(section);
    }
    let bytes = (BUCKETS * 64) as usize;
    let region = Region::new(Pmem::new(Mapping::anonymous(bytes, bytes)?));
    let cache: Vec<Bucket> = (0..BUCKETS).map(|_| Bucket::default()).collect();
    let writes = plan.count(1_000_000);
    let writer = |seed| Writer { region: &region, cache: &cache, random: Random::new(seed) };
    let inline = |seed| {
        writer(seed).writes(writes, |Step { key, word }| {
            let (bucket, slot) = place(key);
            cache[bucket].end(slot, key, word);
        })
    };
    let handed = || {
        let queue = Queue::new();
        let (_, ns) = run_on(2, |thread| match thread {
            0 => {
                let mut batch = Vec::with_capacity(QUEUE_BATCH as usize);
                let ns = writer(3).writes(writes, |step| {
                    batch.push(step);
                    if batch.len() as u64 == QUEUE_BATCH {
                        queue.put(&mut batch);
                    }
                });
                queue.put(&mut batch);
                queue.is_over.store(true, Release);
                ns
            }
            _ => {
                queue.serve(&cache);
                0.0
            }
        });
        ns[0]
    };
    let both = || {
        let (_, ns) = run_on(2, |thread| inline(7 + thread as u64));
        ns.iter().sum::<f64>() / 4.0
    };
    let mut sides: [Measure<'_>; 3] = [Box::new(|| inline(3)), Box::new(handed), Box::new(both)];
    section.rows.push(Row::from_measured(name, plan.runner().row(&mut sides)));
    Ok(section)
}
