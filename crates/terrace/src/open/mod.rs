//! Opening: engines on files (`directory.rs`), and salvages.

pub(crate) mod directory;
pub(crate) mod salvage;
