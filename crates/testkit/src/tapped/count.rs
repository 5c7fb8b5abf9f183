//! A tap that counts accesses.
//!
//! Each thread counts in its own stripe, so counting slows threads down but does not make them
//! contend. The counts are exact for threads that have been joined, and for the calling thread.

use crate::threads;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_medium::{Access, BLOCK, LINE};

/// The number of accesses to a medium.
///
/// **Lines and blocks read** are counted by access: a line (64 bytes) counts when a thread loads
/// from it, compares and swaps in it, or reads bytes of it, unless it is one of the last 8 lines
/// that this thread read. So repeated reads within an operation count once, but lines that a cache
/// of 512 bytes per thread would have lost count again. Blocks (256 bytes) likewise, over the last
/// 8 blocks. **Lines written** are counted in the same way, over stores.
///
/// **Blocks written** are counted by write-back, since that is when the medium gets them.
/// Write-backs and streamed pieces of one block by one thread count once if no other block and no
/// fence came in between. Without a volatile cache nothing is written back, and this is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines written back.
    pub write_backs: u64,
    /// Fences that waited for write-backs.
    pub fences: u64,
    /// 8-byte loads.
    pub loads: u64,
    /// 8-byte stores.
    pub stores: u64,
    /// Read-modify-writes, including failed ones that stored nothing.
    pub rmws: u64,
    /// Bytes of stores, successful read-modify-writes and copies.
    pub bytes_stored: u64,
    /// Bytes of loads, read-modify-writes and reads.
    pub bytes_read: u64,
    /// Lines read.
    pub lines_read: u64,
    /// Lines written.
    pub lines_written: u64,
    /// Media blocks read.
    pub blocks_read: u64,
    /// Media blocks written.
    pub blocks_written: u64,
}

const FIELDS: usize = 11;

impl Counts {
    fn from_array(a: [u64; FIELDS]) -> Self {
        let [
            write_backs,
            fences,
            loads,
            stores,
            rmws,
            bytes_stored,
            bytes_read,
            lines_read,
            lines_written,
            ..,
        ] = a;
        let [.., blocks_read, blocks_written] = a;
        Self {
            write_backs,
            fences,
            loads,
            stores,
            rmws,
            bytes_stored,
            bytes_read,
            lines_read,
            lines_written,
            blocks_read,
            blocks_written,
        }
    }

    fn to_array(self) -> [u64; FIELDS] {
        [
            self.write_backs,
            self.fences,
            self.loads,
            self.stores,
            self.rmws,
            self.bytes_stored,
            self.bytes_read,
            self.lines_read,
            self.lines_written,
            self.blocks_read,
            self.blocks_written,
        ]
    }
}

impl Sub for Counts {
    type Output = Self;
    /// The difference between two snapshots, the earlier one on the right.
    fn sub(self, earlier: Self) -> Self {
        let earlier = earlier.to_array();
        let mut difference = self.to_array();
        for (now, then) in difference.iter_mut().zip(earlier) {
            *now -= then;
        }
        Self::from_array(difference)
    }
}

// Positions in `Counts::to_array`.
const WRITE_BACKS: usize = 0;
const FENCES: usize = 1;
const LOADS: usize = 2;
const STORES: usize = 3;
const RMWS: usize = 4;
const BYTES_STORED: usize = 5;
const BYTES_READ: usize = 6;
const LINES_READ: usize = 7;
const LINES_WRITTEN: usize = 8;
const BLOCKS_READ: usize = 9;
const BLOCKS_WRITTEN: usize = 10;

/// The lines or blocks that a thread touched last: a ring of numbers + 1, and the position of the
/// next entry.
#[derive(Default)]
struct Recent([AtomicU64; Self::LEN], AtomicU64);

impl Recent {
    const LEN: usize = 8;

    /// Adds `number`. Returns whether it was not among them.
    fn add_if_new(&self, number: u64) -> bool {
        if self.0.iter().any(|entry| entry.load(Relaxed) == number + 1) {
            return false;
        }
        let place = self.1.fetch_add(1, Relaxed) as usize % Self::LEN;
        self.0[place].store(number + 1, Relaxed);
        true
    }

    fn clear(&self) {
        self.0.iter().for_each(|entry| entry.store(0, Relaxed));
    }
}

/// One thread's counters. Two threads share a stripe only if more than 1024 are alive.
#[repr(align(128))]
#[derive(Default)]
struct Stripe {
    counts: [AtomicU64; FIELDS],
    lines_read: Recent,
    lines_written: Recent,
    blocks_read: Recent,
    /// The block last written back since the fence, + 1.
    block_written: AtomicU64,
}

impl Stripe {
    fn add(&self, field: usize, by: u64) {
        self.counts[field].fetch_add(by, Relaxed);
    }

    /// Forgets which lines and blocks were touched.
    fn forget(&self) {
        self.lines_read.clear();
        self.lines_written.clear();
        self.blocks_read.clear();
        self.block_written.store(0, Relaxed);
    }

    fn write_block(&self, block: u64) {
        if self.block_written.swap(block + 1, Relaxed) != block + 1 {
            self.add(BLOCKS_WRITTEN, 1);
        }
    }
}

const STRIPES: usize = 1024;

