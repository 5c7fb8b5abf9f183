//! The tier: files of blocks and of large values, and the edits that name the blocks.
//!
//! - `edit`: what the manifest says.
//! - `format`, `write`, `read`: a block.
//! - `files`: the directory of a store, and the blocks in it that are in use.
//! - `large`: large values, a file each.
//! - `cold`: reads for an index that grows.
//! - `entries`: the newest versions among those of all blocks.
//! - `unnamed`: blocks that no edit names.
//! - `sound`: the records of a damaged file; `salvage`: what is left of a damaged store.

pub(crate) mod cold;
pub(crate) mod edit;
pub(crate) mod entries;
pub(crate) mod files;
pub(crate) mod format;
pub(crate) mod large;
pub(crate) mod read;
pub(crate) mod salvage;
mod sound;
pub(crate) mod unnamed;
pub(crate) mod write;

/// The name of this engine in a store's identity.
pub const NAME: &str = "tiered";
