//! Ranges of a store whose index keeps the keys in order.
//!
//! A range reads piece by piece: up to 256 records under a guard. Between two pieces it holds only
//! the key behind which it goes on, so it delays no writer and its memory is bounded.
//!
//! Records lie anywhere in the pool, so each is a cache miss. The words that the index finds pass
//! through a ring of 16: a record's line is fetched when its word comes in, and read when its word
//! goes out, 16 records later. So the misses of 16 records overlap.
//!
//! A piece ends behind a sound record: the next one could not begin behind a key that cannot be
//! read or believed. The records of a piece must come in order. In a damaged index they may not,
//! and a range that trusted them could begin again and again at the same key.

use crate::read::get::Reads;
use crate::read::scan::Skipped;
use crate::record::view::{Record, corrupt};
use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};
use terrace_engine::Ranges;
use terrace_engine::{Cursor, Entry, RangeCursor, ReadError};
use terrace_index::Direction;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Records that are visited under one guard.
const PIECE: usize = 256;
/// Records that are fetched ahead.
const AHEAD: usize = 16;

/// The damage of an index that has a key in the wrong place.
pub(crate) const DISORDER: &str = "the index does not have its keys in order";

/// What a caller does with each entry.
type Each<'f> = dyn FnMut(&[u8], Entry<'_>) -> ControlFlow<()> + 'f;

/// A place in a range of a store.
pub(crate) struct Range<'s, M: MappedMedium> {
    reads: &'s Reads<M>,
    index: &'s dyn Ranges<M>,
    from: Bound<Box<[u8]>>,
    to: Bound<Box<[u8]>>,
    direction: Direction,
    /// The last key that was visited.
    position: Option<Vec<u8>>,
    at_end: bool,
    with_values: bool,
}

/// The bound with a copy of its key.
fn owned(bound: Bound<&[u8]>) -> Bound<Box<[u8]>> {
    bound.map(Box::from)
}

/// The bound with its key borrowed.
pub(crate) fn borrowed(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}

impl<'s, M: MappedMedium> Range<'s, M> {
    pub(crate) fn new(
        reads: &'s Reads<M>,
        index: &'s dyn Ranges<M>,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Self {
        let (from, to, position) = (owned(from), owned(to), None);
        Self { reads, index, from, to, direction, position, at_end: false, with_values: true }
    }

    /// What is left of the range.
    fn rest(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let (from, to) = (borrowed(&self.from), borrowed(&self.to));
        match (&self.position, self.direction) {
            (None, _) => (from, to),
            (Some(key), Direction::Forward) => (Bound::Excluded(key), to),
            (Some(key), Direction::Backward) => (from, Bound::Excluded(key)),
        }
    }

    /// Visits up to `at_most` entries under one guard. Returns how many it has visited, and whether
    /// `each` has ended the visit.
    fn visit_piece(
        &mut self,
        at_most: usize,
        each: &mut Each<'_>,
        skipped: &mut Skipped,
    ) -> Result<(usize, bool), ReadError> {
        let guard = self.reads.pool().try_pin()?;
        let (from, to) = self.rest();
        let mut piece = Piece::new(self, &guard, at_most, skipped, each);
        self.index.range(&guard, from, to, self.direction, at_most, &mut |word| piece.take(word));
        if piece.ended.is_none() {
            let _ = piece.show_all();
        }
        let (shown, ended) = (piece.shown, piece.ended);
        let position = piece.last.map(<[u8]>::to_vec);
        (self.position, self.at_end) = (position, ended.is_none());
        match ended {
            Some(Ended::Disorder(word)) => Err(corrupt(word, DISORDER)),
            ended => Ok((shown, matches!(ended, Some(Ended::Break)))),
        }
    }
}

/// Why a piece has ended before the range has.
#[derive(Clone, Copy)]
enum Ended {
    /// It has as many records as it may have.
    Full,
    /// The caller has enough.
    Break,
    /// The record of this word is in the wrong place.
    Disorder(u64),
}

/// A piece of a range while it is read. `'p` lasts as long as its guard.
struct Piece<'p, 'f, M: MappedMedium> {
    reads: &'p Reads<M>,
    guard: &'p Guard<'p, M>,
    direction: Direction,
    with_values: bool,
    /// Words whose records are being fetched, the next one first.
    ahead: VecDeque<u64>,
    /// Records that it may still take.
    left: usize,
    /// The last key that was visited.
    last: Option<&'p [u8]>,
    /// Whether that is the key of the last record.
    is_last_sound: bool,
    shown: usize,
    ended: Option<Ended>,
    skipped: &'f mut Skipped,
    each: &'f mut Each<'f>,
}

