//! Reads: `get`, `absence`, `scan`, `range`, `snapshot`.

pub(crate) mod absence;
pub(crate) mod get;
pub(crate) mod range;
pub(crate) mod scan;
pub(crate) mod snapshot;
