//! The log of buffered changes: a ring of records in the pool.
//!
//! ```text
//!   | capacity | tail |       tail: the first sequence number that a replay needs
//!   | check | sequence, top bit: removal | key | word |   of sequence s at place s modulo capacity
//! ```
//! Two records lie in a line, none over two lines. A replay begins at the tail, and ends at the
//! first place whose record has another sequence number than the place asks for, or a wrong check.

use crate::baselines::{Space, SpaceFull, hashes};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use terrace_medium::{LINE, Medium};

const RECORD: u64 = 32;
/// Words of a record.
const CHECK: u64 = 0;
const SEQUENCE: u64 = 8;
const KEY: u64 = 16;
const WORD: u64 = 24;
const REMOVAL: u64 = 1 << 63;
/// Words of the head. The records begin at the next block.
const CAPACITY: u64 = 0;
const TAIL: u64 = 8;
const RECORDS: u64 = 256;
/// The first sequence number: 0 means no log in a buffer.
const FIRST: u64 = 1;

/// A change that a replay found.
pub(super) struct Record {
    pub(super) sequence: u64,
    pub(super) key: u64,
    pub(super) word: Option<u64>,
}

pub(super) struct Log<M> {
    space: Arc<Space<M>>,
    at: u64,
    capacity: u64,
    tail: u64,
    /// The sequence number of the next record.
    next: u64,
}

/// A record that is torn, or zeros, has another check.
fn check(sequence: u64, key: u64, word: u64) -> u64 {
    let [one, other] = hashes(key);
    let mixed = hashes(one ^ hashes(other ^ word)[0])[1];
    hashes(mixed ^ sequence)[0] | 1
}

impl<M: Medium> Log<M> {
    /// An empty log for so many records.
    ///
    /// # Panics
    /// If it could not free a quarter of its places.
    pub(super) fn create(space: Arc<Space<M>>, capacity: u64) -> Result<Self, SpaceFull> {
        assert!(capacity >= 4, "a log of {capacity} records");
        let at = space.alloc(RECORDS + RECORD * capacity)?;
        space.word(at + CAPACITY).store(space.medium(), capacity, Release);
        space.word(at + TAIL).store(space.medium(), FIRST, Release);
        // PERSIST: the log's head before the layer names it.
        space.region().persist(space.word(at));
        Ok(Self { space, at, capacity, tail: FIRST, next: FIRST })
    }

    /// The log at this place, and its records from the oldest to the newest.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn open(space: Arc<Space<M>>, at: u64) -> (Self, Vec<Record>) {
        assert_ne!(at, 0, "a layer without a log");
        let (capacity, tail) = (space.load(at + CAPACITY), space.load(at + TAIL));
        let mut log = Self { space, at, capacity, tail, next: tail };
        let mut records = Vec::new();
        while let Some(record) = log.record(log.next).filter(|_| log.len() < capacity) {
            records.push(record);
            log.next += 1;
        }
        (log, records)
    }

    /// Where it begins.
    pub(super) fn place(&self) -> u64 {
        self.at
    }

    /// Records that a replay reads.
    pub(super) fn len(&self) -> u64 {
        self.next - self.tail
    }

    fn place_of(&self, sequence: u64) -> u64 {
        self.at + RECORDS + RECORD * (sequence % self.capacity)
    }

    /// The record with this sequence number, if it is whole.
    fn record(&self, sequence: u64) -> Option<Record> {
        let at = self.place_of(sequence);
        let [found, numbered, key, word] =
            [CHECK, SEQUENCE, KEY, WORD].map(|word| self.space.load(at + word));
        let is_whole = numbered & !REMOVAL == sequence && found == check(numbered, key, word);
        is_whole.then_some(Record { sequence, key, word: (numbered & REMOVAL == 0).then_some(word) })
    }

    /// Appends a change, durable on return. Returns its sequence number.
    ///
    /// # Panics
    /// If the log is full.
    pub(super) fn append(&mut self, key: u64, word: Option<u64>) -> u64 {
        assert!(self.len() < self.capacity, "a full log");
        let (sequence, at, medium) = (self.next, self.place_of(self.next), self.space.medium());
        let numbered = sequence | if word.is_none() { REMOVAL } else { 0 };
        let word = word.unwrap_or(0);
        let words = [(SEQUENCE, numbered), (KEY, key), (WORD, word), (CHECK, check(numbered, key, word))];
        for (offset, word) in words {
            self.space.word(at + offset).store(medium, word, Release);
        }
        // PERSIST: the record, before the caller returns. A crash in between leaves a record that
        // its check refuses, or all of it; and no record behind it.
        self.space.region().write_back_bytes(at, RECORD as usize);
        self.space.region().fence();
        self.next += 1;
        sequence
    }

    /// If the log is full, the first sequence number that it keeps when it has made room.
    pub(super) fn first_kept_if_full(&self) -> Option<u64> {
        (self.len() == self.capacity).then_some(self.tail + self.capacity.div_ceil(4))
    }

    /// Frees the places of records before this sequence number, or all of them.
    pub(super) fn forget_before(&mut self, first: Option<u64>) {
        self.tail = first.unwrap_or(self.next);
        let word = self.space.word(self.at + TAIL);
        word.store(self.space.medium(), self.tail, Release);
        // PERSIST: the tail before a record takes a place behind it; the merges that made these
        // records needless are durable. A crash before this replays them, which changes nothing.
        self.space.region().persist(word);
    }

    /// Frees all places: everything is merged.
    pub(super) fn forget_all(&mut self) {
        self.forget_before(None);
    }
}

const _: () = assert!((LINE as u64).is_multiple_of(RECORD) && RECORDS.is_multiple_of(LINE as u64));
