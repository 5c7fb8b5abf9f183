//! What all parts of a memory node stand on: the pool, and the log area beside it.

use super::area::Area;
use super::data::Data;
use std::sync::Arc;

/// The two files of a memory node, open. Nothing stands below.
pub(crate) struct Base {
    /// The pool, and the store in it.
    pub(crate) data: Data,
    pub(crate) area: Arc<Area>,
}