/// The lines touched by one call of [`Tapped::touched`](crate::Tapped::touched), each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Lines read, as offsets over 64.
    pub lines_read: BTreeSet<u64>,
    /// Lines stored to, as offsets over 64.
    pub lines_written: BTreeSet<u64>,
}

impl Touched {
    /// Number of lines read or stored to, which an empty cache must fetch.
    pub fn lines(&self) -> usize {
        self.lines_read.union(&self.lines_written).count()
    }

    /// Number of media blocks read or stored to.
    pub fn blocks(&self) -> usize {
        let lines = self.lines_read.union(&self.lines_written);
        lines.map(|line| line / (BLOCK / LINE) as u64).collect::<BTreeSet<_>>().len()
    }
}

thread_local! {
    static TOUCHED: RefCell<Option<Touched>> = const { RefCell::new(None) };
}

/// Counts accesses to a medium. See [`Counts`].
pub(super) struct Counter {
    /// The address of the medium's first byte.
    base: usize,
    stripes: Box<[Stripe]>,
}

impl Counter {
    /// Counts accesses to a medium that begins at this address.
    pub(super) fn new(base: usize) -> Self {
        Self { base, stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }

    /// The counts of all threads since the beginning or the last [`Counter::reset`].
    pub(super) fn counts(&self) -> Counts {
        let mut sums = [0; FIELDS];
        for stripe in &self.stripes {
            for (sum, count) in sums.iter_mut().zip(&stripe.counts) {
                *sum += count.load(Relaxed);
            }
        }
        Counts::from_array(sums)
    }

    /// Resets all counts. No other thread may use the medium meanwhile.
    pub(super) fn reset(&self) {
        for stripe in &self.stripes {
            stripe.counts.iter().for_each(|count| count.store(0, Relaxed));
            stripe.forget();
        }
    }

    /// The counts of `work`, if no other thread uses the medium meanwhile. Lines read before count
    /// as not read.
    pub(super) fn during<R>(&self, work: impl FnOnce() -> R) -> (Counts, R) {
        self.own_stripe().forget();
        let before = self.counts();
        let result = work();
        (self.counts() - before, result)
    }

    fn own_stripe(&self) -> &Stripe {
        &self.stripes[threads::number() % STRIPES]
    }

    /// The lines that contain `len` bytes at `at`.
    fn lines(&self, at: *const u8, len: usize) -> std::ops::Range<u64> {
        let start = (at.addr() - self.base) as u64;
        let end = if len == 0 { start } else { (start + len as u64).next_multiple_of(LINE as u64) };
        start / LINE as u64..end / LINE as u64
    }

    fn read(&self, stripe: &Stripe, at: *const u8, len: usize) {
        stripe.add(BYTES_READ, len as u64);
        for line in self.lines(at, len) {
            if stripe.lines_read.add_if_new(line) {
                stripe.add(LINES_READ, 1);
            }
            if stripe.blocks_read.add_if_new(line * LINE as u64 / BLOCK as u64) {
                stripe.add(BLOCKS_READ, 1);
            }
            TOUCHED.with_borrow_mut(|touched| touched.as_mut().map(|t| t.lines_read.insert(line)));
        }
    }

    fn written(&self, stripe: &Stripe, at: *const u8, len: usize) {
        stripe.add(BYTES_STORED, len as u64);
        for line in self.lines(at, len) {
            if stripe.lines_written.add_if_new(line) {
                stripe.add(LINES_WRITTEN, 1);
            }
            TOUCHED.with_borrow_mut(|touched| touched.as_mut().map(|t| t.lines_written.insert(line)));
        }
    }

    pub(super) fn write_back(&self, at: *const u8) {
        let stripe = self.own_stripe();
        stripe.add(WRITE_BACKS, 1);
        stripe.write_block(self.lines(at, 1).start * LINE as u64 / BLOCK as u64);
    }

    pub(super) fn fence(&self) {
        let stripe = self.own_stripe();
        stripe.add(FENCES, 1);
        stripe.block_written.store(0, Relaxed);
    }

    pub(super) fn accessed(&self, access: Access, at: *const u8) {
        let stripe = self.own_stripe();
        match access {
            Access::Load => {
                stripe.add(LOADS, 1);
                self.read(stripe, at, 8);
            }
            Access::Store => {
                stripe.add(STORES, 1);
                self.written(stripe, at, 8);
            }
            Access::Rmw => {
                stripe.add(RMWS, 1);
                self.read(stripe, at, 8);
                self.written(stripe, at, 8);
            }
            Access::RmwFailed => {
                stripe.add(RMWS, 1);
                self.read(stripe, at, 8);
            }
            Access::Copy(len) => self.written(stripe, at, len),
            Access::StreamedCopy(len) => {
                self.written(stripe, at, len);
                for line in self.lines(at, len) {
                    stripe.write_block(line * LINE as u64 / BLOCK as u64);
                }
            }
            Access::Read(len) => self.read(stripe, at, len),
        }
    }
}

/// The lines that `work` touches on this thread, on any medium that counts. Slow.
pub(super) fn touched<R>(work: impl FnOnce() -> R) -> (Touched, R) {
    TOUCHED.set(Some(Touched::default()));
    let result = work();
    (TOUCHED.take().unwrap_or_default(), result)
}
