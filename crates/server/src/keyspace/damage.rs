//! Scans and ranges that go on past damaged records.

use std::ops::ControlFlow;

use terrace::{Cursor, RangeCursor, ReadError};

use super::{RangeCallback, Shown};
use crate::state::failure::Failure;

/// Continues a scan after damaged records, so that the client sees all others. The log and the
/// statistics count the skipped records. A damaged index, which may hide any others, is an error.
pub(super) fn past_damage(scanned: Result<Cursor, ReadError>) -> Result<Cursor, Failure> {
    match scanned {
        Err(ref error @ ReadError::Skipped { records: 1.., ref next, .. }) => {
            log::warn!("a scan continued after damaged records: {error}");
            Ok(next.clone())
        }
        scanned => Ok(scanned?),
    }
}

/// Reads from a range on past damaged records, as [`past_damage`] does.
pub(super) fn read_range(
    mut range: Box<dyn RangeCursor + '_>,
    at_most: usize,
    shown: Shown,
    each: &mut RangeCallback<'_>,
) -> Result<bool, Failure> {
    if shown == Shown::Keys {
        range.without_values();
    }
    let (mut left, mut flow) = (at_most, ControlFlow::Continue(()));
    loop {
        let visited = range.visit(left, &mut |key, entry| {
            left -= 1;
            flow = each(key, entry.into());
            flow
        });
        match visited {
            Err(ref error @ ReadError::Skipped { records: 1.., ref next, .. }) => {
                log::warn!("a range continued after damaged records: {error}");
                if next.is_end() {
                    return Ok(false);
                }
            }
            Ok(true) => {}
            visited => return Ok(visited?),
        }
        if left == 0 || flow.is_break() {
            return Ok(true);
        }
    }
}