impl<'p, 'f, M: MappedMedium> Piece<'p, 'f, M> {
    fn new(
        range: &'p Range<'_, M>,
        guard: &'p Guard<'p, M>,
        at_most: usize,
        skipped: &'f mut Skipped,
        each: &'f mut Each<'f>,
    ) -> Self {
        Self {
            reads: range.reads,
            guard,
            direction: range.direction,
            with_values: range.with_values,
            ahead: VecDeque::with_capacity(AHEAD),
            left: at_most,
            last: range.position.as_deref(),
            is_last_sound: true,
            shown: 0,
            ended: None,
            skipped,
            each,
        }
    }
}

impl<M: MappedMedium> Piece<'_, '_, M> {
    /// Takes a word from the index.
    fn take(&mut self, word: u64) -> ControlFlow<()> {
        self.guard.pool().region().prefetch(word);
        if self.ahead.len() == AHEAD {
            self.show_next()?;
        }
        self.ahead.push_back(word);
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return ControlFlow::Continue(());
        }
        self.show_all()?;
        if !self.is_last_sound {
            return ControlFlow::Continue(());
        }
        self.ended = Some(Ended::Full);
        ControlFlow::Break(())
    }

    fn show_all(&mut self) -> ControlFlow<()> {
        while !self.ahead.is_empty() {
            self.show_next()?;
        }
        ControlFlow::Continue(())
    }

    /// Shows the next record's entry, unless it has expired or is damaged.
    fn show_next(&mut self) -> ControlFlow<()> {
        let Some(word) = self.ahead.pop_front() else { return ControlFlow::Continue(()) };
        let read = self.read(word);
        self.is_last_sound = read.is_ok();
        let (key, entry) = match read {
            Ok(read) => read,
            Err(error) => {
                self.skipped.add(error);
                return ControlFlow::Continue(());
            }
        };
        if self.last.is_some_and(|last| !is_behind(key, last, self.direction)) {
            self.ended = Some(Ended::Disorder(word));
            return ControlFlow::Break(());
        }
        self.last = Some(key);
        let Some(entry) = entry else { return ControlFlow::Continue(()) };
        self.shown += 1;
        let flow = (self.each)(key, entry);
        if flow.is_break() {
            self.ended = Some(Ended::Break);
        }
        flow
    }
}

impl<'p, M: MappedMedium> Piece<'p, '_, M> {
    /// The key of a record, and its entry if it has one now.
    fn read(&self, word: u64) -> Result<(&'p [u8], Option<Entry<'p>>), ReadError> {
        match self.reads.live_record(self.guard, word)? {
            Some(record) if self.with_values => {
                Ok((record.body.key, Some(self.reads.entry(self.guard, &record)?)))
            }
            Some(record) => {
                self.reads.verify(&record)?;
                let (expires_at, token) = (record.body.expires_at, record.token());
                Ok((record.body.key, Some(Entry { value: &[], expires_at, token })))
            }
            None => Ok((Record::at(self.guard, word)?.body.key, None)),
        }
    }
}

/// Whether `key` comes after `last` in this direction.
fn is_behind(key: &[u8], last: &[u8], direction: Direction) -> bool {
    match direction {
        Direction::Forward => key > last,
        Direction::Backward => key < last,
    }
}

impl<M: MappedMedium> RangeCursor for Range<'_, M> {
    fn visit(&mut self, at_most: usize, each: &mut Each<'_>) -> Result<bool, ReadError> {
        let (mut left, mut skipped) = (at_most, Skipped::default());
        while left > 0 && !self.at_end {
            match self.visit_piece(left.min(PIECE), each, &mut skipped) {
                Ok((_, true)) => break,
                Ok((shown, false)) => left -= shown,
                Err(error) => {
                    self.at_end = true;
                    return Err(error);
                }
            }
        }
        skipped.add_damage(self.reads.records().index.damage());
        let next = match &self.position {
            Some(key) if !self.at_end => Cursor::after(key),
            None if !self.at_end => Cursor::START,
            _ => Cursor::END,
        };
        skipped.at(next, &self.reads.skipped).map(|next| !next.is_end())
    }

    fn position(&self) -> Option<&[u8]> {
        self.position.as_deref()
    }

    fn without_values(&mut self) {
        self.with_values = false;
    }
}

#[cfg(test)]
#[path = "tests/range.rs"]
mod tests;
