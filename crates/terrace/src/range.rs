//! Ranges of an ordered store: where they are read, and iterators over them.

use crate::bounds::{OwnedRange, owned};
use crate::merge::Merged;
use crate::written::Writes;
use crate::{Direction, Entry, KeyRange, OwnedValue, RangeCursor, ReadError};
use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::ops::{Bound, ControlFlow};
use terrace_engine::{Engine, Ordered};

/// Entries that an iterator reads first. It reads four times as many each time, up to
/// [`PIECE_MAX`]: a caller may want only the first ones.
const PIECE_MIN: usize = 16;
/// Entries that an iterator reads at a time at most.
const PIECE_MAX: usize = 256;

/// Where a range is read: in a store, under what a transaction has written.
#[derive(Clone, Copy)]
pub(crate) struct Source<'s> {
    pub(crate) engine: &'s dyn Engine,
    pub(crate) written: Option<&'s Writes>,
    /// Whether the transaction has cleared the store.
    pub(crate) cleared: bool,
}

/// The ranges of an engine.
pub(crate) fn ordered(engine: &dyn Engine) -> Result<&dyn Ordered, ReadError> {
    engine.ordered().ok_or_else(|| {
        let index = engine.stats().index.map_or("of this store", |index| index.name);
        ReadError::Unordered { index }
    })
}

impl<'s> Source<'s> {
    /// The engine, where no transaction has written.
    pub(crate) fn of(engine: &'s dyn Engine) -> Self {
        Self { engine, written: None, cleared: false }
    }

    pub(crate) fn cursor(
        self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<Box<dyn RangeCursor + 's>, ReadError> {
        let store = ordered(self.engine)?;
        match self.written {
            None => store.range(range.0, range.1, direction),
            Some(written) => {
                let (store, now_ms) = ((!self.cleared).then_some(store), self.engine.now_ms());
                Ok(Box::new(Merged::new(store, written, now_ms, owned(range), direction)))
            }
        }
    }
}

/// The part of a range that was not read yet. It shrinks from both ends.
pub(crate) struct Unread<'s> {
    source: Source<'s>,
    range: OwnedRange,
    at_end: bool,
}

impl<'s> Unread<'s> {
    pub(crate) fn new(source: Source<'s>, range: OwnedRange) -> Self {
        Self { source, range, at_end: false }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at_end
    }

    /// Reads up to `at_most` entries from the end where `direction` begins.
    pub(crate) fn read(
        &mut self,
        direction: Direction,
        at_most: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<(), ReadError> {
        self.at_end = true;
        let mut cursor = self.source.cursor(self.range.bounds(), direction)?;
        let read = cursor.visit(at_most, &mut |key, entry| {
            each(key, entry);
            ControlFlow::Continue(())
        });
        self.at_end = match &read {
            Ok(more) => !more,
            Err(ReadError::Skipped { next, .. }) => next.is_end(),
            Err(_) => true,
        };
        if let Some(key) = cursor.position() {
            let rest = Bound::Excluded(key.into());
            match direction {
                Direction::Forward => self.range.0 = rest,
                Direction::Backward => self.range.1 = rest,
            }
        }
        read.map(drop)
    }
}

/// The entries in a range of keys, in the order of the keys; from
/// [`Store::range`](crate::Store::range) and [`Store::prefix`](crate::Store::prefix), and of the
/// same name on a [`Transaction`](crate::Transaction). Its [`rev`](Iterator::rev) goes from the
/// highest key to the lowest, and both ends can be read in turn.
///
/// Reads the store piece by piece, so it delays no other thread between two pieces. It visits a key
/// that is present throughout exactly once, and a key that is added, removed or changed meanwhile
/// at most once. After [`ReadError::Skipped`] it continues behind the damage; after any other error
/// it is at its end.
pub struct Range<'s> {
    unread: Unread<'s>,
    /// Entries that were read from the lower end, in order.
    front: VecDeque<(Vec<u8>, OwnedValue)>,
    /// Entries that were read from the upper end, in reverse order.
    back: VecDeque<(Vec<u8>, OwnedValue)>,
    /// Entries that it reads next.
    piece: usize,
}

impl<'s> Range<'s> {
    pub(crate) fn new(source: Source<'s>, range: OwnedRange) -> Self {
        let (front, back) = (VecDeque::new(), VecDeque::new());
        Self { unread: Unread::new(source, range), front, back, piece: PIECE_MIN }
    }

    /// Reads this many entries at first, 1 to 256, in place of 16: for a caller that knows how many
    /// it wants.
    ///
    /// ```
    /// # let store = terrace::Store::options().anonymous().index(terrace::Index::Art).create()?;
    /// (0..100).for_each(|n| store.put(format!("{n:03}"), "").unwrap());
    /// let page: Vec<_> = store.range("020"..).expecting(50).take(50).collect::<Result<_, _>>()?;
    /// assert_eq!(page[49].0, b"069");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expecting(mut self, entries: usize) -> Self {
        self.piece = entries.clamp(1, PIECE_MAX);
        self
    }

    fn take(&mut self, direction: Direction) -> Option<Result<(Vec<u8>, OwnedValue), ReadError>> {
        let (near, far) = match direction {
            Direction::Forward => (&mut self.front, &mut self.back),
            Direction::Backward => (&mut self.back, &mut self.front),
        };
        while near.is_empty() && !self.unread.is_at_end() {
            let mut add = |key: &[u8], entry: Entry<'_>| near.push_back((key.to_vec(), entry.into()));
            let read = self.unread.read(direction, self.piece, &mut add);
            self.piece = (4 * self.piece).min(PIECE_MAX);
            if let Err(error) = read {
                return Some(Err(error));
            }
        }
        near.pop_front().or_else(|| far.pop_back()).map(Ok)
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Vec<u8>, OwnedValue), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(Direction::Forward)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(Direction::Backward)
    }
}

impl FusedIterator for Range<'_> {}

impl std::fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").field("unread", &self.unread.range).finish_non_exhaustive()
    }
}
