//! Ranges of an ordered store.

use super::Store;
use crate::bounds::{owned, prefix_range};
use crate::range::{Range, Source, ordered};
use crate::{Direction, KeyRange, OwnedValue, RangeCursor, RangeRemoved, ReadError, WriteError};

impl Store {
    /// Whether the store keeps its keys in order, so that it has ranges: see
    /// [`Index::is_ordered`](crate::Index::is_ordered).
    pub fn is_ordered(&self) -> bool {
        self.inner.engine.ordered().is_some()
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
        Range::new(Source::of(&*self.inner.engine), owned(keys.bounds()))
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
        Range::new(Source::of(&*self.inner.engine), prefix_range(prefix.as_ref()))
    }

    /// The entry with the lowest key; `None` if the store is empty.
    pub fn first(&self) -> Result<Option<(Vec<u8>, OwnedValue)>, ReadError> {
        self.range(..).expecting(1).next().transpose()
    }

    /// The entry with the highest key; `None` if the store is empty.
    pub fn last(&self) -> Result<Option<(Vec<u8>, OwnedValue)>, ReadError> {
        self.range(..).expecting(1).next_back().transpose()
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
        Source::of(&*self.inner.engine).cursor(keys.bounds(), direction)
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
        ordered(&*self.inner.engine)?.remove_range(from, to, at_most, self.how)
    }
}
