//! Iterators over a store.

use super::Store;
use crate::bounds::prefix_range;
use crate::range::{Source, Unread};
use crate::{Cursor, Direction, Entry, OwnedValue, ReadError};
use std::collections::VecDeque;

/// Entries that an iterator reads at a time.
const PIECE: usize = 256;

/// Every key of a store and its value; from [`Store::iter`].
///
/// Reads the store piece by piece, so it delays no other thread between two pieces. It visits every
/// key that is present throughout. It may or may not visit a key that is added, removed or changed
/// meanwhile, and rarely visits a key twice. After [`ReadError::Skipped`] it continues behind the
/// damaged records; after any other error it is at its end.
pub struct Iter<'s> {
    pieces: Pieces<'s>,
    entries: VecDeque<(Vec<u8>, OwnedValue)>,
}

/// Every key of a store; from [`Store::keys`] and [`Store::keys_with_prefix`]. As [`Iter`], without
/// copying values.
pub struct Keys<'s> {
    pieces: KeyPieces<'s>,
    keys: VecDeque<Vec<u8>>,
}

/// How the keys with a prefix are found: among all keys, or in a range of an ordered store.
enum KeyPieces<'s> {
    All(Pieces<'s>, Vec<u8>),
    Range(Unread<'s>),
}

impl KeyPieces<'_> {
    fn is_at_end(&self) -> bool {
        match self {
            Self::All(pieces, _) => pieces.next.is_none(),
            Self::Range(unread) => unread.is_at_end(),
        }
    }

    /// Reads the next piece.
    fn read(&mut self, add: &mut dyn FnMut(&[u8])) -> Result<(), ReadError> {
        match self {
            Self::All(pieces, prefix) => pieces.read(&mut |key, _| {
                if key.starts_with(prefix) {
                    add(key);
                }
            }),
            Self::Range(unread) => unread.read(Direction::Forward, PIECE, &mut |key, _| add(key)),
        }
    }
}

/// Where the next piece of a scan begins.
struct Pieces<'s> {
    store: &'s Store,
    /// `None` at the end.
    next: Option<Cursor>,
}

impl Pieces<'_> {
    /// Reads the next piece, unless the end was reached.
    fn read(&mut self, each: &mut dyn FnMut(&[u8], Entry<'_>)) -> Result<(), ReadError> {
        let Some(cursor) = self.next.take() else { return Ok(()) };
        let read = self.store.scan(&cursor, PIECE, each);
        self.next = match &read {
            Ok(next) | Err(ReadError::Skipped { next, .. }) if !next.is_end() => Some(next.clone()),
            _ => None,
        };
        read.map(drop)
    }
}

impl Iterator for Iter<'_> {
    type Item = Result<(Vec<u8>, OwnedValue), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.entries.is_empty() && self.pieces.next.is_some() {
            let entries = &mut self.entries;
            let read = self.pieces.read(&mut |key, entry| entries.push_back((key.to_vec(), entry.into())));
            if let Err(error) = read {
                return Some(Err(error));
            }
        }
        self.entries.pop_front().map(Ok)
    }
}

impl Iterator for Keys<'_> {
    type Item = Result<Vec<u8>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.keys.is_empty() && !self.pieces.is_at_end() {
            let keys = &mut self.keys;
            let read = self.pieces.read(&mut |key| keys.push_back(key.to_vec()));
            if let Err(error) = read {
                return Some(Err(error));
            }
        }
        self.keys.pop_front().map(Ok)
    }
}

impl Store {
    /// Every key and its value, copied, in no particular order; for an order: [`Store::range`].
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"a", b"1")?;
    /// for entry in store.iter() {
    ///     let (key, value) = entry?;
    ///     assert_eq!((&*key, &*value), (&b"a"[..], &b"1"[..]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> Iter<'_> {
        Iter { pieces: Pieces { store: self, next: Some(Cursor::START) }, entries: VecDeque::new() }
    }

    /// Every key, in no particular order.
    pub fn keys(&self) -> Keys<'_> {
        self.keys_with_prefix("")
    }

    /// Every key that begins with `prefix`. An ordered store reads only these, and returns them in
    /// order; any other reads all its keys, and returns them in no particular order.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put("user:7", "Ada")?;
    /// store.put("job:1", "run")?;
    /// let users: Vec<Vec<u8>> = store.keys_with_prefix("user:").collect::<Result<_, _>>()?;
    /// assert_eq!(users, [b"user:7"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys_with_prefix(&self, prefix: impl AsRef<[u8]>) -> Keys<'_> {
        let prefix = prefix.as_ref();
        let pieces = match self.is_ordered() {
            true => KeyPieces::Range(Unread::new(Source::of(&*self.inner.engine), prefix_range(prefix))),
            false => KeyPieces::All(Pieces { store: self, next: Some(Cursor::START) }, prefix.to_vec()),
        };
        Keys { pieces, keys: VecDeque::new() }
    }
}

impl<'s> IntoIterator for &'s Store {
    type Item = Result<(Vec<u8>, OwnedValue), ReadError>;
    type IntoIter = Iter<'s>;

    fn into_iter(self) -> Iter<'s> {
        self.iter()
    }
}

impl std::fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("next", &self.pieces.next).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("at_end", &self.pieces.is_at_end()).finish_non_exhaustive()
    }
}
