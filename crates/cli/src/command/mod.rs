//! The commands, each with its options. A file of them has what [`crate::args`] lists as one or
//! more commands.

pub(crate) mod bench;
pub(crate) mod check;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub(crate) mod copies;
pub(crate) mod dump;
pub(crate) mod keys;
pub(crate) mod load;
#[cfg(feature = "cluster")]
pub(crate) mod node;
pub(crate) mod report;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod stats;
