//! The additional operations of an index whose keys are ordered.

use crate::{Key, KeyKind, PointIndex};
use std::ops::{Bound, ControlFlow};
use terrace_pool::Guard;

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the lowest key to the highest.
    Forward,
    /// From the highest key to the lowest.
    Backward,
}

/// A map from keys to 64-bit words that also visits keys in order: integers as numbers, byte
/// strings byte by byte, a string before the strings that it is a prefix of.
pub trait RangeIndex: PointIndex {
    /// Visits the words of the keys between `from` and `to`, in `direction`, until `each` breaks.
    /// `from` is the lower end in either direction; if it is above `to`, nothing is visited. `each`
    /// gets what the kind of keys [tells](KeyKind::Told) of a key without its record, and its word.
    ///
    /// The caller expects about `expected` keys. The index fetches no memory for more ahead.
    ///
    /// A key that is present throughout is visited exactly once; one that is added, removed or
    /// changed meanwhile at most once.
    fn range(
        &self,
        guard: &Guard<'_, Self::Medium>,
        from: Bound<&Key<Self>>,
        to: Bound<&Key<Self>>,
        direction: Direction,
        expected: usize,
        each: impl FnMut(<Self::Kind as KeyKind>::Told, u64) -> ControlFlow<()>,
    );
}
