//! All write buffers of a tree: which are free, and which has the oldest change.

use super::super::super::keys::OrderedKind;
use super::super::log::Log;
use super::buffer::{Buffer, buffer_bytes};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_medium::Dram;
use terrace_pool::{Guard, Pool};

/// Part of the log that stays free while buffers are merged for room.
const SPARE_PART: u64 = 4;

/// Part of the buffers that nodes give back at a time.
const PART_BACK: u64 = 16;

/// The buffers. They own the order of their oldest changes, and lend the buffers.
pub(super) struct Buffers {
    /// Buffers of no node.
    free: Mutex<Vec<u64>>,
    made: AtomicU64,
    /// Buffers that may be made.
    most: u64,
    /// A node got none since the last look.
    is_short: AtomicBool,
    /// The first number of each buffer, ascending, and the buffer. Those of buffers that were
    /// merged since are still here.
    queue: Mutex<VecDeque<(u64, u64)>>,
    /// No change below this number is in a buffer.
    tail: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Buffers {
    /// None yet, and at most so many, for the changes of a log from its next one on.
    pub(super) fn new(most: u64, log: &Log) -> Self {
        Self {
            free: Mutex::default(),
            made: AtomicU64::new(0),
            most,
            is_short: AtomicBool::new(false),
            queue: Mutex::default(),
            tail: AtomicU64::new(log.next()),
        }
    }

    /// Buffers that nodes have.
    pub(super) fn in_use(&self) -> u64 {
        self.made.load(Relaxed) - locked(&self.free).len() as u64
    }

    /// An empty buffer; `None` if all are in use.
    pub(super) fn take<'g, K: OrderedKind>(
        &self,
        pool: &'g Pool<Dram>,
        guard: &Guard<'_, Dram>,
    ) -> Option<Buffer<'g>> {
        if let Some(free) = locked(&self.free).pop() {
            return Buffer::at::<K>(pool, free);
        }
        let is_first =
            self.made.fetch_update(Relaxed, Relaxed, |made| (made < self.most).then_some(made + 1));
        let fresh = is_first.is_ok().then(|| guard.alloc(buffer_bytes::<K>()));
        let Some(Ok(fresh)) = fresh else {
            self.made.fetch_sub(u64::from(fresh.is_some()), Relaxed);
            self.is_short.store(true, Relaxed);
            return None;
        };
        (0..buffer_bytes::<K>()).step_by(8).for_each(|at| fresh.word(at).store(pool.medium(), 0, Relaxed));
        Buffer::at::<K>(pool, fresh.fenced_later().into_offset())
    }

    /// Takes an empty buffer back.
    pub(super) fn give_back(&self, pool: &Pool<Dram>, buffer: Buffer<'_>) {
        buffer.set_owner(pool.medium(), 0);
        locked(&self.free).push(buffer.offset(pool));
    }

    /// How many nodes are to give their buffers back, so that others get some.
    pub(super) fn wanted(&self) -> u64 {
        match self.is_short.swap(false, Relaxed) {
            true => self.made.load(Relaxed).div_ceil(PART_BACK),
            false => 0,
        }
    }

    /// A number for the next change of a buffer; `None` if the log has no place. Called under the
    /// lock of its Mnode.
    pub(super) fn number(&self, pool: &Pool<Dram>, log: &Log, buffer: Buffer<'_>) -> Option<u64> {
        let end = self.tail.load(Relaxed) + log.places();
        if buffer.first(pool.medium()) != 0 {
            return log.take_number(end);
        }
        // Under the lock: so numbers ascend there, and none is missing there that is in a buffer.
        let mut queue = locked(&self.queue);
        let number = log.take_number(end)?;
        buffer.set_first(pool.medium(), number);
        queue.push_back((number, buffer.offset(pool)));
        Some(number)
    }

    /// The buffer with the oldest change, if that is to be merged so that the log has room.
    pub(super) fn oldest<'g, K: OrderedKind>(&self, pool: &'g Pool<Dram>, log: &Log) -> Option<Buffer<'g>> {
        let most = log.places() - log.places() / SPARE_PART;
        let is_short = |tail: u64| log.next() - tail >= most;
        if !is_short(self.tail.load(Relaxed)) {
            return None;
        }
        let first = self.first_buffer::<K>(pool, log);
        first.filter(|_| is_short(self.tail.load(Relaxed)))
    }

    /// The buffer with the oldest change; `None` if all are empty.
    pub(super) fn first_buffer<'g, K: OrderedKind>(
        &self,
        pool: &'g Pool<Dram>,
        log: &Log,
    ) -> Option<Buffer<'g>> {
        let mut queue = locked(&self.queue);
        while let Some(&entry) = queue.front() {
            if let Some(buffer) = Self::queued::<K>(pool, entry) {
                self.tail.fetch_max(entry.0, Relaxed);
                return Some(buffer);
            }
            queue.pop_front();
        }
        self.tail.fetch_max(log.next(), Relaxed);
        None
    }

    /// Keys that are in buffers.
    pub(super) fn keys<K: OrderedKind>(&self, pool: &Pool<Dram>) -> u64 {
        let queue = locked(&self.queue);
        let buffers = queue.iter().filter_map(|&entry| Self::queued::<K>(pool, entry));
        buffers.map(|buffer| u64::from(buffer.used(pool.medium()).count_ones())).sum()
    }

    /// The buffer of an entry of the queue, unless it was merged since.
    fn queued<K: OrderedKind>(pool: &Pool<Dram>, (number, at): (u64, u64)) -> Option<Buffer<'_>> {
        Buffer::at::<K>(pool, at).filter(|buffer| buffer.first(pool.medium()) == number)
    }

    /// Places of the log that are in use.
    pub(super) fn places_used(&self, log: &Log) -> u64 {
        log.next().saturating_sub(self.tail.load(Relaxed))
    }
}
