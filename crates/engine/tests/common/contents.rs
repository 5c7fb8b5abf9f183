//! What is in a store.

use std::collections::BTreeMap;
use terrace_engine::{Cursor, Engine, ReadError};

/// Entries by their keys: values, and when they expire.
pub(crate) type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// All entries of a store.
pub(crate) fn contents(store: &impl Engine) -> Result<Model, ReadError> {
    let (mut found, mut cursor) = (Model::new(), Cursor::START);
    while !cursor.is_end() {
        cursor = store.scan(&cursor, 50, &mut |key, entry| {
            found.insert(key.to_vec(), (entry.value.to_vec(), entry.expires_at));
        })?;
    }
    Ok(found)
}
