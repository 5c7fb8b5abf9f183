//! The tier: files of blocks and of large values, and the edits that name the blocks.
//!
//! - `edit`: what the manifest says.
//! - `read`: a block, its format, and how it is written and read.
//! - `cold`: reads for an index that grows.
//! - `large`: large values, a file each.
//! - `entries`: the newest versions among those of all blocks; `unnamed`: blocks that no edit names.
//! - `sound`: the records of a damaged file; `salvage`: what is left of a damaged store.

pub(crate) mod cold;
pub(crate) mod edit;
pub(crate) mod entries;
pub(crate) mod files;
pub(crate) mod large;
pub(crate) mod read;
pub(crate) mod salvage;
pub(crate) mod sound;
pub(crate) mod unnamed;

/// The name of this engine in a store's identity.
pub const NAME: &str = "tiered";
