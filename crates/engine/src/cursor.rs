//! Where a scan over all keys continues.

use terrace_index::cursor::{cursor_at, position_of};
use terrace_index::{CURSOR_LIMIT, Place};

/// A place in a scan over all keys. It stays valid after the store was closed and opened again, and
/// through every change of the store.
///
/// Where the index orders keys by their hashes, a cursor is also a [number](Cursor::number). Where
/// it orders the keys themselves, a cursor holds a [key](Cursor::key).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(Place);

impl Cursor {
    /// The beginning.
    pub const START: Self = Self(Place::Start);
    /// The end.
    pub const END: Self = Self(Place::End);

    /// Whether nothing is left to scan.
    pub fn is_end(&self) -> bool {
        self.0.is_end()
    }

    /// The cursor as a number below [`CURSOR_LIMIT`], which a double holds exactly; `None` if it
    /// holds a key. 0 stands for the beginning, and for the end as the result of a scan.
    pub fn number(&self) -> Option<u64> {
        match self.0 {
            Place::Start | Place::End => Some(0),
            Place::Hash(position) => Some(cursor_at(position)),
            Place::After(_) => None,
        }
    }

    /// The cursor of a number; `None` from [`CURSOR_LIMIT`] on. Any other number is a valid cursor
    /// of a store whose index orders keys by their hashes.
    pub fn from_number(number: u64) -> Option<Self> {
        debug_assert_eq!(position_of(number).is_some(), number < CURSOR_LIMIT);
        match number {
            0 => Some(Self::START),
            number => position_of(number).map(|position| Self(Place::Hash(position))),
        }
    }

    /// The key behind which it continues, present or not, if the index orders the keys themselves.
    pub fn key(&self) -> Option<&[u8]> {
        match &self.0 {
            Place::After(key) => Some(key),
            _ => None,
        }
    }

    /// The cursor that continues behind `key` in a store that keeps its keys in order.
    pub fn after(key: &[u8]) -> Self {
        Self(Place::After(key.into()))
    }

    /// The place in the index.
    pub fn place(&self) -> &Place {
        &self.0
    }
}

impl From<Place> for Cursor {
    fn from(place: Place) -> Self {
        Self(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_and_number_convert_without_loss() {
        for number in [0, 1, 2, 0x1234_5678_9abc, CURSOR_LIMIT - 1] {
            let cursor = Cursor::from_number(number).unwrap();
            assert_eq!((cursor.number(), cursor.key()), (Some(number), None));
            assert_eq!(cursor == Cursor::START, number == 0);
        }
        assert!([CURSOR_LIMIT, u64::MAX].iter().all(|&number| Cursor::from_number(number).is_none()));
    }

    #[test]
    fn only_the_end_is_an_end() {
        let cursors = [Cursor::START, Cursor::from_number(1).unwrap(), Cursor::after(b""), Cursor::END];
        assert_eq!(cursors.map(|cursor| cursor.is_end()), [false, false, false, true]);
        assert_eq!((Cursor::default(), Cursor::END.number()), (Cursor::START, Some(0)));
    }

    #[test]
    fn cursor_behind_a_key_has_no_number() {
        let cursor = Cursor::after(b"key");
        assert_eq!((cursor.number(), cursor.key()), (None, Some(&b"key"[..])));
    }
}
