//! The record of the databases, as a keyspace shows it.

use terrace::Change;

use super::{Keyspace, modify};
use crate::state::{
    databases::{Map, RECORD_KEY, swapped},
    failure::Failure,
};

/// Exchanges the places of two databases in the record. Returns the new map.
pub(crate) fn swap(keys: &mut dyn Keyspace, one: u8, other: u8) -> Result<Map, Failure> {
    modify(keys, RECORD_KEY, |found| {
        let (value, map) = swapped(found.map(|found| found.value), one, other);
        (Change::Put { value, expires_at: None }, map)
    })
}

/// Whether a store has the record: then not every key in it is one of database 0.
pub(super) fn has_record(keys: &mut dyn Keyspace) -> Result<bool, Failure> {
    let mut found = false;
    keys.read(RECORD_KEY, &mut |entry| found = entry.is_some())?;
    Ok(found)
}
