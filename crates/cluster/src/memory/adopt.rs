//! Whether a cluster finds all keys of a pool that is to be adopted: those of database 0.

use super::error::MemoryError;
use std::path::Path;
use terrace::{Store, WriteError};
use terrace_server::databases;

/// Refuses a pool with keys that a cluster would not find. The pool stays as it is.
///
/// # Errors
/// If there are such keys, or the pool cannot be read.
pub fn check_adoption(pool: &Path) -> Result<(), MemoryError> {
    if !pool.exists() {
        return Ok(());
    }
    let failed = |what: String| MemoryError::Pool { pool: pool.into(), what };
    let store = Store::options().path(pool).read_only(true).open();
    let store = store.map_err(|error| failed(error.to_string()))?;
    match databases::beside_first(&store).map_err(failed)? {
        others if others.is_empty() => Ok(()),
        others => Err(MemoryError::Databases { pool: pool.into(), others: listed(&others) }),
    }
}

/// Removes what a single server notes of its databases. The pool has keys of database 0 alone.
pub(super) fn adopt(store: &Store, pool: &Path) -> Result<(), MemoryError> {
    let failed = |error: WriteError| MemoryError::Pool { pool: pool.into(), what: error.to_string() };
    databases::forget(store).map_err(failed)
}

/// Databases with their numbers of keys, as a text.
fn listed(others: &[(u8, u64)]) -> String {
    let listed = others.iter().map(|(database, keys)| {
        format!("{keys} {} in database {database}", if *keys == 1 { "key" } else { "keys" })
    });
    listed.collect::<Vec<_>>().join(", ")
}
