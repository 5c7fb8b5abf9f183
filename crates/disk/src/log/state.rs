//! The state of a log's writer, below its mutex: what was appended, written and synced.
//!
//! Invariants: `durable <= written <= appended`. `pending` has the bytes from `written` (or from
//! what a writer has taken) to the chain's end. Numbers of segments have no gap: the begun ones up
//! to `number`, then the spare ones, which are in order.

use super::Position;
use super::head::{HEAD, Head};
use super::record::{Chain, HEADER, Header, Owner, payload_sum};
use super::segment::{Begun, MAGIC, Segment, Spare};
use crate::DiskError;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that go to one segment with one write.
pub(super) struct Chunk {
    pub(super) segment: Arc<Segment>,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
    /// The chain before its first byte.
    before: Chain,
    /// The position behind its last byte.
    pub(super) end: Position,
}

/// The segment that takes records.
struct Current {
    segment: Arc<Segment>,
    base: Position,
    size: u64,
}

pub(super) struct State {
    store: u64,
    /// Segments with records, the oldest first.
    pub(super) begun: VecDeque<Begun>,
    pub(super) spare: VecDeque<Spare>,
    /// The number of the last segment that was begun.
    pub(super) number: u64,
    /// `None` if the next record begins a segment.
    current: Option<Current>,
    chain: Chain,
    pub(super) pending: Vec<Chunk>,
    /// A buffer for the next chunk.
    pub(super) buffer: Vec<u8>,
    /// Segments that were written to since their last sync.
    pub(super) unsynced: Vec<Arc<Segment>>,
    /// Positions never go back, not even if records are taken out.
    appended: Position,
    pub(super) written: Position,
    pub(super) durable: Position,
    /// Positions of records that were taken out: behind the first, up to the second.
    taken_out: Vec<(Position, Position)>,
    /// Whether a thread makes a segment, writes, or syncs.
    pub(super) is_making: bool,
    pub(super) is_writing: bool,
    pub(super) is_syncing: bool,
    /// What the last sync, or the one under way, makes durable at least.
    pub(super) syncing: Position,
    /// Threads that wait for the next sync, and how many have waited for that one.
    pub(super) waiting: usize,
    pub(super) released: usize,
    /// Syncs that succeeded.
    pub(super) syncs: u64,
    /// The error that ended the log, and the one that the last records taken out met.
    failure: Option<DiskError>,
    full: Option<DiskError>,
}

impl State {
    /// A log whose records end at `chain`, all of them durable.
    pub(super) fn new(store: u64, begun: VecDeque<Begun>, number: u64, chain: Chain) -> Self {
        let end = chain.end;
        Self {
            store,
            begun,
            spare: VecDeque::new(),
            number,
            current: None,
            chain,
            pending: Vec::new(),
            buffer: Vec::new(),
            unsynced: Vec::new(),
            appended: end,
            written: end,
            durable: end,
            taken_out: Vec::new(),
            is_making: false,
            is_writing: false,
            is_syncing: false,
            syncing: end,
            waiting: 0,
            released: 0,
            syncs: 0,
            failure: None,
            full: None,
        }
    }

    /// Ends the log with `error`, unless it has ended.
    pub(super) fn fail(&mut self, error: &DiskError) {
        self.failure.get_or_insert_with(|| error.clone().lasting());
    }

    pub(super) fn failure(&self) -> Result<(), DiskError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Whether the log is in use and the record that ends at `to` still in it.
    pub(super) fn check(&self, to: Position) -> Result<(), DiskError> {
        assert!(to <= self.appended, "a position that no record of this log has");
        self.failure()?;
        let is_out = self.taken_out.iter().any(|&(from, end)| from < to && to <= end);
        if is_out { Err(self.full.clone().expect("the reason why")) } else { Ok(()) }
    }

    /// Notes a thread that waits for everything up to `to` to be durable. Returns whether as many
    /// wait for the next sync now as have waited for the last.
    pub(super) fn wait_for(&mut self, to: Position) -> bool {
        match to {
            to if to > self.syncing => self.waiting += 1,
            to if to > self.durable => self.released += 1,
            _ => return false,
        }
        self.waiting == self.released
    }

    /// The position behind the last record that was not taken out.
    pub(super) fn end(&self) -> Position {
        if self.pending.is_empty() && !self.is_writing { self.written } else { self.appended }
    }

