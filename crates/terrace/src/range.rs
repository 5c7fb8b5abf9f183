//! Ranges of an ordered store: iterators over them, and their removal.

use crate::bounds::{OwnedRange, owned, prefix_range};
use crate::merge::{Merged, Writes};
use crate::{
    Direction, Entry, KeyRange, OwnedValue, RangeCursor, RangeRemoved, ReadError, Store, WriteError,
};
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
fn ordered(engine: &dyn Engine) -> Result<&dyn Ordered, ReadError> {
    engine.ordered().ok_or_else(|| {
        let index = engine.stats().index.map_or("of this store", |index| index.name);
        ReadError::Unordered { index }
    })
}

impl<'s> Source<'s> {
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

/// The entries in a range of keys, in the order of the keys; from [`Store::range`] and
/// [`Store::prefix`], and of the same name on a [`Transaction`](crate::Transaction). Its
/// [`rev`](Iterator::rev) goes from the highest key to the lowest, and both ends can be read in
/// turn.
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

    /// For a caller that wants a single entry.
    fn of_one(mut self) -> Self {
        self.piece = 1;
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

impl Store {
    pub(crate) fn source(&self) -> Source<'_> {
        Source { engine: &**self.engine(), written: None, cleared: false }
    }

    /// Whether the store keeps its keys in order, so that it has ranges: see
    /// [`Index::is_ordered`](crate::Index::is_ordered).
    pub fn is_ordered(&self) -> bool {
        self.engine().ordered().is_some()
    }

    /// The entries whose keys are in `keys`, copied, in the order of the keys: byte by byte, a key
    /// before the longer ones that it begins. [`rev`](Iterator::rev) reverses the order. Without
    /// copies: [`Store::range_cursor`].
    ///
    /// The iterator's first item is [`ReadError::Unordered`] if the store's index keeps no order.
    ///
    /// ```
    /// use terrace::{Index, Store};
    ///
    /// let store = Store::options().anonymous().index(Index::Art).create()?;
    /// for day in ["2026-07-01", "2026-06-30", "2026-07-14", "2025-12-24"] {
    ///     store.put(day, "")?;
    /// }
    /// let july: Vec<_> = store.range("2026-07".."2026-08").collect::<Result<_, _>>()?;
    /// assert_eq!((july.len(), &july[0].0[..]), (2, &b"2026-07-01"[..]));
    /// let (latest, _) = store.range(..).rev().next().unwrap()?;
    /// assert_eq!(latest, b"2026-07-14");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range(&self, keys: impl KeyRange) -> Range<'_> {
        Range::new(self.source(), owned(keys.bounds()))
    }

    /// The entries whose keys begin with `prefix`, as [`Store::range`] returns them.
    ///
    /// ```
    /// # let store = terrace::Store::options().anonymous().index(terrace::Index::Art).create()?;
    /// store.put("user:7", "Ada")?;
    /// store.put("user:12", "Grace")?;
    /// store.put("job:1", "run")?;
    /// assert_eq!(store.prefix("user:").count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range<'_> {
        Range::new(self.source(), prefix_range(prefix.as_ref()))
    }

    /// The entry with the lowest key; `None` if the store is empty.
    pub fn first(&self) -> Result<Option<(Vec<u8>, OwnedValue)>, ReadError> {
        self.range(..).of_one().next().transpose()
    }

    /// The entry with the highest key; `None` if the store is empty.
    pub fn last(&self) -> Result<Option<(Vec<u8>, OwnedValue)>, ReadError> {
        self.range(..).of_one().next_back().transpose()
    }

    /// A cursor over the entries whose keys are in `keys`, which shows them without copies: the
    /// fastest way to read a range.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use terrace::{Direction, Index, Store};
    ///
    /// let store = Store::options().anonymous().index(Index::Art).create()?;
    /// ["a", "b", "c"].iter().for_each(|key| store.put(key, "value").unwrap());
    /// let (mut cursor, mut bytes) = (store.range_cursor("b".., Direction::Backward)?, 0);
    /// let more = cursor.visit(100, &mut |key, entry| {
    ///     bytes += key.len() + entry.value.len();
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!((bytes, more), (12, false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range_cursor(
        &self,
        keys: impl KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn RangeCursor + '_>, ReadError> {
        self.source().cursor(keys.bounds(), direction)
    }

    /// Removes every entry whose key is in `keys`, each for itself, and returns how many. A key
    /// written meanwhile may stay or go. Takes no memory.
    ///
    /// ```
    /// # let store = terrace::Store::options().anonymous().index(terrace::Index::Art).create()?;
    /// ["a", "b", "c"].iter().for_each(|key| store.put(key, "value").unwrap());
    /// assert_eq!(store.delete_range("b"..)?, 2);
    /// assert_eq!(store.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WriteError::Corrupt`] after all others have been removed, if some could not be read.
    pub fn delete_range(&self, keys: impl KeyRange) -> Result<u64, WriteError> {
        self.delete_range_up_to(keys, u64::MAX).map(|(removed, _)| removed)
    }

    /// Removes every entry whose key begins with `prefix`, as [`Store::delete_range`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<u64, WriteError> {
        self.delete_range(prefix_range(prefix.as_ref()))
    }

    /// As [`Store::delete_range`], but stops after `at_most` keys, the lowest ones; keys whose
    /// entries have expired count. Returns how many entries it has removed, and the first key of
    /// the range that is left.
    pub fn delete_range_up_to(&self, keys: impl KeyRange, at_most: u64) -> Result<RangeRemoved, WriteError> {
        let (from, to) = keys.bounds();
        ordered(&**self.engine())?.remove_range(from, to, at_most, self.how())
    }
}
