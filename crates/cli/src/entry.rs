//! What an iteration visits, and what it finds: of a pool and of a server alike.

use std::ops::Bound;

use terrace::Direction;

/// Selects the entries of an iteration, and what is read of them.
pub(crate) struct Wanted<'a> {
    /// The keys to visit.
    pub(crate) range: Range,
    /// Whether to include a key.
    pub(crate) key: &'a dyn Fn(&[u8]) -> bool,
    /// Whether to read values and expiry times as well.
    pub(crate) values: bool,
}

/// The keys that an iteration visits. If it need not be in order, a store without order visits all
/// its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    /// The lowest key.
    pub(crate) from: Vec<u8>,
    /// The key before which the range ends.
    pub(crate) to: Option<Vec<u8>>,
    /// What all keys of the range begin with.
    pub(crate) prefix: Vec<u8>,
    /// The direction, if the keys must be visited in order, and no others.
    pub(crate) order: Option<Direction>,
}

impl Range {
    /// The ends of the range.
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(&self.from), self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
    }
}

/// A key's value, and its expiry in Unix milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found<'a> {
    pub(crate) value: &'a [u8],
    pub(crate) expires_at: Option<u64>,
}
