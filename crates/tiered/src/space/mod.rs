//! DRAM: what a record is, where records lie, how an index compares them, and who may change them.
//!
//! - `record`: a version of a key, in DRAM and on the tier alike.
//! - `open_blocks`: addresses, and the pages that writes fill.
//! - `probe`: how an index compares records that are not in DRAM.
//! - `stripes`: the locks of keys.

pub(crate) mod open_blocks;
pub(crate) mod probe;
pub(crate) mod record;
pub(crate) mod stripes;
