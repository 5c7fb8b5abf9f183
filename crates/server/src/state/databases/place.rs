//! Where the keys of a database are stored.

use std::{borrow::Cow, ops::Bound};

/// Number of databases.
pub const DATABASES: u8 = 16;

/// What the stored form of a key begins with, of all places but 0.
const MARK: [u8; 7] = [0xfe, 0xa7, 0x3c, 0xd1, 0x5e, 0x92, 0x0b];

/// The key of the record.
pub(super) const RECORD: [u8; 8] = [0xfe, 0xa7, 0x3c, 0xd1, 0x5e, 0x92, 0x0b, 0xff];

/// As [`RECORD`], for the store, which must not evict it.
pub(crate) const RECORD_KEY: &[u8] = &RECORD;

/// A place for the keys of one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u8);

/// Bounds of a range of stored keys.
pub type Bounds<'a> = (Bound<Cow<'a, [u8]>>, Bound<Cow<'a, [u8]>>);

const PREFIX: usize = MARK.len() + 1;

/// The keys of the places from 1 on, and the record, lie between these two.
const OTHERS: [u8; PREFIX] = prefix(1);
const OTHERS_END: [u8; MARK.len()] = {
    let mut end = MARK;
    end[MARK.len() - 1] += 1;
    end
};

const fn prefix(number: u8) -> [u8; PREFIX] {
    let mut prefix = [number; PREFIX];
    let mut at = 0;
    while at < MARK.len() {
        prefix[at] = MARK[at];
        at += 1;
    }
    prefix
}

impl Place {
    /// The place whose keys are stored as they are, unless they begin with the mark.
    pub const FIRST: Place = Place(0);
    /// No place: all stored keys, as they are stored.
    pub const RAW: Place = Place(u8::MAX);

    /// The place of a number below 16.
    pub fn numbered(number: u8) -> Place {
        Place(number)
    }

    pub(crate) fn index(self) -> usize {
        self.0.into()
    }

    /// The place's bit in the record; `None` for one that has none.
    pub(super) fn bit(self) -> Option<u16> {
        (1..DATABASES).contains(&self.0).then(|| 1 << self.0)
    }

    /// Whether a key is stored as it is.
    pub(crate) fn keeps(self, key: &[u8]) -> bool {
        self == Place::RAW || self == Place::FIRST && !key.starts_with(&MARK)
    }

    /// Whether keys are stored as they are, but for a few of database 0.
    pub(crate) fn is_plain(self) -> bool {
        self == Place::RAW || self == Place::FIRST
    }

    /// The stored forms of keys, in a buffer, of a place that adds a prefix to each.
    pub(crate) fn encode_all<'b, 'k>(
        self,
        keys: impl Iterator<Item = &'k [u8]>,
        buffer: &'b mut Vec<u8>,
    ) -> Vec<&'b [u8]> {
        let mut ends = Vec::new();
        for key in keys {
            buffer.extend_from_slice(&prefix(self.0));
            buffer.extend_from_slice(key);
            ends.push(buffer.len());
        }
        let begins = std::iter::once(0).chain(ends.iter().copied());
        begins.zip(&ends).map(|(begin, end)| &buffer[begin..*end]).collect()
    }

    /// The stored form of a key.
    pub fn encode(self, key: &[u8]) -> Cow<'_, [u8]> {
        if self.keeps(key) {
            return Cow::Borrowed(key);
        }
        let rest = if self == Place::FIRST { &key[MARK.len()..] } else { key };
        Cow::Owned([&prefix(self.0), rest].concat())
    }

    /// The key that is stored so; `None` if it is not in this place.
    pub fn decode(self, stored: &[u8]) -> Option<Cow<'_, [u8]>> {
        if self.keeps(stored) {
            return Some(Cow::Borrowed(stored));
        }
        let key = stored.strip_prefix(&prefix(self.0))?;
        Some(if self == Place::FIRST { Cow::Owned([&MARK, key].concat()) } else { Cow::Borrowed(key) })
    }

    /// The place of a stored key; `None` for the record.
    pub(crate) fn of(stored: &[u8]) -> Option<Place> {
        match stored.strip_prefix(&MARK) {
            None => Some(Place::FIRST),
            Some(rest) => rest.first().filter(|&&number| number < DATABASES).map(|&n| Place(n)),
        }
    }

    /// The ranges of stored keys, in byte order, that make a range of keys. One of them may be
    /// empty.
    pub fn ranges<'a>(self, (lower, upper): (Bound<&'a [u8]>, Bound<&'a [u8]>)) -> [Option<Bounds<'a>>; 2] {
        let (lower, upper) = (lower.map(|key| self.encode(key)), upper.map(|key| self.encode(key)));
        if self == Place::RAW {
            return [Some((lower, upper)), None];
        }
        if self != Place::FIRST {
            return [Some(within(lower, upper, &prefix(self.0), &prefix(self.0 + 1))), None];
        }
        let below = (lower.clone(), lowest(upper.clone(), &OTHERS));
        let above = (highest(lower, &OTHERS_END), upper);
        [Some(below), Some(above)]
    }
}

