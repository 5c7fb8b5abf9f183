//! What the model keeps of each thread.
//!
//! Only its own thread writes to an entry (over 1024 threads alive share some), so relaxed loads and stores are enough.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Lines that a thread can be waiting for at once: a processor's fill buffers.
const FILLS: usize = 16;
/// Blocks that a thread is taken to be reading on from.
const STREAMS: usize = 4;

/// How near a block is to those that a thread has lately read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    Same,
    Next,
    Far,
}

/// A block that a thread reads on from.
#[derive(Default)]
pub(super) struct Stream {
    /// Its number + 1; 0: none.
    block: AtomicU64,
    /// When the first line of it that was asked for is there; the others cannot be earlier.
    pub(super) ready_at: AtomicU64,
}

/// A line on its way into the cache.
#[derive(Default)]
struct Fill {
    /// Its number + 1; 0: none.
    line: AtomicU64,
    ready_at: AtomicU64,
}

/// One thread's part of the model. Times are in ns.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Thread {
    /// When the access began that is under way.
    pub(super) began: AtomicU64,
    /// The time, where it is only counted.
    pub(super) now: AtomicU64,
    /// When all that was written back is durable.
    pub(super) durable_at: AtomicU64,
    /// Where it stands in its random numbers.
    random: AtomicU64,
    streams: [Stream; STREAMS],
    next_stream: AtomicU64,
    fills: [Fill; FILLS],
    next_fill: AtomicU64,
    /// When the last fill is ready: after that none need be looked at.
    filled_at: AtomicU64,
}

impl Thread {
    /// A random number: SplitMix64.
    pub(super) fn random(&self) -> u64 {
        let state = self.random.load(Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.store(state, Relaxed);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ z >> 27
    }

    /// Notes that `block` is read, and says how near it is to those read before; and what is known of it, or of the block before if it is the next.
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

    /// When a line can begin to be fetched: at once, or when one of the fill buffers is free.
    pub(super) fn fill_begins(&self, now: u64) -> u64 {
        let oldest = &self.fills[self.next_fill.load(Relaxed) as usize % FILLS];
        oldest.ready_at.load(Relaxed).max(now)
    }

    /// Notes that `line` is on its way.
    pub(super) fn fill(&self, line: u64, ready_at: u64) {
        let place = self.next_fill.load(Relaxed);
        self.next_fill.store(place + 1, Relaxed);
        let fill = &self.fills[place as usize % FILLS];
        fill.line.store(line + 1, Relaxed);
        fill.ready_at.store(ready_at, Relaxed);
        self.filled_at.store(self.filled_at.load(Relaxed).max(ready_at), Relaxed);
    }

    /// When `line`, which the cache has or waits for, is there.
    pub(super) fn ready_at(&self, line: u64, now: u64) -> u64 {
        if self.filled_at.load(Relaxed) <= now {
            return now;
        }
        let fill = self.fills.iter().find(|fill| fill.line.load(Relaxed) == line + 1);
        fill.map_or(now, |fill| fill.ready_at.load(Relaxed).max(now))
    }

    /// What was written back until `moment` is durable then.
    pub(super) fn durable_at(&self, moment: u64) {
        self.durable_at.store(self.durable_at.load(Relaxed).max(moment), Relaxed);
    }
}
