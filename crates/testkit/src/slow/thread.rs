//! The model's state of each thread.
//!
//! Only its own thread writes to an entry (above 1024 threads, some share one), so relaxed loads
//! and stores suffice.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Lines that a thread can wait for at once: a processor's fill buffers.
const FILLS: usize = 16;
/// Blocks from which a thread is assumed to read on.
const STREAMS: usize = 4;

/// How near a block is to those that a thread recently read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    Same,
    Next,
    Far,
}

/// A block from which a thread reads on.
#[derive(Default)]
pub(super) struct Stream {
    /// Its number + 1; 0 means none.
    block: AtomicU64,
    /// When the first requested line of it arrives; the others cannot arrive earlier.
    pub(super) ready_at: AtomicU64,
}

/// A line on its way into the cache.
#[derive(Default)]
struct Fill {
    /// Its number + 1; 0 means none.
    line: AtomicU64,
    ready_at: AtomicU64,
}

/// One thread's part of the model. Times are in ns.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Thread {
    /// When the current access began.
    pub(super) began: AtomicU64,
    /// The time, if it is only counted.
    pub(super) now: AtomicU64,
    /// When everything written back is durable.
    pub(super) durable_at: AtomicU64,
    /// The state of its random generator.
    random: AtomicU64,
    streams: [Stream; STREAMS],
    next_stream: AtomicU64,
    fills: [Fill; FILLS],
    next_fill: AtomicU64,
    /// When the last fill is ready; after that, no fill needs to be checked.
    filled_at: AtomicU64,
}

impl Thread {
    /// A random number (SplitMix64).
    pub(super) fn random(&self) -> u64 {
        let state = self.random.load(Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.store(state, Relaxed);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ z >> 27
    }

    /// Records that `block` is read. Returns how near it is to recent ones, and the state of its
    /// stream, which is the previous block's if this is the next.
    pub(super) fn read(&self, block: u64) -> (Distance, &Stream) {
        for stream in &self.streams {
            let last = stream.block.load(Relaxed);
            if last == block + 1 {
                return (Distance::Same, stream);
            }
            if last != 0 && last == block {
                stream.block.store(block + 1, Relaxed);
                return (Distance::Next, stream);
            }
        }
        let place = self.next_stream.load(Relaxed);
        self.next_stream.store(place + 1, Relaxed);
        let stream = &self.streams[place as usize % STREAMS];
        stream.block.store(block + 1, Relaxed);
        (Distance::Far, stream)
    }

    /// When a line can begin to be fetched: at once, or when a fill buffer is free.
    pub(super) fn fill_begins(&self, now: u64) -> u64 {
        let oldest = &self.fills[self.next_fill.load(Relaxed) as usize % FILLS];
        oldest.ready_at.load(Relaxed).max(now)
    }

    /// Records that `line` is on its way.
    pub(super) fn fill(&self, line: u64, ready_at: u64) {
        let place = self.next_fill.load(Relaxed);
        self.next_fill.store(place + 1, Relaxed);
        let fill = &self.fills[place as usize % FILLS];
        fill.line.store(line + 1, Relaxed);
        fill.ready_at.store(ready_at, Relaxed);
        self.filled_at.store(self.filled_at.load(Relaxed).max(ready_at), Relaxed);
    }

    /// When `line`, which is in the cache or on its way, is available.
    pub(super) fn ready_at(&self, line: u64, now: u64) -> u64 {
        if self.filled_at.load(Relaxed) <= now {
            return now;
        }
        let fill = self.fills.iter().find(|fill| fill.line.load(Relaxed) == line + 1);
        fill.map_or(now, |fill| fill.ready_at.load(Relaxed).max(now))
    }

    /// Records that everything written back so far is durable at `moment`.
    pub(super) fn durable_at(&self, moment: u64) {
        self.durable_at.store(self.durable_at.load(Relaxed).max(moment), Relaxed);
    }
}