/// Bounds that exclude everything outside `first..end`.
fn within<'a>(
    lower: Bound<Cow<'a, [u8]>>,
    upper: Bound<Cow<'a, [u8]>>,
    first: &[u8],
    end: &[u8],
) -> Bounds<'a> {
    (highest(lower, first), lowest(upper, end))
}

/// The higher one of a lower bound and `Included(first)`.
fn highest<'a>(lower: Bound<Cow<'a, [u8]>>, first: &[u8]) -> Bound<Cow<'a, [u8]>> {
    match lower {
        Bound::Included(key) if *key >= *first => Bound::Included(key),
        Bound::Excluded(key) if *key >= *first => Bound::Excluded(key),
        _ => Bound::Included(Cow::Owned(first.to_vec())),
    }
}

/// The lower one of an upper bound and `Excluded(end)`.
fn lowest<'a>(upper: Bound<Cow<'a, [u8]>>, end: &[u8]) -> Bound<Cow<'a, [u8]>> {
    match upper {
        Bound::Included(key) if *key < *end => Bound::Included(key),
        Bound::Excluded(key) if *key <= *end => Bound::Excluded(key),
        _ => Bound::Excluded(Cow::Owned(end.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&[u8]; 7] = [b"", b"key", &[0xff; 9], &MARK, &prefix(0), &prefix(1), &RECORD];

    #[test]
    fn key_is_stored_in_one_place_only() {
        let mut all = std::collections::BTreeSet::new();
        for place in (0..DATABASES).map(Place) {
            for key in KEYS {
                let stored = place.encode(key).into_owned();
                assert_eq!(place.decode(&stored).as_deref(), Some(key));
                assert_eq!(Place::of(&stored), Some(place));
                assert!((0..16).map(Place).all(|other| other == place || other.decode(&stored).is_none()));
                assert!(all.insert(stored));
            }
        }
        assert_eq!(Place::of(&RECORD), None);
    }

    #[test]
    fn first_place_keeps_keys_and_their_order() {
        let mut keys = KEYS.to_vec();
        keys.sort_unstable();
        let stored: Vec<_> = keys.iter().map(|key| Place::FIRST.encode(key)).collect();
        assert!(stored.is_sorted());
        assert!(matches!(Place::FIRST.encode(b"key"), Cow::Borrowed(b"key")));
        assert!(matches!(Place::FIRST.encode(&MARK[..6]), Cow::Borrowed(_)));
    }

    fn is_in(key: &[u8], (lower, upper): &Bounds<'_>) -> bool {
        let is_above = match lower {
            Bound::Included(first) => *key >= **first,
            Bound::Excluded(first) => *key > **first,
            Bound::Unbounded => true,
        };
        is_above
            && match upper {
                Bound::Included(last) => *key <= **last,
                Bound::Excluded(end) => *key < **end,
                Bound::Unbounded => true,
            }
    }

    #[test]
    fn ranges_have_the_keys_of_their_place() {
        let ends = KEYS.iter().flat_map(|key| [Bound::Included(*key), Bound::Excluded(*key)]);
        let ends: Vec<_> = ends.chain([Bound::Unbounded]).collect();
        for (place, lower, upper) in (0..16)
            .flat_map(|n| ends.iter().map(move |lower| (Place(n), lower)))
            .flat_map(|(place, lower)| ends.iter().map(move |upper| (place, lower, upper)))
        {
            let ranges = place.ranges((*lower, *upper));
            let wanted = (lower.map(Cow::Borrowed), upper.map(Cow::Borrowed));
            for (other, key) in (0..16).flat_map(|n| KEYS.map(|key| (Place(n), key))) {
                let stored = other.encode(key);
                let found = ranges.iter().flatten().filter(|range| is_in(&stored, range)).count();
                let is_wanted = other == place && is_in(key, &wanted);
                assert_eq!(found, usize::from(is_wanted), "{place:?} {lower:?} {upper:?}: {other:?} {key:?}");
            }
            assert!(!ranges.iter().flatten().any(|range| is_in(&RECORD, range)));
        }
    }
}
