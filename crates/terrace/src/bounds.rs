//! Ranges of keys as callers write them.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: any range of [`std::ops`], or a pair of [`Bound`]s, over strings or bytes. A
/// range that ends before it starts is empty.
///
/// ```
/// use std::ops::Bound;
/// use terrace::KeyRange;
///
/// assert!(("a".."c").contains_key(b"b\xff"));
/// assert!(("a"..="c").contains_key(b"c") && !("a"..="c").contains_key(b"c\0"));
/// assert!((vec![7]..).contains_key(&[7, 0]) && (..).contains_key(b""));
/// assert!(!(Bound::Excluded("a"), Bound::Unbounded).contains_key(b"a"));
/// ```
pub trait KeyRange {
    /// Both ends, the lower one first.
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>);

    /// Whether the range contains `key`.
    fn contains_key(&self, key: &[u8]) -> bool {
        self.bounds().contains(key)
    }
}

/// The ends of a range, in bytes.
fn ends<'a, K: AsRef<[u8]> + 'a>(range: &'a impl RangeBounds<K>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (range.start_bound().map(AsRef::as_ref), range.end_bound().map(AsRef::as_ref))
}

impl KeyRange for RangeFull {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for Range<K> {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        ends(self)
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeFrom<K> {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        ends(self)
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeInclusive<K> {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        ends(self)
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeTo<K> {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        ends(self)
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeToInclusive<K> {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        ends(self)
    }
}

impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        ends(self)
    }
}

/// A range that owns its ends.
pub type OwnedRange = (Bound<Box<[u8]>>, Bound<Box<[u8]>>);

/// The range with copies of its ends.
pub(crate) fn owned((from, to): (Bound<&[u8]>, Bound<&[u8]>)) -> OwnedRange {
    (from.map(Box::from), to.map(Box::from))
}

/// The range of all keys that begin with `prefix`.
///
/// ```
/// use terrace::{KeyRange, prefix_range};
///
/// let users = prefix_range("user:");
/// assert!(users.contains_key(b"user:7") && !users.contains_key(b"user"));
/// ```
pub fn prefix_range(prefix: impl AsRef<[u8]>) -> OwnedRange {
    let prefix = prefix.as_ref();
    // The first key behind them: the last byte that can be one larger is, and ends the key.
    let end = prefix.iter().rposition(|&byte| byte != u8::MAX).map(|last| {
        let mut end = Box::<[u8]>::from(&prefix[..=last]);
        end[last] += 1;
        end
    });
    (Bound::Included(prefix.into()), end.map_or(Bound::Unbounded, Bound::Excluded))
}

/// Whether no key can be in a range.
pub(crate) fn is_empty((from, to): (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_range_has_exactly_the_keys_that_begin_with_it() {
        let prefixes = [&b""[..], b"a", b"ab", b"a\xff", b"\xff", b"\xff\xff", b"a\0", b"\xfe\xff\xff"];
        let keys = [&b""[..], b"a", b"ab", b"ab\0", b"ac", b"a\xff", b"a\xff\xff", b"b", b"\xfe", b"\xff\0"];
        for prefix in prefixes {
            for key in keys.into_iter().chain(prefixes) {
                assert_eq!(
                    prefix_range(prefix).contains_key(key),
                    key.starts_with(prefix),
                    "{prefix:?} {key:?}"
                );
            }
        }
    }

    #[test]
    fn empty_ranges_are_those_that_contain_no_key() {
        let ends =
            || [Bound::Unbounded, Bound::Included(&b"a"[..]), Bound::Excluded(b"a"), Bound::Included(b"b")];
        let keys = [&b""[..], b"a", b"a\0", b"b", b"b\0"];
        for range in ends().into_iter().flat_map(|from| ends().map(|to| (from, to))) {
            assert_eq!(is_empty(range), !keys.iter().any(|key| range.contains_key(key)), "{range:?}");
        }
    }
}
