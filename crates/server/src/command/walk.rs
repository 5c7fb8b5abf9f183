//! Steps of a walk over all keys, or over those with a prefix.

use std::ops::Bound;

use terrace::{Cursor, Direction, Store, prefix_range};

use super::Failure;
use crate::keyspace::{Keyspace, Shown};

/// Visits about `at_least` keys or more from `cursor` on, and returns the next cursor. Of an
/// ordered store only the keys that begin with `prefix`, in order.
pub(super) fn step(
    keys: &mut dyn Keyspace,
    store: &Store,
    cursor: &Cursor,
    prefix: &[u8],
    at_least: usize,
    each: &mut dyn FnMut(&[u8]),
) -> Result<Cursor, Failure> {
    if !store.is_ordered() {
        return keys.scan(cursor, at_least, each);
    }
    let (first, end) = prefix_range(prefix);
    let from = match cursor.key() {
        Some(key) if key >= prefix => Bound::Excluded(key),
        _ => first.as_ref().map(|key| &**key),
    };
    let mut last = Vec::new();
    let bounds = (from, end.as_ref().map(|key| &**key));
    let more = keys.range(bounds, Direction::Forward, at_least, Shown::Keys, &mut |key, _| {
        each(key);
        last.clear();
        last.extend_from_slice(key);
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(if more { Cursor::after(&last) } else { Cursor::END })
}
