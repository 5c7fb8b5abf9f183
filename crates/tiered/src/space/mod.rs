//! DRAM: what a record is, where records lie, how an index compares them, and the locks of keys.
//!
//! - `record`: a version of a key, in DRAM and on the tier alike.
//! - `key`: what an index looks for.
//! - `addresses`: where the record of an address lies in DRAM, and how it is read and stored there.
//! - `shares`, `numbers`, `pages`: how DRAM is divided, numbers of blocks, and their pages.
//! - `open_blocks`, `copies`: blocks that writes fill, and those of copies of cold records.
//! - `stripes`: the locks of keys.
//! - `probe`: how an index compares records that are not in DRAM.
//! - `memory`: the index and all of these together.

pub(crate) mod addresses;
pub(crate) mod copies;
pub(crate) mod key;
pub(crate) mod memory;
mod numbers;
pub(crate) mod open_blocks;
pub(crate) mod pages;
pub(crate) mod probe;
pub(crate) mod record;
pub(crate) mod shares;
pub(crate) mod stripes;
