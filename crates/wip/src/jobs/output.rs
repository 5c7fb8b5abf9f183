//! Tables that jobs write: how they come into use, and how they go if they do not.

use crate::state::store::Store;
use crate::state::table::{self, Table};
use std::sync::Arc;
use terrace_disk::DiskError;
use terrace_engine::WriteError;

/// A table and the bucket that it comes to.
pub(crate) type Placed = (u64, Arc<Table>);

/// A table that was written.
pub(crate) struct Written {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) bucket: u64,
}

/// Opens tables that were written, once their names are durable.
pub(crate) fn open_tables(store: &Store, written: &[Written]) -> Result<Vec<Placed>, WriteError> {
    if written.is_empty() {
        return Ok(Vec::new());
    }
    store.files.sync_directory(store.path()).map_err(DiskError::room("sync", store.path()))?;
    let open = |written: &Written| {
        let table =
            Table::open(&store.files, store.path(), store.id(), written.number, written.bytes, &store.cache)?;
        Ok((written.bucket, Arc::new(table)))
    };
    written.iter().map(open).collect()
}

/// Removes a table that did not come into use. After a failed edit the manifest may name it,
/// and the store takes no more writes: then the next open decides.
pub(crate) fn discard(store: &Store, number: u64) {
    if !store.standing.is_stopped() {
        let _ = store.files.remove(&table::path_of(store.path(), number));
    }
}
