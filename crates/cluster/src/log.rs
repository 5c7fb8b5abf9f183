//! A shard's log, as the serving node writes it: entries go into a buffer, and whatever is there
//! goes to the memory node with one write when the one before has arrived (group commit).
//!
//! The memory node grants segments ahead, so a change of segment costs no round trip. It grants no
//! more while two wait to be merged: then puts wait (DINOMO, section 4.4). Removals have a reserve
//! in the last segment, since they are what makes room.

use crate::entry::{ENTRY_MAX, Entry, HEADER};
use std::collections::VecDeque;

/// Bytes of a segment by default.
pub const SEGMENT_BYTES: u64 = 8 << 20;
/// Bytes of the last segment that only removals may take.
pub const RESERVE: u64 = 64 << 10;

/// A segment that the memory node has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its number: no other segment of the memory node has had it.
    pub number: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// Bytes to write to one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The segment's number.
    pub segment: u64,
    /// Where in it.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The log has no room for the entry until the memory node grants a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSegment;

/// A log with one writer.
///
/// Invariants: `durable <= sent <= last`. The pieces have the entries behind `sent`, in order.
#[derive(Debug)]
pub struct ShardLog {
    /// The current segment, then those that follow.
    segments: VecDeque<Grant>,
    /// Where the next entry goes in the current segment.
    offset: u64,
    pieces: Vec<Piece>,
    /// The last entry that was appended, given to a write, and told to have arrived.
    last: u64,
    sent: u64,
    durable: u64,
    entry_max: u64,
    reserve: u64,
}

impl ShardLog {
    /// A log that begins behind the entry `last`, with no segment.
    pub fn new(last: u64) -> Self {
        Self::with_limits(last, ENTRY_MAX as u64, RESERVE)
    }

    /// As [`ShardLog::new`], for entries up to `entry_max` in segments that may be short. Of the
    /// last one, removals alone may take the last `reserve` bytes.
    pub fn with_limits(last: u64, entry_max: u64, reserve: u64) -> Self {
        let (segments, pieces) = Default::default();
        Self { segments, offset: 0, pieces, last, sent: last, durable: last, entry_max, reserve }
    }

    /// Adds a segment behind the others.
    ///
    /// # Panics
    /// If it is too short for an entry of each length.
    pub fn grant(&mut self, segment: Grant) {
        assert!(segment.bytes >= self.entry_max + 2 * HEADER as u64, "a segment holds any entry");
        self.segments.push_back(segment);
    }

    /// Segments that are behind the current one.
    pub fn spare(&self) -> usize {
        self.segments.len().saturating_sub(1)
    }

    /// Appends an entry, and returns its number.
    ///
    /// # Errors
    /// If it has to wait for a segment. Then nothing has changed.
    pub fn append(&mut self, entry: &Entry<'_>, is_removal: bool) -> Result<u64, NoSegment> {
        let size = entry.size() as u64;
        loop {
            let current = self.segments.front().ok_or(NoSegment)?;
            let is_last = self.segments.len() == 1;
            let kept = HEADER as u64 + if is_last && !is_removal { self.reserve } else { 0 };
            if self.offset + size + kept <= current.bytes {
                self.last += 1;
                self.put(entry, self.last);
                return Ok(self.last);
            }
            if is_last {
                return Err(NoSegment);
            }
            self.last += 1;
            self.put(&Entry::End, self.last);
            self.segments.pop_front();
            self.offset = 0;
        }
    }

    /// Whether the invariants hold.
    fn is_sound(&self) -> bool {
        self.durable <= self.sent
            && self.sent <= self.last
            && self.pieces.is_empty() == (self.sent == self.last)
    }

    fn put(&mut self, entry: &Entry<'_>, lsn: u64) {
        let Grant { number: segment, bytes } = *self.segments.front().expect("a segment with room");
        assert!(self.offset + entry.size() as u64 <= bytes, "an entry ends in its segment");
        if self.pieces.last().is_none_or(|piece| piece.segment != segment) {
            self.pieces.push(Piece { segment, offset: self.offset, bytes: Vec::new() });
        }
        let piece = self.pieces.last_mut().expect("pushed just above");
        entry.put(lsn, segment, &mut piece.bytes);
        self.offset = piece.offset + piece.bytes.len() as u64;
        debug_assert!(self.offset <= bytes, "an entry has as many bytes as its size says");
    }

    /// What goes to the memory node now: all that was appended, if no write is under way. The
    /// caller calls [`ShardLog::arrived`] when all pieces have arrived.
    pub fn take_write(&mut self) -> Option<Vec<Piece>> {
        if self.sent > self.durable || self.last == self.sent {
            return None;
        }
        self.sent = self.last;
        let pieces = std::mem::take(&mut self.pieces);
        assert!(!pieces.is_empty(), "the entries behind `sent` are in the pieces");
        debug_assert!(self.is_sound(), "durable <= sent <= last, and nothing waits");
        Some(pieces)
    }

    /// Notes that the write under way has arrived.
    pub fn arrived(&mut self) {
        self.durable = self.sent;
        debug_assert!(self.is_sound(), "durable <= sent <= last");
    }

    /// The last entry that was appended.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The last entry that has arrived.
    pub fn durable(&self) -> u64 {
        self.durable
    }
}

/// A shard's log, as the memory node reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The segments that are not read to their end, in order.
    segments: VecDeque<u64>,
    offset: usize,
    next: u64,
}

impl Cursor {
    /// Begins with the entry `next` in the first of these segments.
    pub fn new(next: u64, segments: impl IntoIterator<Item = u64>) -> Self {
        assert!(next > 0, "the entries of a log count from 1");
        Self { segments: segments.into_iter().collect(), offset: 0, next }
    }

    /// Adds a segment behind the others.
    pub fn grant(&mut self, segment: u64) {
        debug_assert!(!self.segments.contains(&segment), "a log has a segment once");
        self.segments.push_back(segment);
    }

    /// The segment to read from, and where; `None` if there is none.
    pub fn place(&self) -> Option<(u64, usize)> {
        Some((*self.segments.front()?, self.offset))
    }

    /// The last entry that was read.
    pub fn last(&self) -> u64 {
        self.next - 1
    }

    /// Segments that are not read to their end.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Takes the entry that begins at [`Cursor::place`], of which `bytes` are the bytes. `None` if
    /// none is whole there: the log ends.
    pub fn take<'b>(&mut self, bytes: &'b [u8]) -> Option<Taken<'b>> {
        let segment = *self.segments.front()?;
        let (entry, size) = Entry::read(bytes, self.next, segment)?;
        assert!(size >= HEADER && size <= bytes.len(), "an entry is within the bytes that were read");
        self.next += 1;
        self.offset += size;
        if entry == Entry::End {
            self.segments.pop_front();
            self.offset = 0;
            return Some(Taken::End(segment));
        }
        Some(Taken::Entry(entry, size))
    }
}

/// What a cursor has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<'b> {
    /// An entry, and its bytes.
    Entry(Entry<'b>, usize),
    /// The end of this segment. Nothing more is read from it.
    End(u64),
}
