//! A change of one key that has a result.

use terrace::Change;

use super::{Found, Keyspace};
use crate::state::failure::{Failure, Outcome};

/// Changes a key's entry. `change` may run more than once; its last result is returned.
pub fn modify<R>(
    keys: &mut dyn Keyspace,
    key: &[u8],
    mut change: impl FnMut(Option<Found<'_>>) -> (Change, R),
) -> Result<R, Failure> {
    let mut last = None;
    keys.modify(key, &mut |found| {
        let (change, result) = change(found);
        last = Some(result);
        change
    })?;
    last.ok_or(Failure::Text("ERR internal error: the store did not complete a change"))
}

/// Runs `change` for a key that is too long to exist: only an attempt to write it fails.
pub(super) fn modify_absent(
    failure: Failure,
    change: &mut dyn FnMut(Option<Found<'_>>) -> Change,
) -> Outcome {
    match change(None) {
        Change::Put { .. } => Err(failure),
        Change::Keep | Change::Remove | Change::Expire(_) => Ok(()),
    }
}
