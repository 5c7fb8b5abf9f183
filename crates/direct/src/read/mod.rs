//! Reads: what the index's words mean for a reader.
//!
//! In reading order: `get` (single keys), `recording` (the use that a read records), `absence`
//! (whether a key that is absent has been so all along), `snapshot` (several keys at one instant),
//! `scan` and `range`.

pub(crate) mod absence;
pub(crate) mod get;
pub(crate) mod range;
pub(crate) mod recording;
pub(crate) mod scan;
pub(crate) mod snapshot;