    /// Whether the current segment has room for a record of `bytes` bytes, and an end behind it.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        let offset = |current: &Current| self.chain.end - current.base;
        self.current.as_ref().is_some_and(|current| offset(current) + bytes + HEADER <= current.size)
    }

    /// Whether it is time for the next segment: a sixteenth of the current one is used, or there is
    /// none. A segment takes long to make, and writers that need it wait.
    pub(super) fn wants_next(&self) -> bool {
        let used = |current: &Current| (self.chain.end - current.base) * 16;
        self.current.as_ref().is_none_or(|current| used(current) >= current.size)
    }

    /// Appends a record to the current segment, which has room.
    pub(super) fn put(&mut self, header: Header, payload: u64, parts: &[&[u8]]) -> Position {
        let (store, chain) = (self.store, self.chain);
        let current = self.current.as_ref().expect("a segment with room");
        let (number, offset) = (current.segment.number, chain.end - current.base);
        let is_going_on = self.pending.last().is_some_and(|last| last.segment.number == number);
        if !is_going_on {
            let (segment, bytes) = (current.segment.clone(), std::mem::take(&mut self.buffer));
            self.pending.push(Chunk { segment, offset, bytes, before: chain, end: chain.end });
        }
        let owner = Owner { store, file: number };
        let chunk = self.pending.last_mut().expect("pushed just above");
        let sum = header.put(&mut chunk.bytes, (owner, offset), (payload, chain.sum), parts);
        self.chain = Chain { end: chain.end + header.size(), sum };
        (chunk.end, self.appended) = (self.chain.end, self.chain.end);
        let begun = self.begun.back_mut().expect("the current one");
        begun.end = self.chain.end;
        if let Some(last) = header.last_seq() {
            begun.add(header.first_seq, last);
        }
        self.appended
    }

    /// Ends the current segment, and begins the first spare one if it has `bytes` bytes. `false` if
    /// there is no such.
    pub(super) fn go_on(&mut self, bytes: u64) -> bool {
        let next = self.number + 1;
        let is_next = |spare: &Spare| spare.segment.number == next && spare.size >= bytes;
        if !self.spare.front().is_some_and(is_next) {
            return false;
        }
        if self.current.is_some() {
            self.put_end(true);
        }
        let Spare { segment, size } = self.spare.pop_front().expect("looked at above");
        let (before, base) = (self.chain, self.appended);
        let (mut bytes, owner) = (Vec::new(), Owner { store: self.store, file: next });
        self.chain = Head::put(&mut bytes, MAGIC, owner, base, before, self.durable);
        self.appended = self.chain.end;
        let chunk = Chunk { segment: segment.clone(), offset: 0, bytes, before, end: self.appended };
        self.pending.push(chunk);
        self.begun.push_back(Begun::new(next, base));
        self.number = next;
        self.current = Some(Current { segment, base, size });
        true
    }

    /// Ends the current segment: the next record begins another one.
    pub(super) fn put_end(&mut self, follows: bool) -> Position {
        let end = self.put(Header::end(self.durable, follows), payload_sum(self.store, &[]), &[]);
        self.current = None;
        end
    }

    /// Whether a segment takes records.
    pub(super) fn has_current(&self) -> bool {
        self.current.is_some()
    }

    /// Whether the next segment has its name.
    pub(super) fn has_next(&self) -> bool {
        self.spare.front().is_some_and(|spare| spare.segment.number == self.number + 1)
    }

    /// The current segment, and the offset behind an end record put there now. `None` if it has no
    /// record.
    pub(super) fn open_end(&self) -> Option<(Arc<Segment>, u64)> {
        let current = self.current.as_ref().filter(|current| self.chain.end > current.base + HEAD)?;
        Some((current.segment.clone(), self.chain.end - current.base + HEADER))
    }

    /// Notes that `chunk` was written.
    pub(super) fn wrote(&mut self, chunk: &Chunk) {
        self.written = chunk.end;
        if !self.unsynced.iter().any(|segment| segment.number == chunk.segment.number) {
            self.unsynced.push(chunk.segment.clone());
        }
    }

    /// Takes out everything that is not written: `failed`, whose file was cut to where it began,
    /// and what was appended behind it.
    pub(super) fn take_out(&mut self, failed: &[Chunk], error: DiskError) {
        let pending = std::mem::take(&mut self.pending);
        for chunk in failed.iter().chain(&pending).filter(|chunk| chunk.offset == 0) {
            // Its size is not known any more, so it is allocated again.
            self.add_spare(Spare { segment: chunk.segment.clone(), size: 0 });
            self.begun.retain(|begun| begun.number != chunk.segment.number);
        }
        let first = &failed[0];
        self.number = first.segment.number - u64::from(first.offset == 0);
        self.chain = first.before;
        if let Some(last) = self.begun.back_mut() {
            last.end = last.end.min(self.chain.end);
        }
        self.current = None;
        self.full = Some(error);
        match self.taken_out.last_mut() {
            Some(last) if last.0 == self.written => last.1 = self.appended,
            _ => self.taken_out.push((self.written, self.appended)),
        }
    }

    /// Adds a spare segment in its place.
    pub(super) fn add_spare(&mut self, spare: Spare) {
        let place = self.spare.partition_point(|other| other.segment.number < spare.segment.number);
        self.spare.insert(place, spare);
    }
}
