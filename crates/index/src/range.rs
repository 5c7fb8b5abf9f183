//! What an index whose keys have an order can do besides.

use crate::{Key, PointIndex};
use std::ops::{Bound, ControlFlow};
use terrace_pool::Guard;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the lowest key to the highest.
    Forward,
    /// From the highest key to the lowest.
    Backward,
}

/// A map from keys to 64-bit words that also visits keys in their order: integers as numbers, byte strings byte by byte, a string before
/// those that it begins.
pub trait RangeIndex: PointIndex {
    /// Visits the words of the keys between `from` and `to` in order, the way that `direction` says, until `each` breaks off. `from` is the lower end whatever
    /// the direction; where it lies above `to`, there is nothing between them.
    ///
    /// A key that is there throughout is visited exactly once; one that comes, goes or changes meanwhile at most once.
    fn range(
        &self,
        guard: &Guard<'_, Self::Medium>,
        from: Bound<&Key<Self>>,
        to: Bound<&Key<Self>>,
        direction: Direction,
        each: impl FnMut(u64) -> ControlFlow<()>,
    );
}
